"""Writes ``hdf5``: Keras' ``.weights.h5``, its older files of layers, and plain groups and datasets, through h5py.

The library makes the structure (superblock 0, contiguous datasets, as Keras' files have) in memory, where it leaves room
for the bytes of the tensors; both are then written in order, as for every other format. Parts of a key are groups. Keys
that begin with ``@`` are attributes, as the reader gives them. A file that is not called ``.weights.h5`` and whose tensors all lie in groups lists these as layers, with
``layer_names`` and ``weight_names`` in the order of the tree: Keras loads such files by that order. What groups cannot
tell goes into the outline (:mod:`ckpt_tools.formats._values`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import h5py
import numpy

from ckpt_tools.core.dtypes import BY_NAME, DType
from ckpt_tools.core.keys import Key, printable
from ckpt_tools.core.rebuild import containers
from ckpt_tools.core.tensors import StringTensor, Tensor
from ckpt_tools.core.tree import Node, NumpyScalar, walk
from ckpt_tools.errors import WriteRefused
from ckpt_tools.formats import _values
from ckpt_tools.formats._hdf5 import NAME_LISTS, encoded
from ckpt_tools.formats._hdf5_image import SparseFile, created
from ckpt_tools.formats._keras_names import names_from_aliases
from ckpt_tools.formats._writing import (
    Feed,
    Output,
    PlannedFile,
    Request,
    Target,
    WritePlan,
    kind_of_special,
)

_STRING = BY_NAME["string"]
_MARK = "@"
#: Names may be any bytes; the reader keeps those that are no text as surrogates.
_ERRORS = "surrogateescape"
_ORDER = h5py.h5p.CRT_ORDER_TRACKED | h5py.h5p.CRT_ORDER_INDEXED
_KERAS3_SUFFIX = ".weights.h5"
#: HDF5 keeps attributes in object headers, which have 64 KiB; Keras splits lists of names above this.
_LONGEST_ATTRIBUTE = 64_512
_MODEL_WEIGHTS = "model_weights"
_VARIABLES = "vars"


def _reason_lost(node: Node) -> str | None:
    if isinstance(node, StringTensor) and node.info.dtype is _STRING:
        return _reason_texts_are_lost(node)
    if isinstance(node, Tensor):
        special = kind_of_special(node)
        if special is not None:
            return special
        dtype, spec = node.info.dtype, node.info.dtype.numpy_spec
        if dtype.name in BY_NAME:
            return None if dtype.bit_width % 8 == 0 else f"of dtype {dtype}, which has no whole bytes"
        plain = isinstance(spec, str) and spec.lstrip("<|")[0] in "SV"
        return None if plain else f"of dtype {dtype}"
    return _values.reason_lost(node)


def _reason_texts_are_lost(tensor: StringTensor) -> str | None:
    if not tensor.info.shape:
        return "a single text that is a tensor, which HDF5 does not tell from a text"
    if any(b"\0" in element for element in tensor.elements()):
        return "of texts with zero bytes, which end a text in HDF5"
    return None


def _holds(dtype: DType) -> bool:
    return isinstance(dtype.numpy_spec, str) or dtype.name == "bfloat16" or dtype is _STRING


def _remark(node: Node) -> str | None:
    if isinstance(node, Tensor) and not _holds(node.info.dtype):
        return f"{node.info.dtype} is stored as raw bytes, which only this tool reads as such"
    return None


TARGET = Target("an HDF5 file", _reason_lost, remark=_remark)


def plan(root: Node, request: Request) -> WritePlan:
    """The file of a tree. WriteRefused when it is to be cut, or names are none that HDF5 can have."""
    if request.max_shard_nbytes is not None:
        raise WriteRefused("HDF5 files are not written in shards", where=str(request.path))
    attributes = _Attributes(root)
    flat = _values.flatten(root, (), _holds, tells_aliases=False, errors=_ERRORS)
    paths = {name: _path(name) for name, _ in flat.tensors}
    _refuse_groups_as_tensors(paths)
    lists = {} if request.path.name.endswith(_KERAS3_SUFFIX) else _name_lists(paths)
    names = names_from_aliases((paths[name], tensor.alias) for name, tensor in flat.tensors if tensor.alias)
    if _groups_tell_all(root, attributes) and _aliases_follow(flat.tensors, paths, lists, names):
        flat.outline = None
    else:
        _refuse_groups_as_tensors({**paths, _values.OUTLINE: (_values.OUTLINE,)})
        flat = _values.flatten(root, (), _holds, errors=_ERRORS, outlined=True)
    outline = (flat.outline or "").encode("ascii")
    image = SparseFile()
    with _refusals(str(request.path)), created(image, link_order=_ORDER) as file:
        places = {
            name: _dataset(file, paths[name], _file_type(tensor.info.dtype), tensor.info.shape, _texts(tensor))
            for name, tensor in flat.tensors
        }
        if outline:
            _dataset(file, (_values.OUTLINE,), h5py.h5t.STD_U8LE, (len(outline),), numpy.frombuffer(outline, "u1"))
        for name, tensor in flat.tensors:
            if tensor.info.dtype.name == "bfloat16":
                file[_stored(paths[name])].attrs["dtype"] = "bfloat16"
        datasets = set(paths.values())
        for layer, name in names.items():
            if (*layer, _VARIABLES) not in datasets:
                _group(file, (*layer, _VARIABLES)).attrs["name"] = name
        for holder, attribute, value in attributes.found:
            file[_stored(holder)].attrs[attribute] = value
        for group, (attribute, texts) in lists.items():
            _write_name_list(file[_stored(group)], attribute, texts)
    streamed = [(places[n], t) for n, t in flat.tensors if t.nbytes and not isinstance(t, StringTensor)]
    streamed.sort(key=itemgetter(0))

    def write(output: Output, feed: Feed) -> None:
        reached = 0
        for place, tensor in streamed:
            output.write(image.extract(reached, place))
            for chunk in feed(tensor):
                output.write(chunk)
            reached = place + tensor.nbytes
        output.write(image.extract(reached, image.nbytes))

    return WritePlan([PlannedFile(request.path, image.nbytes, write)])


@contextmanager
def _refusals(where: str) -> Iterator[None]:
    """One sentence for what the library refuses: it writes into memory, so that can only be what it was given."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, (NotImplementedError, RecursionError)):
            raise
        raise WriteRefused("HDF5 has no room for one of the names or attributes", where=where) from error


