"""Messages without schemas: against a writer of the wire format, in memory and in a file."""

from __future__ import annotations

import pytest
from bundles import field, varint
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_tools.core.extents import MemoryExtent, VarintExtent
from ckpt_tools.errors import CkptError, CorruptFile, TruncatedFile
from ckpt_tools.formats import _protobuf as protobuf

NUMBERS = st.integers(1, 1 << 28)
FIELDS = st.lists(
    st.tuples(NUMBERS, st.just(protobuf.VARINT), st.integers(0, (1 << 64) - 1))
    | st.tuples(NUMBERS, st.just(protobuf.BYTES), st.binary(max_size=300))
    | st.tuples(NUMBERS, st.just(protobuf.FIXED32), st.integers(0, (1 << 32) - 1))
    | st.tuples(NUMBERS, st.just(protobuf.FIXED64), st.integers(0, (1 << 64) - 1)),
    max_size=8,
)


def written(number: int, kind: int, value: int | bytes) -> bytes:
    if kind in (protobuf.FIXED32, protobuf.FIXED64) and isinstance(value, int):
        return varint(number << 3 | kind) + value.to_bytes(4 if kind == protobuf.FIXED32 else 8, "little")
    return field(number, value)


@given(FIELDS)
def test_fields(expected: list[tuple[int, int, int | bytes]]) -> None:
    data = b"".join(written(*one) for one in expected)
    assert list(protobuf.fields(data)) == expected
    scanned = list(protobuf.scan(MemoryExtent(b"__" + data + b"__"), 2, len(data)))
    for found, (number, kind, value) in zip(scanned, expected, strict=True):
        assert (found.number, found.kind) == (number, kind)
        if isinstance(found.value, tuple):
            offset, nbytes = found.value
            assert (b"__" + data)[offset : offset + nbytes] == value
        else:
            assert found.value == value


@given(st.binary(max_size=80))
def test_noise_is_an_error_or_fields(noise: bytes) -> None:
    for read in (lambda: list(protobuf.fields(noise)), lambda: list(protobuf.scan(MemoryExtent(noise)))):
        try:
            read()
        except CkptError:
            pass


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x0a\x05abc", TruncatedFile),
        (b"\x0a", TruncatedFile),
        (b"\x0d\x00\x00", TruncatedFile),
        (b"\x08" + b"\xff" * 11, CorruptFile),
        (b"\x0b\x0c", CorruptFile),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", TruncatedFile),
    ],
)
def test_refused(data: bytes, kind: type[CkptError]) -> None:
    with pytest.raises(kind):
        list(protobuf.fields(data))
    with pytest.raises(kind):
        list(protobuf.scan(MemoryExtent(data)))


def test_kinds_are_checked() -> None:
    with pytest.raises(CorruptFile):
        protobuf.submessage(3)
    with pytest.raises(CorruptFile):
        protobuf.number(b"a")
    assert protobuf.signed((1 << 64) - 2) == -2
    assert protobuf.message(field(1, 3) + field(2, b"a") + field(1, 4)) == {1: 4, 2: b"a"}


@settings(deadline=None)  # the first example imports numpy
@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=300), st.integers(1, 7))
def test_packed_integers(values: list[int], step: int) -> None:
    packed = b"".join(varint(value % (1 << 64)) for value in values)
    extent = VarintExtent(MemoryExtent(packed), len(values), 4)
    expected = b"".join(value.to_bytes(4, "little", signed=True) for value in values)
    assert b"".join(extent.chunks(0, extent.nbytes, step)) == expected


def test_packed_integers_across_reading_steps() -> None:
    values = [(1 << 63) + n for n in range(20_000)]
    packed = b"".join(map(varint, values))
    extent = VarintExtent(MemoryExtent(packed), len(values), 8)
    assert extent.read(0, extent.nbytes) == b"".join(value.to_bytes(8, "little") for value in values)


@pytest.mark.parametrize("packed", [b"\x80", b"\xff" * 20, b"\xff" * 10 + b"\x01", b"\x01"])
def test_packed_integers_that_end_early(packed: bytes) -> None:
    with pytest.raises(CorruptFile):
        VarintExtent(MemoryExtent(packed), 2, 4).read(0, 8)
