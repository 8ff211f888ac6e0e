"""Whole files that are compressed: which way, what they begin with, and all of it in bounded pieces.

Sources: RFC 1950 (zlib), RFC 1952 (gzip), the formats of bzip2 and xz, and the lzma-alone format of LZMA Utils.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ckpt_tools.core.extents import Extent
from ckpt_tools.core.limits import MIB, Limits
from ckpt_tools.core.source import Source
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile

_PACKED_STEP = 64 * 1024
_UNPACKED_STEP = MIB
#: bzip2 gives nothing before a whole block, which holds 900 kB of what it packs.
_LARGEST_BLOCK = MIB
#: ``xz -9`` needs 65 MiB to unpack; more is asked for by files that mean to exhaust memory.
_LZMA_MEMORY = 256 * MIB


class Packing(NamedTuple):
    """A way to compress a file. ``command`` unpacks a file of that kind and keeps the original."""

    name: str
    magics: tuple[bytes, ...]
    command: str
    decompressor: Callable[[], Any]
    #: what the end of one stream may be followed by another of
    repeats: bool = True


class _Inflater:
    """zlib's object with the methods that those of bz2 and lzma have."""

    def __init__(self, window_bits: int) -> None:
        self._object = zlib.decompressobj(window_bits)

    def decompress(self, data: bytes, limit: int) -> bytes:
        return self._object.decompress(self._object.unconsumed_tail + data, limit)

    @property
    def eof(self) -> bool:
        return self._object.eof

    @property
    def needs_input(self) -> bool:
        return not self._object.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._object.unused_data


PACKINGS = (
    Packing("gzip", (b"\x1f\x8b\x08",), "gunzip -k", lambda: _Inflater(16 + zlib.MAX_WBITS)),
    Packing("bzip2", (b"BZh",), "bunzip2 -k", bz2.BZ2Decompressor),
    Packing("xz", (b"\xfd7zXZ\0",), "unxz -k", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _LZMA_MEMORY)),
    Packing(
        "lzma",
        (b"\x5d\0\0",),
        "unlzma -k",
        lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, _LZMA_MEMORY),
        repeats=False,
    ),
    Packing(
        "zlib",
        (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"),
        "zlib-flate -uncompress <",
        lambda: _Inflater(zlib.MAX_WBITS),
        repeats=False,
    ),
)


def packing_of(head: bytes) -> Packing | None:
    """How a file that begins so is compressed. The marks are short: only what :func:`beginning` gives is proof."""
    for packing in PACKINGS:
        if head.startswith(packing.magics):
            return packing
    return None


def beginning(packing: Packing, source: Source, length: int) -> bytes:
    """At most ``length`` unpacked bytes of the start of a file; none when it is not packed so."""
    stream = packing.decompressor()
    start = b""
    for at in range(0, min(source.nbytes, _LARGEST_BLOCK), _PACKED_STEP):
        try:
            start += stream.decompress(source.peek(at, _PACKED_STEP), length - len(start))
        except (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError):
            return b""
        if len(start) >= length or stream.eof:
            break
    return start


def unpacked(packing: Packing, packed: Extent) -> Iterator[bytes]:
    """All unpacked bytes in pieces of bounded size. TruncatedFile or CorruptFile when they cannot be had."""
    stream = packing.decompressor()
    fed = False
    for data in packed.chunks(0, packed.nbytes, _PACKED_STEP):
        while data or not stream.needs_input:
            if stream.eof:
                if not data.strip(b"\0"):  # tapes and some tools pad with zeros
                    return
                if not packing.repeats:
                    raise CorruptFile(f"something else follows the end of the {packing.name} data")
                stream = packing.decompressor()
            try:
                piece = stream.decompress(data, _UNPACKED_STEP)
            except (OSError, zlib.error, lzma.LZMAError) as error:
                if "emory" in str(error):
                    raise LimitExceeded(f"unpacking the {packing.name} data needs over {_LZMA_MEMORY} bytes") from None
                raise CorruptFile(f"the {packing.name} data are damaged: {error}") from None
            fed = True
            data = stream.unused_data if stream.eof else b""
            if piece:
                yield piece
    if not fed or not stream.eof:
        raise TruncatedFile(f"the {packing.name} data end before their end mark")


def allowed_nbytes(packed_nbytes: int, limits: Limits) -> int:
    """How many bytes a compressed file may unpack to."""
    return max(limits.unpacked_at_least, limits.unpacked_ratio * packed_nbytes)
