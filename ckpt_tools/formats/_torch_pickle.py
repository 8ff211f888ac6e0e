"""The pickle that torch's writers share: a tree as protocol 2 in the opcodes and names that ``weights_only=True`` allows.

Source: torch/_weights_only_unpickler.py, torch/_utils.py. Tensors become ``_rebuild_*`` calls on storages named by
persistent ids. Which storages there are is decided first: tensors that look at the same bytes share one, a tensor alone
gets one of exactly its values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from ckpt_tools.core.dtypes import BY_TORCH, DType
from ckpt_tools.core.rebuild import is_plain
from ckpt_tools.core.strides import row_major_strides
from ckpt_tools.core.tensors import (
    AbsentTensor,
    CompositeTensor,
    NumpyArray,
    Storage,
    StridedTensor,
    StringTensor,
    Tensor,
    TensorInfo,
)
from ckpt_tools.core.tree import Dict, Node, NumpyScalar, SetNode
from ckpt_tools.formats import _values
from ckpt_tools.formats._torch_objects import STORAGE_CLASSES
from ckpt_tools.formats._writing import kind_of_special
from ckpt_tools.pickles.assembler import (
    INTEGER_BITS,
    Assembler,
    global_opcode,
    integer_opcode,
    integers_opcode,
    text_opcode,
)
from ckpt_tools.pickles.nodes import Global, Object

#: What the dtypes are called that have a storage class of their own; the others go into untyped storages.
_CLASS_NAMES = {dtype.name: name for name, dtype in STORAGE_CLASSES.items() if name != "UntypedStorage"}
#: Two or four values to a byte: what their shapes count was never tried out.
_PACKED = ("quint4x2", "quint2x4")
_SPARSE = {
    "sparse_coo": ("indices", "values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
_QUANTIZED = ("per_tensor_affine", "per_channel_affine", "per_channel_affine_float_qparams")
#: The kinds of mappings that the restricted unpickler makes.
_KINDS = ("collections.OrderedDict", "collections.Counter")
#: Called with nothing: the hooks of a tensor, which are none.
_NO_HOOKS = global_opcode("collections", "OrderedDict")


class Slot(NamedTuple):
    """Where a tensor's elements lie: a storage, and in it offset and strides in elements."""

    storage: PlannedStorage
    offset: int
    strides: tuple[int, ...]


class PlannedStorage:
    """A storage that will be written: ``values`` is the tensor whose bytes it has, ``index`` its number, from first use."""

    __slots__ = ("index", "values")

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.index = -1


class Pickled(NamedTuple):
    """A tree as a pickle, the values of its storages in the order of their numbers, and what is to be said about it."""

    pickle: bytes
    storages: list[Tensor]
    notes: list[str]


def reason_lost(node: Node) -> str | None:
    """Why torch's formats cannot hold a leaf, or not in a file that loads under ``weights_only=True``."""
    if isinstance(node, Tensor):
        return _reason_tensor_lost(node)
    if _written_global(node) is not None or _written_call(node) is not None:
        return None
    if isinstance(node, NumpyScalar):
        plain = isinstance(node.value, (bool, int, float, complex, bytes)) or node.dtype.name.startswith("str")
        return None if plain else f"a numpy scalar of type {node.dtype}"
    if isinstance(node, int) and node.bit_length() > INTEGER_BITS:
        return f"an integer of {node.bit_length()} bits"
    return _values.reason_lost(node)


def has_storage_class(dtype: DType) -> bool:
    """Whether torch has a storage class for elements of this type; those of others are kept in untyped storages."""
    return dtype.name in _CLASS_NAMES


