"""Snappy's block format, unpacked.

Source: github.com/google/snappy/blob/main/format_description.txt. A varint with the unpacked length, then elements:
literals, and copies of what was already unpacked.
"""

from __future__ import annotations

from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile
from ckpt_tools.formats._protobuf import varint

#: The densest element is a copy of 64 bytes written in three.
_DENSEST = 64 / 3


def unpack(packed: bytes, limit: int = DEFAULT_LIMITS.header_nbytes) -> bytes:
    """The bytes behind ``packed``. LimitExceeded when they are announced as more than ``limit``."""
    nbytes, at = varint(packed, 0)
    if nbytes > limit:
        raise LimitExceeded(f"a snappy block announces {nbytes} bytes, over {limit}")
    end = len(packed)
    if nbytes > (end - at) * _DENSEST:
        raise CorruptFile(f"a snappy block announces {nbytes} bytes, {end - at} packed bytes cannot hold them")
    out = bytearray()
    while at < end:
        tag = packed[at]
        at += 1
        kind, high = tag & 3, tag >> 2
        if kind == 0:
            extra = max(high - 59, 0)  # lengths over 60 stand in the one to four bytes that follow
            length = 1 + (int.from_bytes(packed[at : at + extra], "little") if extra else high)
            at += extra
            if length > end - at:
                raise TruncatedFile(f"a snappy literal of {length} bytes, {max(end - at, 0)} are left")
            out += packed[at : at + length]
            at += length
        else:
            if kind == 1:
                length, extra = 4 + (high & 7), 1
            else:
                length, extra = 1 + high, 2 if kind == 2 else 4
            if extra > end - at:
                raise TruncatedFile("a snappy block ends inside a copy")
            distance = int.from_bytes(packed[at : at + extra], "little")
            if kind == 1:
                distance |= high >> 3 << 8
            at += extra
            if not 0 < distance <= len(out):
                raise CorruptFile(f"a snappy copy reaches {distance} bytes back, {len(out)} are unpacked")
            start = len(out) - distance
            if distance >= length:
                out += out[start : start + length]
            else:  # the copy reads what it writes: a short pattern, repeated
                out += (out[start:] * (length // distance + 1))[:length]
        if len(out) > nbytes:
            raise CorruptFile(f"a snappy block holds more than the {nbytes} bytes it announces")
    if len(out) != nbytes:
        raise TruncatedFile(f"a snappy block holds {len(out)} of the {nbytes} bytes it announces")
    return bytes(out)
