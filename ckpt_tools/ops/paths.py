"""Everything below some paths that keeps paths to checkpoints, and what each of it needs.

Four kinds: PaddleSpeech's ``records.jsonl``, TensorFlow's ``checkpoint``, PaddleSpeech ASR's ``checkpoint_latest`` and
``checkpoint_best``, and dangling absolute links. Nothing is written here: see :meth:`~ckpt_tools.ops.repairs.Repair.apply`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ckpt_tools.core.location import HEAD_NBYTES
from ckpt_tools.core.sink import LEFT_BESIDE
from ckpt_tools.core.source import Source
from ckpt_tools.errors import CkptError, MissingInput, UnknownFormat, UnreadableInput
from ckpt_tools.formats import _tf_state
from ckpt_tools.ops import asr_indexes, records, tf_states
from ckpt_tools.ops.finding import Finder
from ckpt_tools.ops.repairs import Entry, Policy, Repair

#: A file younger than this is perhaps being written.
_QUIET_SECONDS = 60
#: TensorFlow's state file; ``latest_filename`` can give it another name, which begins so by custom.
_STATE_NAME = "checkpoint"


def survey(paths: Sequence[Path], finder: Finder, policy: Policy, *, rebuild: bool = False) -> Iterator[Repair]:
    """What each file below ``paths`` needs, one after the other; what cannot be read comes with its error.

    ``rebuild``: records are made anew from the snapshots beside them.
    """
    seen: set[str] = set()
    for path in paths:
        look = _walk if path.is_dir() else _named
        found = look(path, finder, policy, rebuild=rebuild)
        for repair in found:
            identity = os.path.join(os.path.realpath(repair.path.parent), repair.path.name)
            if identity not in seen:
                seen.add(identity)
                yield repair


def _named(path: Path, finder: Finder, policy: Policy, *, rebuild: bool) -> Iterator[Repair]:
    """A file that somebody named: its content decides what it is, and its name where there is none."""
    if rebuild:
        made = records.rebuild(path.parent) if path.name == records.NAME else None
        if made is None:
            raise MissingInput("no snapshots to make records from", where=str(path.parent))
        yield made
        return
    if path.is_symlink() and not path.exists():
        yield _link(path, path.parent, finder, policy)
        return
    with Source(path) as source:
        head = source.peek(0, HEAD_NBYTES)
    kind = _kind(path.name, head)
    if kind is None:
        raise UnknownFormat(
            "keeps no paths that could be repaired: neither records.jsonl nor a state file of TensorFlow",
            where=str(path),
        )
    yield _examined(path, kind, finder, policy)


def _walk(top: Path, finder: Finder, policy: Policy, *, rebuild: bool) -> Iterator[Repair]:
    """What is in a directory and below it. Hidden directories and links to directories are not entered."""
    pending = [top]
    while pending:
        here = pending.pop()
        try:
            with os.scandir(here) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError as error:
            yield Repair(here, "directory", error=UnreadableInput(f"cannot be read: {error.strerror}", where=str(here)))
            continue
        made = records.rebuild(here) if rebuild and any(e.name.endswith(".pdz") for e in entries) else None
        if made is not None:
            yield made
        below = []
        for entry in entries:
            if LEFT_BESIDE.fullmatch(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith("."):
                    below.append(here / entry.name)
            elif _leads_nowhere(entry):
                if (here / entry.name).readlink().is_absolute():
                    yield _link(here / entry.name, top, finder, policy)
            elif entry.name == records.NAME:
                if made is None:
                    yield _examined(here / entry.name, "records", finder, policy)
            elif entry.name.startswith(_STATE_NAME) and entry.is_file():
                yield from _state_file(here / entry.name, finder, policy)
        pending += reversed(below)


def _leads_nowhere(entry: os.DirEntry[str]) -> bool:
    try:
        entry.stat()
    except FileNotFoundError:
        return entry.is_symlink()
    except OSError:
        return False
    return False


def _state_file(path: Path, finder: Finder, policy: Policy) -> Iterator[Repair]:
    try:
        with Source(path) as source:
            kind = _kind(path.name, source.peek(0, HEAD_NBYTES))
    except CkptError as error:
        yield Repair(path, "tf-state", error=error)
        return
    if kind is not None:
        yield _examined(path, kind, finder, policy)


def _kind(name: str, head: bytes) -> str | None:
    if _tf_state.looks_like(head):
        return "tf-state"
    if name in asr_indexes.NAMES:
        return "paddlespeech-asr"
    if name == records.NAME or (name.endswith(".jsonl") and b'"path"' in head):
        return "records"
    return None


def _examined(path: Path, kind: str, finder: Finder, policy: Policy) -> Repair:
    try:
        if kind == "records":
            return records.examine(path, finder, policy)
        if kind == "tf-state":
            return tf_states.examine(path, finder, policy)
        return asr_indexes.examine(path, policy)
    except CkptError as error:
        error.where = error.where or str(path)
        return Repair(path, kind, error=error)


def _link(path: Path, top: Path, finder: Finder, policy: Policy) -> Repair:
    """A link that leads nowhere: found below its own directory, or one above it up to ``top``."""
    repair = Repair(path, "link", seen=path.lstat())
    target = os.fspath(path.readlink())
    here, highest = Path(os.path.realpath(path.parent)), Path(os.path.realpath(top))
    beside = [here, *(p for p in here.parents if p == highest or highest in p.parents)]
    found = finder.find(target, None, beside, os.path.exists)
    new = None
    if found.target is not None:
        new = str(found.target) if policy.absolute else os.path.relpath(found.target, here)
        repair.content = os.fsencode(new)
    repair.entries = [Entry(1, found.state, target, new, found.reason)]
    return repair


def in_use(path: Path) -> bool:
    """Whether the directory of a file looks as if a training was writing there: files younger than a minute."""
    youngest = time.time() - _QUIET_SECONDS
    with os.scandir(path.parent) as entries:
        return any(
            entry.stat().st_mtime > youngest
            for entry in entries
            if not LEFT_BESIDE.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        )