def _reason_tensor_lost(tensor: Tensor) -> str | None:
    dtype = tensor.info.dtype
    if isinstance(tensor, StringTensor):
        return kind_of_special(tensor)
    if isinstance(tensor, AbsentTensor):
        return None if tensor.by_design and dtype.torch else f"a meta tensor of dtype {dtype}"
    if isinstance(tensor, CompositeTensor):
        known = tensor.scheme in _SPARSE or tensor.scheme in _QUANTIZED or tensor.scheme == "nested_strided"
        if not known or dtype.name in _PACKED:
            return f"a {tensor.scheme} tensor of dtype {dtype}"
        return next(filter(None, map(_reason_tensor_lost, _dense_parts(tensor))), None)
    return None if dtype.torch and not dtype.torch.startswith("q") else f"of dtype {dtype}"


def _dense_parts(tensor: CompositeTensor) -> Iterator[Tensor]:
    """The parts that are tensors of their own (a quantized tensor's integers exist only inside it)."""
    return (part for name, part in tensor.parts.items() if tensor.scheme not in _QUANTIZED or name != "values")


def remark(node: Node) -> str | None:
    """What a container or a value becomes, where its kind is not kept."""
    if isinstance(node, Dict) and node.type_name not in ("dict", *_KINDS):
        return f"{node.type_name} becomes a plain dict"
    if isinstance(node, SetNode) and node.type_name == "frozenset":
        return "frozenset becomes set"
    if isinstance(node, NumpyArray):
        return "arrays of numpy become tensors"
    if isinstance(node, NumpyScalar):
        return "numpy scalars become Python numbers"
    return None


def _written_global(node: Node) -> bytes | None:
    if isinstance(node, Global) and node.module == "torch" and node.name in BY_TORCH:
        return global_opcode("torch", node.name)
    return None


def _written_call(node: Node) -> tuple[str, str] | None:
    """Module and name of what rebuilds an object that the restricted unpickler knows."""
    if isinstance(node, Object) and node.path == "torch.device" and is_plain(node.args) and node.state is None:
        return "torch", "device"
    return None


def planned_slots(root: Node) -> dict[int, Slot]:
    """A slot for every dense tensor of the tree, by the identity of the tensor."""
    views: dict[Storage, dict[int, StridedTensor]] = defaultdict(dict)
    slots: dict[int, Slot] = {}
    for tensor in _dense_tensors(root):
        if isinstance(tensor, StridedTensor):
            views[tensor.storage][id(tensor)] = tensor
        else:
            slots[id(tensor)] = _alone(tensor)
    for looking in views.values():
        for group in _overlapping(list(looking.values())):
            slots.update(_shared(group))
    return slots


def _dense_tensors(root: Node) -> Iterator[Tensor]:
    pending: list[Node] = [root]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, CompositeTensor):
            pending.extend(node.parts.values())
        elif isinstance(node, Tensor):
            if not isinstance(node, AbsentTensor):
                yield node
        elif isinstance(node, (dict, list, tuple)) and not isinstance(node, NumpyScalar):
            if id(node) not in seen:
                seen.add(id(node))
                pending.extend(node.values() if isinstance(node, dict) else node)


def _alone(tensor: Tensor) -> Slot:
    return Slot(PlannedStorage(tensor), 0, row_major_strides(tensor.info.shape))


def _overlapping(tensors: list[StridedTensor]) -> Iterator[list[StridedTensor]]:
    """Views of one storage in groups: those of one group look at common bytes, those of two groups do not."""
    if len(tensors) == 1:
        yield tensors
        return
    group: list[StridedTensor] = []
    reach = 0
    for start, end, tensor in sorted(((*_span(t), t) for t in tensors), key=lambda item: item[:2]):
        if group and (start >= reach or start == end):
            yield group
            group = []
        group.append(tensor)
        reach = max(reach, end)
    yield group


def _span(tensor: StridedTensor) -> tuple[int, int]:
    """The bits of the storage between which a view lies."""
    dtype, shape = tensor.info
    start = tensor.offset * dtype.bit_width
    if 0 in shape:
        return start, start
    strides = tensor.strides or row_major_strides(shape)
    return start, start + (1 + sum((n - 1) * s for n, s in zip(shape, strides))) * dtype.bit_width


