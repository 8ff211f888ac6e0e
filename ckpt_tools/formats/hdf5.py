"""``hdf5``: HDF5 files of Keras (whole models, weights, ``.weights.h5``) and of anything else.

Reference: HDF5 File Format Specification; :mod:`ckpt_tools.formats._hdf5` reads them through h5py. Keras 3 may spread
``x.weights.h5`` over files ``x_00000.weights.h5``, … behind ``x.weights.json``, whose ``weight_map`` gives a list of
files for each group; each of them stands for the whole set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.core.extents import FileExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.limits import Limits
from ckpt_tools.core.location import Location
from ckpt_tools.core.source import Source
from ckpt_tools.core.tensors import Tensor
from ckpt_tools.core.tree import Dict, Node, Scalar, walk
from ckpt_tools.errors import CorruptFile, LimitExceeded, UnreadableInput
from ckpt_tools.formats import _hdf5, _keras_names
from ckpt_tools.formats._values import OUTLINE, flat_name, outlined

_SHARD = re.compile(r"(?P<base>.+)_\d{5}\.weights\.h5")
_INDEX_SUFFIX = ".weights.json"


def probe(location: Location) -> str | None:
    """Why this is an HDF5 file or an index of some, or None."""
    if location.path.name.endswith(_INDEX_SUFFIX) and location.head.lstrip().startswith(b"{"):
        return f"an index of Keras weights, named {_INDEX_SUFFIX}"
    if location.head.startswith(_hdf5.SIGNATURE):
        return "the HDF5 signature"
    with Source(location.path) as source:
        for offset in _hdf5.SIGNATURE_OFFSETS:
            if source.peek(offset, len(_hdf5.SIGNATURE)) == _hdf5.SIGNATURE:
                return f"the HDF5 signature at byte {offset}"
    return None


def read(location: Location, limits: Limits) -> Checkpoint:
    """The structure of the file, or of the set it belongs to; reads groups and attributes."""
    index = _index_of(location)
    if index is not None:
        return _read_set(location, index, limits)
    source = Source(location.path)
    found = _hdf5.contents(FileExtent(source, 0, source.nbytes), limits)
    _keras_names.give_aliases(found.root, found.layer_names)
    root, issues = _outlined(found.root, location.shown)
    return Checkpoint(
        "hdf5",
        location,
        root,
        producer=_producer(found),
        nbytes=location.nbytes,
        issues=issues,
        sources=[source],
        audit=lambda: _trailing([source]),
        limits=limits,
    )


def _outlined(root: Dict, where: str) -> tuple[Node, list[Issue]]:
    """The tree that an outline in the file describes; groups and datasets where there is none."""
    outline = root.get(OUTLINE)
    if not isinstance(outline, Tensor) or outline.info.dtype.name != "uint8":
        return root, []
    tensors = {flat_name(key): node for key, node in walk(root) if isinstance(node, Tensor) and key != (OUTLINE,)}
    for tensor in tensors.values():
        tensor.alias = None  # lists of weights were written for Keras; the outline knows who had a second name

    def value(name: str, kind: type) -> Scalar:
        raise CorruptFile(f"the outline names a value {name!r} outside itself")

    tree, issues = outlined(outline, tensors, value, (), where)
    return (root, issues) if issues else (tree, [])


def _trailing(sources: list[Source]) -> Iterator[Issue]:
    """A finding for each file that goes on behind the end that it announces."""
    for source in sources:
        end = _hdf5.announced_nbytes(FileExtent(source, 0, source.nbytes))
        if end is not None and end < source.nbytes:
            text = f"{source.nbytes - end} bytes follow the end of the file at byte {end}"
            yield Issue("integrity-trailing-bytes", Severity.WARNING, source.path.name, text)


def _producer(found: _hdf5.Contents) -> str:
    if "keras_version" in found.keras:
        backend = found.keras.get("backend")
        return f"Keras {found.keras['keras_version']}" + (f", {backend} backend" if backend else "")
    return "Keras 3" if found.has_variables else "HDF5"


def _index_of(location: Location) -> Path | None:
    """The index that ``location`` is, or that names it."""
    if location.path.name.endswith(_INDEX_SUFFIX):
        return location.path
    shard = _SHARD.fullmatch(location.path.name)
    index = location.beside(shard["base"] + _INDEX_SUFFIX) if shard else None
    return index if index is not None and index.is_file() else None


def _read_set(location: Location, index: Path, limits: Limits) -> Checkpoint:
    with Source(index) as source:
        if source.nbytes > limits.header_nbytes:
            raise LimitExceeded(f"an index of {source.nbytes} bytes, over {limits.header_nbytes}")
        files = _files_of(source.read(0, source.nbytes))
    root, sources, issues, nbytes, producer = Dict(), [], [], index.stat().st_size, "Keras 3"
    layer_names: dict[tuple[str, ...], str] = {}
    for name, groups in files.items():
        try:
            source = Source(index.parent / name)
        except UnreadableInput as error:
            message = f"{name}, which holds {', '.join(groups[:3])}{' …' if len(groups) > 3 else ''}, {error.message}"
            issues.append(Issue("integrity-missing-shard", Severity.ERROR, name, message))
            continue
        sources.append(source)
        nbytes += source.nbytes
        found = _hdf5.contents(FileExtent(source, 0, source.nbytes), limits)
        producer = _producer(found)
        layer_names.update(found.layer_names)
        _merge(root, found.root, name)
    if not sources:
        raise UnreadableInput(f"none of the {len(files)} files of weights that {index.name} names is there")
    _keras_names.give_aliases(root, layer_names)
    return Checkpoint(
        "hdf5",
        location,
        root,
        producer=producer,
        nbytes=nbytes,
        issues=issues,
        facts={"files": str(len(files))},
        sources=sources,
        audit=lambda: _trailing(sources),
        limits=limits,
    )


def _files_of(text: bytes) -> dict[str, list[str]]:
    """The files that an index names, each with its groups, in order."""
    content: Any = json.loads(text.decode("utf-8"))
    groups = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(groups, dict):
        raise CorruptFile("the index has no weight_map")
    files: dict[str, list[str]] = {}
    for group, names in groups.items():
        for name in names if isinstance(names, list) else [names]:
            if not isinstance(name, str) or PurePath(name).name != name:
                raise CorruptFile(f"the index gives {name!r:.100} for {group}, which is no file beside it")
            files.setdefault(name, []).append(group)
    return files


def _merge(into: Dict, other: Dict, name: str) -> None:
    pending = [(into, other)]
    while pending:
        whole, part = pending.pop()
        for key, node in part.items():
            if key not in whole:
                whole[key] = node
            elif isinstance(node, Dict) and isinstance(whole[key], Dict):
                pending.append((whole[key], node))
            elif not key.startswith("@"):
                raise CorruptFile(f"{name} holds {key}, which an earlier file of the set holds, too")
