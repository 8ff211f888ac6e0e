"""Strided views are gathered as numpy copies them, however large their axes, elements, blocks and rows are."""

from __future__ import annotations

from itertools import permutations

import numpy
import pytest

from ckpt_tools.core.extents import MemoryExtent
from ckpt_tools.core.limits import KIB
from ckpt_tools.core.strides import gather


def gathered(base: numpy.ndarray, view: numpy.ndarray, limit: int) -> bytes:
    itemsize = view.itemsize
    start = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // itemsize
    strides = [stride // itemsize for stride in view.strides]
    return b"".join(gather(MemoryExtent(base.tobytes()), itemsize, start, view.shape, strides, limit))


@pytest.mark.parametrize("shape", [(40, 50), (3, 3, 20, 70), (5, 1, 40, 2), (1, 100), (129, 65)])
@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8", "c16", "V3"])
def test_every_order_of_the_axes(shape: tuple[int, ...], kind: str) -> None:
    count = int(numpy.prod(shape)) * numpy.dtype(kind).itemsize
    base = numpy.random.default_rng(0).integers(0, 256, count, "u1").view(kind).reshape(shape)
    for axes in permutations(range(base.ndim)):
        view = base.transpose(axes)
        for limit in (64, KIB, 1024 * KIB):
            assert gathered(base, view, limit) == view.tobytes()


def test_a_matrix_of_several_blocks_is_read_by_rows() -> None:
    base = numpy.arange(300 * 9000, dtype="u4").reshape(300, 9000)
    assert gathered(base, base.T, 4 * KIB) == base.T.tobytes()
    part = base[10:, 100:]
    assert gathered(base, part.T, 4 * KIB) == part.T.tobytes()


def test_the_memory_of_one_view_is_not_that_of_another_under_way() -> None:
    base = numpy.arange(64 * 64, dtype="u4").reshape(64, 64)
    other = base + 1
    one = gather(MemoryExtent(base.tobytes()), 4, 0, (64, 64), (1, 64), KIB)
    first = next(one)
    assert gathered(other, other.T, KIB) == other.T.tobytes()
    assert first + b"".join(one) == base.T.tobytes()
