"""Snappy blocks: against a decoder that takes one byte at a time, and the ways a block can lie."""

from __future__ import annotations

import pytest
from bundles import varint
from hypothesis import given
from hypothesis import strategies as st

from ckpt_tools.errors import CkptError, CorruptFile, LimitExceeded, TruncatedFile
from ckpt_tools.formats._snappy import unpack


@st.composite
def blocks(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A packed block and what is in it, both written down element by element."""
    packed, plain = bytearray(), bytearray()
    for _ in range(draw(st.integers(0, 8))):
        if not plain or draw(st.booleans()):
            literal = draw(st.binary(min_size=1, max_size=300))
            size = len(literal) - 1
            if size < 60:
                packed.append(size << 2)
            elif size < 256:
                packed += bytes((60 << 2, size))
            else:
                packed.append(61 << 2)
                packed += size.to_bytes(2, "little")
            packed += literal
            plain += literal
        else:
            distance = draw(st.integers(1, len(plain)))
            kind = draw(st.sampled_from([1, 2, 3] if distance < 2048 else [2, 3]))
            length = draw(st.integers(4, 11) if kind == 1 else st.integers(1, 64))
            if kind == 1:
                packed += bytes((distance >> 8 << 5 | length - 4 << 2 | 1, distance & 0xFF))
            else:
                packed.append(length - 1 << 2 | kind)
                packed += distance.to_bytes(2 if kind == 2 else 4, "little")
            for _ in range(length):
                plain.append(plain[-distance])
    return varint(len(plain)) + bytes(packed), bytes(plain)


@given(blocks())
def test_elements_mean_what_the_format_says(block: tuple[bytes, bytes]) -> None:
    packed, plain = block
    assert unpack(packed) == plain


@given(blocks(), st.data())
def test_a_cut_block_is_an_error(block: tuple[bytes, bytes], data: st.DataObject) -> None:
    packed, plain = block
    cut = data.draw(st.integers(0, len(packed) - 1))
    if plain:
        with pytest.raises(CorruptFile):
            unpack(packed[:cut])


@given(st.binary(max_size=60))
def test_noise_is_an_error_or_bytes(noise: bytes) -> None:
    try:
        unpack(noise)
    except CkptError:
        pass


def test_a_long_pattern_from_one_byte() -> None:
    assert unpack(varint(65) + b"\x00a" + bytes((63 << 2 | 2, 1, 0))) == b"a" * 65


@pytest.mark.parametrize(
    ("packed", "kind", "words"),
    [
        (varint(1 << 40) + b"\x00a", LimitExceeded, "announces"),
        (varint(1 << 20) + b"\x00a", CorruptFile, "cannot hold"),
        (varint(5) + b"\x00a", TruncatedFile, "1 of the 5"),
        (varint(1) + b"\x04ab", CorruptFile, "more than the 1"),
        (varint(8) + b"\x00a" + bytes((6 << 2 | 2, 2, 0)), CorruptFile, "2 bytes back"),
        (varint(8) + b"\x00a" + bytes((6 << 2 | 2, 0, 0)), CorruptFile, "0 bytes back"),
        (varint(8) + b"\x00a" + bytes((6 << 2 | 2, 1)), TruncatedFile, "inside a copy"),
        (varint(8) + b"\xf8\xff\xff\xff", TruncatedFile, "literal"),
        (b"", TruncatedFile, "varint"),
    ],
)
def test_lies(packed: bytes, kind: type[CkptError], words: str) -> None:
    with pytest.raises(kind, match=words):
        unpack(packed)


def test_a_block_of_copies_alone_is_as_small_as_it_says() -> None:
    """The densest honest block: 64 bytes from three, again and again."""
    copies = 1000
    packed = varint(1 + 64 * copies) + b"\x00x" + bytes((63 << 2 | 2, 1, 0)) * copies
    assert unpack(packed) == b"x" * (1 + 64 * copies)
