"""``paddle-dcp``: a directory of ``paddle.distributed.save_state_dict``: ``<n>.metadata`` and ``<rank>_<n>.distcp``.

Source: paddle/distributed/flex_checkpoint/dcp. The metadata, a pickle, has for every tensor the boxes that it is cut
into, their element type as text, and the file that keeps each box; a data file is a pickled state dict of boxes. Tensors
are put together from boxes, and what a box lacks makes the whole unreadable, not unlisted. ``n`` counts the saves into
one directory: the newest counts, unless a file of another one is named. Flattened boxes are runs of a box's elements.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.dtypes import BY_NAME, DType
from ckpt_tools.core.extents import JoinedExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import Key, printable
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location, at
from ckpt_tools.core.source import Source
from ckpt_tools.core.tensors import AbsentTensor, AssembledTensor, Storage, StridedTensor, Tensor, TensorInfo
from ckpt_tools.core.tree import Dict, Node
from ckpt_tools.errors import CkptError, CorruptFile, MissingInput
from ckpt_tools.formats._paddle_objects import Loaded
from ckpt_tools.formats._pickle_file import pickle_of
from ckpt_tools.pickles import findings
from ckpt_tools.pickles.nodes import Object
from ckpt_tools.pickles.numpy_objects import checked_shape

_METADATA = re.compile(r"(?P<save>\d+)\.metadata")
_DATA = re.compile(r"(?P<rank>\d+)_(?P<save>\d+)\.distcp")
#: The classes of the metadata. Releases moved the module about below ``paddle.distributed``.
_OWN = re.compile(r"paddle\.distributed\.(?:\w+\.)*metadata\.(?:Metadata|LocalTensorMetadata|LocalTensorIndex)")
#: Flattened state dicts nest like state dicts: real ones stay below 40 levels.
_LONGEST_PATH = 100


def _is_own(path: str) -> bool:
    return _OWN.fullmatch(path) is not None


class Box(NamedTuple):
    """A part of a tensor of shape ``whole``: ``shape`` elements from ``start`` on.

    With a ``run``, only the elements ``[run[0], run[1])`` of the box, counted in row-major order.
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    run: tuple[int, int] | None
    dtype: DType
    whole: tuple[int, ...]

    @property
    def kept(self) -> int:
        """How many elements of it are kept."""
        return math.prod(self.shape) if self.run is None else self.run[1] - self.run[0]


def probe(location: Location) -> str | None:
    """Why this is a distributed checkpoint of Paddle or a file of one, or None."""
    if not location.is_directory:
        if not (_METADATA.fullmatch(location.path.name) or _DATA.fullmatch(location.path.name)):
            return None
    saves = _saves(_directory(location))
    return f"a directory with {max(saves)}.metadata and data files of that save" if saves else None


def _directory(location: Location) -> Path:
    return location.path if location.is_directory else location.path.parent


def _saves(directory: Path) -> list[int]:
    """The numbers of the saves that have metadata and at least one data file."""
    names = [entry.name for entry in directory.iterdir()]
    described = {int(match["save"]) for name in names if (match := _METADATA.fullmatch(name))}
    kept = {int(match["save"]) for name in names if (match := _DATA.fullmatch(name))}
    return sorted(described & kept)


def read(location: Location, limits: Limits) -> Checkpoint:
    """What the metadata describes; data files are opened, their arrays located and not read."""
    directory = _directory(location)
    saves = _saves(directory)
    if not saves:
        raise MissingInput("no <n>.metadata with <rank>_<n>.distcp in this directory", where=location.shown)
    named = _METADATA.fullmatch(location.path.name) or _DATA.fullmatch(location.path.name)
    save = int(named["save"]) if named and not location.is_directory else max(saves)
    issues: list[Issue] = []
    if len(saves) > 1:
        others = ", ".join(f"{number}.metadata" for number in saves if number != save)
        message = f"the directory holds several saves; {save}.metadata is shown, and there is {others}"
        issues.append(Issue("integrity-several-saves", Severity.NOTE, location.shown, message))
    metadata_path = directory / f"{save}.metadata"
    pickled = pickle_of(at(metadata_path), limits)
    issues += findings.foreign(pickled.machine, metadata_path.name, own=_is_own)
    described = _Description(pickled.tree)
    files = _DataFiles(directory, limits, issues)
    root = Dict()
    for key, boxes in described.tensors.items():
        _put(root, key, described.path_of(key), _assembled(key, boxes, described, files, issues))
    return Checkpoint(
        "paddle-dcp",
        location,
        root,
        producer=f"paddle.distributed, {pickled.producer}",
        nbytes=pickled.source.nbytes + sum(source.nbytes for source in files.sources),
        issues=issues,
        facts={"data files": str(len(files.sources)), "save": str(save)},
        sources=[pickled.source, *files.sources],
        limits=limits,
    )


