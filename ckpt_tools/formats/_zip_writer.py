"""Zip archives written in one pass: stored members behind data descriptors (PKWARE APPNOTE 6.3).

The layout is that of torch's own writer (caffe2/serialize/inline_container.cc): sizes and checksums stand in the
descriptor and in the directory, an extra field ``FB`` pads each member so that its bytes begin at an aligned offset, and
a zip64 end record is always there. Python's ``zipfile`` and numpy read it as well.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ckpt_tools.formats._writing import Output

ALIGNMENT = 64

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END64 = struct.Struct("<4sQ2H2I4Q")
_END64_LOCATOR = struct.Struct("<4sIQI")
_END = struct.Struct("<4s4H2IH")
#: Fields of 32 bits hold this when the true number stands in a zip64 block.
_LARGE = 0xFFFFFFFF
_MANY = 0xFFFF
_HAS_DESCRIPTOR, _UTF8 = 0x8, 0x800


@dataclass(frozen=True)
class PlannedMember:
    """A member whose size and place are known; its bytes are not needed yet."""

    name: bytes
    nbytes: int
    header_offset: int
    large: bool
    header: bytes

    @property
    def packed_nbytes(self) -> int:
        """Bytes from the local header to behind the descriptor."""
        return len(self.header) + self.nbytes + self._descriptor_nbytes

    @property
    def _descriptor_nbytes(self) -> int:
        return 0 if not self.nbytes else 24 if self.large else 16

    @property
    def flags(self) -> int:
        return _UTF8 | (_HAS_DESCRIPTOR if self.nbytes else 0)

    def descriptor(self, crc: int) -> bytes:
        """What follows the bytes: their checksum and number, twice."""
        if not self.nbytes:
            return b""
        return struct.pack("<4sI2Q" if self.large else "<4s3I", b"PK\x07\x08", crc, self.nbytes, self.nbytes)

    def entry(self, crc: int) -> bytes:
        """The directory's entry."""
        size = _LARGE if self.nbytes >= _LARGE else self.nbytes
        offset = _LARGE if self.header_offset >= _LARGE else self.header_offset
        extra = b""
        if size == _LARGE:
            extra += struct.pack("<2Q", self.nbytes, self.nbytes)
        if offset == _LARGE:
            extra += struct.pack("<Q", self.header_offset)
        if extra:
            extra = struct.pack("<2H", 1, len(extra)) + extra
        return (
            _CENTRAL.pack(
                b"PK\x01\x02",
                0,
                0,
                self.flags,
                0,
                0,
                0,
                crc,
                size,
                size,
                len(self.name),
                len(extra),
                0,
                0,
                0,
                0,
                offset,
            )
            + self.name
            + extra
        )


class Layout:
    """Where the members of an archive will lie; ``nbytes`` is the size of the whole archive."""

    def __init__(self, members: Iterable[tuple[str, int]]) -> None:
        self.members: list[PlannedMember] = []
        offset = directory_nbytes = 0
        for name, nbytes in members:
            member = _planned(name.encode("utf-8"), nbytes, offset)
            self.members.append(member)
            offset += member.packed_nbytes
            directory_nbytes += len(member.entry(0))
        self.directory_offset = offset
        self.nbytes = offset + directory_nbytes + len(self._end(directory_nbytes))

    def write(self, output: Output, contents: Sequence[Callable[[], Iterable[bytes]]]) -> None:
        """Write the archive; ``contents`` has a source of bytes for each member, asked when its turn comes."""
        entries: list[bytes] = []
        for member, content in zip(self.members, contents):
            output.write(member.header)
            crc = written = 0
            for chunk in content():
                crc = zlib.crc32(chunk, crc)
                written += len(chunk)
                output.write(chunk)
            if written != member.nbytes:
                raise AssertionError(f"member {member.name!r} was planned with {member.nbytes} bytes, has {written}")
            output.write(member.descriptor(crc))
            entries.append(member.entry(crc))
        directory = b"".join(entries)
        output.write(directory)
        output.write(self._end(len(directory)))

    def _end(self, directory_nbytes: int) -> bytes:
        count, start = len(self.members), self.directory_offset
        end = _END.pack(
            b"PK\x05\x06",
            0,
            0,
            min(count, _MANY),
            min(count, _MANY),
            min(directory_nbytes, _LARGE),
            min(start, _LARGE),
            0,
        )
        if not count:
            return end  # numpy knows an empty archive by its first bytes
        end64 = start + directory_nbytes
        return (
            _END64.pack(b"PK\x06\x06", _END64.size - 12, 0x031E, 45, 0, 0, count, count, directory_nbytes, start)
            + _END64_LOCATOR.pack(b"PK\x06\x07", 0, end64, 1)
            + end
        )


def _planned(name: bytes, nbytes: int, offset: int) -> PlannedMember:
    block = b""
    if nbytes >= _LARGE:
        block += struct.pack("<2Q", nbytes, 0)
    if offset >= _LARGE:
        block += struct.pack("<Q", offset)
    if block:
        block = struct.pack("<2H", 1, len(block)) + block
    start = offset + _LOCAL.size + len(name) + len(block) + 4
    padding = -start % ALIGNMENT
    extra = block + struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    flags = _UTF8 | (_HAS_DESCRIPTOR if nbytes else 0)
    header = _LOCAL.pack(b"PK\x03\x04", 0, flags, 0, 0, 0, 0, 0, 0, len(name), len(extra)) + name + extra
    return PlannedMember(name, nbytes, offset, nbytes >= _LARGE or offset >= _LARGE, header)
