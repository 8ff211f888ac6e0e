"""Zip archives as torch, numpy and Keras write them, read by our own parser (PKWARE APPNOTE 6.3).

The standard library's reader refuses archives whose recorded CRC-32 are all zero, which torch writes when asked to, and
trusts sizes. Here sizes come from the central directory, are checked against the file, and nothing is unpacked before it
is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ckpt_tools.core.checksum import Checksum, Seal
from ckpt_tools.core.extents import Extent, FileExtent, InflatedExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable
from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source, kept_open
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile

MAGIC = b"PK\x03\x04"

_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 0x1
_UTF8 = 0x800
_END = struct.Struct("<4s4H2IH")
_END64_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
LOCAL = struct.Struct("<4s5H3I2H")
_LONGEST_COMMENT = 0xFFFF
_IN_EXTRA = 0xFFFFFFFF
#: Count, bytes and offset of the directory where the end record leaves them to that of zip64.
_LEFT_TO_ZIP64 = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
_ZIP64_EXTRA = 1


class Member(NamedTuple):
    """One entry of the central directory."""

    name: str
    method: int
    flags: int
    crc: int
    packed_nbytes: int
    nbytes: int
    header_offset: int


class Directory(NamedTuple):
    """Where the central directory is, and the end record behind it, from the start of the archive.

    ``records_at`` is the first of the records that close the archive; ``oddities`` are what they say and readers differ on.
    """

    members: int
    start: int
    nbytes: int
    records_at: int
    end: int
    oddities: tuple[str, ...]


class MemberExtent(FileExtent):
    """The stored bytes of a member. Where they begin is read from the local header when they are first wanted."""

    __slots__ = ("_header_offset", "_name")

    def __init__(self, run: FileExtent, member: Member) -> None:
        self.source = run.source
        self.offset = -1
        self.nbytes = member.packed_nbytes
        self._header_offset = run.offset + member.header_offset
        self._name = member.name

    @property
    def data_offset(self) -> int:
        """The file offset of the first byte."""
        if self.offset < 0:
            header = LOCAL.unpack(self.source.read(self._header_offset, LOCAL.size))
            if header[0] != MAGIC:
                raise CorruptFile(f"member {self._name} has no local header at byte {self._header_offset}")
            self.offset = self._header_offset + LOCAL.size + header[9] + header[10]
            if self.offset + self.nbytes > self.source.nbytes:
                raise TruncatedFile(f"member {self._name} reaches beyond the end of the file")
        return self.offset

    def read(self, offset: int, length: int) -> bytes:
        self.data_offset  # noqa: B018 - sets ``offset``
        return super().read(offset, length)

    def part(self, offset: int, length: int) -> FileExtent:
        self.data_offset  # noqa: B018 - sets ``offset``
        return super().part(offset, length)


@dataclass(frozen=True)
class Archive:
    """A zip archive's directory. Of members with one name the first counts; readers disagree on that.

    ``run`` is where the archive lies: a whole file, or a part of one. ``directory`` is where its directory lies, and
    ``directory_rest`` how many bytes of that no member describes.
    """

    run: FileExtent
    members: dict[str, Member]
    order: tuple[str, ...]
    duplicates: tuple[Member, ...]
    trailing_nbytes: int
    directory: Directory
    directory_rest: int

    @property
    def source(self) -> Source:
        """The file the archive lies in."""
        return self.run.source

    @property
    def sources(self) -> list[Source]:
        """The files that stay open while members are read."""
        return [self.run.source]

    @property
    def nbytes(self) -> int:
        """Bytes of the archive."""
        return self.run.nbytes

    def extent(self, name: str) -> Extent:
        """The bytes of a member, unpacked as they are read. KeyError when there is none."""
        member = self.members[name]
        stored = MemberExtent(self.run, member)
        if member.flags & _ENCRYPTED:
            raise CorruptFile(f"member {name} is encrypted")
        if member.method == _STORED:
            if member.packed_nbytes != member.nbytes:
                raise CorruptFile(
                    f"member {name} is stored, yet {member.packed_nbytes} bytes stand for {member.nbytes}"
                )
            return stored
        if member.method == _DEFLATED:
            # DEFLATE reaches 1032:1 at the very most (zlib's own technical note)
            if member.nbytes > 1100 * member.packed_nbytes + 1100:
                raise CorruptFile(f"member {name} claims {member.nbytes} bytes packed into {member.packed_nbytes}")
            return InflatedExtent(stored, member.nbytes)
        raise CorruptFile(f"member {name} is packed with method {member.method}, known are stored and deflated")

    def checksum(self, name: str) -> Checksum | None:
        """What the directory records of a member; None when nothing was recorded.

        torch records zeros when told not to compute checksums, so zero counts as none.
        """
        member = self.members[name]
        return Checksum("crc32", member.crc, f"member {name}") if member.crc else None

    def audit(self) -> Iterator[Issue]:
        """What only a look at every member's header tells."""
        from ckpt_tools.formats import _zip_audit  # nothing that lists an archive needs

        yield from _zip_audit.audit(self)

    def seals(self) -> Iterator[Seal]:
        """All members, each with its checksum."""
        for name in self.order:
            yield Seal(f"member {name}", self.extent(name), self.checksum(name))

    def read(self, name: str, limit: int = DEFAULT_LIMITS.header_nbytes) -> bytes:
        """A small member, whole. LimitExceeded when it is not small."""
        extent = self.extent(name)
        if extent.nbytes > limit:
            raise LimitExceeded(f"member {name} has {extent.nbytes} bytes, over {limit}")
        return extent.read(0, extent.nbytes)

    def issues(self) -> list[Issue]:
        """What is odd about the archive itself."""
        found = [
            Issue(
                "integrity-duplicate-member",
                Severity.ERROR,
                printable(member.name),
                f"the archive holds two members named {printable(member.name)};"
                " readers disagree on which one counts, the first is shown",
            )
            for member in self.duplicates
        ]
        if self.trailing_nbytes:
            found.append(
                Issue(
                    "integrity-trailing-bytes",
                    Severity.WARNING,
                    str(self.source.path),
                    f"{self.trailing_nbytes} bytes follow the end of the archive",
                )
            )
        return found