def _put(root: Dict, key: str, path: Key, tensor: Tensor) -> None:
    """Hang a tensor into the tree at ``path``; where something else is in its way, under its flat name ``key``."""
    inner = root
    for part in path[:-1]:
        below = inner.setdefault(part, Dict())
        if type(below) is not Dict:
            inner, path = root, (key,)
            break
        inner = below
    if path[-1] in inner:
        inner, path = root, (key,)
    if path[-1] in inner:
        raise CorruptFile(f"two tensors are called {printable(key)}")
    inner[path[-1]] = tensor


# -- the metadata --------------------------------------------------------------------------------------------------------


class _Description:
    """What the metadata says: boxes by tensor, files by box, paths by flat name. CorruptFile when it is not that."""

    def __init__(self, tree: Node) -> None:
        fields = tree.attributes() if isinstance(tree, Object) and _is_own(tree.path) else {}
        parts, files, paths = (fields.get(n) for n in ("state_dict_metadata", "storage_metadata", "flat_mapping"))
        if not isinstance(parts, dict) or not isinstance(files, dict):
            raise CorruptFile("the metadata does not describe tensors and the files that keep them")
        self.tensors = {str(key): _boxes(str(key), boxes) for key, boxes in parts.items()}
        self._paths = paths if isinstance(paths, dict) else {}
        self._files: dict[tuple[str, tuple[int, ...], tuple[int, int] | None], str] = {}
        for index, file_name in files.items():
            place = _attributes(index)
            if isinstance(file_name, str):
                where = (str(place.get("tensor_key")), checked_shape(place.get("global_offset")), _run(place))
                self._files.setdefault(where, file_name)  # of replicas the first will do

    def file_of(self, key: str, box: Box) -> str | None:
        """The name of the data file that keeps a box of a tensor."""
        return self._files.get((key, box.start, box.run))

    def path_of(self, key: str) -> Key:
        """Where a tensor was before the state dict was flattened."""
        path = self._paths.get(key)
        if not isinstance(path, (tuple, list)) or not 0 < len(path) <= _LONGEST_PATH:
            return (key,)
        return tuple(part if type(part) is int else str(part) for part in path)


def _boxes(key: str, parts: Node) -> list[Box]:
    """The boxes of a tensor, of replicas one. CorruptFile when they are no parts of one tensor."""
    boxes: dict[Box, None] = {}
    for part in parts if isinstance(parts, list) else []:
        fields = _attributes(part)
        start, shape = checked_shape(fields.get("global_offset")), checked_shape(fields.get("local_shape"))
        dtype = BY_NAME.get(str(fields.get("dtype")).rpartition(".")[2])
        if dtype is None:
            raise CorruptFile(f"{printable(key)} has an unknown element type {fields.get('dtype')!s:.40}")
        if fields.get("global_shape") is None:  # older releases: as far as the boxes reach
            whole = tuple(first + extent for first, extent in zip(start, shape))
        else:
            whole = checked_shape(fields.get("global_shape"))
        boxes[Box(start, shape, _run(fields), dtype, whole)] = None
    if not boxes or len({(box.dtype, len(box.whole)) for box in boxes}) > 1:
        raise CorruptFile(f"{printable(key)} has no parts, or parts of several kinds")
    return list(boxes)


def _attributes(node: Node) -> dict[str, Node]:
    if not isinstance(node, Object) or not _is_own(node.path):
        raise CorruptFile("the metadata holds something else than descriptions of tensors")
    return node.attributes()


