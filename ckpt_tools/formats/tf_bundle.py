"""``tf-bundle``: TensorFlow's V2 checkpoints, an index ``P.index`` with names and places, and values in ``P.data-*``.

Source: tensorflow/core/util/tensor_bundle/tensor_bundle.cc and tensorflow/core/protobuf/tensor_bundle.proto. The index
is a sorted table; each key is a variable, or, beginning with a zero byte, a slice of one. Checked: the index's
checksums, sizes against dtypes and shapes, places against the data files. Tensors whose bytes are not there are listed
all the same. Refused: an index without a header, or one that asks for a reader of a newer version.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.checksum import Checksum, crc32c, mask, unmask
from ckpt_tools.core.extents import Extent, FileExtent, PathExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import Key
from ckpt_tools.core.limits import DEFAULT_LIMITS, Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.purposes import Purpose, Role
from ckpt_tools.core.runs import Run
from ckpt_tools.core.source import Source
from ckpt_tools.core.tensors import AbsentTensor, Storage, StridedTensor, StringTensor, Tensor, TensorInfo
from ckpt_tools.core.tree import Dict, Node, Scalar
from ckpt_tools.errors import CkptError, CorruptFile, LimitExceeded, TruncatedFile, UnreadableInput
from ckpt_tools.formats import _layout, _tf_places, _variable_names
from ckpt_tools.formats._object_graph import GRAPH_KEY, ObjectGraph
from ckpt_tools.formats._ordered_code import SLICE_MARK, parse_slice_key, slice_key
from ckpt_tools.formats._protobuf import fields, message, number, submessage, varint
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
from ckpt_tools.formats._values import OUTLINE, outlined, stored_scalar

#: tensorflow/core/public/version.h: TF_CHECKPOINT_VERSION is 1 since there are bundles
_VERSION = 1
_CRC_NBYTES = 4
#: Processes may have as few as 256 files open; a training on many machines writes a file on each.
_SHARDS_HELD_OPEN = 64
Order = Literal["little", "big"]


def probe(location: Location) -> str | None:
    """Why this is a bundle, or None. An index without its footer counts when its first entry or its data files tell."""
    place = _tf_places.resolve(location)
    if place is None:
        return None
    try:
        header = _tf_places.table_at(place).header()
    except UnreadableInput:
        is_index = place.suffix == ".index" or _tf_places.begins_like(place.head) == "bundle"
        return "a damaged index of a TensorFlow checkpoint" if is_index else None
    if _tf_places.is_v1_header(header):
        return None
    if header is None and not _tf_places.shards_beside(place.path):
        return None  # LevelDB's own tables, for one
    return f"a sorted table with a bundle header ({place.path.name})"


def read(location: Location, limits: Limits) -> Checkpoint:
    """The names, dtypes, shapes and places of all variables; reads the index, and of the data the object graph."""
    place = _tf_places.resolve(location)
    if place is None:
        raise CorruptFile("not a TensorFlow checkpoint: an index, or a directory that has one, is expected")
    table = _tf_places.table_at(place)
    value = table.header()
    if value is None or _tf_places.is_v1_header(value):
        raise CorruptFile("the index has no bundle header; TensorFlow would take the checkpoint for an empty one")
    header = _Header.parse(value)
    bundle = _Bundle(_Shards(place.path, header), header)
    for key, value in table.entries():
        if key.startswith(SLICE_MARK):
            bundle.add_slice(key, value)
        elif key:
            bundle.add(key.decode("utf-8", "surrogateescape"), value)
    purposes, paths = _describe(bundle)
    root, odd = _tree(bundle.tensors, location.shown)
    if OUTLINE in bundle.tensors and not odd:
        purposes, paths = {}, {}  # told of names, and the outline has given its own keys
    written_by = _tf_places.writer_version(place.path)
    producer = f"bundle version {header.producer}"
    facts = {
        "bundle version": str(header.producer),
        "byte order": header.byteorder,
        "data files": str(header.shards),
    }
    if written_by:
        facts["tensorflow"] = written_by
    return Checkpoint(
        "tf-bundle",
        place,
        root,
        producer=f"tensorflow {written_by}, {producer}" if written_by else producer,
        nbytes=place.nbytes + bundle.shards.nbytes,
        issues=bundle.issues() + odd,
        facts=facts,
        sources=[table.source, *bundle.shards.sources],
        seals=table.seals,
        audit=lambda: (*table.audit(), *bundle.audit()),
        limits=limits,
        purposes=purposes,
        paths=paths,
    )


def _tree(tensors: dict[str, Tensor], where: str) -> tuple[Node, list[Issue]]:
    """The tree that an outline among the tensors describes; the tensors by name where there is none."""
    outline = tensors.get(OUTLINE)
    if not isinstance(outline, StringTensor) or outline.info.shape:
        return Dict(tensors), []
    others = {name: tensor for name, tensor in tensors.items() if name not in (OUTLINE, GRAPH_KEY)}

    def value(name: str, kind: type) -> Scalar:
        if name not in others:
            raise CorruptFile(f"the outline names a value {name!r}, which is not there")
        return stored_scalar(others[name], kind)

    root, issues = outlined(outline, others, value, (), where)
    if issues:
        return Dict(tensors), issues
    if GRAPH_KEY in tensors and isinstance(root, Dict):
        root[GRAPH_KEY] = tensors[GRAPH_KEY]
    return root, []


class _Header(NamedTuple):
    """BundleHeaderProto: how many data files, their byte order, and the version of the format."""

    shards: int
    byteorder: Order
    producer: int

    @classmethod
    def parse(cls, data: bytes) -> _Header:
        found = message(data)
        versions = message(submessage(found.get(3, b"")))
        needed = number(versions.get(2, 0))
        if needed > _VERSION:
            raise UnreadableInput(f"the bundle asks for a reader of version {needed}, known is version {_VERSION}")
        order = number(found.get(2, 0))
        if order > 1:
            raise CorruptFile(f"the bundle's byte order is {order}, known are 0 (little) and 1 (big)")
        return cls(number(found.get(1, 0)), "big" if order else "little", number(versions.get(1, 0)))


class _Entry(NamedTuple):
    """BundleEntryProto: a tensor's dtype and shape, and the bytes of it or the slices it is kept in."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    nbytes: int
    crc: int
    slices: tuple[bytes, ...]


