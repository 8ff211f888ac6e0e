"""``tf-v1``: TensorFlow's checkpoints before V2, one table file (or several) that holds metadata and values alike.

Source: tensorflow/core/util/saved_tensor_slice.proto and tensor_slice_writer.cc. The empty key lists all tensors and
their slices; each slice has a key of its own, whose value is a TensorProto with nothing but packed numbers in it. Only
the table's index, its keys and the metadata are read here; a block's checksum is checked before the first value in it
is handed out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.extents import Extent, JoinedExtent, VarintExtent
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import V1_SHARD, Location, at
from ckpt_tools.core.tensors import Storage, StridedTensor, StringTensor, Tensor, TensorInfo
from ckpt_tools.core.tree import Dict
from ckpt_tools.errors import CkptError, CorruptFile, UnreadableInput, damage
from ckpt_tools.formats import _tf_places, _variable_names
from ckpt_tools.formats._ordered_code import Span, slice_key
from ckpt_tools.formats._protobuf import fields, message, number, scan, submessage, text
from ckpt_tools.formats._sorted_table import Table, ValueExtent
from ckpt_tools.formats._tf_tensors import (
    STRING,
    Troubles,
    annotate,
    assembled,
    box,
    element_type,
    parse_shape,
    parse_spans,
)

# Fields of TensorProto (tensorflow/core/framework/tensor.proto): as they are in memory, as varints, and texts.
_FIXED = {"float32": 5, "float64": 6, "complex64": 9, "complex128": 12}
_VARINTS = {"int64": 10, "bool": 11, "float16": 13, "bfloat16": 13, "uint32": 16, "uint64": 17} | dict.fromkeys(
    ("int32", "int16", "int8", "uint16", "uint8", "qint32", "qint16", "qint8", "quint16", "quint8"), 7
)
_TEXTS = 8
#: SavedTensorSlices.data, SavedSlice.data: the fields that lead to a value's TensorProto.
_TO_TENSOR = (2, 3)
#: Fields of one message that are looked at: those on the way are among the first three, TensorProto has 17.
_FIELDS = 32


def probe(location: Location) -> str | None:
    """Why this is a V1 checkpoint, or None. A file without its footer counts when its first entry tells."""
    place = _tf_places.resolve(location)
    if place is None:
        return None
    try:
        is_v1 = _tf_places.is_v1_header(_tf_places.table_at(place).header())
    except UnreadableInput:
        is_v1 = place.suffix != ".index" and _tf_places.begins_like(place.head) == "v1"
    return f"a sorted table that begins with a list of tensors ({place.path.name})" if is_v1 else None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The names, dtypes and shapes of all variables, and where their values lie; values are not read."""
    place = _tf_places.resolve(location)
    if place is None:
        raise CorruptFile("not a TensorFlow checkpoint: a sorted table is expected")
    places = [place if path == place.path else at(path) for path in _tf_places.family(place.path)]
    troubles = Troubles(place.path.name)
    _note_missing(place.path, len(places), troubles)
    variables: dict[str, _Variable] = {}
    version = 0
    tables = []
    for part in places:
        with damage(str(part.path)):
            table = _tf_places.table_at(part)
            tables.append(table)
            version = max(version, _collect(table, variables))
    tensors = {name: _tensor(name, variable, troubles) for name, variable in variables.items()}
    purposes = _variable_names.purposes({name: tensor.info for name, tensor in tensors.items()})
    written_by = _tf_places.writer_version(place.path)
    producer = f"V1 checkpoint, version {version}"
    facts = {"checkpoint version": str(version), "files": str(len(places))}
    if written_by:
        facts["tensorflow"] = written_by
    return Checkpoint(
        "tf-v1",
        place,
        Dict(tensors),
        producer=f"tensorflow {written_by}, {producer}" if written_by else producer,
        nbytes=sum(part.nbytes for part in places),
        issues=troubles.issues(),
        facts=facts,
        sources=[table.source for table in tables],
        seals=lambda: (seal for table in tables for seal in table.seals()),
        audit=lambda: (issue for table in tables for issue in table.audit()),
        limits=limits,
        purposes=annotate(tensors, purposes),
    )


def _note_missing(path: Path, found: int, troubles: Troubles) -> None:
    parts = V1_SHARD.fullmatch(path.name)
    expected = int(parts["count"]) if parts else 1
    if found < expected:
        message = f"{found} of {expected} files are here, variables may be missing"
        troubles.add("integrity-missing-shard", message, path.name)


@dataclass
class _Variable:
    """A variable as the metadata list it, with the values of its slices; None for a slice that has none."""

    dtype: int
    shape: tuple[int, ...]
    slices: dict[tuple[Span, ...], ValueExtent | None] = field(default_factory=dict)