class _Attributes:
    """The values of a tree that are attributes, as the reader gives them: ``@name`` of the group that it lies in,
    ``x@name`` of the dataset ``x`` beside it.

    ``found`` has the path of the holder, the attribute's name and its value for the library; ``others`` says whether
    there are values besides.
    """

    def __init__(self, root: Node) -> None:
        self.found: list[tuple[tuple[str, ...], str, Any]] = []
        self.others = False
        leaves = [(_parts(key), node) for key, node in walk(root)]
        self._datasets = {path: node for path, node in leaves if isinstance(node, Tensor)}
        self._groups = {path[:length] for path in self._datasets for length in range(len(path))}
        for path, node in leaves:
            if isinstance(node, Tensor):
                continue
            holder, mark, name = path[-1].rpartition(_MARK) if path else ("", "", "")
            place = (*path[:-1], holder) if holder else path[:-1]
            value = _attribute_value(_values.read_value(node))
            if mark and value is not None and self._takes(place, name, is_dataset=bool(holder)):
                self.found.append((place, name, value))
            else:
                self.others = True

    def _takes(self, place: tuple[str, ...], name: str, *, is_dataset: bool) -> bool:
        """Whether there is something to hold the attribute, and the reader will list it and not use it."""
        if not name or not _values.fits_place(name) or NAME_LISTS.fullmatch(name):
            return False
        if is_dataset:
            return place in self._datasets and (name != "dtype" or self._datasets[place].info.dtype.itemsize != 2)
        return place in self._groups and (name != "name" or place[-1:] != (_VARIABLES,))


def _attribute_value(node: Node) -> Any:
    """What the library takes for an attribute; None for a value that would come back as another."""
    if isinstance(node, str):
        return node if _values.fits_place(node) else None
    if isinstance(node, NumpyScalar) and isinstance(node.dtype.numpy_spec, str) and node.dtype.numpy_spec[1] in "fiub":
        return numpy.frombuffer(node.raw, node.dtype.to_numpy())[0]
    return None


def _stored(path: Iterable[str]) -> bytes:
    """A path from the root as the library takes it."""
    return encoded("/" + "/".join(path))


def _parts(key: Key) -> tuple[str, ...]:
    """The groups and the name in the last of them that a key leads to."""
    return tuple(part for name in key for part in str(name).split("/"))


def _path(name: str) -> tuple[str, ...]:
    """The groups and the dataset of a name. WriteRefused for parts that HDF5 takes for something else."""
    parts = tuple(name.split("/"))
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise WriteRefused(f"HDF5 has no place for the name {printable(name)!r}", hint="--rename gives it another")
    return parts


def _refuse_groups_as_tensors(paths: Mapping[str, tuple[str, ...]]) -> None:
    taken = {path: name for name, path in paths.items()}
    for name, path in paths.items():
        for length in range(1, len(path)):
            if path[:length] in taken:
                raise WriteRefused(
                    f"{name} would lie below {taken[path[:length]]}, which is a dataset and no group",
                    hint="--weights-only leaves out optimizer state, which is often named like that; --rename OLD=NEW",
                )


