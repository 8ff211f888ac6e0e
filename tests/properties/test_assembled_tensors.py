"""Tensors put together from boxes: the same as numpy puts together, and every overlap or hole is found."""

from __future__ import annotations

import itertools

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_tools.core.dtypes import dtype
from ckpt_tools.core.extents import MemoryExtent
from ckpt_tools.core.tensors import AssembledTensor, Storage, StridedTensor, TensorInfo
from ckpt_tools.errors import CorruptFile

INT32 = dtype("int32")


def stored(values: numpy.ndarray) -> StridedTensor:
    return StridedTensor(TensorInfo(INT32, values.shape), Storage(MemoryExtent(values.astype("<i4").tobytes())))


@st.composite
def cuts(draw: st.DrawFn) -> tuple[numpy.ndarray, list[tuple[tuple[int, ...], numpy.ndarray]]]:
    """An array and boxes that tile it, in any order."""
    shape = draw(st.lists(st.integers(1, 6), min_size=0, max_size=3).map(tuple))
    whole = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape)
    edges = []
    for length in shape:
        inner = draw(st.sets(st.integers(1, length - 1), max_size=3)) if length > 1 else set()
        edges.append(list(itertools.pairwise([0, *sorted(inner), length])))
    boxes = [
        (tuple(start for start, _ in box), whole[tuple(slice(*side) for side in box)])
        for box in itertools.product(*edges)
    ]
    return whole, draw(st.permutations(boxes))


@given(cuts())
def test_tiles_give_the_whole(made: tuple[numpy.ndarray, list[tuple[tuple[int, ...], numpy.ndarray]]]) -> None:
    whole, boxes = made
    info = TensorInfo(INT32, whole.shape)
    tensor = AssembledTensor(info, [(starts, stored(values)) for starts, values in boxes])
    assert tensor.tobytes() == whole.astype("<i4").tobytes()


@given(cuts(), st.data())
def test_a_tile_in_the_wrong_place_is_found(
    made: tuple[numpy.ndarray, list[tuple[tuple[int, ...], numpy.ndarray]]], data: st.DataObject
) -> None:
    whole, boxes = made
    if len(boxes) < 2:
        return
    moved, other = data.draw(st.permutations(range(len(boxes))))[:2]
    pieces = [(starts, stored(values)) for starts, values in boxes]
    pieces[moved] = (pieces[other][0], pieces[moved][1])
    with pytest.raises(CorruptFile, match=r"overlap|outside"):
        AssembledTensor(TensorInfo(INT32, whole.shape), pieces)


def test_a_hole_is_found() -> None:
    with pytest.raises(CorruptFile, match="hold 2 elements"):
        AssembledTensor(TensorInfo(INT32, (3,)), [((0,), stored(numpy.arange(2)))])


def test_a_thousand_ranks_are_quick() -> None:
    row = numpy.arange(4).reshape(1, 4)
    pieces = [((rank, 0), stored(row)) for rank in range(20_000)]
    assert AssembledTensor(TensorInfo(INT32, (20_000, 4)), pieces).nbytes == 320_000
