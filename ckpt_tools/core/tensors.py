"""Lazy tensors: what they are is known at once, their bytes are read when asked for, in bounded pieces.

Values are handed out row-major and little-endian whatever the file does: strides are gathered, byte orders swapped,
conjugate and negative views resolved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ckpt_tools.core.checksum import Checksum
from ckpt_tools.core.dtypes import DType
from ckpt_tools.core.extents import Extent
from ckpt_tools.core.limits import CHUNK_NBYTES, DEFAULT_LIMITS
from ckpt_tools.core.strides import gather, row_major_strides
from ckpt_tools.errors import CorruptFile, LimitExceeded, MissingBytes

if TYPE_CHECKING:
    import numpy


class TensorInfo(NamedTuple):
    """What a tensor is: element type and shape (row-major, outermost dimension first)."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def count(self) -> int:  # type: ignore[override]
        """Number of elements; 1 for a 0-d tensor."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values, packed; 0 for strings, whose elements differ in length."""
        return self.dtype.nbytes(math.prod(self.shape))


class Storage:
    """A run of bytes that one or more tensors look at. Sharing a storage is what makes weights tied.

    ``byteorder`` is ``little`` or ``big``; ``checksum`` is what the file says about all of the bytes, if anything;
    ``location`` is the device the file names (``cuda:0``), for people.
    """

    __slots__ = ("byteorder", "checksum", "extent", "location")

    def __init__(
        self, extent: Extent, *, byteorder: str = "little", checksum: Checksum | None = None, location: str = "cpu"
    ) -> None:
        self.extent = extent
        self.byteorder = byteorder
        self.checksum = checksum
        self.location = location

    @property
    def nbytes(self) -> int:
        return self.extent.nbytes


class Tensor:
    """A leaf with dtype, shape and bytes. Subclasses say how :meth:`chunks` gets them.

    ``storage`` is None where no single run of bytes is behind the tensor. ``alias`` is the second name some formats
    give (Paddle's variable name, TensorFlow's ``full_name``). ``note`` is what else people should know, in a few words.
    """

    # No ABC: its metaclass makes isinstance a call of Python code, and a listing asks it several times for each leaf.
    __slots__ = ("alias", "info", "note", "storage")
    info: TensorInfo
    storage: Storage | None
    alias: str | None
    note: str | None

    def __repr__(self) -> str:
        return f"<{self.info.dtype} {list(self.info.shape)}>"

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        """The values as row-major little-endian bytes, at most about ``limit`` at a time. Can be called again.

        For composite tensors these are the bytes of the parts in order; for strings each element's length as an
        unsigned 64-bit integer, then its bytes. Raises MissingBytes when there are none.
        """
        raise NotImplementedError

    def constituents(self) -> Iterator[Tensor]:
        """The tensors that have the bytes: those that this one is made of, or itself."""
        yield self

    def require_bounded(self) -> None:
        """LimitExceeded when there are far more values than the bytes that the file has for them."""

    @property
    def nbytes(self) -> int:
        """Bytes of the values as :meth:`chunks` hands them out."""
        return self.info.nbytes

    def tobytes(self) -> bytes:
        """All values at once; for tensors known to be small."""
        return b"".join(self.chunks())

    def numpy(self) -> numpy.ndarray:
        """The values as a numpy array of the tensor's own dtype (ml_dtypes for bfloat16 and float8)."""
        import numpy

        flat = bytearray(self.nbytes)
        at = 0
        for chunk in self.chunks():
            flat[at : at + len(chunk)] = chunk
            at += len(chunk)
        return numpy.frombuffer(flat, self.info.dtype.to_numpy()).reshape(self.info.shape)


