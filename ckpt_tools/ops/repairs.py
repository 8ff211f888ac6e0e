"""What is wrong with the paths that a file keeps, as values, and the one way they are written back."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from ckpt_tools.core import sink
from ckpt_tools.core.limits import MIB
from ckpt_tools.core.source import Source
from ckpt_tools.errors import CkptError, LimitExceeded

#: Files that keep paths are lists of names; the largest honest ones have a few thousand lines.
_LONGEST_NBYTES = 64 * MIB


class State(str, Enum):
    """What one path is."""

    OK = "ok"
    #: it is no longer where it was, and was found
    MOVED = "moved"
    #: it exists, but outside this directory, which has one of the same name: a copy that points to the original
    ELSEWHERE = "elsewhere"
    MISSING = "missing"
    #: several files could be meant
    AMBIGUOUS = "ambiguous"
    #: another line of the same file means the same checkpoint
    DUPLICATE = "duplicate"
    #: the name, the recorded iteration and the one inside the checkpoint disagree
    MISMATCH = "mismatch"
    #: a line that its reader would fail on
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Entry:
    """One path of a file. ``new`` is what it becomes, ``old`` again when it is right; None when nothing was found.

    ``dropped``: it is taken out. ``reason`` says in a few words why the state is what it is.
    """

    line: int
    state: State
    old: str
    new: str | None
    reason: str = ""
    dropped: bool = False

    def to_json(self) -> dict[str, Any]:
        return {"line": self.line, "state": self.state.value, "old": self.old, "new": self.new}


@dataclass(frozen=True)
class Policy:
    """What a repair may take out, and how it writes paths where the file allows both."""

    drop_missing: bool = False
    drop_damaged: bool = False
    absolute: bool = False


@dataclass
class Repair:
    """What one file needs. ``content`` is what it becomes (of a link: where it leads), None when it stays as it is."""

    path: Path
    kind: str
    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    content: bytes | None = None
    #: why the file cannot be repaired
    error: CkptError | None = None
    changed: bool = False
    backup: Path | None = None
    seen: os.stat_result | None = None

    @property
    def needed(self) -> bool:
        """Whether anything is not as it should be."""
        return self.content is not None or self.error is not None or any(e.state is not State.OK for e in self.entries)

    @property
    def incomplete(self) -> bool:
        """Whether a path stays that leads nowhere, or nobody knows where."""
        lost = (State.MISSING, State.AMBIGUOUS)
        return any(e.state in lost and e.new is None and not e.dropped for e in self.entries)

    def apply(self, *, keep_backup: bool) -> None:
        """Write what was found. WriteRefused when that cannot be, or the file changed since it was read."""
        if self.content is None:
            return
        if self.kind == "link":
            assert self.seen is not None
            target = os.fsdecode(self.content)
            self.backup = sink.relink(self.path, target, replaces=self.seen, keep_backup=keep_backup)
        else:
            with sink.replacing(self.path, self.seen, keep_backup=keep_backup, nbytes=len(self.content)) as (
                out,
                self.backup,
            ):
                out.write(self.content)
        self.changed = True

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "kind": self.kind,
            "entries": [entry.to_json() for entry in self.entries],
            "changed": self.changed,
            "backup": str(self.backup) if self.backup else None,
        }


def command(path: Path, option: str) -> str:
    """A command line that repairs ``path`` with an option, to be pasted."""
    return f"ckpt fix-paths {shlex.quote(str(path))} {option}"


def read_for_repair(path: Path) -> tuple[bytes, os.stat_result]:
    """The content of a small file, and the status it had before. LimitExceeded when it is none."""
    status = path.stat()
    with Source(path) as source:
        if source.nbytes > _LONGEST_NBYTES:
            raise LimitExceeded(f"has {source.nbytes} bytes, a list of paths was expected", where=str(path))
        return source.read(0, source.nbytes), status