def archive_of(location: Location) -> Archive:
    """The archive at ``location``, opened and parsed once. CorruptFile or TruncatedFile when it is none or damaged."""
    return location.once("zip", lambda: _open(location))


def first_member_of(location: Location) -> str:
    """The name in the first local header, all that a zip archive without its directory tells; empty when none is."""
    length = int.from_bytes(location.head[LOCAL.size - 4 : LOCAL.size - 2], "little")
    return location.head[LOCAL.size : LOCAL.size + length].decode("utf-8", "replace")


def _open(location: Location) -> Archive:
    with kept_open(location.path) as source:
        return archive_in(FileExtent(source, 0, source.nbytes))


def archive_in(run: FileExtent) -> Archive:
    """The archive that fills ``run``. CorruptFile or TruncatedFile when it is none or damaged."""
    directory = _find_directory(run)
    count, start, nbytes = directory.members, directory.start, directory.nbytes
    if count > DEFAULT_LIMITS.members:
        raise LimitExceeded(f"an archive of {count} members")
    if start + nbytes > run.nbytes or count * _CENTRAL.size > nbytes:
        raise CorruptFile(f"the zip directory ({count} members, {nbytes} bytes at {start}) does not fit into the file")
    data = run.read(start, nbytes)
    members: dict[str, Member] = {}
    order: list[str] = []
    duplicates: list[Member] = []
    at = 0
    unpack, fixed = _CENTRAL.unpack_from, _CENTRAL.size
    for _ in range(count):
        (
            magic,
            _,
            _,
            flags,
            method,
            _,
            _,
            crc,
            packed,
            size,
            name_length,
            extra_length,
            comment_length,
            _,
            _,
            _,
            offset,
        ) = unpack(data, at)
        if magic != b"PK\x01\x02":
            raise CorruptFile(f"the zip directory is damaged at byte {start + at}")
        at += fixed
        raw = data[at : at + name_length]
        name = decoded(raw, flags)
        at += name_length
        if packed == _IN_EXTRA or size == _IN_EXTRA or offset == _IN_EXTRA:
            size, packed, offset = _zip64(data[at : at + extra_length], size, packed, offset)
        at += extra_length + comment_length
        if offset + LOCAL.size + packed > start:
            raise TruncatedFile(f"member {name} needs {packed} bytes at {offset}, the zip directory begins at {start}")
        member = Member(name, method, flags, crc, packed, size, offset)
        if name in members:
            duplicates.append(member)
            continue
        members[name] = member
        order.append(name)
    trailing = run.nbytes - directory.end
    return Archive(run, members, tuple(order), tuple(duplicates), trailing, directory, nbytes - at)


