"""OrderedCode, the encoding in which TensorFlow writes the keys of slices: bytewise order is the order of values.

Source: tensorflow/core/lib/strings/ordered_code.cc and tensorflow/core/util/saved_tensor_slice_util.cc. A slice's key
is the number 0, the tensor's name, the number of dimensions, and for each dimension start and length; a whole
dimension has start 0 and length -1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile

#: The first byte of every slice key: the number 0, which no name begins with.
SLICE_MARK = b"\x00"
_END = b"\x00\x01"
_SPECIAL = re.compile(rb"[\x00\xff].", re.DOTALL)
#: Bits that a signed number of n bytes has in front, by n; they are XORed over its first two bytes.
_HEADERS = (0, 0x8000, 0xC000, 0xE000, 0xF000, 0xF800, 0xFC00, 0xFE00, 0xFF00, 0xFF80, 0xFFC0)
_LONGEST_SIGNED = 10


class Span(NamedTuple):
    """A slice's part of one dimension; length None is the whole dimension (TensorSliceProto.Extent without length)."""

    start: int
    length: int | None


WHOLE = Span(0, None)


def encode_number(value: int) -> bytes:
    """An unsigned number: how many bytes, then these, big-endian."""
    nbytes = (value.bit_length() + 7) // 8
    return bytes((nbytes,)) + value.to_bytes(nbytes, "big")


def decode_number(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned number at ``at`` and the offset behind it."""
    nbytes = data[at] if at < len(data) else 0
    if at >= len(data) or nbytes > 8 or at + 1 + nbytes > len(data):
        raise TruncatedFile("a slice key ends inside a number")
    return int.from_bytes(data[at + 1 : at + 1 + nbytes], "big"), at + 1 + nbytes


def encode_signed(value: int) -> bytes:
    """A signed number of up to 64 bits in the fewest bytes that hold it beside its header bits."""
    magnitude = ~value if value < 0 else value
    nbytes = magnitude.bit_length() // 7 + 1
    plain = value.to_bytes(max(nbytes, 2), "big", signed=True)
    header = _HEADERS[nbytes]
    if nbytes == 1:
        return bytes((plain[1] ^ header >> 8,))
    return bytes((plain[0] ^ header >> 8, plain[1] ^ header & 0xFF)) + plain[2:]


def decode_signed(data: bytes, at: int) -> tuple[int, int]:
    """The signed number at ``at`` and the offset behind it."""
    if at >= len(data):
        raise TruncatedFile("a slice key ends inside a number")
    # Numbers below zero have every bit inverted: leading ones of the others are their leading zeros.
    flip = 0 if data[at] & 0x80 else 0xFF
    first = data[at] ^ flip
    second = (data[at + 1] if at + 1 < len(data) else flip) ^ flip
    leading = 16 - ((first << 8 | second) ^ 0xFFFF).bit_length()
    nbytes = min(leading, _LONGEST_SIGNED)
    if at + nbytes > len(data):
        raise TruncatedFile("a slice key ends inside a number")
    raw = bytearray(byte ^ flip for byte in data[at : at + nbytes])
    header = _HEADERS[nbytes]
    raw[0] ^= header >> 8
    if nbytes > 1:
        raw[1] ^= header & 0xFF
    value = int.from_bytes(raw, "big")
    return (~value if flip else value), at + nbytes


def encode_bytes(value: bytes) -> bytes:
    """A byte string: 00 and FF escaped, then the terminator."""
    if b"\x00" in value or b"\xff" in value:
        value = b"".join({0: b"\x00\xff", 0xFF: b"\xff\x00"}.get(byte) or bytes((byte,)) for byte in value)
    return value + _END


def decode_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """The byte string at ``at`` and the offset behind it."""
    out = bytearray()
    while True:
        special = _SPECIAL.search(data, at)
        if special is None:
            raise TruncatedFile("a slice key ends inside a name")
        stop = special.start()
        pair = special.group()
        out += data[at:stop]
        at = stop + 2
        if pair == _END:
            return bytes(out), at
        if pair == b"\x00\xff":
            out.append(0)
        elif pair == b"\xff\x00":
            out.append(0xFF)
        else:
            raise CorruptFile(f"a slice key has the bytes {pair.hex(' ')} in a name")


def slice_key(name: str, spans: Sequence[Span]) -> bytes:
    """The table key of a slice of ``name``."""
    parts = [SLICE_MARK, encode_bytes(name.encode("utf-8", "surrogateescape")), encode_number(len(spans))]
    for start, length in spans:
        parts += [encode_signed(start), encode_signed(-1 if length is None else length)]
    return b"".join(parts)


def parse_slice_key(key: bytes) -> tuple[str, tuple[Span, ...]]:
    """The name and the spans that a slice's table key stands for. CorruptFile when it is none."""
    zero, at = decode_number(key, 0)
    if zero:
        raise CorruptFile("not a slice key")
    name, at = decode_bytes(key, at)
    rank, at = decode_number(key, at)
    if rank > DEFAULT_LIMITS.rank:
        raise LimitExceeded(f"a slice of {rank} dimensions")
    spans = []
    for _ in range(rank):
        start, at = decode_signed(key, at)
        length, at = decode_signed(key, at)
        spans.append(Span(start, None if length < 0 else length))
    if at != len(key):
        raise CorruptFile(f"a slice key has {len(key) - at} bytes too many")
    return name.decode("utf-8", "surrogateescape"), tuple(spans)
