"""Bounded random reads over a file.

Reads go through ``pread``, never through a memory map: a file that shrinks while it is read is an error here and
would be a SIGBUS there, and mapped pages count as memory of this process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from ckpt_tools.errors import MissingInput, TruncatedFile, UnreadableInput


class Source:
    """A regular file opened for reading. ``read`` returns exactly what was asked for, or raises."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.nbytes_read = 0
        self._fd = -1
        try:
            self._fd = os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
            status = os.fstat(self._fd)
        except FileNotFoundError:
            raise MissingInput("no such file", where=str(path)) from None
        except OSError as error:
            raise UnreadableInput(f"cannot be opened: {error.strerror}", where=str(path)) from None
        if not stat.S_ISREG(status.st_mode):
            self.close()
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "a device, socket or pipe"
            raise UnreadableInput(f"{kind}, not a regular file", where=str(path))
        self.nbytes = status.st_size

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``. TruncatedFile when the file ends before, or shrank since it was opened."""
        if offset < 0 or length < 0 or offset + length > self.nbytes:
            raise TruncatedFile(
                f"needs {length} bytes at offset {offset}, the file has {self.nbytes}", where=str(self.path)
            )
        data = self._pread(offset, length)
        if len(data) != length:
            raise TruncatedFile(
                f"shrank while it was read: {length} bytes at offset {offset}, {len(data)} left", where=str(self.path)
            )
        return data

    def peek(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``; fewer, or none, at the end of the file."""
        if offset < 0:
            length += offset
            offset = 0
        return self._pread(offset, max(0, min(length, self.nbytes - offset)))

    def _pread(self, offset: int, length: int) -> bytes:
        try:
            data = os.pread(self._fd, length, offset)
            while len(data) < length:  # the kernel stops at 2 GiB, network file systems earlier
                more = os.pread(self._fd, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise UnreadableInput(f"cannot be read: {error.strerror}", where=str(self.path)) from None
        self.nbytes_read += len(data)
        return data

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
            self._fd = -1


@contextmanager
def kept_open(path: str | os.PathLike[str]) -> Iterator[Source]:
    """A source for a structure that goes on reading from it: closed only when the block ends in an exception."""
    source = Source(path)
    try:
        yield source
    except BaseException:
        source.close()
        raise
