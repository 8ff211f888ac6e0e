"""Protocol Buffers' wire format, read without schemas: a message is a run of (field number, wire type, value).

Source: protobuf.dev/programming-guides/encoding. What a field means is known to who asks for it; a number that nobody
asks for is passed over, as the format wants it. Refused: groups (wire types 3 and 4, deprecated and never used by the
frameworks), varints over ten bytes, lengths that reach beyond the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Union

from ckpt_tools.core.extents import Extent
from ckpt_tools.errors import CorruptFile, TruncatedFile

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

#: A varint of 64 bits takes ten bytes.
_LONGEST_VARINT = 10
_FIXED_NBYTES = {FIXED64: 8, FIXED32: 4}
#: Bytes read at a time while walking over a message in a file: a field's key and length, and often the next one's.
_WINDOW = 64


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned integer at ``at`` and the offset behind it."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise TruncatedFile("a message ends inside a varint")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift >= 7 * _LONGEST_VARINT:
            raise CorruptFile("a varint of more than ten bytes")


def signed(value: int) -> int:
    """The int32 or int64 behind an unsigned varint: negative numbers are stored as their 64-bit two's complement."""
    return value - (1 << 64) if value >> 63 else value


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Every field of a message in order: number, wire type, value. Fixed-width values are unsigned integers."""
    at, end = 0, len(data)
    while at < end:
        key = data[at]
        at += 1
        if key >= 0x80:
            key, at = varint(data, at - 1)
        kind = key & 7
        if kind == VARINT:
            if at < end and data[at] < 0x80:
                value = data[at]
                at += 1
            else:
                value, at = varint(data, at)
            yield key >> 3, kind, value
            continue
        if kind == BYTES:
            if at < end and data[at] < 0x80:
                length = data[at]
                at += 1
            else:
                length, at = varint(data, at)
        elif kind in _FIXED_NBYTES:
            length = _FIXED_NBYTES[kind]
        else:
            raise CorruptFile(f"a message has a field of wire type {kind}")
        if length > end - at:
            raise TruncatedFile(f"field {key >> 3} of a message needs {length} bytes, {end - at} are left")
        raw = data[at : at + length]
        at += length
        yield key >> 3, kind, raw if kind == BYTES else int.from_bytes(raw, "little")


def message(data: bytes) -> dict[int, int | bytes]:
    """The fields of a message whose fields occur once, by number; of a repeated one the last counts, as the format says."""
    return {index: value for index, _, value in fields(data)}


class Field(NamedTuple):
    """One field of a message that lies in a file. ``value`` is an integer, or where the bytes lie: (offset, nbytes)."""

    number: int
    kind: int
    value: Union[int, tuple[int, int]]


def scan(extent: Extent, offset: int = 0, nbytes: int | None = None) -> Iterator[Field]:
    """:func:`fields` for a message that may be large: only keys and lengths are read; offsets are the extent's."""
    end = offset + (extent.nbytes - offset if nbytes is None else nbytes)
    while offset < end:
        window = extent.read(offset, min(_WINDOW, end - offset))
        key, at = varint(window, 0)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(window, at)
            offset += at
            yield Field(key >> 3, kind, value)
            continue
        if kind == BYTES:
            length, at = varint(window, at)
        elif kind in _FIXED_NBYTES:
            length = _FIXED_NBYTES[kind]
        else:
            raise CorruptFile(f"a message has a field of wire type {kind}")
        offset += at
        if length > end - offset:
            raise TruncatedFile(f"field {key >> 3} of a message needs {length} bytes, {end - offset} are left")
        if kind == BYTES:
            yield Field(key >> 3, kind, (offset, length))
        else:
            yield Field(key >> 3, kind, int.from_bytes(extent.read(offset, length), "little"))
        offset += length


def submessage(value: int | bytes) -> bytes:
    """The bytes of a field that has to be a message, a text or a packed run. CorruptFile for a number."""
    if isinstance(value, int):
        raise CorruptFile("a number where a message is expected")
    return value


def number(value: int | bytes) -> int:
    """The value of a field that has to be a number. CorruptFile for bytes."""
    if isinstance(value, int):
        return value
    raise CorruptFile("bytes where a number is expected")


def text(value: int | bytes) -> str:
    """The text of a field; bytes that are no UTF-8 are kept as surrogates."""
    return submessage(value).decode("utf-8", "surrogateescape")