class _Shards:
    """The data files of a bundle, found when a tensor lies in them."""

    def __init__(self, index: Path, header: _Header) -> None:
        self.index = index
        self.sources: list[Source] = []
        self._prefix = index.name.removesuffix(".index")
        self._count = header.shards
        self._found: dict[int, Extent | None] = {}

    def name(self, shard: int) -> str:
        return f"{self._prefix}.data-{shard:05d}-of-{self._count:05d}"

    def extent(self, shard: int) -> Extent | None:
        """All bytes of a data file; None when it is not there."""
        if shard not in self._found:
            path = self.index.parent / self.name(shard)
            self._found[shard] = self._open(path) if shard < self._count and path.is_file() else None
        return self._found[shard]

    def _open(self, path: Path) -> Extent:
        if self._count > _SHARDS_HELD_OPEN:
            return PathExtent(path)
        self.sources.append(Source(path))
        return FileExtent(self.sources[-1], 0, self.sources[-1].nbytes)

    @property
    def nbytes(self) -> int:
        return sum(extent.nbytes for extent in self._found.values() if extent is not None)


class _Bundle:
    """The tensors of a bundle, collected entry by entry; slices come before the variables they are part of."""

    def __init__(self, shards: _Shards, header: _Header) -> None:
        self.shards = shards
        self.tensors: dict[str, Tensor] = {}
        self.troubles = Troubles(shards.index.name)
        self._byteorder = header.byteorder
        self._slices: dict[bytes, bytes] = {}
        self._shapes: dict[bytes, tuple[int, ...]] = {}
        self._storages: dict[tuple[int, int, int, int], Storage] = {}
        self._runs: dict[int, list[Run]] = {}

    def issues(self) -> list[Issue]:
        """What is wrong, once all entries are there."""
        for key in self._slices:
            try:
                name, _ = parse_slice_key(key)
            except CkptError:
                name = repr(key)
            self.troubles.add("integrity-stray-slice", "the index has slices of variables that are not in it", name)
        return self.troubles.issues()

    def audit(self) -> Iterator[Issue]:
        """What is odd about how the tensors lie in the data files."""
        for shard, runs in self._runs.items():
            data = self.shards.extent(shard)
            if data is not None:
                yield from _layout.issues(runs, data.nbytes, self.shards.name(shard))

    def add_slice(self, key: bytes, value: bytes) -> None:
        self._slices[key] = value

    def add(self, name: str, value: bytes) -> None:
        entry = self._parse(value)
        self.tensors[name] = self._partitioned(name, entry) if entry.slices else self._tensor(name, entry)

    def _parse(self, data: bytes) -> _Entry:
        dtype = shard = offset = nbytes = crc = 0
        shape: tuple[int, ...] = ()
        slices = []
        for index, _, value in fields(data):
            if index == 2:
                raw = submessage(value)
                known = self._shapes.get(raw)  # most shapes of a model occur many times
                if known is None:
                    known = self._shapes[raw] = parse_shape(raw)
                shape = known
            elif index == 7:
                slices.append(submessage(value))
            elif index == 1:
                dtype = number(value)
            elif index == 3:
                shard = number(value)
            elif index == 4:
                offset = number(value)
            elif index == 5:
                nbytes = number(value)
            elif index == 6:
                crc = number(value)
        return _Entry(dtype, shape, shard, offset, nbytes, crc, tuple(slices))

    def _tensor(self, name: str, entry: _Entry) -> Tensor:
        """The tensor of an entry that has bytes of its own."""
        count = math.prod(entry.shape)
        self._runs.setdefault(entry.shard, []).append(Run(entry.offset, entry.offset + entry.nbytes, name))
        dtype, known = element_type(entry.dtype, entry.nbytes, count)
        info = TensorInfo(dtype, entry.shape)
        if not known:
            return self.troubles.absent(
                name, info, "integrity-unknown-dtype", f"element type {entry.dtype} is none that is known"
            )
        fits = entry.nbytes == dtype.nbytes(count) if dtype.bit_width else count <= entry.nbytes
        if not fits:
            raise CorruptFile(f"{name}: {entry.nbytes} bytes are recorded for {list(entry.shape)} of {dtype}")
        data = self.shards.extent(entry.shard)
        file = self.shards.name(entry.shard)
        if data is None:
            reason = f"the data file {file} is missing"
            return self.troubles.absent(name, info, "integrity-missing-shard", reason, where=file)
        if entry.offset + entry.nbytes > data.nbytes:
            return self.troubles.absent(
                name,
                info,
                "integrity-short-data",
                f"the data file is shorter than the index says, {data.nbytes} bytes; beyond its end",
                where=file,
                severity=Severity.WARNING,
            )
        extent = data.part(entry.offset, entry.nbytes)
        checksum = Checksum("crc32c", unmask(entry.crc), f"{name} in {file}")
        if dtype.bit_width:
            # two entries may share it, for TensorFlow too; what each says of the bytes is to be checked
            place = (entry.shard, entry.offset, entry.nbytes, entry.crc)
            storage = self._storages.setdefault(place, Storage(extent, byteorder=self._byteorder, checksum=checksum))
            return StridedTensor(info, storage)
        decode = decode_strings if dtype is STRING else decode_variants
        return StringTensor(
            entry.shape,
            dtype,
            lambda: decode(extent, count, checksum, self._byteorder),
            stored_nbytes=entry.nbytes,
        )

    def _partitioned(self, name: str, entry: _Entry) -> Tensor:
        """The tensor of an entry that refers to slices."""
        dtype, _ = element_type(entry.dtype, 0, 0)
        info = TensorInfo(dtype, entry.shape)
        pieces = []
        try:
            for raw in entry.slices:
                spans = parse_spans(raw)
                starts, shape = box(spans, entry.shape)
                value = self._slices.pop(slice_key(name, spans), None)
                if value is None:
                    raise CorruptFile("a slice that a variable refers to is not in the index")
                piece = self._tensor(name, self._parse(value))
                if isinstance(piece, AbsentTensor):
                    return AbsentTensor(info, piece.reason)
                if piece.info != TensorInfo(dtype, shape):
                    raise CorruptFile("a slice has another dtype or shape than the variable gives it")
                pieces.append((starts, piece))
            return assembled(info, pieces)
        except CkptError as error:
            return self.troubles.absent(name, info, "integrity-slices", error.message)