class StridedTensor(Tensor):
    """A view of a storage: offset and strides in elements, as numpy and torch count them (strides >= 0)."""

    __slots__ = ("conj", "neg", "offset", "strides")

    def __init__(
        self,
        info: TensorInfo,
        storage: Storage,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
        *,
        alias: str | None = None,
        note: str | None = None,
        conj: bool = False,
        neg: bool = False,
    ) -> None:
        self.info = info
        self.storage: Storage = storage
        self.offset = offset
        self.strides = strides  # None: packed, row-major
        self.alias = alias
        self.note = note
        self.conj = conj
        self.neg = neg

    def check_span(self) -> None:
        """CorruptFile unless every element lies inside the storage. Spans come from strides, not from counts."""
        dtype, shape = self.info
        strides = row_major_strides(shape) if self.strides is None else self.strides
        if len(strides) != len(shape):
            raise CorruptFile(f"strides {list(strides)} do not fit shape {list(shape)}")
        last, empty = self.offset, False
        for n, stride in zip(shape, strides):
            if n < 0 or stride < 0:
                raise CorruptFile(f"negative shape or strides: {list(shape)}, {list(strides)}")
            last += (n - 1) * stride
            empty = empty or n == 0
        if self.offset < 0:
            raise CorruptFile(f"a negative offset: {self.offset}")
        if not empty and dtype.nbytes(last + 1) > self.storage.extent.nbytes:
            raise CorruptFile(
                f"shape {list(shape)} of {dtype} needs {dtype.nbytes(last + 1)} bytes of storage,"
                f" {self.storage.nbytes} are there"
            )

    @property
    def contiguous(self) -> bool:
        """Whether the values lie packed in row-major order."""
        if self.strides is None:
            return True
        step = 1
        for extent, stride in zip(reversed(self.info.shape), reversed(self.strides)):
            if extent != 1 and stride != step:
                return 0 in self.info.shape
            step *= extent
        return True

    @property
    def compact(self) -> bool:
        """Whether the tensor is all of its storage, in order."""
        return self.contiguous and self.offset == 0 and self.nbytes == self.storage.nbytes

    def require_bounded(self) -> None:
        allowed = max(self.storage.nbytes * DEFAULT_LIMITS.expansion, DEFAULT_LIMITS.expansion_at_least)
        if not self.contiguous and self.nbytes > allowed:
            raise LimitExceeded(f"a view of {self.storage.nbytes} bytes claims {self.nbytes} bytes of values")

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        dtype, nbytes = self.info.dtype, self.info.nbytes
        if nbytes == 0:
            return
        if not self.contiguous:
            self.require_bounded()
            strides = self.strides or row_major_strides(self.info.shape)
            pieces = gather(self.storage.extent, dtype.itemsize, self.offset, self.info.shape, strides, limit)
        elif dtype.bit_width % 8 == 0:
            step = max(limit - limit % dtype.itemsize, dtype.itemsize)
            pieces = self.storage.extent.chunks(self.offset * dtype.itemsize, nbytes, step)
        else:
            pieces = self.storage.extent.chunks(dtype.nbytes(self.offset), nbytes, limit)
        swap = self.storage.byteorder == "big" and dtype.swap_nbytes > 1
        if swap or self.conj or self.neg:
            pieces = (self._resolve(piece, swap=swap) for piece in pieces)
        yield from pieces

    def _resolve(self, piece: bytes, *, swap: bool) -> bytes:
        import numpy

        if swap:
            piece = numpy.frombuffer(piece, "u1").reshape(-1, self.info.dtype.swap_nbytes)[:, ::-1].tobytes()
        if self.conj or self.neg:
            values = numpy.frombuffer(piece, self.info.dtype.to_numpy())
            values = numpy.conj(values) if self.conj else values
            piece = (-values if self.neg else values).tobytes()
        return piece


class NumpyArray(StridedTensor):
    """An array that the file keeps as numpy's own, as against a tensor of a framework beside it."""

    __slots__ = ()


