"""Protocol Buffers' wire format, written field by field (protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

from ckpt_tools.formats._protobuf import BYTES, FIXED32, VARINT


def varint(value: int) -> bytes:
    """An unsigned integer, seven bits in each byte."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(number: int, value: int) -> bytes:
    """A field that holds an unsigned integer; nothing when that is 0, the default."""
    return varint(number << 3 | VARINT) + varint(value) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """A field that holds a text or a message, empty ones too."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def fixed32_field(number: int, value: int) -> bytes:
    """A field of four bytes, whatever its value."""
    return varint(number << 3 | FIXED32) + value.to_bytes(4, "little")