def _name_lists(paths: Mapping[str, tuple[str, ...]]) -> dict[tuple[str, ...], tuple[str, list[str]]]:
    """``layer_names`` and ``weight_names`` by the group that has them, of files that Keras loads by order."""
    if not paths or any(len(path) < 2 or _VARIABLES in path for path in paths.values()):
        return {}
    lists: dict[tuple[str, ...], tuple[str, list[str]]] = {}
    whole = any(path[0] == _MODEL_WEIGHTS for path in paths.values())
    for path in paths.values():
        if whole and path[0] != _MODEL_WEIGHTS:
            lists.setdefault(path[:1], ("weight_names", []))[1].append("/".join(path[1:]))
            continue
        depth = 1 if whole else 0
        layers = lists.setdefault(path[:depth], ("layer_names", []))[1]
        if path[depth] not in layers[-1:]:
            layers.append(path[depth])
        lists.setdefault(path[: depth + 1], ("weight_names", []))[1].append("/".join(path[depth + 1 :]))
    return {path: (kind, list(dict.fromkeys(texts))) for path, (kind, texts) in lists.items()}


def _groups_tell_all(root: Node, attributes: _Attributes) -> bool:
    """Whether the reader finds this very tree in groups, datasets and attributes."""
    if attributes.others or not isinstance(root, dict):
        return False
    for node in containers(root):
        if not isinstance(node, dict) or not all(type(key) is str and "/" not in key for key in node):
            return False
        if not node and node is not root:  # Keras makes empty groups, and the reader passes over them
            return False
    return all(
        _holds(node.info.dtype) and _MARK not in str(key[-1]) for key, node in walk(root) if isinstance(node, Tensor)
    )


def _aliases_follow(
    tensors: Sequence[tuple[str, Tensor]],
    paths: Mapping[str, tuple[str, ...]],
    lists: Mapping[tuple[str, ...], tuple[str, list[str]]],
    names: Mapping[tuple[str, ...], str],
) -> bool:
    """Whether the second names are those that the reader will find by itself."""
    listed = {
        (*path, *text.split("/")): text
        for path, (kind, texts) in lists.items()
        if kind == "weight_names"
        for text in texts
    }
    for name, tensor in tensors:
        path = paths[name]
        if not (path[-2:-1] == (_VARIABLES,) and path[:-2] in names) and tensor.alias != listed.get(path):
            return False
    return True


def _group(file: h5py.File, path: Sequence[str]) -> h5py.Group:
    """The group at ``path``, made with all above it where it is not there."""
    plist = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    plist.set_link_creation_order(_ORDER)
    group = h5py.h5g.open(file.id, b"/")
    for part in path:
        name = encoded(part)
        known = group.links.exists(name)
        group = h5py.h5g.open(group, name) if known else h5py.h5g.create(group, name, gcpl=plist)
    return h5py.Group(group)


def _dataset(
    file: h5py.File, path: tuple[str, ...], kind: Any, shape: tuple[int, ...], values: numpy.ndarray | None = None
) -> int:
    """Make a dataset and the groups above it; the offset of its bytes in the file. ``values`` are written at once."""
    holder = _group(file, path[:-1]).id
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.CONTIGUOUS)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    if values is None:
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    plist.set_obj_track_times(False)
    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    made = h5py.h5d.create(holder, encoded(path[-1]), kind, space, plist)
    if values is not None and values.size:
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    return made.get_offset() or 0


def _texts(tensor: Tensor) -> numpy.ndarray | None:
    """The elements of a tensor of texts, of which the library keeps the lengths; None for others."""
    if not isinstance(tensor, StringTensor):
        return None
    values = numpy.empty(tensor.info.count, h5py.string_dtype())
    values[:] = tensor.elements()
    return values.reshape(tensor.info.shape)


def _file_type(dtype: DType) -> Any:
    """The library's type of an element; opaque bytes where it has none."""
    if dtype is _STRING:
        return h5py.h5t.py_create(h5py.string_dtype(), logical=True)
    if isinstance(dtype.numpy_spec, str):
        return h5py.h5t.py_create(dtype.to_numpy(), logical=True)
    return h5py.h5t.py_create(numpy.dtype(f"V{dtype.itemsize}"))


def _write_name_list(group: h5py.Group, attribute: str, texts: Sequence[str]) -> None:
    """A list of names as Keras keeps it: fixed byte strings, in several attributes where one would be too long."""
    names = numpy.array([encoded(text) for text in texts])
    pieces = 1
    while pieces < len(texts) and any(part.nbytes > _LONGEST_ATTRIBUTE for part in numpy.array_split(names, pieces)):
        pieces += 1
    for number, part in enumerate(numpy.array_split(names, pieces)):
        group.attrs[f"{attribute}{number}" if pieces > 1 else attribute] = part
