"""Tensors as Paddle's C++ side writes them: single ones, one variable a file, all parameters of a program in one.

A record is ``u32 0 | u64 levels, for each u64 length and offsets (LoD) | u32 0 | i32 length, TensorDesc | data``; row-major,
little-endian, nothing between records. SelectedRows are ``u32 0 | u64 n, n row numbers | i64 height | u32 0 | i32 length,
TensorDesc | data``. Sources: paddle/fluid/framework/lod_tensor.cc, selected_rows_utils.cc, tensor_util.cc,
framework.proto. A record is known only by its parts being in order, so every one of them is checked.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ckpt_tools.core.dtypes import BY_NAME, BY_PADDLE, DType
from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source
from ckpt_tools.core.tensors import CompositeTensor, Storage, StridedTensor, TensorInfo
from ckpt_tools.errors import CkptError, CorruptFile, LimitExceeded, TruncatedFile
from ckpt_tools.formats import _protobuf

#: Names that Paddle, its manual and its trainers give to a program's parameters when they are all in one file.
COMBINED_NAMES = ("__variables__", "__params__", "params")
COMBINED_SUFFIX = ".pdiparams"

#: Offsets nest as deep as sequences do: words, sentences, documents. Paddle's own operators stop at 3.
_MOST_LEVELS = 16
#: A TensorDesc has an element type and at most ``Limits.rank`` dimensions of up to 11 bytes.
_MOST_DESC_NBYTES = 2 + 11 * DEFAULT_LIMITS.rank
_LEVELS = struct.Struct("<IQ")
_DESC = struct.Struct("<Ii")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True)
class Stream:
    """The records of a file in order. ``damage`` says why there is no further one where bytes are left from ``end`` on."""

    source: Source
    tensors: tuple[StridedTensor, ...]
    end: int
    damage: CkptError | None

    def only(self) -> tuple[StridedTensor, list[Issue]]:
        """The first tensor of a file that holds one, and what is odd about the file. Raises when it is cut off."""
        if not self.tensors:
            raise self.damage or CorruptFile("no Paddle tensor begins at byte 0", where=str(self.source.path))
        rest = self.source.nbytes - self.end
        message = f"{rest} bytes follow the tensor, which ends at byte {self.end}"
        issue = Issue("integrity-trailing-bytes", Severity.WARNING, str(self.source.path), message)
        return self.tensors[0], [issue] if rest else []


def stream_of(location: Location) -> Stream | None:
    """The records at ``location``; None when it does not begin with one. Reads headers only."""
    if location.is_directory or location.head[:4] != bytes(4):
        return None
    return location.once("paddle stream", lambda: _stream(location.path))


def _stream(path: Path) -> Stream | None:
    source = Source(path)
    tensors: list[StridedTensor] = []
    end = 0
    damage: CkptError | None = None
    try:
        while end < source.nbytes:
            info, levels, data = _header(source, end)
            if data + info.nbytes > source.nbytes:
                raise TruncatedFile(
                    f"truncated: the {ordinal(len(tensors) + 1)} tensor needs {info.nbytes} bytes,"
                    f" {source.nbytes - data} are left"
                )
            storage = Storage(FileExtent(source, data, info.nbytes))
            note = f"sequence offsets (LoD) of {levels} levels" if levels else None
            tensors.append(StridedTensor(info, storage, note=note))
            end = data + info.nbytes
    except (TruncatedFile, CorruptFile, LimitExceeded) as error:
        damage = error
        damage.where = str(path)
    if not tensors and not isinstance(damage, TruncatedFile):
        source.close()
        return None
    return Stream(source, tuple(tensors), end, damage)


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``3rd``, ``4th``, …"""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ending}"


def _header(source: Source, at: int) -> tuple[TensorInfo, int, int]:
    """The record at ``at``: what tensor it is, its number of LoD levels, the offset of its data."""
    start = at
    if source.peek(at, 4).strip(b"\0"):
        raise CorruptFile(f"no tensor begins at byte {start}")
    version, levels = _LEVELS.unpack(_read(source, at, _LEVELS.size))
    if version or levels > _MOST_LEVELS:
        raise CorruptFile(f"no tensor begins at byte {start}")
    at += _LEVELS.size
    for _ in range(levels):
        (length,) = _U64.unpack(_read(source, at, _U64.size))
        if length % _U64.size or at + _U64.size + length > source.nbytes:
            raise CorruptFile(f"no tensor begins at byte {start}: its sequence offsets take {length} bytes")
        at += _U64.size + length
    info, at = _described(source, at)
    return info, levels, at


