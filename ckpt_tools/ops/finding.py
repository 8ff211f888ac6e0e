"""Where a checkpoint is now that a path once led to: beside the file that keeps the path, or where somebody said."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ckpt_tools.core.location import V1_SHARD
from ckpt_tools.errors import MissingInput, UsageError
from ckpt_tools.ops.repairs import State

IsThere = Callable[[Path], bool]

_SEPARATOR = re.compile(r"[\\/]+")
_DRIVE = re.compile(r"[A-Za-z]:")


class Found(NamedTuple):
    """The outcome for one path: ``target`` is absolute, None when it is missing or ambiguous."""

    state: State
    target: Path | None
    reason: str = ""


@dataclass(frozen=True)
class Move:
    """``--move OLD=NEW``: what lay below ``old`` lies below ``new``."""

    old: str
    new: str

    @classmethod
    def parse(cls, text: str) -> Move:
        """UsageError when there is no ``=`` in it. Paths may contain one: ``=/`` then separates."""
        at = text.find("=/") if text.count("=/") == 1 else text.find("=")
        if at <= 0 or at == len(text) - 1:
            raise UsageError(f"--move takes OLD=NEW, not {text!r}")
        return cls(text[:at], text[at + 1 :])

    def __call__(self, path: str) -> Path | None:
        for parts, below in zip(_spellings(path), _spellings(self.old)):
            if parts[: len(below)] == below and len(parts) > len(below):
                return Path(self.new, *parts[len(below) :])
        return None


class Finder:
    """Finds what paths meant. ``search`` are directories that are looked through once, when first needed."""

    def __init__(self, moves: Sequence[Move] = (), search: Sequence[Path] = ()) -> None:
        self._moves = moves
        self._search = search
        for directory in search:
            if not directory.is_dir():
                raise MissingInput("no such directory to search in", where=str(directory))

    def find(self, path: str, now: Path | None, beside: Sequence[Path], is_there: IsThere) -> Found:
        """What ``path`` means to a file in ``beside`` (real directories, the nearest first).

        ``now`` is where it leads at present (None: nowhere on this system); ``is_there`` knows whether a checkpoint is
        at a place.
        """
        where = now if now is not None and _answers(is_there, now) else None
        if where is not None and _real(where.parent) in beside:
            return Found(State.OK, where)
        here = next((p for directory in beside for p in _tails(directory, path) if _answers(is_there, p)), None)
        if where is not None:
            if _inside(where, beside) or (here is not None and os.path.realpath(where) == os.path.realpath(here)):
                return Found(State.OK, where)
            if here is None:
                return Found(State.OK, where, "outside this directory")
            return Found(State.ELSEWHERE, here, "exists outside this directory and in it")
        if here is not None:
            return Found(State.MOVED, here)
        for move in self._moves:
            moved = move(path)
            if moved is not None and _answers(is_there, moved):
                return Found(State.MOVED, moved.resolve())
        return self._searched(path, is_there)

    def _searched(self, path: str, is_there: IsThere) -> Found:
        """The one of the searched files whose path ends most like ``path``."""
        wanted = _spellings(path)[-1] if self._search else []
        best: list[Path] = []
        longest = 0
        for directory in self._directories_with.get(wanted[-1], ()) if wanted else ():
            candidate = directory / wanted[-1]
            common = _common_end(candidate.parts, wanted)
            if common < longest or not _answers(is_there, candidate):
                continue
            best = [*best, candidate] if common == longest else [candidate]
            longest = common
        if len(best) > 1:
            shown = " or ".join(map(str, best[:3])) + (" or …" if len(best) > 3 else "")
            return Found(State.AMBIGUOUS, None, f"could be {shown}")
        return Found(State.MOVED, best[0]) if best else Found(State.MISSING, None)

    @cached_property
    def _directories_with(self) -> dict[str, list[Path]]:
        """For each name, of a file or of a TensorFlow prefix, the searched directories that have it."""
        found: dict[str, dict[Path, None]] = {}
        for top in self._search:
            for directory, below, names in os.walk(top.resolve()):
                below.sort()
                for name in names:
                    shard = V1_SHARD.fullmatch(name)
                    for known in {name, name.removesuffix(".index"), shard["prefix"] if shard else name}:
                        found.setdefault(known, {})[Path(directory)] = None
        return {name: list(directories) for name, directories in found.items()}


def places_beside(path: Path) -> list[Path]:
    """The real directories that a file is in: that of what it is a link to, then that of the link."""
    return list(dict.fromkeys([Path(os.path.realpath(path)).parent, _real(path.parent)]))


def _answers(is_there: IsThere, path: Path) -> bool:
    try:
        return is_there(path)
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False


def _real(directory: Path) -> Path:
    return Path(os.path.realpath(directory))


def _inside(path: Path, directories: Sequence[Path]) -> bool:
    real = _real(path)
    return any(directory in real.parents for directory in directories)


def _spellings(path: str) -> list[list[str]]:
    """The parts of a path, as this system and, where a backslash is in it, as Windows understands it."""
    spellings = [[part for part in path.split("/") if part]]
    if "\\" in path:
        spellings.append([part for part in _SEPARATOR.split(path) if part])
    return spellings


def _tails(directory: Path, path: str) -> Iterator[Path]:
    """The ends of ``path`` below ``directory``, the longest first."""
    for parts in _spellings(path):
        for start in range(len(parts)):
            tail = parts[start:]
            if ".." not in tail and not _DRIVE.fullmatch(tail[0]):
                yield directory.joinpath(*tail)


def _common_end(ours: Sequence[str], theirs: Sequence[str]) -> int:
    count = 0
    for a, b in zip(reversed(ours), reversed(theirs)):
        if a != b:
            break
        count += 1
    return count