def _shared(group: list[StridedTensor]) -> Iterator[tuple[int, Slot]]:
    """Slots of views that overlap: one storage for all where torch can say so and it costs no more than copies would,
    else one for each different view."""
    different = {_view_of(t): t for t in group}
    dtype, width = group[0].info.dtype, group[0].info.dtype.bit_width
    if len(different) > 1 and all(t.info.dtype is dtype and not t.conj and not t.neg for t in group):
        start = min(_span(t)[0] for t in group) // width
        end = max(_span(t)[1] for t in group) // width
        if end - start <= sum(t.info.count for t in different.values()):
            whole = PlannedStorage(StridedTensor(TensorInfo(dtype, (end - start,)), group[0].storage, start))
            for tensor in group:
                yield (
                    id(tensor),
                    Slot(whole, tensor.offset - start, tensor.strides or row_major_strides(tensor.info.shape)),
                )
            return
    slots = {view: _alone(tensor) for view, tensor in different.items()}
    for tensor in group:
        yield id(tensor), slots[_view_of(tensor)]


def _copy_notes(root: Node, slots: dict[int, Slot]) -> list[str]:
    """A note when views that had bytes in common are written apart."""
    apart = 0
    views: dict[Storage, list[StridedTensor]] = defaultdict(list)
    for tensor in _dense_tensors(root):
        if isinstance(tensor, StridedTensor):
            views[tensor.storage].append(tensor)
    for looking in views.values():
        for group in _overlapping(looking):
            storages = {id(slots[id(tensor)].storage) for tensor in group}
            apart += len(storages) if len(storages) > 1 else 0
    return [f"{apart} views that overlap in places are written as copies of their own"] if apart else []


def _view_of(tensor: StridedTensor) -> tuple[Any, ...]:
    return tensor.info, tensor.offset, tensor.strides or row_major_strides(tensor.info.shape), tensor.conj, tensor.neg


def assembled(root: Node, persistent_id_end: bytes = b"t") -> Pickled:
    """The tree as a pickle. ``persistent_id_end`` closes a persistent id's tuple (the old stream has one part more)."""
    slots = planned_slots(root)
    storages: list[Tensor] = []

    def leaf(assembler: Assembler[bytes], node: Node) -> None:
        if isinstance(node, Tensor):
            emit.tensor(node)
            return
        known = _written_global(node)
        if known is not None:
            assembler.code(known)
        elif _written_call(node) is not None:
            assembler.name(*_written_call(node))  # type: ignore[misc]
            assembler.tree(tuple(node.args))
            assembler.code(b"R")
        elif isinstance(node, NumpyScalar):
            assembler.scalar(node.value)
        else:
            assembler.scalar(_values.read_value(node))

    assembler: Assembler[bytes] = Assembler(2, leaf, _KINDS)
    emit = _Emitter(assembler, slots, storages, persistent_id_end)
    assembler.tree(root)
    return Pickled(b"".join(assembler.parts()), storages, _copy_notes(root, slots))


