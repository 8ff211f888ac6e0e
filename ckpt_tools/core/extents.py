"""Runs of bytes that can be read in pieces, wherever they are kept: in a file, in memory, packed, in several parts."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path

from ckpt_tools.core.source import Source
from ckpt_tools.errors import CorruptFile, TruncatedFile

#: Packed bytes taken at a time while unpacking.
_PACKED_STEP = 64 * 1024
#: Readers with a sliding window look back a little; that must not unpack everything again.
_KEPT_BEHIND = 64
#: 64 bits, seven in each byte.
_LONGEST_VARINT = 10


class Extent(ABC):
    """A run of ``nbytes`` bytes. Reading costs what is read, never the whole run, except where a class says so."""

    __slots__ = ()
    nbytes: int
    #: whether bytes can only be produced from the front, so that going back costs all that lies before
    sequential = False

    @abstractmethod
    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset`` of this run, or an error."""

    def chunks(self, offset: int, length: int, limit: int) -> Iterator[bytes]:
        """The bytes ``[offset, offset + length)`` in order, at most ``limit`` at a time."""
        end = offset + length
        while offset < end:
            step = min(limit, end - offset)
            yield self.read(offset, step)
            offset += step

    def part(self, offset: int, length: int) -> Extent:
        """``length`` bytes from ``offset`` as a run of their own, not read yet. TruncatedFile when there are fewer."""
        self._has(offset, length)
        return PartExtent(self, offset, length)

    def _has(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > self.nbytes:
            raise TruncatedFile(f"needs {length} bytes at byte {offset} of a run that has {self.nbytes}")


class PartExtent(Extent):
    """A part of another run."""

    __slots__ = ("nbytes", "offset", "sequential", "whole")

    def __init__(self, whole: Extent, offset: int, nbytes: int) -> None:
        self.whole = whole
        self.sequential = whole.sequential
        self.offset = offset
        self.nbytes = nbytes

    def read(self, offset: int, length: int) -> bytes:
        self._has(offset, length)
        return self.whole.read(self.offset + offset, length)


class FileExtent(Extent):
    """Bytes of a file, as they are."""

    __slots__ = ("nbytes", "offset", "source")

    def __init__(self, source: Source, offset: int, nbytes: int) -> None:
        self.source = source
        self.offset = offset
        self.nbytes = nbytes

    def read(self, offset: int, length: int) -> bytes:
        self._has(offset, length)
        return self.source.read(self.offset + offset, length)

    def part(self, offset: int, length: int) -> FileExtent:
        self._has(offset, length)
        return FileExtent(self.source, self.offset + offset, length)


class PathExtent(Extent):
    """A whole file, open only while it is read: of thousands of such files few may be open at once."""

    __slots__ = ("nbytes", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        with Source(path) as source:
            self.nbytes = source.nbytes

    def read(self, offset: int, length: int) -> bytes:
        with Source(self.path) as source:
            return source.read(offset, length)

    def chunks(self, offset: int, length: int, limit: int) -> Iterator[bytes]:
        with Source(self.path) as source:
            yield from FileExtent(source, 0, self.nbytes).chunks(offset, length, limit)


class MemoryExtent(Extent):
    """Bytes that are already in memory."""

    __slots__ = ("data", "nbytes")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.nbytes = len(data)

    def read(self, offset: int, length: int) -> bytes:
        self._has(offset, length)
        return self.data[offset : offset + length]

    def part(self, offset: int, length: int) -> Extent:
        return MemoryExtent(self.read(offset, length))


class JoinedExtent(Extent):
    """Several runs, one after the other."""

    __slots__ = ("_starts", "nbytes", "parts")

    def __init__(self, parts: Sequence[Extent]) -> None:
        self.parts = tuple(part for part in parts if part.nbytes)
        self._starts = []
        self.nbytes = 0
        for part in self.parts:
            self._starts.append(self.nbytes)
            self.nbytes += part.nbytes

    def read(self, offset: int, length: int) -> bytes:
        self._has(offset, length)
        pieces = []
        index = bisect_right(self._starts, offset) - 1 if length else len(self.parts)
        while length:
            part, start = self.parts[index], offset - self._starts[index]
            step = min(length, part.nbytes - start)
            pieces.append(part.read(start, step))
            offset, length, index = offset + step, length - step, index + 1
        return b"".join(pieces)


class _SequentialExtent(Extent):
    """Bytes that can only be produced from the front.

    Going back more than a few bytes starts again; going forward drops what lies between.
    """

    __slots__ = ("_behind", "_produced", "_stream", "_tail", "nbytes")
    sequential = True

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._restart()

    def _restart(self) -> None:
        self._stream: Iterator[bytes] | None = None
        self._produced = 0  # bytes handed out or dropped so far
        self._tail = b""  # produced, not yet handed out
        self._behind = b""  # the last bytes that were handed out

    @abstractmethod
    def _produce(self) -> Iterator[bytes]:
        """The bytes from the front, in pieces of bounded size."""

    def read(self, offset: int, length: int) -> bytes:
        self._has(offset, length)
        if self._produced - len(self._behind) <= offset < self._produced:
            back = self._behind[offset - self._produced :]
            return back[:length] if length <= len(back) else back + self.read(self._produced, length - len(back))
        if offset < self._produced:
            self._restart()
        if self._stream is None:
            self._stream = self._produce()
        skip, pieces, have = offset - self._produced, [], 0
        while have < length:
            piece = self._tail or next(self._stream, b"")
            self._tail = b""
            if not piece:
                raise TruncatedFile(f"the packed data end after {self._produced} of {self.nbytes} bytes")
            if skip:
                self._behind = b""
                dropped = min(skip, len(piece))
                skip -= dropped
                self._produced += dropped
                piece = piece[dropped:]
                if not piece:
                    continue
            taken = piece[: length - have]
            self._tail = piece[len(taken) :]
            self._produced += len(taken)
            have += len(taken)
            pieces.append(taken)
        data = b"".join(pieces)
        self._behind = (self._behind + data[-_KEPT_BEHIND:])[-_KEPT_BEHIND:]
        return data


class InflatedExtent(_SequentialExtent):
    """Raw DEFLATE data (a zip member), unpacked as it is read."""

    __slots__ = ("packed",)

    def __init__(self, packed: Extent, nbytes: int) -> None:
        self.packed = packed
        super().__init__(nbytes)

    def _produce(self) -> Iterator[bytes]:
        unpack = zlib.decompressobj(-zlib.MAX_WBITS)
        for data in self.packed.chunks(0, self.packed.nbytes, _PACKED_STEP):
            while data:
                piece = unpack.decompress(data, 16 * _PACKED_STEP)
                if piece:
                    yield piece
                data = unpack.unconsumed_tail
        rest = unpack.flush()
        if rest:
            yield rest


class Latin1Extent(_SequentialExtent):
    """Bytes that a protocol 0-2 pickle keeps as text: UTF-8 of code points below 256, one for each byte."""

    __slots__ = ("text",)

    def __init__(self, text: Extent, nbytes: int) -> None:
        self.text = text
        super().__init__(nbytes)

    def _produce(self) -> Iterator[bytes]:
        rest = b""
        for data in self.text.chunks(0, self.text.nbytes, _PACKED_STEP):
            data = rest + data
            cut = len(data) - 1 if data[-1] >= 0xC0 else len(data)  # a two-byte code point may straddle the step
            rest = data[cut:]
            if not cut:
                continue
            try:
                yield data[:cut].decode("utf-8").encode("latin-1")
            except UnicodeError as error:
                raise CorruptFile("array bytes kept as text are not Latin-1 in UTF-8") from error
        if rest:
            raise TruncatedFile("array bytes kept as text end inside a character")


class VarintExtent(_SequentialExtent):
    """Integers of ``itemsize`` bytes, little-endian, that are kept as packed varints (Protocol Buffers).

    Negative ones stand there as the two's complement of 64 bits; what one has beyond ``itemsize`` bytes is dropped.
    """

    __slots__ = ("itemsize", "packed")

    def __init__(self, packed: Extent, count: int, itemsize: int) -> None:
        self.packed = packed
        self.itemsize = itemsize
        super().__init__(count * itemsize)

    def _produce(self) -> Iterator[bytes]:
        import numpy

        rest = b""
        for data in self.packed.chunks(0, self.packed.nbytes, _PACKED_STEP):
            raw = numpy.frombuffer(rest + data, "u1")
            ends = numpy.flatnonzero(raw < 0x80) + 1
            if not len(ends):
                rest = raw.tobytes()
                if len(rest) >= _LONGEST_VARINT:
                    raise CorruptFile("a packed integer of more than ten bytes")
                continue
            starts = numpy.concatenate(([0], ends[:-1]))
            lengths = ends - starts
            longest = int(lengths.max())
            if longest > _LONGEST_VARINT:
                raise CorruptFile("a packed integer of more than ten bytes")
            values = numpy.zeros(len(ends), "<u8")
            for position in range(longest):
                some = numpy.flatnonzero(lengths > position)
                values[some] |= (raw[starts[some] + position] & 0x7F).astype("u8") << numpy.uint64(7 * position)
            yield values.view("u1").reshape(-1, 8)[:, : self.itemsize].tobytes()
            rest = raw[ends[-1] :].tobytes()
        if rest:
            raise TruncatedFile("packed integers end inside one")
