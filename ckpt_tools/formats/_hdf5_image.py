"""An HDF5 file as the library makes it before any of its datasets has values: in memory, with holes for these."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import h5py

from ckpt_tools.core.limits import KIB

_PAGE_NBYTES = 4 * KIB
_EMPTY_PAGE = bytes(_PAGE_NBYTES)


class SparseFile(io.RawIOBase):
    """A file in memory of which only those pages exist that were written. The others read as zeros.

    It never refuses anything: the library, which closes a file that it could not write by ending the process, has no
    reason to. What the disk refuses is seen where the finished image is written.
    """

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self._at = 0
        self.nbytes = 0

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.nbytes}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        """Set the length; the library makes files longer, and never shorter than what it wrote."""
        self.nbytes = self._at if size is None else size
        return self.nbytes

    def readinto(self, buffer: Any) -> int:
        buffer[:] = self.extract(self._at, self._at + len(buffer))
        self._at += len(buffer)
        return len(buffer)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        for number, start, end in _pages(self._at, self._at + len(view)):
            page = self._pages.setdefault(number, bytearray(_PAGE_NBYTES))
            page[start:end] = view[done : done + end - start]
            done += end - start
        self._at += len(view)
        self.nbytes = max(self.nbytes, self._at)
        return len(view)

    def extract(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to ``end``."""
        return b"".join(self._pages.get(number, _EMPTY_PAGE)[a:b] for number, a, b in _pages(start, end))


def _pages(start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The pages of a run of bytes, each with where the run begins and ends in it."""
    while start < end:
        number, inside = divmod(start, _PAGE_NBYTES)
        length = min(_PAGE_NBYTES - inside, end - start)
        yield number, inside, inside + length
        start += length


def created(image: SparseFile, *, link_order: int) -> h5py.File:
    """An empty HDF5 file in ``image`` (superblock 0), of which the root group keeps its links in ``link_order``."""
    plist = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    plist.set_link_creation_order(link_order)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_EARLIEST, h5py.h5f.LIBVER_LATEST)
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, image)
    return h5py.File(h5py.h5f.create(b"image", h5py.h5f.ACC_TRUNC, plist, access))
