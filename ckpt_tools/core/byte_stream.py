"""Bytes on their way into a file: gathered into whole steps, written beside the work that makes them, sent to the disk."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ckpt_tools.core.limits import KIB, MIB

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

Progress = Callable[[int], None]

#: Large writes are handed on in pieces of this, so that progress can be told.
_PIECE_NBYTES = 4 * MIB
#: Everything is written in whole steps, from one multiple of this to another. Small writes are gathered; those that do not
#: begin on a page cost the kernel three times as much, which headers between tensors would make of them all; and for
#: long ones it looks for memory in one piece, which on a virtual machine is memory that nobody used before: five times.
_STEP_NBYTES = 256 * KIB
#: After so many bytes the disk is set to work on them.
_STRETCH_NBYTES = 32 * MIB
#: A file that grows beyond this is written by a thread of its own, so that reading and checking do not wait for it.
_ALONE_NBYTES = 16 * MIB
#: Pieces that may wait for that thread.
_LONGEST_QUEUE = 3


class ByteStream:
    """Appends bytes to an open file. What the system refuses is an OSError of this call or of one of the next.

    ``progress`` is told, on the thread of the caller, how many bytes were written since it was told last.
    """

    def __init__(self, fd: int, progress: Progress | None = None) -> None:
        self.position = 0
        self._fd = fd
        self._progress = progress
        self._gathered = bytearray()
        self._unsent = 0  # bytes that the kernel has, and was not told to write yet
        self._thread: Executor | None = None
        self._queue: deque[Future[int]] = deque()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes. They may be looked at until :meth:`flush`: the caller changes them no more."""
        view = memoryview(data).cast("B")
        inside = self.position % _STEP_NBYTES
        self.position += view.nbytes
        if inside + view.nbytes < _STEP_NBYTES:
            self._gathered += view
            return
        if inside:
            missing = _STEP_NBYTES - inside
            self._gathered += view[:missing]
            view = view[missing:]
            self._put_gathered()
        whole = view.nbytes - view.nbytes % _STEP_NBYTES
        for start in range(0, whole, _PIECE_NBYTES):
            self._put(view[start : min(start + _PIECE_NBYTES, whole)])
        self._gathered += view[whole:]

    def flush(self) -> None:
        """Hand everything to the kernel."""
        self._put_gathered()
        while self._queue:
            self._settle()

    def close(self) -> None:
        """Let go of the file, whether or not everything was written; it stays open."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
        self._queue.clear()
        self._gathered = bytearray()

    def _put_gathered(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, bytearray()
            self._put(memoryview(gathered))

    def _put(self, piece: memoryview) -> None:
        if self._thread is None and self.position > _ALONE_NBYTES:
            from concurrent.futures import ThreadPoolExecutor

            self._thread = ThreadPoolExecutor(1)
        if self._thread is None:
            self._tell(self._hand_over(piece))
            return
        self._queue.append(self._thread.submit(self._hand_over, piece))
        if len(self._queue) > _LONGEST_QUEUE:
            self._settle()

    def _settle(self) -> None:
        """Wait for the piece that has waited longest."""
        self._tell(self._queue.popleft().result())

    def _tell(self, nbytes: int) -> None:
        if self._progress is not None:
            self._progress(nbytes)

    def _hand_over(self, piece: memoryview) -> int:
        nbytes = piece.nbytes
        while piece.nbytes:
            piece = piece[os.write(self._fd, piece[:_STEP_NBYTES]) :]
        self._unsent += nbytes
        if self._unsent >= _STRETCH_NBYTES:
            self._send_to_disk()
        return nbytes

    def _send_to_disk(self) -> None:
        """Let the kernel begin to write what it was given since the last time, so that the sync at the end is short.

        Linux does so on POSIX_FADV_DONTNEED (mm/fadvise.c); elsewhere the advice does no harm.
        """
        if hasattr(os, "posix_fadvise"):
            end = os.lseek(self._fd, 0, os.SEEK_CUR)
            os.posix_fadvise(self._fd, end - self._unsent, self._unsent, os.POSIX_FADV_DONTNEED)
        self._unsent = 0
