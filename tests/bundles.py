"""Sorted tables and bundles put together by hand, so that tests can have ones that TensorFlow would not write.

Blocks come from the fixture makers' own table writer, which shares no code with the package.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "fixtures" / "make"))

import _sorted_table
import crc32c
from _sorted_table import block_of, table_of, varint


def masked_crc32c(data: bytes) -> int:
    """The stored form of a checksum; the makers' own takes minutes for megabytes."""
    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + _sorted_table.MASK_DELTA) & 0xFFFFFFFF


_sorted_table.masked_crc32c = masked_crc32c

HEADER = bytes.fromhex("08011a020801")
FLOAT, INT32, STRING, INT64 = 1, 3, 7, 9


def with_blocks(*blocks: tuple[bytes, bytes]) -> bytes:
    """A table of blocks whose contents are given as they are: (last key, contents)."""
    out = bytearray()

    def append(contents: bytes) -> bytes:
        handle = varint(len(out)) + varint(len(contents))
        out.extend(contents + b"\0" + masked_crc32c(contents + b"\0").to_bytes(4, "little"))
        return handle

    index = append(block_of([(key, append(contents)) for key, contents in blocks]))
    return bytes(out) + (varint(0) + varint(0) + index).ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")


def field(number: int, value: int | bytes) -> bytes:
    """One field of a message: a varint, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value % (1 << 64))
    return varint(number << 3 | 2) + varint(len(value)) + value


def shape_of(sizes: Sequence[int]) -> bytes:
    return b"".join(field(2, field(1, size)) for size in sizes)


def entry(
    raw: bytes,
    *,
    dtype: int = FLOAT,
    shape: Sequence[int] = (),
    offset: int = 0,
    nbytes: int | None = None,
    shard: int = 0,
    crc: int | None = None,
    slices: Sequence[bytes] = (),
) -> bytes:
    """A BundleEntryProto for ``raw`` at ``offset``."""
    crc = masked_crc32c(raw) if crc is None else crc
    return (
        field(1, dtype)
        + field(2, shape_of(shape))
        + field(3, shard)
        + field(4, offset)
        + field(5, len(raw) if nbytes is None else nbytes)
        + varint(6 << 3 | 5)
        + crc.to_bytes(4, "little")
        + b"".join(field(7, one) for one in slices)
    )


def slice_of(*spans: tuple[int, int]) -> bytes:
    """A TensorSliceProto."""
    return b"".join(field(1, field(1, start) + field(2, length)) for start, length in spans)


def write_bundle(
    directory: Path,
    entries: dict[bytes, bytes],
    data: bytes,
    *,
    header: bytes | None = HEADER,
    compressed: bool = False,
) -> Path:
    """Write ``p.index`` and its one data file; the index's path."""
    pairs = ([] if header is None else [(b"", header)]) + sorted(entries.items())
    index = directory / "p.index"
    index.write_bytes(table_of(pairs, entries_per_block=16, compressed=compressed))
    (directory / "p.data-00000-of-00001").write_bytes(data)
    return index


__all__ = [
    "FLOAT",
    "HEADER",
    "INT32",
    "INT64",
    "STRING",
    "block_of",
    "entry",
    "field",
    "masked_crc32c",
    "shape_of",
    "slice_of",
    "table_of",
    "varint",
    "with_blocks",
    "write_bundle",
]