def _collect(table: Table, variables: dict[str, _Variable]) -> int:
    """Put what a table holds into ``variables``; the version of the format is returned."""
    header = table.header()
    if not header or not _tf_places.is_v1_header(header):
        raise CorruptFile("the table does not begin with a list of tensors")
    values = dict(table.values())
    version = 0
    for index, _, value in _within(header, 1):
        if index == 1:
            raw = submessage(value)
            parts = message(raw)
            name = text(parts.get(1, b""))
            dtype, shape = number(parts.get(3, 0)), parse_shape(submessage(parts.get(2, b"")))
            variable = variables.setdefault(name, _Variable(dtype, shape))
            if (variable.dtype, variable.shape) != (dtype, shape):
                raise CorruptFile(f"{name} is listed twice, with different dtypes or shapes")
            for inner, _, part in fields(raw):
                if inner == 4:
                    spans = parse_spans(submessage(part))
                    variable.slices[spans] = values.get(slice_key(name, spans))
        elif index == 2:
            version = number(message(submessage(value)).get(1, 0))
    return version


def _within(data: bytes, wanted: int) -> list[tuple[int, int, int | bytes]]:
    """The fields of the messages that stand in field ``wanted``."""
    return [inner for at, _, value in fields(data) if at == wanted for inner in fields(submessage(value))]


def _tensor(name: str, variable: _Variable, troubles: Troubles) -> Tensor:
    dtype, known = element_type(variable.dtype, 0, 0)
    info = TensorInfo(dtype, variable.shape)
    if not known or not (dtype is STRING or dtype.name in _FIXED or dtype.name in _VARINTS):
        reason = f"element type {variable.dtype} has no place in a V1 checkpoint"
        return troubles.absent(name, info, "integrity-unknown-dtype", reason)
    try:
        pieces = []
        for spans, value in variable.slices.items():
            starts, shape = box(spans, variable.shape)
            if value is None:
                raise CorruptFile("a slice is listed and has no values")
            pieces.append((starts, _piece(TensorInfo(dtype, shape), value)))
        return assembled(info, pieces)
    except CkptError as error:
        return troubles.absent(name, info, "integrity-slices", error.message)


def _piece(info: TensorInfo, value: ValueExtent) -> Tensor:
    """One slice as a tensor. CorruptFile when its value is too short for its shape."""
    count, nbytes = info.count, info.nbytes if info.dtype.name in _FIXED else info.count
    if nbytes > value.nbytes:
        raise CorruptFile(f"a slice of shape {list(info.shape)} of {info.dtype} has {value.nbytes} bytes")
    if info.dtype is STRING:
        return StringTensor(info.shape, STRING, lambda: _texts(value, count), stored_nbytes=value.nbytes)
    return StridedTensor(info, Storage(_Numbers(value, info)))


class _Numbers(Extent):
    """The numbers of a slice, little-endian. Where they begin in the value is looked up when they are first read."""

    __slots__ = ("_found", "_info", "_value", "nbytes")

    def __init__(self, value: ValueExtent, info: TensorInfo) -> None:
        self._value = value
        self._info = info
        self._found: Extent | None = None
        self.nbytes = info.nbytes

    def read(self, offset: int, length: int) -> bytes:
        if self._found is None:
            self._found = self._locate()
        return self._found.read(offset, length)

    def _locate(self) -> Extent:
        name = self._info.dtype.name
        runs = _fields(self._value, _FIXED.get(name) or _VARINTS[name], _FIELDS)
        packed = JoinedExtent(runs)
        if name in _VARINTS:
            return VarintExtent(packed, self._info.count, self._info.dtype.itemsize)
        if packed.nbytes != self.nbytes:
            raise CorruptFile(f"a slice of {self.nbytes} bytes has {packed.nbytes}")
        return packed


def _texts(value: ValueExtent, count: int) -> list[bytes]:
    texts = [run.read(0, run.nbytes) for run in _fields(value, _TEXTS, _FIELDS + count)]
    if len(texts) != count:
        raise CorruptFile(f"a slice of {count} texts has {len(texts)}")
    return texts


def _fields(value: ValueExtent, wanted: int, most: int) -> list[Extent]:
    """The runs of bytes that stand in field ``wanted`` of a value's TensorProto."""
    offset, nbytes = 0, value.nbytes
    for step in _TO_TENSOR:
        for found in islice(scan(value, offset, nbytes), _FIELDS):
            if found.number == step and isinstance(found.value, tuple):
                offset, nbytes = found.value
                break
        else:
            raise CorruptFile("a slice has no TensorProto")
    return [
        value.part(*found.value)
        for found in islice(scan(value, offset, nbytes), most)
        if found.number == wanted and isinstance(found.value, tuple)
    ]
