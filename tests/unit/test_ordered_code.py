"""Keys of slices: the encoding is reversible and keeps the order of what it encodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_tools.errors import CkptError
from ckpt_tools.formats import _ordered_code as code
from ckpt_tools.formats._ordered_code import WHOLE, Span, parse_slice_key, slice_key

SIGNED = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-300, 300)
UNSIGNED = st.integers(0, (1 << 64) - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(-1, "7f"), (0, "80"), (63, "bf"), (64, "c040"), (8192, "e02000"), (3_000_000_000, "f8b2d05e00"), (-65, "3fbf")],
)
def test_signed_numbers_as_tensorflow_writes_them(value: int, encoded: str) -> None:
    assert code.encode_signed(value).hex() == encoded


@given(SIGNED, SIGNED)
def test_signed_numbers(one: int, other: int) -> None:
    a, b = code.encode_signed(one), code.encode_signed(other)
    assert code.decode_signed(b"x" + a + b"y", 1) == (one, 1 + len(a))
    assert (a < b) == (one < other)


@given(UNSIGNED, UNSIGNED)
def test_unsigned_numbers(one: int, other: int) -> None:
    a, b = code.encode_number(one), code.encode_number(other)
    assert code.decode_number(a, 0) == (one, len(a))
    assert (a < b) == (one < other)


@given(st.binary(), st.binary())
def test_texts(one: bytes, other: bytes) -> None:
    a, b = code.encode_bytes(one), code.encode_bytes(other)
    assert code.decode_bytes(a + b, 0) == (one, len(a))
    assert (a < b) == (one < other)


SPANS = st.lists(st.builds(Span, st.integers(0, 1 << 40), st.integers(0, 1 << 40)) | st.just(WHOLE), max_size=6)


@given(st.text(), SPANS)
def test_slice_keys(name: str, spans: list[Span]) -> None:
    name = name.encode("utf-8", "replace").decode()
    key = slice_key(name, spans)
    assert key[:1] == code.SLICE_MARK
    assert parse_slice_key(key) == (name, tuple(spans))
    for cut in range(len(key)):
        with pytest.raises(CkptError):
            parse_slice_key(key[:cut])


@given(st.binary(max_size=40))
def test_noise_is_an_error_or_a_key(noise: bytes) -> None:
    try:
        name, spans = parse_slice_key(b"\0" + noise)
    except CkptError:
        return
    assert isinstance(name, str)
    assert all(isinstance(span, Span) for span in spans)


def test_too_many_dimensions() -> None:
    with pytest.raises(CkptError, match="dimensions"):
        parse_slice_key(slice_key("a", [WHOLE] * 1000))