def _run(fields: dict[str, Node]) -> tuple[int, int] | None:
    if not fields.get("is_flattened"):
        return None
    run = checked_shape(fields.get("flattened_range"))
    if len(run) != 2 or run[0] > run[1]:
        raise CorruptFile(f"{list(run)} is no range of flattened elements")
    return run[0], run[1]


# -- the data files ------------------------------------------------------------------------------------------------------


class _DataFiles:
    """The data files of a save, each opened when it is first wanted. One that cannot be read is told of once."""

    def __init__(self, directory: Path, limits: Limits, issues: list[Issue]) -> None:
        self._directory = directory
        self._limits = limits
        self._issues = issues
        self._boxes: dict[str, Dict] = {}
        self.sources: list[Source] = []

    def array(self, file_name: str, key: str) -> StridedTensor | None:
        """The array that a data file keeps under ``key``; None when it keeps none, or cannot be read."""
        if file_name not in self._boxes:
            self._boxes[file_name] = self._open(file_name)
        array = self._boxes[file_name].get(key)
        return array if isinstance(array, StridedTensor) else None

    def _open(self, file_name: str) -> Dict:
        path = self._directory / file_name
        try:
            if not _DATA.fullmatch(file_name):
                raise CorruptFile(f"{printable(file_name)} is no name of a data file")
            pickled = pickle_of(at(path), self._limits)
        except CkptError as error:
            self._issues.append(Issue("integrity-data-file", Severity.ERROR, str(path), error.message))
            return Dict()
        self.sources.append(pickled.source)
        self._issues += findings.foreign(pickled.machine, file_name)
        tree = Loaded(pickled.tree, pickled.reductions).root
        return tree if isinstance(tree, Dict) else Dict()


def _assembled(key: str, boxes: list[Box], described: _Description, files: _DataFiles, issues: list[Issue]) -> Tensor:
    """A tensor from its boxes. When they cannot be had, or do not fit together, it is described and has no bytes."""
    info = TensorInfo(boxes[0].dtype, tuple(max(extents) for extents in zip(*(box.whole for box in boxes))))
    try:
        return _from_boxes(key, info, boxes, described, files)
    except CorruptFile as error:
        where = printable(key)
        issues.append(Issue("integrity-missing-part", Severity.ERROR, where, f"{where}: {error.message}"))
        return AbsentTensor(info, error.message)


def _from_boxes(key: str, info: TensorInfo, boxes: list[Box], described: _Description, files: _DataFiles) -> Tensor:
    runs: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, StridedTensor]]] = {}
    for box in boxes:
        file_name = described.file_of(key, box)
        array = files.array(file_name, key) if file_name is not None else None
        if array is None or array.info.count != box.kept or array.info.dtype.bit_width != info.dtype.bit_width:
            found = f"{array.info.dtype} {list(array.info.shape)}" if array is not None else "nothing"
            raise CorruptFile(f"its part at {list(box.start)} should be in {file_name}, where there is {found}")
        runs.setdefault((box.start, box.shape), []).append((box.run[0] if box.run else 0, array))
    pieces = [(start, _whole_box(TensorInfo(info.dtype, shape), parts)) for (start, shape), parts in runs.items()]
    if len(pieces) == 1 and pieces[0][1].info.shape == info.shape:
        return pieces[0][1]
    return AssembledTensor(info, pieces)


def _whole_box(info: TensorInfo, runs: list[tuple[int, StridedTensor]]) -> StridedTensor:
    """A box in one piece, or put together from the runs that it was flattened into. ``info`` knows its element type."""
    runs.sort(key=lambda run: run[0])
    arrays = [array for _, array in runs]
    first = arrays[0]
    if len(arrays) == 1 and first.info.shape == info.shape:
        return StridedTensor(info, first.storage, first.offset, first.strides)
    end = 0
    for start, array in runs:
        if start != end or not array.compact or array.storage.byteorder != first.storage.byteorder:
            raise CorruptFile(f"a part is flattened into runs that do not follow each other at {end}")
        end += array.info.count
    if end != info.count:
        raise CorruptFile(f"a part is flattened into runs of {end} elements, it has {info.count}")
    extent = JoinedExtent([array.storage.extent for array in arrays])
    return StridedTensor(info, Storage(extent, byteorder=first.storage.byteorder))
