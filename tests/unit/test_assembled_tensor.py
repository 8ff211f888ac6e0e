"""Tensors kept in pieces: the pieces must cover the whole, and each element once."""

from __future__ import annotations

import time

import pytest

from ckpt_tools.core.dtypes import BY_NAME
from ckpt_tools.core.extents import MemoryExtent
from ckpt_tools.core.tensors import AssembledTensor, Storage, StridedTensor, TensorInfo
from ckpt_tools.errors import CorruptFile

UINT8 = BY_NAME["uint8"]


def piece(shape: tuple[int, ...], data: bytes) -> StridedTensor:
    return StridedTensor(TensorInfo(UINT8, shape), Storage(MemoryExtent(data)))


def test_rows_in_any_order() -> None:
    whole = AssembledTensor(
        TensorInfo(UINT8, (3, 2)), [((1, 0), piece((2, 2), b"cdef")), ((0, 0), piece((1, 2), b"ab"))]
    )
    assert whole.tobytes() == b"abcdef"


def test_columns() -> None:
    whole = AssembledTensor(
        TensorInfo(UINT8, (2, 3)), [((0, 2), piece((2, 1), b"cf")), ((0, 0), piece((2, 2), b"abde"))]
    )
    assert whole.tobytes() == b"abcdef"
    assert b"".join(whole.chunks(4)) == b"abcdef"


def test_nothing_in_pieces() -> None:
    whole = AssembledTensor(TensorInfo(UINT8, (2, 0, 3)), [((0, 0, 0), piece((2, 0, 2), b""))])
    assert whole.tobytes() == b""


def test_pieces_without_elements_are_in_nobodys_way() -> None:
    whole = AssembledTensor(TensorInfo(UINT8, (2,)), [((1,), piece((0,), b"")), ((0,), piece((2,), b"ab"))])
    assert whole.tobytes() == b"ab"


@pytest.mark.parametrize(
    ("boxes", "words"),
    [
        ([((0, 0), (2, 2))], "4 elements"),
        ([((0, 0), (2, 2)), ((0, 1), (1, 2))], "overlap"),
        ([((0, 0), (2, 2)), ((0, 2), (2, 2))], "outside"),
        ([((0, 0), (2, 2)), ((0,), (2,))], "outside"),
        ([((-1, 0), (2, 3))], "outside"),
    ],
)
def test_refused(boxes: list[tuple[tuple[int, ...], tuple[int, ...]]], words: str) -> None:
    with pytest.raises(CorruptFile, match=words):
        AssembledTensor(TensorInfo(UINT8, (2, 3)), [(starts, piece(shape, bytes(4))) for starts, shape in boxes])


@pytest.mark.parametrize("axis", [0, 1])
def test_many_pieces_are_checked_in_passing(axis: int) -> None:
    """20,000 pieces: comparing each with each would be 200 million comparisons."""
    count = 20_000
    one = piece((1, 1), b"x")
    starts = [(n, 0) if axis == 0 else (0, n) for n in range(count)]
    began = time.process_time()
    AssembledTensor(TensorInfo(UINT8, (count, 1) if axis == 0 else (1, count)), [(at, one) for at in starts])
    assert time.process_time() - began < 5
