"""Checkpoints that consist of whole files of other formats: each part is opened through the table of formats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ckpt_tools import formats
from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import at
from ckpt_tools.core.source import Source
from ckpt_tools.errors import CorruptFile, UnreadableInput


class Parts:
    """The parts of a set in the directory ``directory``. What is wrong with a part is an issue, not the end."""

    def __init__(self, directory: Path, limits: Limits) -> None:
        self._directory = directory
        self._limits = limits
        self.opened: dict[str, Checkpoint] = {}
        self.lacking: dict[str, str] = {}
        self.issues: list[Issue] = []

    def open(self, name: str) -> Checkpoint | None:
        """The part in the file ``name``; None when it cannot be read: :attr:`lacking` then says why."""
        try:
            part = self._read(name)
        except UnreadableInput as error:
            missing = not (self._directory / name).is_file()
            self.lacking[name] = f"{name} is missing" if missing else f"{name} cannot be read: {error.message}"
            code = "integrity-missing-shard" if missing else "integrity-damaged-shard"
            self.issues.append(Issue(code, Severity.ERROR, name, self.lacking[name], error.hint))
            return None
        self.opened[name] = part
        self.issues += [replace(issue, where=f"{name}: {issue.where}") for issue in part.issues]
        return part

    def _read(self, name: str) -> Checkpoint:
        location = at(self._directory / name)
        row = formats.detect(location)
        if row.of_parts or location.is_directory:
            raise CorruptFile("it is a set of files itself")
        return formats.open_location(location, row, self._limits)

    @property
    def format(self) -> str:
        """The format of the parts. CorruptFile when none could be opened or they differ."""
        found = sorted({part.format for part in self.opened.values()})
        if not found:
            raise CorruptFile(f"none of the parts can be read: {'; '.join(self.lacking.values())[:1000]}")
        if len(found) > 1:
            raise CorruptFile(f"its parts are of different formats: {', '.join(found)}")
        return found[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the parts that could be opened."""
        return sum(part.nbytes for part in self.opened.values())

    @property
    def producer(self) -> str:
        """What the parts tell of their writer."""
        return "; ".join(dict.fromkeys(part.producer for part in self.opened.values()))

    @property
    def sources(self) -> list[Source]:
        """The files that stay open while tensors are read."""
        return [source for part in self.opened.values() for source in part.sources]

    def close(self) -> None:
        """Close every part."""
        for part in self.opened.values():
            part.close()