def _overlap(boxes: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The first indexes of two boxes (first index, shape) that have elements in common; None when no two have.

    A sweep along the axis that is cut most: each box is compared with those that reach as far as where it begins.
    """
    if len(boxes) < 2:
        return None
    sweep = max(range(len(boxes[0][0])), key=lambda axis: len({starts[axis] for starts, _ in boxes}))
    reaching: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for starts, shape in sorted(boxes, key=lambda box: box[0][sweep]):
        reaching = [(b, m) for b, m in reaching if b[sweep] + m[sweep] > starts[sweep]]
        for others, sizes in reaching:
            if all(a < b + m and b < a + n for a, n, b, m in zip(starts, shape, others, sizes)):
                return others, starts
        reaching.append((starts, shape))
    return None


class AssembledTensor(Tensor):
    """A tensor whose values are kept as several tensors, each a box of the whole at some first index.

    CorruptFile unless the pieces cover the whole, and each element once.
    """

    __slots__ = ("pieces",)

    def __init__(
        self,
        info: TensorInfo,
        pieces: Sequence[tuple[tuple[int, ...], Tensor]],
        *,
        alias: str | None = None,
        note: str | None = None,
    ) -> None:
        self.info = info
        self.storage = None
        self.pieces = tuple(pieces)
        self.alias = alias
        self.note = note
        covered = 0
        for starts, piece in self.pieces:
            shape = piece.info.shape
            if len(starts) != len(info.shape) or any(
                start < 0 or start + n > whole for start, n, whole in zip(starts, shape, info.shape)
            ):
                raise CorruptFile(f"a piece {list(shape)} at {list(starts)} lies outside the shape {list(info.shape)}")
            covered += piece.info.count
        if covered != info.count:
            raise CorruptFile(f"the pieces hold {covered} elements, the shape {list(info.shape)} has {info.count}")
        twice = _overlap([(starts, piece.info.shape) for starts, piece in self.pieces if piece.info.count])
        if twice is not None:
            raise CorruptFile(f"the pieces at {list(twice[0])} and {list(twice[1])} overlap")

    def constituents(self) -> Iterator[Tensor]:
        for _, piece in self.pieces:
            yield from piece.constituents()

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        shape = self.info.shape
        if not self.info.count:
            return
        in_rows = sorted(self.pieces, key=lambda item: item[0])
        if all(piece.info.shape[1:] == shape[1:] for _, piece in in_rows):  # cut along the first axis only
            for _, piece in in_rows:
                yield from piece.chunks(limit)
            return
        yield from self._interleaved(limit)

    def _interleaved(self, limit: int) -> Iterator[bytes]:
        """Some rows of the whole at a time, of which each piece gives its part: all are read once, side by side."""
        import numpy

        whole, itemsize = self.info.shape, self.info.dtype.itemsize
        step = max(limit // (math.prod(whole[1:]) * itemsize), 1)
        abreast = max(1, len({starts[1:] for starts, _ in self.pieces}))
        streams = [_Stream(piece.chunks(max(limit // abreast, itemsize))) for _, piece in self.pieces]
        for first in range(0, whole[0], step):
            rows = numpy.empty((min(step, whole[0] - first), *whole[1:]), f"V{itemsize}")
            for (starts, piece), stream in zip(self.pieces, streams):
                low, high = max(first, starts[0]), min(first + len(rows), starts[0] + piece.info.shape[0])
                part = (high - low, *piece.info.shape[1:])
                if low < high and 0 not in part:
                    at = tuple(slice(start, start + n) for start, n in zip((low - first, *starts[1:]), part))
                    rows[at] = numpy.frombuffer(stream.take(math.prod(part) * itemsize), rows.dtype).reshape(part)
            yield rows.tobytes()


class _Stream:
    """Bytes that come in chunks of their own, taken in any number."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def take(self, nbytes: int) -> bytes:
        """The next ``nbytes`` bytes."""
        pieces, have = [self._rest], len(self._rest)
        while have < nbytes:
            pieces.append(next(self._chunks))
            have += len(pieces[-1])
        data = b"".join(pieces)
        self._rest = data[nbytes:]
        return data[:nbytes]


class CompositeTensor(Tensor):
    """A tensor made of several: indices and values of a sparse one, integers and scales of a quantized one.

    ``scheme`` is the format's word for it (``sparse_coo``, ``per_channel_affine``); ``details`` are its numbers.
    """

    __slots__ = ("details", "parts", "scheme")

    def __init__(
        self,
        info: TensorInfo,
        scheme: str,
        parts: Mapping[str, Tensor],
        *,
        details: Mapping[str, object] | None = None,
        alias: str | None = None,
        note: str | None = None,
    ) -> None:
        self.info = info
        self.storage = None
        self.scheme = scheme
        self.parts = dict(parts)
        self.details = dict(details or {})
        self.alias = alias
        self.note = note if note is not None else scheme

    def constituents(self) -> Iterator[Tensor]:
        for part in self.parts.values():
            yield from part.constituents()

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        for part in self.parts.values():
            yield from part.chunks(limit)

    def numpy(self) -> numpy.ndarray:
        raise ValueError(f"a {self.scheme} tensor has no single array; its parts are {', '.join(self.parts)}")


class AbsentTensor(Tensor):
    """A tensor that is described and whose bytes are not here. ``reason`` ends the sentence "… has no bytes: "."""

    __slots__ = ("by_design", "reason")

    def __init__(
        self,
        info: TensorInfo,
        reason: str,
        *,
        by_design: bool = False,
        alias: str | None = None,
        note: str | None = None,
    ) -> None:
        self.info = info
        self.storage = None
        self.reason = reason
        self.by_design = by_design  # the format keeps none (meta tensors): nothing is missing
        self.alias = alias
        self.note = note if note is not None else reason

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        raise MissingBytes(self.reason)


class StringTensor(Tensor):
    """A tensor of byte strings. ``read`` gets them all, small as they are wherever they occur, and checks them."""

    __slots__ = ("_read", "stored_nbytes")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        read: Callable[[], list[bytes]],
        *,
        stored_nbytes: int = 0,
        alias: str | None = None,
        note: str | None = None,
    ) -> None:
        self.info = TensorInfo(dtype, shape)
        self.storage = None
        self._read = read
        self.stored_nbytes = stored_nbytes
        self.alias = alias
        self.note = note

    def elements(self) -> list[bytes]:
        """All elements in row-major order."""
        return self._read()

    @property
    def nbytes(self) -> int:
        return self.stored_nbytes

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        for element in self.elements():
            yield len(element).to_bytes(8, "little")
            if element:
                yield element

    def numpy(self) -> numpy.ndarray:
        import numpy

        values = numpy.empty(self.info.count, object)
        values[:] = self.elements()
        return values.reshape(self.info.shape)