def _describe(bundle: _Bundle) -> tuple[dict[Key, Purpose], dict[Key, tuple[str, ...]]]:
    """Give the tensors their second names and notes; what each is for, as the object graph or its name tells, and the
    path to it in that graph."""
    paths: dict[Key, tuple[str, ...]] = {}
    infos = {name: tensor.info for name, tensor in bundle.tensors.items()}
    table = bundle.tensors.get(GRAPH_KEY)
    if isinstance(table, AbsentTensor):  # an issue says so
        purposes = {}
    elif not isinstance(table, StringTensor) or table.info.shape:
        purposes = _variable_names.purposes(infos)
    else:
        try:
            graph = ObjectGraph(table.elements()[0])
        except CkptError as error:
            reason = f"the object graph cannot be read: {error.message}"
            bundle.troubles.add("integrity-object-graph", reason, GRAPH_KEY)
            purposes = {}
        else:
            purposes = graph.purposes(infos)
            paths = {(name,): path for name, path in graph.paths().items() if name in infos}
            for name, alias in graph.aliases().items():
                if name in bundle.tensors:
                    bundle.tensors[name].alias = alias
            for name in sorted(graph.variable_keys() - infos.keys()):
                bundle.troubles.add("integrity-missing-key", "the object graph names keys that the index lacks", name)
    if GRAPH_KEY in infos:
        purposes[GRAPH_KEY] = Purpose(Role.OTHER)
    return annotate(bundle.tensors, purposes), paths


