"""Unpacked bytes that must be read out of order, kept in a file without a name: it is gone with the process."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ckpt_tools.core.extents import Extent
from ckpt_tools.core.source import Source
from ckpt_tools.errors import LimitExceeded, UnreadableInput

#: Unpacked bytes taken at a time.
_STEP = 1024 * 1024


class SpooledSource(Source):
    """What a stream gives, on disk. LimitExceeded when it gives more than ``limit`` bytes; ``path`` is for people."""

    def __init__(self, pieces: Iterable[bytes], path: str | os.PathLike[str], limit: int) -> None:
        self.path = Path(path)
        self.nbytes_read = 0
        self.nbytes = 0
        self._fd = -1
        try:
            with tempfile.TemporaryFile() as file:
                for piece in pieces:
                    self.nbytes += len(piece)
                    if self.nbytes > limit:
                        raise LimitExceeded(
                            f"unpacks to more than {limit} bytes, far more than checkpoints of its size do",
                            hint="if you trust it, unpack it yourself and give the result",
                        )
                    file.write(piece)
                file.flush()
                self._fd = os.dup(file.fileno())
        except OSError as error:
            raise UnreadableInput(
                f"cannot be unpacked into {tempfile.gettempdir()}: {error.strerror}",
                where=str(path),
                hint="set TMPDIR to a directory with more room",
            ) from None


class SpooledExtent(Extent):
    """A sequential run that is read out of order: unpacked once, when it is first read."""

    __slots__ = ("_packed", "_source", "nbytes")

    def __init__(self, packed: Extent) -> None:
        self._packed = packed
        self._source: Source | None = None
        self.nbytes = packed.nbytes

    def read(self, offset: int, length: int) -> bytes:
        self._has(offset, length)
        if self._source is None:
            self._source = SpooledSource(self._packed.chunks(0, self.nbytes, _STEP), "packed data", self.nbytes)
        return self._source.read(offset, length)
