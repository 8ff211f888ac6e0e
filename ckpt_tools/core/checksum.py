"""Checksums that files carry: CRC-32 of zip members, masked CRC-32C of TensorFlow tables, SHA-256 of our own."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from ckpt_tools.core.extents import Extent

#: leveldb and TensorFlow store CRC-32C rotated and shifted, so that a CRC of bytes that hold CRCs stays good.
_MASK_DELTA = 0xA282EAD8


def mask(crc: int) -> int:
    """The stored form of a CRC-32C (leveldb util/crc32c.h)."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def unmask(stored: int) -> int:
    """The CRC-32C behind its stored form."""
    rotated = (stored - _MASK_DELTA) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


#: Importing the library takes as long as 200 KiB take without it; the index of a few hundred tensors is far smaller.
_WORTH_THE_LIBRARY = 32 * 1024
_CASTAGNOLI_REFLECTED = 0x82F63B78


@cache
def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_CASTAGNOLI_REFLECTED if value & 1 else 0)
        table.append(value)
    return tuple(table)


def crc32c_by_table(data: bytes, value: int = 0) -> int:
    """CRC-32C a byte at a time: slow, and there at once."""
    table = _table()
    value ^= 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def crc32c(data: bytes, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of ``data``, continued from ``value``."""
    if len(data) <= _WORTH_THE_LIBRARY and "crc32c" not in sys.modules:
        return crc32c_by_table(data, value)
    import crc32c as castagnoli

    return int(castagnoli.crc32c(data, value))


class Checksum(NamedTuple):
    """What a file says the checksum of a run of bytes is. ``kind`` is ``crc32`` or ``crc32c`` (unmasked here)."""

    kind: str
    value: int
    #: where the bytes are, for people: a zip member, a table key
    place: str
    #: the running sum of what the checksum covers before these bytes: the header of an array, say
    start: int = 0

    def update(self, data: bytes, value: int = 0) -> int:
        """Continue the running sum ``value`` over ``data``."""
        return zlib.crc32(data, value) if self.kind == "crc32" else crc32c(data, value)

    def matches(self, chunks: Iterable[bytes]) -> bool:
        """Whether the bytes have this checksum. Reads them all, one chunk at a time."""
        value = self.start
        for chunk in chunks:
            value = self.update(chunk, value)
        return value == self.value


class Seal(NamedTuple):
    """A run of bytes that a file can vouch for: where it is, and its checksum, None when none was recorded."""

    place: str
    extent: Extent
    checksum: Checksum | None
