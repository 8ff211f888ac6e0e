"""Properties of the core: names are unique, strided views are numpy's, extents are one run however they are kept."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy
from hypothesis import given
from hypothesis import strategies as st

from ckpt_tools.core.dtypes import dtype
from ckpt_tools.core.extents import InflatedExtent, JoinedExtent, Latin1Extent, MemoryExtent
from ckpt_tools.core.keys import Globs, names_of, natural_order, printable
from ckpt_tools.core.strides import blocks
from ckpt_tools.core.tensors import AssembledTensor, Storage, StridedTensor, TensorInfo
from ckpt_tools.mapping.transforms import Permute
from ckpt_tools.ops.transforming import transformed

parts = st.one_of(st.integers(0, 20), st.text(max_size=4), st.sampled_from(["a", "a/b", "0", "", '"', "\\x1b", "\x1b"]))
keys = st.lists(st.lists(parts, min_size=1, max_size=4).map(tuple), unique_by=lambda key: repr(key), max_size=30)


@given(keys)
def test_no_two_keys_share_a_name(found: list[tuple[str | int, ...]]) -> None:
    names = names_of(found)
    assert len(set(names)) == len(found)
    assert all(name and name == printable(name) for name in names)


@given(st.text())
def test_printable_lets_no_control_character_through(text: str) -> None:
    shown = printable(text)
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in shown)


def test_natural_order() -> None:
    names = ["layer.10.w", "layer.9.w", "layer.a.w", "x"]
    assert sorted(names, key=natural_order) == ["layer.a.w", "layer.9.w", "layer.10.w", "x"] or sorted(
        names, key=natural_order
    ) == ["layer.9.w", "layer.10.w", "layer.a.w", "x"]


def test_globs_match_the_end_from_any_part_on() -> None:
    chosen = Globs(["encoder*"], ["*.bias"])
    assert chosen("main_params/encoder.0.weight")
    assert chosen("encoder.0.weight")
    assert not chosen("main_params/decoder.0.weight")
    assert not chosen("main_params/encoder.0.bias")
    assert not Globs(["weight"])("xweight")


@st.composite
def views(draw: st.DrawFn) -> tuple[numpy.ndarray, numpy.ndarray]:
    """A flat array and a view of it: axes permuted, stepped over, repeated."""
    shape = draw(st.lists(st.integers(0, 5), min_size=0, max_size=4))
    base = numpy.arange(int(numpy.prod(shape)) or 1, dtype="<i4")
    view = base[: int(numpy.prod(shape))].reshape(shape)
    view = view.transpose(draw(st.permutations(range(view.ndim))))
    view = view[(..., *(slice(draw(st.integers(0, 2)), None, draw(st.integers(1, 3))) for _ in range(view.ndim)))]
    if draw(st.booleans()):
        view = numpy.broadcast_to(view, (draw(st.integers(1, 3)), *view.shape))
    return base, view


@given(views(), st.integers(1, 64))
def test_strided_views_are_numpys(pair: tuple[numpy.ndarray, numpy.ndarray], limit: int) -> None:
    base, view = pair
    offset = (view.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // 4 if view.size else 0
    strides = tuple(s // 4 for s in view.strides)
    tensor = StridedTensor(
        TensorInfo(dtype("int32"), view.shape), Storage(MemoryExtent(base.tobytes())), offset, strides
    )
    tensor.check_span()
    chunks = list(tensor.chunks(limit))
    assert b"".join(chunks) == view.tobytes()
    assert list(tensor.chunks(limit)) == chunks


@given(st.lists(st.integers(1, 5), max_size=4), st.integers(1, 20))
def test_blocks_tile_an_index_space_in_order(shape: list[int], most: int) -> None:
    whole = numpy.arange(int(numpy.prod(shape))).reshape(shape)
    pieces = [whole[tuple(slice(s, s + n) for s, n in zip(starts, box))].ravel() for starts, box in blocks(shape, most)]
    assert all(piece.size <= most for piece in pieces)
    assert numpy.concatenate(pieces).tolist() == list(range(whole.size))


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 5), st.integers(0, 5))
def test_assembled_pieces_are_the_whole(rows: int, columns: int, cut_row: int, cut_column: int) -> None:
    whole = numpy.arange(rows * columns, dtype="<i4").reshape(rows, columns)
    cut_row, cut_column = min(cut_row, rows), min(cut_column, columns)
    pieces = []
    for r0, r1 in ((0, cut_row), (cut_row, rows)):
        for c0, c1 in ((0, cut_column), (cut_column, columns)):
            part = whole[r0:r1, c0:c1]
            storage = Storage(MemoryExtent(part.tobytes()))
            pieces.append(((r0, c0), StridedTensor(TensorInfo(dtype("int32"), part.shape), storage)))
    tensor = AssembledTensor(TensorInfo(dtype("int32"), whole.shape), pieces)
    for limit in (4, 24, 4096):
        assert b"".join(tensor.chunks(limit)) == whole.tobytes()
        assert b"".join(transformed(tensor, (Permute((1, 0)),)).chunks(limit)) == whole.T.tobytes()


@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=6))
def test_runs_read_alike_however_they_are_kept(data: bytes, reads: list[tuple[int, int]]) -> None:
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(data) + packer.flush()
    kept = [
        JoinedExtent([MemoryExtent(data[:7]), MemoryExtent(b""), MemoryExtent(data[7:])]),
        InflatedExtent(MemoryExtent(packed), len(data)),
        Latin1Extent(MemoryExtent(data.decode("latin-1").encode("utf-8")), len(data)),
    ]
    for start, length in reads:
        start = min(start, len(data))
        length = min(length, len(data) - start)
        for extent in kept:
            assert extent.read(start, length) == data[start : start + length]


def test_a_file_that_shrinks_is_an_error(tmp_path: Path) -> None:
    import pytest

    from ckpt_tools.core.source import Source
    from ckpt_tools.errors import TruncatedFile

    path = tmp_path / "x"
    path.write_bytes(bytes(100))
    with Source(path) as source:
        path.write_bytes(bytes(10))
        with pytest.raises(TruncatedFile, match="shrank"):
            source.read(0, 50)
