"""What Paddle's own pickles say beyond numpy's: which arrays are tensors, what they are called, how big ones are cut.

Source: paddle/framework/io.py and io_utils.py. A tensor is the pair ``(variable name, array)``, rebuilt by
``builtins.tuple`` or literal; or an array that a dict's table of names lists; or, where a file has neither, any array.
A DenseTensor is ``eval('data', {'data': array})``: that call is known by its structure, any other ``eval`` is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpt_tools.core.dtypes import BY_NAME
from ckpt_tools.core.extents import JoinedExtent
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import printable
from ckpt_tools.core.tensors import Storage, StridedTensor, TensorInfo
from ckpt_tools.core.tree import Dict
from ckpt_tools.errors import CorruptFile, UnsafePickle
from ckpt_tools.pickles import python_objects
from ckpt_tools.pickles.machine import Constructor, Machine
from ckpt_tools.pickles.nodes import LongText, Object
from ckpt_tools.pickles.numpy_objects import checked_shape

#: Entry of a state dict: structured name to variable name.
NAME_TABLE = "StructuredToParameterName@@"
#: Entry of a state dict written with protocol 2 or 3: arrays over 1 GiB and their slices. The spelling is Paddle's.
SLICE_TABLE = "UnpackBigParamInfor@@"

_EVAL = "builtins.eval"
#: How Paddle 2.1 and 2.2 pickled the parameters of a whole Layer; ``v`` is the array.
_FILL_PARAMETER = "t if t.value().get_tensor().set(v,p()) or True else None"

_UINT16, _BFLOAT16, _INT8 = BY_NAME["uint16"], BY_NAME["bfloat16"], BY_NAME["int8"]


def tensor_of(array: StridedTensor, alias: str | LongText | None = None) -> StridedTensor:
    """An array as the tensor that Paddle makes of it.

    Paddle has no uint16: two bytes without a sign are bfloat16. One byte with a sign is int8 or a float8, which the
    file does not tell apart.
    """
    dtype, note = array.info.dtype, array.note
    if dtype is _UINT16:
        dtype, note = _BFLOAT16, "stored as uint16"
    elif dtype is _INT8:
        note = "int8, or a float8 that was stored as int8"
    if isinstance(alias, LongText):
        alias = alias.read()
    info = TensorInfo(dtype, array.info.shape)
    return StridedTensor(info, array.storage, array.offset, array.strides, alias=alias, note=note)


def is_pair(node: Any) -> bool:
    """Whether a node is a ``(variable name, array)`` pair."""
    if type(node) is not tuple or len(node) != 2:
        return False
    return isinstance(node[0], (str, LongText)) and isinstance(node[1], StridedTensor)


class Reductions:
    """Paddle's reductions in one pickle: the constructors for a machine, and the tensors they made."""

    def __init__(self) -> None:
        self.pairs: list[StridedTensor] = []
        self.evaluated: list[StridedTensor] = []

    @property
    def constructors(self) -> Mapping[str, Constructor]:
        return {"builtins.tuple": self._tuple, _EVAL: self._eval}

    def _tuple(self, args: Any) -> Any:
        if len(args) == 1 and is_pair(args[0]):
            name, array = args[0]
            self.pairs.append(tensor_of(array, name))
            return self.pairs[-1]
        return python_objects.CONSTRUCTORS["builtins.tuple"](args)

    def _eval(self, args: Any) -> Any:
        if len(args) != 2 or not isinstance(args[1], dict):
            return NotImplemented
        expression, names = args
        array, alias = None, None
        if expression == "data" and list(names) == ["data"]:
            array = names["data"]
        elif expression == _FILL_PARAMETER and set(names) == {"t", "v", "p"}:
            array, alias = names["v"], _parameter_name(names["t"])
        if not isinstance(array, StridedTensor):
            return NotImplemented
        self.evaluated.append(tensor_of(array, alias))
        return self.evaluated[-1]

    def refuse_code(self, machine: Machine) -> None:
        """UnsafePickle when the pickle would evaluate anything else."""
        for node in (*machine.calls, *machine.instances):
            if node.path == _EVAL:
                raise UnsafePickle(f"the pickle would call {_EVAL} on an expression of its own at byte {node.offset}")
        for name in machine.globals.values():
            if name.path == _EVAL and not self.evaluated:
                raise UnsafePickle(
                    f"the pickle would hand {_EVAL} to another callable, which it names at byte {name.offset}"
                )


def _parameter_name(node: Any) -> str | None:
    name = node.attributes().get("name") if isinstance(node, Object) else None
    return name if isinstance(name, str) else None


