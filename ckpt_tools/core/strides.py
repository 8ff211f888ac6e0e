"""Strides, and the values of strided views in row-major order: in few passes over the file, and few over memory.

Shapes, strides and offsets count elements here, sizes bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ckpt_tools.core.extents import Extent
from ckpt_tools.core.limits import CHUNK_NBYTES, KIB, MIB

if TYPE_CHECKING:
    import numpy

#: A strided view is gathered in blocks of this many chunks, so that the passes over a transposed matrix are few …
_BLOCK_CHUNKS = 24
#: … in boxes of storage that are read in one piece when at least 1/8 of them is wanted …
_DENSE_ENOUGH = 8
#: … and they take no more memory than this, or when they are so small that a read call costs as much as the bytes.
_DENSE_BOX_NBYTES = 64 * MIB
_SMALL_BOX_NBYTES = 16 * KIB
#: What a processor fetches from memory at once.
_CACHE_LINE_NBYTES = 64


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a packed row-major tensor."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def gather(
    extent: Extent, itemsize: int, offset: int, shape: Sequence[int], strides: Sequence[int], limit: int
) -> Iterator[bytes]:
    """The values of a strided view of ``extent`` in row-major order, at most ``limit`` bytes at a time.

    They are read a block of leading indices at a time, :data:`_BLOCK_CHUNKS` times ``limit``, in boxes: runs of storage
    that are dense enough at once, sparse ones row by row along their largest stride, so that a transposed matrix costs
    one read for each run of neighbours, not for each value, and few passes over the file.
    """
    most = max(limit // itemsize, 1)
    room = _rooms.pop() if _rooms else _Room()
    for starts, box in blocks(shape, most * _BLOCK_CHUNKS):
        start = offset + sum(index * stride for index, stride in zip(starts, strides))
        values = _read_box(extent, itemsize, start, box, strides, room)
        for first, part in blocks(box, most):
            yield _packed(values[tuple(slice(at, at + n) for at, n in zip(first, part))])
    _rooms.append(room)


def blocks(shape: Sequence[int], most: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cut a row-major index space into boxes of at most ``most`` elements, in order: (first index, box shape)."""
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= most:
        axis -= 1
        inner *= shape[axis]
    if axis == 0:
        yield (0,) * len(shape), tuple(shape)
        return
    axis -= 1  # the axis that has to be cut; all before it are walked one by one
    step = max(most // max(inner, 1), 1)
    for flat in range(math.prod(shape[:axis])):
        lead = []
        for extent in reversed(shape[:axis]):
            flat, index = divmod(flat, extent)
            lead.append(index)
        for start in range(0, shape[axis], step):
            yield (
                (*reversed(lead), start, *(0 for _ in shape[axis + 1 :])),
                (*(1 for _ in lead), min(step, shape[axis] - start), *shape[axis + 1 :]),
            )


class _Room:
    """Memory for one box after the other: the system clears what it gives out, which takes as long as filling it."""

    def __init__(self) -> None:
        self._held = bytearray()

    def take(self, nbytes: int) -> memoryview:
        """Room for ``nbytes`` bytes, the same as before where that is enough."""
        if len(self._held) < nbytes:
            self._held = bytearray(nbytes)
        return memoryview(self._held)[:nbytes]


_rooms: list[_Room] = []  # left by views that were gathered, for the next ones


def _read_box(
    extent: Extent, itemsize: int, offset: int, shape: Sequence[int], strides: Sequence[int], room: _Room
) -> numpy.ndarray:
    """A box of elements as an array of raw items, shaped ``shape``; it is good until ``room`` is used again."""
    import numpy

    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    moving = [axis for axis, n in enumerate(shape) if n > 1 and strides[axis] > 0]
    wanted = math.prod(shape[axis] for axis in moving)
    dense = span <= wanted * _DENSE_ENOUGH and span * itemsize <= _DENSE_BOX_NBYTES
    if not moving or span * itemsize <= _SMALL_BOX_NBYTES or dense:
        runs = room.take(span * itemsize)
        at = 0
        for chunk in extent.chunks(offset * itemsize, runs.nbytes, CHUNK_NBYTES):
            runs[at : at + len(chunk)] = chunk
            at += len(chunk)
        flat = numpy.frombuffer(runs, f"V{itemsize}")
        return numpy.lib.stride_tricks.as_strided(flat, shape, [s * itemsize for s in strides], writeable=False)
    axis = max(moving, key=lambda a: strides[a])
    run = span - (shape[axis] - 1) * strides[axis]
    together = max(1, (_SMALL_BOX_NBYTES // itemsize - run) // strides[axis] + 1)
    if together == 1 and run * shape[axis] <= wanted * 2:  # read all of each row, at most twice what is wanted
        runs = room.take(shape[axis] * run * itemsize)
        for index in range(shape[axis]):
            at = index * run * itemsize
            runs[at : at + run * itemsize] = extent.read((offset + index * strides[axis]) * itemsize, run * itemsize)
        closer = [run if a == axis else s for a, s in enumerate(strides)]
        flat = numpy.frombuffer(runs, f"V{itemsize}")
        return numpy.lib.stride_tricks.as_strided(flat, shape, [s * itemsize for s in closer], writeable=False)
    # in the order of the storage, which is turned when the values are handed out: copies along rows are the fast ones
    box = numpy.empty((shape[axis], *shape[:axis], *shape[axis + 1 :]), f"V{itemsize}")
    for index in range(0, shape[axis], together):
        rows = min(together, shape[axis] - index)
        part = [rows if a == axis else n for a, n in enumerate(shape)]
        read = _read_box(extent, itemsize, offset + index * strides[axis], part, strides, room)
        box[index : index + rows] = numpy.moveaxis(read, axis, 0)
    return numpy.moveaxis(box, 0, axis)


def _packed(values: numpy.ndarray) -> bytes:
    """The bytes of a strided array in row-major order.

    One pass in that order goes through a transposed matrix along its columns, and fetches each line of memory again for
    each value in it. So the last axis that is long goes by in runs that fill one line of the result each: what was
    fetched for one of them is still near for the next.
    """
    import numpy

    run = max(_CACHE_LINE_NBYTES // values.itemsize, 1)
    long = [axis for axis, n in enumerate(values.shape) if n > run]
    if not long or values.strides[long[-1]] <= values.itemsize:
        return values.tobytes()
    axis = long[-1]
    packed = numpy.empty(values.shape, values.dtype)
    for start in range(0, values.shape[axis], run):
        part = (slice(None),) * axis + (slice(start, start + run),)
        packed[part] = values[part]
    return packed.tobytes()
