"""Sorted string tables: keys in bytewise order, each with a value, in blocks behind an index of blocks.

Source: the LevelDB table format (github.com/google/leveldb/blob/main/doc/table_format.md) as TensorFlow writes it
(tensorflow/core/lib/io/format.cc): an index of a bundle, or a whole V1 checkpoint. Checked: the footer, handles against
the file, CRC-32C of every block that is read whole, the order of keys. Refused: block types other than stored and
snappy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ckpt_tools.core.checksum import Checksum, Seal, crc32c, unmask
from ckpt_tools.core.extents import Extent, FileExtent, MemoryExtent
from ckpt_tools.core.issues import Issue
from ckpt_tools.core.limits import DEFAULT_LIMITS, KIB, MIB
from ckpt_tools.core.runs import Run
from ckpt_tools.core.source import Source
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile
from ckpt_tools.formats import _layout
from ckpt_tools.formats._protobuf import varint

MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")

_FOOTER_NBYTES = 48
_TRAILER_NBYTES = 5  # type byte and masked CRC-32C
_STORED, _SNAPPY = 0, 1
_COUNT_NBYTES = 4
#: Longer than any variable's name; a key repeats up to all of the one before it, so a limit is needed.
_KEY_NBYTES = 64 * KIB
#: A key stands in full at every 16th entry, so that keys unfold to 16 times the table at the very most.
_KEYS_PER_BYTE = 16
#: Read in front of a value that is not read itself: three lengths and a key.
_WINDOW = 512
#: TensorFlow closes a block at 256 KiB; only one that ends in a large tensor is longer than this.
_SMALL_BLOCK_NBYTES = MIB
_COPY_AGAIN = "copy the index again; the data files alone do not tell names or shapes"


class Handle(NamedTuple):
    """Where a block lies; the trailer behind it is not counted."""

    offset: int
    nbytes: int


class BlockExtent(FileExtent):
    """The contents of a block that is stored in the file as it is. ``check`` is left to who reads values of it."""

    __slots__ = ("_checked",)

    def __init__(self, source: Source, handle: Handle) -> None:
        super().__init__(source, *handle)
        self._checked = False

    def check(self) -> None:
        """CorruptFile unless the block has the checksum it carries. Reads it all, a piece at a time, once."""
        if self._checked:
            return
        whole = FileExtent(self.source, self.offset, self.nbytes + 1)  # the type byte counts
        value = 0
        for chunk in whole.chunks(0, whole.nbytes, DEFAULT_LIMITS.chunk_nbytes):
            value = crc32c(chunk, value)
        _expect_checksum(self.source, Handle(self.offset, self.nbytes), value)
        self._checked = True


class ValueExtent(Extent):
    """The bytes of one value. The block it lies in is checked before the first of them is handed out."""

    __slots__ = ("_block", "_offset", "nbytes")

    def __init__(self, block: Extent, offset: int, nbytes: int) -> None:
        self._block = block
        self._offset = offset
        self.nbytes = nbytes

    def read(self, offset: int, length: int) -> bytes:
        self._has(offset, length)
        if isinstance(self._block, BlockExtent):
            self._block.check()
        return self._block.read(self._offset + offset, length)

    def read_unchecked(self, offset: int, length: int) -> bytes:
        """Like ``read``, without a look at the rest of the block: for parts that tell where the others lie."""
        self._has(offset, length)
        return self._block.read(self._offset + offset, length)


class Table:
    """A table whose footer and index have been read and checked. TruncatedFile or CorruptFile when it is none."""

    def __init__(self, source: Source) -> None:
        self.source = source
        footer = source.peek(source.nbytes - _FOOTER_NBYTES, _FOOTER_NBYTES)
        if len(footer) < _FOOTER_NBYTES or not footer.endswith(MAGIC):
            raise TruncatedFile("the index is truncated: table footer/magic missing", hint=_COPY_AGAIN)
        metaindex, at = self._handle(footer, 0)  # which is empty
        index, _ = self._handle(footer, at)
        self._blocks = [self._handle(body.read(at, nbytes), 0)[0] for _, body, at, nbytes in self._walk([index])]
        self._closing = (metaindex, index)

    def seals(self) -> Iterator[Seal]:
        """Every block with the checksum behind it; the type byte between the two counts."""
        for handle in [*self._blocks, *self._closing]:
            place = f"the block at {handle.offset} in {self.source.path.name}"
            stored = int.from_bytes(self.source.read(handle.offset + handle.nbytes + 1, 4), "little")
            extent = FileExtent(self.source, handle.offset, handle.nbytes + 1)
            yield Seal(place, extent, Checksum("crc32c", unmask(stored), place))

    def audit(self) -> Iterator[Issue]:
        """What is odd about how the blocks lie in the file."""
        blocks = [
            Run(offset, offset + nbytes + _TRAILER_NBYTES, f"the block at {offset}")
            for offset, nbytes in [*self._blocks, *self._closing]
        ]
        footer = Run(self.source.nbytes - _FOOTER_NBYTES, self.source.nbytes, "the footer")
        yield from _layout.issues([*blocks, footer], self.source.nbytes, self.source.path.name)

    def _handle(self, data: bytes, at: int) -> tuple[Handle, int]:
        offset, at = varint(data, at)
        nbytes, at = varint(data, at)
        if offset + nbytes + _TRAILER_NBYTES > self.source.nbytes:
            raise TruncatedFile(
                f"a block of {nbytes} bytes at {offset} reaches beyond the file's {self.source.nbytes} bytes"
            )
        return Handle(offset, nbytes), at

    def header(self) -> bytes | None:
        """The value of the empty key, with which TensorFlow's tables begin; None when there is no such key.

        In a V1 checkpoint it shares a block with tensors: that is checked here only when it is small.
        """
        for key, value in self.values():
            if key:
                break
            if value.nbytes > DEFAULT_LIMITS.header_nbytes:
                raise LimitExceeded(f"a table header of {value.nbytes} bytes")
            small = self._blocks[0].nbytes <= _SMALL_BLOCK_NBYTES
            return value.read(0, value.nbytes) if small else value.read_unchecked(0, value.nbytes)
        return None

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key with its value, in order. For tables of small values: blocks are read whole."""
        for key, body, at, nbytes in self._walk(self._blocks):
            yield key, body.read(at, nbytes)

    def values(self) -> Iterator[tuple[bytes, ValueExtent]]:
        """Every key with the place of its value, in order. Values are left unread, and so unchecked until they are."""
        for key, body, at, nbytes in self._walk(self._blocks, self._unread):
            yield key, ValueExtent(body, at, nbytes)

    def _walk(
        self, handles: Iterable[Handle], body_of: Callable[[Handle], Extent] | None = None
    ) -> Iterator[tuple[bytes, Extent, int, int]]:
        """Every entry: its key, its block's contents, where its value begins in them and how long it is."""
        body_of = body_of or self._unpacked
        last: bytes | None = None
        unfolded = 0
        for handle in handles:
            body = body_of(handle)
            at, end = 0, _end_of_entries(body)
            key = b""
            while at < end:
                window = body.read(at, min(_WINDOW, end - at))
                shared, head = varint(window, 0)
                tail_nbytes, head = varint(window, head)
                nbytes, head = varint(window, head)
                at += head
                if tail_nbytes + nbytes > end - at:
                    raise TruncatedFile(f"an entry of {tail_nbytes + nbytes} bytes, its block has {end - at} left")
                if shared > len(key):
                    raise CorruptFile(f"a key repeats {shared} bytes of one that has {len(key)}")
                if shared + tail_nbytes > _KEY_NBYTES:
                    raise LimitExceeded(f"a table key of {shared + tail_nbytes} bytes")
                in_window = head + tail_nbytes <= len(window)
                key = key[:shared] + (window[head : head + tail_nbytes] if in_window else body.read(at, tail_nbytes))
                if last is not None and key <= last:
                    raise CorruptFile(f"the keys of the table are out of order at {key[:80]!r}")
                last = key
                unfolded += len(key)
                if unfolded > MIB + _KEYS_PER_BYTE * self.source.nbytes:
                    raise LimitExceeded(f"the keys of a table of {self.source.nbytes} bytes unfold to over {unfolded}")
                at += tail_nbytes
                yield key, body, at, nbytes
                at += nbytes

    def _unread(self, handle: Handle) -> Extent:
        """A block's contents: in the file where they are stored as they are, in memory where they are packed."""
        kind = self.source.read(handle.offset + handle.nbytes, 1)[0]
        return BlockExtent(self.source, handle) if kind == _STORED else self._unpacked(handle)

    def _unpacked(self, handle: Handle) -> Extent:
        """A block's contents in memory, checked and unpacked."""
        offset, nbytes = handle
        if nbytes > DEFAULT_LIMITS.header_nbytes:
            raise LimitExceeded(f"a table block of {nbytes} bytes")
        data = self.source.read(offset, nbytes + 1)
        _expect_checksum(self.source, handle, crc32c(data))
        kind = data[nbytes]
        if kind not in (_STORED, _SNAPPY):
            raise CorruptFile(f"the block at {offset} is packed in way {kind}, known are 0 (stored) and 1 (snappy)")
        from ckpt_tools.formats._snappy import unpack  # this module is asked about every file, few are packed

        return MemoryExtent(unpack(data[:nbytes]) if kind == _SNAPPY else data[:nbytes])


def _expect_checksum(source: Source, handle: Handle, found: int) -> None:
    stored = unmask(int.from_bytes(source.read(handle.offset + handle.nbytes + 1, 4), "little"))
    if stored != found:
        raise CorruptFile(
            f"the block at {handle.offset} is damaged: its CRC-32C is {found:08x}, recorded is {stored:08x}",
            where=str(source.path),
        )


def _end_of_entries(body: Extent) -> int:
    """Where the restart offsets begin that close a block; its last four bytes count them."""
    if body.nbytes < _COUNT_NBYTES:
        raise CorruptFile(f"a block of {body.nbytes} bytes, too few for one")
    restarts = int.from_bytes(body.read(body.nbytes - _COUNT_NBYTES, _COUNT_NBYTES), "little")
    end = body.nbytes - _COUNT_NBYTES * (1 + restarts)
    if end < 0:
        raise CorruptFile(f"a block of {body.nbytes} bytes counts {restarts} restart points")
    return end