def _described(source: Source, at: int) -> tuple[TensorInfo, int]:
    """The tensor version and TensorDesc at ``at``: what they say and the offset behind them."""
    version, length = _DESC.unpack(_read(source, at, _DESC.size))
    if version or not 2 <= length <= _MOST_DESC_NBYTES:
        raise CorruptFile(f"no description of a tensor at byte {at}")
    at += _DESC.size
    return tensor_desc(_read(source, at, length)), at + length


def _read(source: Source, at: int, nbytes: int) -> bytes:
    if at + nbytes > source.nbytes:
        raise TruncatedFile(f"truncated inside the header of a tensor at byte {at}")
    return source.read(at, nbytes)


def tensor_desc(message: bytes) -> TensorInfo:
    """Element type and shape of a TensorDesc message; dimensions come one by one, or packed. Strict: nothing else."""
    dtype: DType | None = None
    shape: list[int] = []
    for field, kind, value in _protobuf.fields(message):
        if field == 1 and kind == _protobuf.VARINT:
            dtype = BY_PADDLE.get(_protobuf.number(value))
        elif field == 2 and kind == _protobuf.VARINT:
            shape.append(_protobuf.signed(_protobuf.number(value)))
        elif field == 2 and kind == _protobuf.BYTES:
            packed, at = _protobuf.submessage(value), 0
            while at < len(packed):
                number, at = _protobuf.varint(packed, at)
                shape.append(_protobuf.signed(number))
        else:
            raise CorruptFile(f"the description of a tensor has a field {field} of wire type {kind}")
    if dtype is None:
        raise CorruptFile("the description of a tensor has no known element type")
    if any(extent < 0 for extent in shape):
        raise CorruptFile(f"a tensor of shape {shape}")
    if len(shape) > DEFAULT_LIMITS.rank:
        raise LimitExceeded(f"a tensor of {len(shape)} dimensions")
    return TensorInfo(dtype, tuple(shape))


class SelectedRows(NamedTuple):
    """Some rows of a table, and the file they lie in."""

    source: Source
    tensor: CompositeTensor


def selected_rows_of(location: Location) -> SelectedRows | None:
    """The SelectedRows at ``location``; None when it is something else. Reads no row numbers and no values."""
    if location.is_directory or location.head[:4] != bytes(4):
        return None
    return location.once("paddle selected rows", lambda: _selected_rows(location.path))


def _selected_rows(path: Path) -> SelectedRows | None:
    source = Source(path)
    try:
        _, count = _LEVELS.unpack(_read(source, 0, _LEVELS.size))
        height_at = _LEVELS.size + count * _U64.size
        (height,) = _U64.unpack(_read(source, height_at, _U64.size))
        info, data = _described(source, height_at + _U64.size)
    except CkptError:
        source.close()
        return None
    if info.shape[:1] != (count,) or height >> 63 or data + info.nbytes != source.nbytes:
        source.close()
        return None
    rows_extent = FileExtent(source, _LEVELS.size, count * _U64.size)
    tensor = CompositeTensor(
        TensorInfo(info.dtype, (height, *info.shape[1:])),
        "selected_rows",
        {
            "rows": StridedTensor(TensorInfo(BY_NAME["int64"], (count,)), Storage(rows_extent)),
            "values": StridedTensor(info, Storage(FileExtent(source, data, info.nbytes))),
        },
        details={"height": height},
        note=f"SelectedRows, {count} of {height} rows stored",
    )
    return SelectedRows(source, tensor)


def is_combined(stream: Stream) -> bool:
    """Whether a file holds all parameters of a program, as against one tensor.

    Its name says so, or it has several records. Bytes behind a single record that are no record belong to nothing.
    """
    path = stream.source.path
    if path.name in COMBINED_NAMES or path.suffix == COMBINED_SUFFIX:
        return True
    if len(stream.tensors) == 1 and stream.damage is not None:
        return isinstance(stream.damage, TruncatedFile)
    return len(stream.tensors) > 1


def is_variable_name(name: str) -> bool:
    """Whether a file's name is a variable's: it has no suffix, or one like that of ``fc_0.w_0``."""
    _, dot, suffix = name.rpartition(".")
    return not dot or "_" in suffix