def decoded(raw: bytes, flags: int) -> str:
    """The name of a member as text; ``flags`` say whether it is UTF-8."""
    return raw.decode("utf-8" if flags & _UTF8 or raw.isascii() else "cp437", "surrogateescape")


def _zip64(extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Sizes and offset with those taken from the zip64 block that the fixed fields leave to it."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == _ZIP64_EXTRA:
            numbers = iter(struct.unpack_from(f"<{length // 8}Q", extra, at + 4))
            size = next(numbers) if size == _IN_EXTRA else size
            packed = next(numbers) if packed == _IN_EXTRA else packed
            offset = next(numbers) if offset == _IN_EXTRA else offset
            return size, packed, offset
        at += 4 + length
    raise CorruptFile("a zip member leaves its size to a zip64 block that is not there")


def _find_directory(run: FileExtent) -> Directory:
    tail_start = max(0, run.nbytes - _END.size - _END64_LOCATOR.size)
    tail = run.read(tail_start, run.nbytes - tail_start)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        tail_start = max(0, run.nbytes - _END.size - _LONGEST_COMMENT - _END64_LOCATOR.size)
        tail = run.read(tail_start, run.nbytes - tail_start)
        at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise TruncatedFile(
            f"the zip archive is truncated: its {run.nbytes} bytes have no end-of-central-directory record",
            where=str(run.source.path),
            hint="copy or download it again; if a training wrote it, that save was interrupted",
        )
    _, disk, directory_disk, on_disk, count, nbytes, start, comment_length = _END.unpack_from(tail, at)
    end = tail_start + at + _END.size + comment_length
    records_at = tail_start + at
    oddities = []
    if disk or directory_disk:
        oddities.append("the end record counts several disks")
    if on_disk != count:
        oddities.append(f"the end record counts {count} members, and {on_disk} of them on this disk")
    locator_at = records_at - _END64_LOCATOR.size
    locator = run.read(locator_at, _END64_LOCATOR.size) if locator_at >= 0 else b""
    if locator.startswith(b"PK\x06\x07"):
        _, _, records_at, _ = _END64_LOCATOR.unpack(locator)
        record = run.read(records_at, _END64.size)
        if record[:4] != b"PK\x06\x06":
            raise CorruptFile(f"the zip64 end record is not at byte {records_at}")
        short = (count, nbytes, start)
        _, _, _, _, _, _, _, count, nbytes, start = _END64.unpack(record)
        if any(n not in (wide, full) for n, wide, full in zip(short, (count, nbytes, start), _LEFT_TO_ZIP64)):
            oddities.append("the end record and the zip64 end record give different places for the directory")
    return Directory(count, start, nbytes, records_at, min(end, run.nbytes), tuple(oddities))