class Loaded:
    """A pickled tree as ``paddle.load`` gives it back: pairs and listed arrays are tensors, slices are joined.

    ``root`` is the tree, changed in place where that is possible; ``form`` says how the file marks its tensors;
    ``issues`` tell what a table lists and the tree does not hold. ``reductions`` are those of the machine that read it.
    """

    def __init__(self, tree: Any, reductions: Reductions) -> None:
        self.issues: list[Issue] = []
        containers = _containers(tree)
        has_tables = any(type(c) is Dict and (_table(c, NAME_TABLE) or _table(c, SLICE_TABLE)) for c in containers)
        has_pairs = bool(reductions.pairs) or any(is_pair(c) for c in containers)
        self.form = "state dict" if has_tables else "named pairs" if has_pairs else "plain arrays"
        self._all_arrays = not has_tables and not has_pairs
        self._tensors = {id(tensor) for tensor in (*reductions.pairs, *reductions.evaluated)}
        # Old nodes are kept beside the new ones: an identity must not be given away twice.
        self._replaced: dict[int, tuple[Any, Any]] = {}
        for container in containers:
            if type(container) is Dict:
                self._resolve_dict(container)
            elif type(container) is list:
                container[:] = [self._new(node) for node in container]
            else:
                self._resolve_tuple(container)
        self.root = self._new(tree)

    def _new(self, node: Any) -> Any:
        if id(node) in self._replaced:
            return self._replaced[id(node)][1]
        if self._all_arrays and isinstance(node, StridedTensor) and id(node) not in self._tensors:
            return self._replace(node, tensor_of(node))
        return node

    def _replace(self, old: Any, new: Any) -> Any:
        self._replaced[id(old)] = (old, new)
        self._tensors.add(id(new))
        return new

    def _resolve_tuple(self, container: tuple[Any, ...]) -> None:
        if is_pair(container):
            name, array = container
            self._replace(container, tensor_of(array, name))
            return
        parts = tuple(self._new(node) for node in container)
        if any(new is not old for new, old in zip(parts, container)):
            self._replace(container, parts)

    def _resolve_dict(self, container: Dict) -> None:
        slices, names = _table(container, SLICE_TABLE), _table(container, NAME_TABLE)
        if slices is not None:
            del container[SLICE_TABLE]
            _join_slices(container, slices)
        if names is not None:
            del container[NAME_TABLE]
        for key, node in container.items():
            container[key] = self._new(node)
        for key, name in (names or {}).items():
            node = container.get(key)
            if isinstance(node, StridedTensor):
                container[key] = tensor_of(node, name if isinstance(name, str) else None)
            elif key not in container:
                what = f"the table of names lists {printable(str(key))}, which is not there"
                self.issues.append(Issue("integrity-name-table", Severity.WARNING, NAME_TABLE, what))


def _table(container: Dict, name: str) -> Dict | None:
    table = container.get(name)
    return table if isinstance(table, Dict) else None


def _containers(root: Any) -> list[Any]:
    """Every dict, list and tuple at or below ``root`` once, parts before wholes."""
    kinds = (Dict, list, tuple)
    found: list[Any] = []
    seen: set[int] = set()
    pending: list[tuple[Any, bool]] = [(root, False)]
    while pending:
        node, parts_done = pending.pop()
        if parts_done:
            found.append(node)
        elif type(node) in kinds and id(node) not in seen:
            seen.add(id(node))
            pending.append((node, True))
            parts = node.values() if type(node) is Dict else node
            pending.extend((part, False) for part in parts if type(part) in kinds)
    return found


def _join_slices(container: Dict, table: Dict) -> None:
    """Put each array of the table together again, lazily, in the place of its first slice."""
    wholes: dict[str, tuple[Any, StridedTensor]] = {}
    slices: set[str] = set()
    for key, entry in table.items():
        names = entry.get("slices") if isinstance(entry, Dict) else None
        if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
            raise CorruptFile(f"{SLICE_TABLE} does not name the slices of {key!s:.100}")
        if key in container or not slices.isdisjoint(names):
            raise CorruptFile(f"{key!s:.100} is kept in slices and once more beside them")
        slices.update(names)
        parts = [container.get(name) for name in names]
        wholes[names[0]] = key, _joined(f"{key!s:.100}", parts, checked_shape(entry.get("OriginShape")))
    entries = list(container.items())
    container.clear()
    for key, node in entries:
        if key in wholes:
            whole_key, whole = wholes[key]
            container[whole_key] = whole
        elif key not in slices:
            container[key] = node


def _joined(key: str, parts: list[Any], shape: tuple[int, ...]) -> StridedTensor:
    arrays = [part for part in parts if isinstance(part, StridedTensor)]
    if len(arrays) < len(parts):
        raise CorruptFile(f"{len(parts) - len(arrays)} of the {len(parts)} slices of {key} are not there")
    dtype, byteorder = arrays[0].info.dtype, arrays[0].storage.byteorder
    if any(a.info.dtype is not dtype or a.storage.byteorder != byteorder or not a.compact for a in arrays):
        raise CorruptFile(f"the slices of {key} are not flat arrays of one element type")
    info = TensorInfo(dtype, shape)
    count = sum(array.info.count for array in arrays)
    if count != info.count:
        raise CorruptFile(f"the slices of {key} hold {count} elements, its shape {list(shape)} has {info.count}")
    return StridedTensor(info, Storage(JoinedExtent([a.storage.extent for a in arrays]), byteorder=byteorder))