class _Emitter:
    """Writes tensors into a pickle; numbers storages as they come."""

    def __init__(
        self, assembler: Assembler[bytes], slots: dict[int, Slot], storages: list[Tensor], persistent_id_end: bytes
    ) -> None:
        self._code = assembler.code
        self._once = assembler.once
        self._slots = slots
        self._storages = storages
        self._end = persistent_id_end

    def tensor(self, tensor: Tensor) -> None:
        """Any tensor that :func:`reason_lost` has nothing against."""
        if isinstance(tensor, AbsentTensor):
            self._meta(tensor)
        elif isinstance(tensor, CompositeTensor):
            self._composite(tensor)
        else:
            self._dense(tensor)

    def _dense(self, tensor: Tensor) -> None:
        dtype, shape = tensor.info
        slot = self._slots[id(tensor)]
        has_class = has_storage_class(dtype)
        function = "_rebuild_tensor_v2" if has_class else "_rebuild_tensor_v3"
        code = [self._once(global_opcode("torch._utils", function)), b"(", *self._storage(slot.storage, dtype)]
        code += [integer_opcode(slot.offset), integers_opcode(shape), integers_opcode(slot.strides), b"\x89"]
        code += [self._once(_NO_HOOKS), b")R"]
        if not has_class:
            code.append(self._once(global_opcode("torch", dtype.torch or "")))
        code.append(b"tR")
        self._code(b"".join(code))

    def _storage(self, storage: PlannedStorage, dtype: DType) -> tuple[bytes, ...]:
        """The persistent id of a storage; its number is given here. Counted are elements of its class, bytes if untyped."""
        if storage.index < 0:
            storage.index = len(self._storages)
            self._storages.append(storage.values)
        name = _CLASS_NAMES.get(dtype.name)
        cls = global_opcode("torch", name) if name else global_opcode("torch.storage", "UntypedStorage")
        count = storage.values.info.nbytes // (dtype.itemsize if name else 1)
        return (
            b"(",
            self._once(_STORAGE),
            self._once(cls),
            text_opcode(str(storage.index)),
            self._once(_CPU),
            integer_opcode(count),
            self._end,
            b"Q",
        )

    def _meta(self, tensor: AbsentTensor) -> None:
        dtype, shape = tensor.info
        self._code(global_opcode("torch._utils", "_rebuild_meta_tensor_no_storage") + b"(")
        self._code(
            global_opcode("torch", dtype.torch or "")
            + integers_opcode(shape)
            + integers_opcode(row_major_strides(shape))
            + b"\x89tR"
        )

    def _composite(self, tensor: CompositeTensor) -> None:
        if tensor.scheme in _SPARSE:
            self._sparse(tensor)
        elif tensor.scheme == "nested_strided":
            self._code(global_opcode("torch._utils", "_rebuild_nested_tensor") + b"(")
            for name in ("values", "sizes", "strides", "offsets"):
                self._dense(tensor.parts[name])
            self._code(b"tR")
        else:
            self._quantized(tensor)

    def _sparse(self, tensor: CompositeTensor) -> None:
        self._code(global_opcode("torch._utils", "_rebuild_sparse_tensor") + b"(")
        self._code(
            global_opcode("torch.serialization", "_get_layout") + text_opcode(f"torch.{tensor.scheme}") + b"\x85R("
        )
        for name in _SPARSE[tensor.scheme]:
            self._dense(tensor.parts[name])
        self._code(integers_opcode(tensor.info.shape))
        if "is_coalesced" in tensor.details:
            self._code(b"\x88" if tensor.details["is_coalesced"] else b"\x89")
        self._code(b"ttR")

    def _quantized(self, tensor: CompositeTensor) -> None:
        integers = tensor.parts["values"]
        slot = self._slots[id(integers)]
        self._code(global_opcode("torch._utils", "_rebuild_qtensor") + b"(")
        self._code(b"".join(self._storage(slot.storage, integers.info.dtype)))
        self._code(integer_opcode(slot.offset) + integers_opcode(tensor.info.shape) + integers_opcode(slot.strides))
        self._code(b"(" + global_opcode("torch", tensor.scheme))
        if tensor.scheme == "per_tensor_affine":
            parameters: Any = (tensor.details["scale"], tensor.details["zero_point"])
        else:
            found = {**tensor.details, **tensor.parts}
            parameters = tuple(found[name] for name in ("scales", "zero_points", "axis"))
        for parameter in parameters:
            if isinstance(parameter, Tensor):
                self._dense(parameter)
            else:
                self._code(_plain(parameter))
        self._code(b"t\x89" + self._once(_NO_HOOKS) + b")RtR")


def _plain(value: Any) -> bytes:
    """A number, or a list of numbers, as opcodes."""
    scratch: Assembler[bytes] = Assembler(2, lambda assembler, node: None)
    scratch.tree(value)
    return b"".join(scratch.parts())[2:-1]


_STORAGE, _CPU = text_opcode("storage"), text_opcode("cpu")
