"""Where readers of one zip archive understand different things, and which of its bytes belong to nothing.

Some readers trust the central directory, some the header in front of each member, some count members and some bytes
(PKWARE APPNOTE 6.3, sections 4.3 and 4.4). An archive that means one thing to a scanner and another to what loads it is
an attack or damage; either way it is told.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable
from ckpt_tools.core.runs import Run, between, overlapping
from ckpt_tools.errors import CorruptFile, TruncatedFile
from ckpt_tools.formats._zip import LOCAL, MAGIC, Archive, Member, decoded

#: Flags that some readers obey and others do not look at: encrypted, patched data, strong encryption, masked headers.
_DISPUTED_FLAGS = 0x1 | 0x20 | 0x40 | 0x2000
#: Sizes and checksum stand behind the data; the header may have zeros.
_DESCRIPTOR_FOLLOWS = 0x8
#: Signature, checksum and two sizes of eight bytes: a data descriptor at its longest.
_DESCRIPTOR_NBYTES = 24
_IN_EXTRA = 0xFFFFFFFF


def audit(archive: Archive) -> Iterator[Issue]:
    """An issue for each disagreement, overlap and gap. Reads the header of every member."""
    directory = archive.directory
    where = str(archive.source.path)
    for text in directory.oddities:
        yield _disagreement(where, text)
    if archive.directory_rest:
        text = (
            f"the directory has {archive.directory_rest} bytes behind the {directory.members} members that are counted"
        )
        yield _disagreement(where, text)
    if directory.start + directory.nbytes != directory.records_at:
        text = "the end record does not follow the directory: readers find members in different places"
        yield _disagreement(where, text)
    members: list[Run] = []
    covered = [Run(directory.start, archive.nbytes, "the directory")]
    for member in (*archive.members.values(), *archive.duplicates):
        try:
            begin, flags, odd = _compare(archive, member)
        except CorruptFile as error:
            yield Issue("integrity-damaged-member", Severity.ERROR, printable(member.name), error.message)
            continue
        if odd:
            yield _disagreement(printable(member.name), f"{', '.join(odd)}: readers disagree on what it holds")
        end = begin + member.packed_nbytes
        members.append(Run(member.header_offset, end, member.name))
        behind = _DESCRIPTOR_NBYTES if flags & _DESCRIPTOR_FOLLOWS else 0
        covered.append(Run(member.header_offset, end + behind, member.name))
    for first, second in overlapping([*members, covered[0]]):
        text = f"its bytes overlap those of {printable(first.name)}"
        yield Issue("integrity-overlap", Severity.ERROR, printable(second.name), text)
    for gap in between(covered, 0, archive.nbytes):
        behind_what = f"behind member {printable(gap.name)}" if gap.name else "in front of the first member"
        text = f"{gap.end - gap.start} bytes at {gap.start}, {behind_what}, belong to nothing"
        yield Issue("integrity-gap", Severity.WARNING, where, text)


def _compare(archive: Archive, member: Member) -> tuple[int, int, list[str]]:
    """Where the data of a member begin, its flags by its own header, and how that differs from the directory."""
    raw = archive.run.read(member.header_offset, LOCAL.size)
    magic, _, flags, method, _, _, crc, packed, size, name_nbytes, extra_nbytes = LOCAL.unpack(raw)
    if magic != MAGIC:
        raise CorruptFile(f"it has no header at byte {member.header_offset}")
    begin = member.header_offset + LOCAL.size + name_nbytes + extra_nbytes
    if begin + member.packed_nbytes > archive.nbytes:
        raise TruncatedFile("it reaches beyond the end of the file")
    name = decoded(archive.run.read(member.header_offset + LOCAL.size, name_nbytes), member.flags)
    odd = []
    if name != member.name:
        odd.append(f"its own header calls it {printable(name)}")
    if "\0" in member.name:
        odd.append("its name holds a zero byte, where some readers end it")
    if (flags | member.flags) & _DISPUTED_FLAGS:
        odd.append("its flags say that it is encrypted or patched")
    if method != member.method:
        odd.append(f"its own header says packed with method {method}, the directory {member.method}")
    told_later = {0} if flags & _DESCRIPTOR_FOLLOWS else set()
    if crc not in {member.crc, *told_later}:
        odd.append(f"its own header has the CRC-32 {crc:08x}, the directory {member.crc:08x}")
    for here, there, what in ((packed, member.packed_nbytes, "packed"), (size, member.nbytes, "unpacked")):
        if here not in {there, _IN_EXTRA, *told_later}:
            odd.append(f"its own header says {here} bytes {what}, the directory {there}")
    return begin, flags, odd


def _disagreement(where: str, text: str) -> Issue:
    return Issue("safety-readers-disagree", Severity.ERROR, where, text)