def decode_strings(extent: Extent, count: int, checksum: Checksum, byteorder: Order) -> list[bytes]:
    """The elements of a string tensor: all lengths, a checksum of these, then the texts. Both checksums are checked.

    The sum of the lengths is over fixed-width integers in the writer's byte order, not over the bytes in the file.
    """
    data = _whole(extent, checksum.place)
    lengths, at = [], 0
    for _ in range(count):
        length, at = varint(data, at)
        lengths.append(length)
    if sum(lengths) != len(data) - at - _CRC_NBYTES:
        raise TruncatedFile(
            f"texts of {sum(lengths)} bytes in {max(len(data) - at - _CRC_NBYTES, 0)}", where=checksum.place
        )
    widths = (n.to_bytes(4 if n <= 0xFFFFFFFF else 8, byteorder) for n in lengths)
    crc = crc32c(b"".join(widths))
    stored = data[at : at + _CRC_NBYTES]
    if int.from_bytes(stored, byteorder) != mask(crc):
        raise CorruptFile("the lengths of the texts do not have the CRC-32C that is recorded", where=checksum.place)
    at += _CRC_NBYTES
    if crc32c(data[at:], crc32c(stored, crc)) != checksum.value:
        raise CorruptFile("the texts do not have the CRC-32C that is recorded", where=checksum.place)
    elements = []
    for length in lengths:
        elements.append(data[at : at + length])
        at += length
    return elements


def decode_variants(extent: Extent, count: int, checksum: Checksum, byteorder: Order) -> list[bytes]:
    """The elements of a variant tensor as serialised VariantTensorDataProto messages, each with a running checksum."""
    data = _whole(extent, checksum.place)
    elements, at, crc = [], 0, 0
    for _ in range(count):
        length, at = varint(data, at)
        element = data[at : at + length]
        stored = data[at + length : at + length + _CRC_NBYTES]
        at += length + _CRC_NBYTES
        crc = crc32c(element, crc32c(length.to_bytes(8, byteorder), crc))
        if len(stored) < _CRC_NBYTES or int.from_bytes(stored, byteorder) != mask(crc):
            raise CorruptFile("an element does not have the CRC-32C that is recorded", where=checksum.place)
        crc = crc32c(stored, crc)
        elements.append(element)
    if at != len(data) or crc != checksum.value:
        raise CorruptFile("the elements do not have the CRC-32C that is recorded", where=checksum.place)
    return elements


def _whole(extent: Extent, place: str) -> bytes:
    if extent.nbytes > DEFAULT_LIMITS.pickle_nbytes:
        raise LimitExceeded(f"texts of {extent.nbytes} bytes", where=place)
    return extent.read(0, extent.nbytes)
