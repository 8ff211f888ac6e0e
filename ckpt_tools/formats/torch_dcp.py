"""``torch-dcp``: a directory of ``torch.distributed.checkpoint``: ``.metadata`` and data files ``__<rank>_<n>.distcp``.

Source: torch/distributed/checkpoint/metadata.py, filesystem.py, planner_helpers.py. ``.metadata`` is a pickle that
describes every tensor (size, chunks) and every other item, and says in which slice of which data file each lies; a
slice is a torch archive of its own. Ranks that did not coordinate wrote ``__<rank>.metadata`` each, about their own
chunks; these are put together. Keys are the paths in ``planner_data``: names joined by dots are ambiguous. Chunks are
not opened before their values are wanted, other items are. Refused: data files outside the directory; slices packed by
an extension are described and have no values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.checksum import Seal
from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import Key, printable
from ckpt_tools.core.limits import CHUNK_NBYTES, Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.runs import Run
from ckpt_tools.core.source import Source
from ckpt_tools.core.tensors import AbsentTensor, AssembledTensor, Tensor, TensorInfo
from ckpt_tools.core.tree import Dict, Node, Opaque, walk
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile, UnreadableInput, damage
from ckpt_tools.formats import _layout, _torch_objects
from ckpt_tools.formats._torch_archive import TorchArchive, root_of
from ckpt_tools.formats._zip import MAGIC, Archive, archive_in
from ckpt_tools.pickles import findings
from ckpt_tools.pickles.machine import Machine
from ckpt_tools.pickles.nodes import Object

#: How ``.metadata`` begins to speak of itself; the name is among its first bytes in every protocol.
_MARK = b"torch.distributed."
_MARK_WITHIN = 512
_METADATA = ".metadata"
_RANK_METADATA = re.compile(r"__(\d+)\.metadata")
_DATA_FILE = re.compile(r"__\d+_\d+\.distcp")

#: The classes of ``.metadata``, in both of the places that they have had.
_CLASSES = frozenset(
    f"torch.distributed.{module}.{name}"
    for module in (
        "checkpoint.metadata",
        "checkpoint.filesystem",
        "_shard.checkpoint.metadata",
        "_shard.checkpoint.filesystem",
        "_shard.sharded_tensor.metadata",
    )
    for name in (
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "MEM_FORMAT_ENCODING",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
        "_StorageInfo",
    )
)
#: Flattened state dicts nest like state dicts: real ones stay below 40 levels.
_LONGEST_PATH = 100


class Slice(NamedTuple):
    """Where an item lies: bytes ``[offset, offset + nbytes)`` of a data file; ``packed_by`` names extensions."""

    file: str
    offset: int
    nbytes: int
    packed_by: str


def probe(location: Location) -> str | None:
    """Why this is a distributed checkpoint or a data file of one, or None."""
    if not location.is_directory:
        is_data_file = _DATA_FILE.fullmatch(location.path.name) and location.head.startswith(MAGIC)
        return "named like a data file of a distributed checkpoint" if is_data_file else None
    names = _metadata_names(location.path)
    for name in names[:1]:
        with Source(location.path / name) as source:
            if _MARK in source.peek(0, _MARK_WITHIN):
                return f"a directory with {name} of torch.distributed"
    return "a directory with __<rank>_<n>.distcp" if any(_data_files(location.path)) else None


def read(location: Location, limits: Limits) -> Checkpoint:
    """What ``.metadata`` describes, and the items that are no tensors."""
    if not location.is_directory:
        raise UnreadableInput("one shard of a distributed checkpoint; give the directory that holds its .metadata")
    names = _metadata_names(location.path)
    if not names:
        raise TruncatedFile(
            "a distributed checkpoint without .metadata, which is written last",
            hint="its save was interrupted; use an earlier checkpoint",
        )
    issues: list[Issue] = []
    described = Description()
    nbytes = 0
    for name in names:
        with Source(location.path / name) as source, damage(name):
            nbytes += source.nbytes
            if source.nbytes > limits.pickle_nbytes:
                raise LimitExceeded(f"{source.nbytes} bytes, over {limits.pickle_nbytes}")
            machine = _torch_objects.machine(source, persistent=_no_storages)
            described.include(machine.load())
            issues += findings.foreign(machine, name, own=_CLASSES.__contains__)
    files = DataFiles(location.path, issues, limits)
    root = tree_of(dict(_items(described, files, issues)), described.key_of)
    return Checkpoint(
        "torch-dcp",
        location,
        root,
        producer=f"torch.distributed.checkpoint, metadata version {described.version}",
        nbytes=nbytes + files.nbytes,
        issues=issues,
        facts={"data files": str(len(files.present)), "metadata version": described.version},
        sources=files.sources,
        seals=lambda: files.seals(described.slices),
        audit=lambda: files.audit(described.slices),
        limits=limits,
    )


def _metadata_names(directory: Path) -> list[str]:
    """``.metadata``, or what ranks wrote instead, in the order of ranks."""
    if (directory / _METADATA).is_file():
        return [_METADATA]
    ranks = [match for entry in directory.iterdir() if (match := _RANK_METADATA.fullmatch(entry.name))]
    return [match[0] for match in sorted(ranks, key=lambda match: int(match[1]))]


def _data_files(directory: Path) -> Iterator[str]:
    return (entry.name for entry in directory.iterdir() if _DATA_FILE.fullmatch(entry.name))


def _no_storages(persistent_id: Any) -> Any:
    raise CorruptFile("a persistent id in .metadata, which has no storages")


# -- .metadata ---------------------------------------------------------------------------------------------------------


class DescribedTensor(NamedTuple):
    """A tensor as ``.metadata`` has it: the whole, and the shape of each chunk by its first index."""

    info: TensorInfo
    chunks: dict[tuple[int, ...], tuple[int, ...]]


#: Slices by the name of their tensor and the first index of the chunk that they hold; None: an item that is no tensor
Slices = dict[tuple[str, "tuple[int, ...] | None"], Slice]


class Description:
    """What the metadata of all ranks say together."""

    def __init__(self) -> None:
        self.tensors: dict[str, DescribedTensor | None] = {}  # None: an item that is no tensor
        self.slices: Slices = {}
        self.version = "unknown"
        self._paths: dict[Any, Any] = {}

    def include(self, metadata: Any) -> None:
        """Add what one file of metadata says."""
        held = _fields(metadata, "Metadata")
        items, slices = held.get("state_dict_metadata"), held.get("storage_data")
        if not isinstance(items, dict) or not isinstance(slices, dict):
            raise CorruptFile("metadata without state_dict_metadata or storage_data")
        for name, item in items.items():
            self._include_item(_text(name), item)
        for index, info in slices.items():
            place = _fields(index, "MetadataIndex")
            offset = place.get("offset")
            self.slices[_text(place.get("fqn")), None if offset is None else _numbers(offset)] = _slice(info)
        if isinstance(held.get("planner_data"), dict):
            self._paths.update(held["planner_data"])
        if isinstance(held.get("version"), str):
            self.version = held["version"]

    def _include_item(self, name: str, item: Any) -> None:
        if not isinstance(item, Object) or not item.path.endswith(".TensorStorageMetadata"):
            self.tensors.setdefault(name, None)
            return
        held = _fields(item, "TensorStorageMetadata")
        properties = held.get("properties")
        state = properties.state if isinstance(properties, Object) else None
        if not isinstance(state, tuple) or not state or not isinstance(held.get("chunks"), list):
            raise CorruptFile(f"tensor {printable(name)} is described without its dtype or its chunks")
        info = TensorInfo(_torch_objects.torch_dtype(state[0]), _numbers(held.get("size")))
        known = self.tensors.setdefault(name, DescribedTensor(info, {}))
        if known is None or known.info != info:
            raise CorruptFile(f"tensor {printable(name)} is described in two ways")
        for chunk in held["chunks"]:
            box = _fields(chunk, "ChunkStorageMetadata")
            known.chunks[_numbers(box.get("offsets"))] = _numbers(box.get("sizes"))

    def key_of(self, name: str) -> Key:
        """The path of an item in the state dict that was saved; its flat name where there is none."""
        path = self._paths.get(name)
        if not isinstance(path, tuple) or not path or any(type(part) not in (str, int) for part in path):
            return (name,)
        if len(path) > _LONGEST_PATH:
            raise LimitExceeded(f"{printable(name)[:100]} lies {len(path)} levels deep, over {_LONGEST_PATH}")
        return path


def _fields(node: Any, cls: str) -> Mapping[str, Any]:
    if not isinstance(node, Object) or node.path.rpartition(".")[2] != cls or not isinstance(node.state, dict):
        raise CorruptFile(f"metadata with {getattr(node, 'type_name', type(node).__name__)} where a {cls} is expected")
    return node.state


def _text(node: Any) -> str:
    if not isinstance(node, str):
        raise CorruptFile(f"metadata with a {type(node).__name__} where a name is expected")
    return node


def _number(node: Any) -> int:
    if type(node) is not int or node < 0:
        raise CorruptFile("metadata with something else where a size or an offset is expected")
    return node


def _numbers(node: Any) -> tuple[int, ...]:
    if not isinstance(node, (tuple, list)):
        raise CorruptFile("metadata with something else where sizes are expected")
    return tuple(map(_number, node))


def _slice(info: Any) -> Slice:
    held = _fields(info, "_StorageInfo")
    packed_by = held.get("transform_descriptors") or ()
    known = isinstance(packed_by, (list, tuple)) and all(isinstance(part, str) for part in packed_by)
    names = ", ".join(packed_by) if known else "something unknown"
    file = PurePosixPath(_text(held.get("relative_path")))
    if file.is_absolute() or ".." in file.parts:
        raise CorruptFile(f"a data file outside the directory: {printable(str(file))}")
    return Slice(str(file), _number(held.get("offset")), _number(held.get("length")), names)


# -- data files --------------------------------------------------------------------------------------------------------


class DataFiles:
    """The data files of a directory; what is wrong with one is said once."""

    def __init__(self, directory: Path, issues: list[Issue], limits: Limits) -> None:
        self._directory = directory
        self._issues = issues
        self._limits = limits
        self.present: dict[str, int] = {}
        self._said: set[str] = set()
        self.sources: list[Source] = []

    @property
    def nbytes(self) -> int:
        """Bytes of the files that were asked for and are there."""
        return sum(self.present.values())

    def lacks(self, where: Slice | None) -> str | None:
        """Why the bytes of a slice cannot be had; None when they are there."""
        if where is None:
            return "the metadata do not say where it lies"
        if where.packed_by:
            return f"it is packed by {where.packed_by}, which is an extension of whoever wrote it"
        path = self._directory / where.file
        if where.file not in self.present:
            if not path.is_file():
                return self._say(where.file, f"{where.file} is missing")
            self.present[where.file] = path.stat().st_size
        there = self.present[where.file]
        if where.offset + where.nbytes > there:
            reason = f"{where.file} is truncated: it has {there} bytes, {where.offset + where.nbytes} are needed"
            return self._say(where.file, reason)
        return None

    def _say(self, file: str, reason: str) -> str:
        if file not in self._said:
            self._said.add(file)
            message = f"{reason}; what lies there has no bytes"
            self._issues.append(Issue("integrity-missing-shard", Severity.ERROR, file, message))
        return reason

    def seals(self, slices: Slices) -> Iterator[Seal]:
        """Every member of every archive in the files, open only while it is looked at."""
        for label, archive in self._archives(slices):
            for place, extent, checksum in archive.seals():
                yield Seal(f"{label}, {place}", extent, checksum)

    def audit(self, slices: Slices) -> Iterator[Issue]:
        """What is odd about the archives, and what of the files belongs to none."""
        runs: dict[str, list[Run]] = {}
        for (name, _), where in slices.items():
            if where.file in self.present:
                runs.setdefault(where.file, []).append(Run(where.offset, where.offset + where.nbytes, name))
        for file, of_file in runs.items():
            yield from _layout.issues(of_file, self.present[file], file)
        for label, archive in self._archives(slices):
            for issue in archive.audit():
                yield replace(issue, where=label, message=f"{issue.where}: {issue.message}")

    def _archives(self, slices: Slices) -> Iterator[tuple[str, Archive]]:
        """The archive of each slice that has one, with the name of what lies in it."""
        for (name, _), where in slices.items():
            if self.lacks(where) is not None:
                continue
            with Source(self._directory / where.file) as source:
                try:
                    archive = archive_in(FileExtent(source, where.offset, where.nbytes))
                except CorruptFile:
                    continue  # who reads the values finds out
                yield f"{printable(name)} in {where.file}", archive

    def chunk(self, info: TensorInfo, where: Slice) -> Tensor:
        """A chunk that is there."""
        return StoredChunk(info, self._directory / where.file, where, self._limits)

    def item(self, where: Slice) -> Node:
        """An item that is no tensor, read. Its file stays open only when tensors in it may be read later."""
        source = Source(self._directory / where.file)
        try:
            machine, tree = _load(source, where, self._limits)
        except BaseException:
            source.close()
            raise
        self._issues += findings.foreign(machine, where.file)
        if any(isinstance(node, Tensor) for _, node in walk(tree, self._limits)):
            self.sources.append(source)
        else:
            source.close()
        return tree


def _load(source: Source, where: Slice, limits: Limits) -> tuple[Machine, Node]:
    archive = archive_in(FileExtent(source, where.offset, where.nbytes))
    machine = TorchArchive(archive, root_of(archive)).machine("data", limits)
    return machine, machine.load()


class StoredChunk(Tensor):
    """A tensor that is a torch archive of its own within a data file, opened whenever its values are wanted."""

    __slots__ = ("_limits", "path", "where")

    def __init__(self, info: TensorInfo, path: Path, where: Slice, limits: Limits) -> None:
        self.info = info
        self.storage = None
        self.alias = None
        self.note = None
        self.path = path
        self.where = where
        self._limits = limits

    def chunks(self, limit: int = CHUNK_NBYTES) -> Iterator[bytes]:
        with Source(self.path) as source, damage(str(self.path)):
            _, tensor = _load(source, self.where, self._limits)
            if not isinstance(tensor, Tensor) or tensor.info != self.info:
                found = list(tensor.info.shape) if isinstance(tensor, Tensor) else "something else"
                raise CorruptFile(f"a chunk {list(self.info.shape)} of {self.info.dtype} was expected, {found} found")
            yield from tensor.chunks(limit)


# -- the tree ----------------------------------------------------------------------------------------------------------


def _items(described: Description, files: DataFiles, issues: list[Issue]) -> Iterator[tuple[str, Node]]:
    for name, tensor in described.tensors.items():
        if tensor is not None:
            yield name, _assembled(name, tensor, described, files, issues)
        else:
            yield name, _item(name, described.slices.get((name, None)), files, issues)


def _item(name: str, where: Slice | None, files: DataFiles, issues: list[Issue]) -> Node:
    """An item that is no tensor; an object that says why, where it cannot be read."""
    missing = files.lacks(where)
    if missing is not None or where is None:
        return Opaque(f"an item without bytes: {missing}")
    try:
        with damage(where.file):
            return files.item(where)
    except UnreadableInput as error:
        issues.append(Issue("integrity-damaged-item", Severity.ERROR, printable(name), str(error)))
        return Opaque(f"an item that cannot be read: {error.message}")


def _assembled(
    name: str, tensor: DescribedTensor, described: Description, files: DataFiles, issues: list[Issue]
) -> Tensor:
    info, pieces = tensor.info, []
    for starts, shape in tensor.chunks.items():
        where = described.slices.get((name, starts))
        missing = files.lacks(where)
        if missing is not None or where is None:
            return AbsentTensor(info, str(missing))
        pieces.append((starts, files.chunk(TensorInfo(info.dtype, shape), where)))
    if len(pieces) == 1 and pieces[0][1].info == info:
        return pieces[0][1]
    try:
        return AssembledTensor(info, pieces, note=f"{len(pieces)} chunks")
    except CorruptFile as error:
        issues.append(Issue("integrity-chunks", Severity.ERROR, printable(name), error.message))
        return AbsentTensor(info, error.message)


def tree_of(named: Mapping[str, Node], key_of: Callable[[str], Key]) -> Node:
    """The nested state dict that was flattened to ``named``; flat where the keys contradict each other."""
    leaves = [(key_of(name), node) for name, node in named.items()]
    keys = {key for key, _ in leaves}
    if len(keys) < len(leaves) or any(key[:length] in keys for key in keys for length in range(1, len(key))):
        return Dict(named)
    return _grown(leaves, 0)


def _grown(leaves: list[tuple[Key, Node]], depth: int) -> Node:
    """The tree of leaves that share the first ``depth`` parts of their keys; indices that count from 0 make a list."""
    groups: dict[str | int, list[tuple[Key, Node]]] = {}
    for leaf in leaves:
        groups.setdefault(leaf[0][depth], []).append(leaf)
    parts = {
        part: group[0][1] if len(group[0][0]) == depth + 1 else _grown(group, depth + 1)
        for part, group in groups.items()
    }
    return list(parts.values()) if depth and list(parts) == list(range(len(parts))) else Dict(parts)
