"""What torch's names mean in a pickle: storages by persistent id, tensors rebuilt from them (torch/_utils.py).

Every ``_rebuild_*`` function of torch up to 2.13 is here; what else a file names stays an inert object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ckpt_tools.core.dtypes import BY_NAME, BY_TORCH, DType
from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.core.tensors import (
    AbsentTensor,
    CompositeTensor,
    Storage,
    StridedTensor,
    Tensor,
    TensorInfo,
)
from ckpt_tools.core.tree import Opaque
from ckpt_tools.errors import CorruptFile, LimitExceeded
from ckpt_tools.formats import _modules
from ckpt_tools.pickles import numpy_objects, python_objects
from ckpt_tools.pickles.machine import Constructor, Machine
from ckpt_tools.pickles.nodes import Global, Object

#: Storage classes by name, whatever their module says about the device.
STORAGE_CLASSES: Mapping[str, DType] = {
    "DoubleStorage": BY_NAME["float64"],
    "FloatStorage": BY_NAME["float32"],
    "HalfStorage": BY_NAME["float16"],
    "BFloat16Storage": BY_NAME["bfloat16"],
    "LongStorage": BY_NAME["int64"],
    "IntStorage": BY_NAME["int32"],
    "ShortStorage": BY_NAME["int16"],
    "CharStorage": BY_NAME["int8"],
    "ByteStorage": BY_NAME["uint8"],
    "BoolStorage": BY_NAME["bool"],
    "ComplexDoubleStorage": BY_NAME["complex128"],
    "ComplexFloatStorage": BY_NAME["complex64"],
    "QInt8Storage": BY_NAME["qint8"],
    "QUInt8Storage": BY_NAME["quint8"],
    "QInt32Storage": BY_NAME["qint32"],
    "QUInt4x2Storage": BY_NAME["quint4x2"],
    "QUInt2x4Storage": BY_NAME["quint2x4"],
    "UntypedStorage": BY_NAME["uint8"],
}


class StorageView(StridedTensor):
    """A storage, or a run of its elements, as the file refers to it: a flat tensor that others are rebuilt from."""

    __slots__ = ()

    def __init__(self, dtype: DType, numel: int, storage: Storage, offset: int = 0) -> None:
        StridedTensor.__init__(self, TensorInfo(dtype, (numel,)), storage, offset)


def storage_dtype(cls: Any) -> DType:
    """The element type of a storage class. CorruptFile when the name is not one torch has."""
    dtype = STORAGE_CLASSES.get(cls.name) if type(cls) is Global else None
    if dtype is None:
        raise CorruptFile(f"a storage of unknown class {getattr(cls, 'path', type(cls).__name__)!s:.100}")
    return dtype


def torch_dtype(node: Any) -> DType:
    """The element type behind a ``torch.<dtype>`` global."""
    if isinstance(node, Global) and node.module == "torch" and node.name in BY_TORCH:
        return BY_TORCH[node.name]
    raise CorruptFile(f"{getattr(node, 'path', node)!s:.100} where a torch dtype is expected")


_RANK = DEFAULT_LIMITS.rank


def _view(
    base: Any, offset: Any, size: Any, strides: Any, dtype: DType | None = None, metadata: Any = None
) -> StridedTensor:
    if not isinstance(base, StridedTensor) or type(offset) is not int:
        raise CorruptFile("a tensor is rebuilt from something that is no storage")
    if type(size) is not tuple:
        size = _numbers(size)
    if type(strides) is not tuple:
        strides = _numbers(strides)
    for number in size + strides:
        if type(number) is not int:
            raise CorruptFile("a tensor whose size or strides are not whole numbers")
    if len(size) > _RANK:
        raise LimitExceeded(f"a tensor of {len(size)} dimensions")
    info = TensorInfo(dtype or base.info.dtype, size)
    if base.storage.location == "meta":
        return AbsentTensor(info, "a meta tensor", by_design=True)  # type: ignore[return-value]
    tensor = StridedTensor(info, base.storage, base.offset + offset, strides)
    if isinstance(metadata, dict):
        tensor.conj, tensor.neg = bool(metadata.get("conj")), bool(metadata.get("neg"))
    tensor.check_span()
    return tensor


def _numbers(node: Any) -> tuple[int, ...]:
    if isinstance(node, (list, tuple)):
        return tuple(node)
    raise CorruptFile("a tensor whose size or strides are not whole numbers")


def _rebuild_tensor(args: Any) -> Any:
    storage, offset, size, strides = args[:4]
    return _view(storage, offset, size, strides, metadata=args[6] if len(args) > 6 else None)


def _rebuild_tensor_v3(args: Any) -> Any:
    storage, offset, size, strides, _, _, dtype = args[:7]
    kind = torch_dtype(dtype)
    view = _view(storage, offset, size, strides, kind, args[7] if len(args) > 7 else None)
    if isinstance(view, StridedTensor) and view.storage.byteorder == "big" and kind.bit_width > 8:
        raise CorruptFile(
            f"a {kind} tensor in a big-endian file: torch leaves such storages in an order nothing in the file tells"
        )
    return view


def _first(args: Any) -> Any:
    """A parameter is its tensor: ``requires_grad``, hooks and Python attributes are no data."""
    if not isinstance(args[0], Tensor):
        return NotImplemented
    return args[0]


def _from_type(args: Any) -> Any:
    function, cls, inner, state = args[:4]
    if isinstance(function, Global) and function.name == "_rebuild_wrapper_subclass":
        return _wrapper(inner, state)
    if isinstance(function, Global) and function.name == "_rebuild_njt":
        return _jagged(inner)
    if isinstance(function, Global) and function.make is not None:
        tensor = function.make(inner)
        if isinstance(tensor, Tensor) and isinstance(cls, Global) and tensor.note is None:
            if cls.path not in ("torch.Tensor", "torch.nn.parameter.Parameter"):
                tensor.note = cls.path
        return tensor
    return NotImplemented


def _attributes(state: Any) -> dict[Any, Any]:
    for part in state if isinstance(state, tuple) else (state,):
        if isinstance(part, dict):
            return part
    return {}


def _wrapper(inner: Any, state: Any) -> Any:
    """A wrapper without bytes of its own: DTensor keeps its local part in the state."""
    cls, dtype, size = inner[:3]
    whole = TensorInfo(torch_dtype(dtype), tuple(size))
    held = _attributes(state)
    local = held.get("_local_tensor")
    name = getattr(cls, "name", "tensor subclass")
    if not isinstance(local, Tensor):
        tensors = {str(key): part for key, part in held.items() if isinstance(part, Tensor)}
        if tensors:
            return CompositeTensor(whole, name, tensors)
        return AbsentTensor(whole, f"a {name} whose bytes are not in its state")
    placements = _placements(held.get("_spec"))
    note = ", ".join([name, *placements, f"local part {list(local.info.shape)}"])
    if local.info.shape == whole.shape and isinstance(local, StridedTensor):
        return StridedTensor(
            whole, local.storage, local.offset, local.strides, note=note, conj=local.conj, neg=local.neg
        )
    return AbsentTensor(whole, f"{note}: this file holds one shard of it", note=note)


def _placements(spec: Any) -> list[str]:
    if not isinstance(spec, Opaque):
        return []
    placements = spec.attributes().get("placements") or ()
    shown = []
    for placement in placements if isinstance(placements, tuple) else ():
        if isinstance(placement, Opaque):
            fields = ", ".join(
                str(v) for v in (*placement.args, *placement.attributes().values()) if isinstance(v, int)
            )
            shown.append(f"{placement.type_name.rpartition('.')[2]}({fields})")
    return shown


def _jagged(inner: Any) -> Any:
    held = inner[0] if inner and isinstance(inner[0], dict) else {}
    parts = {str(k).lstrip("_"): v for k, v in held.items() if isinstance(v, Tensor)}
    if "values" not in parts:
        return NotImplemented
    return CompositeTensor(parts["values"].info, "nested_jagged", parts)


def _rebuild_quantized(args: Any) -> Any:
    storage, offset, size, strides, params = args[:5]
    integers = _view(storage, offset, size, strides)
    scheme = params[0].name if isinstance(params[0], Global) else str(params[0])
    parts: dict[str, Tensor] = {"values": integers}
    details: dict[str, object] = {}
    if scheme == "per_tensor_affine":
        details = {"scale": params[1], "zero_point": params[2]}
        integers.note = f"{scheme}, scale {params[1]}, zero point {params[2]}"
        quantized = CompositeTensor(integers.info, scheme, parts, details=details, note=integers.note)
    else:
        for name, part in zip(("scales", "zero_points"), params[1:3]):
            if isinstance(part, Tensor):
                parts[name] = part
            else:
                details[name] = part
        details["axis"] = params[3]
        quantized = CompositeTensor(integers.info, scheme, parts, details=details, note=f"{scheme}, axis {params[3]}")
    return quantized


_SPARSE_PARTS = {
    "sparse_coo": ("indices", "values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


def _rebuild_sparse(args: Any) -> Any:
    layout, data = args[:2]
    scheme = layout.type_name.rpartition(".")[2] if isinstance(layout, Opaque) else ""
    names = _SPARSE_PARTS.get(scheme)
    if names is None:
        raise CorruptFile(f"a sparse tensor of unknown layout {scheme or layout!s:.100}")
    parts = dict(zip(names, data))
    size = data[len(names)]
    if not all(isinstance(part, Tensor) for part in parts.values()):
        raise CorruptFile(f"a {scheme} tensor without its {' and '.join(names)}")
    stored = parts["values"].info.shape[0] if parts["values"].info.shape else 0
    return CompositeTensor(
        TensorInfo(parts["values"].info.dtype, tuple(size)),
        scheme,
        parts,
        details={"is_coalesced": data[3]} if scheme == "sparse_coo" and len(data) > 3 else None,
        note=f"{scheme}, {stored} stored",
    )


def _rebuild_nested(args: Any) -> Any:
    buffer, sizes, strides, offsets = args[:4]
    parts = {"values": buffer, "sizes": sizes, "strides": strides, "offsets": offsets}
    if not all(isinstance(part, Tensor) for part in parts.values()):
        return NotImplemented
    return CompositeTensor(buffer.info, "nested_strided", parts)


def _rebuild_meta(args: Any) -> Any:
    dtype, size = args[:2]
    return AbsentTensor(TensorInfo(torch_dtype(dtype), tuple(size)), "a meta tensor", by_design=True)


def _layout(args: Any) -> Any:
    return Opaque(str(args[0]))


def _size(args: Any) -> Any:
    return tuple(args[0]) if args and isinstance(args[0], (tuple, list)) else ()


#: Today's spelling of a name: what REDUCE of it means in a torch pickle.
CONSTRUCTORS: Mapping[str, Constructor] = {
    **python_objects.CONSTRUCTORS,
    **numpy_objects.CONSTRUCTORS,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch._utils._rebuild_device_tensor_from_numpy": _first,
    "torch._utils._rebuild_xla_tensor": _first,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _first,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch._tensor._rebuild_from_type": _from_type,
    "torch._utils._rebuild_qtensor": _rebuild_quantized,
    "torch._utils._rebuild_sparse_tensor": _rebuild_sparse,
    "torch._utils._rebuild_nested_tensor": _rebuild_nested,
    "torch._utils._rebuild_meta_tensor_no_storage": _rebuild_meta,
    "torch.serialization._get_layout": _layout,
    "torch.Size": _size,
}


def built(machine: Machine, node: Object) -> Any:
    """What BUILD completes in a torch pickle: arrays of numpy, modules, and tensors of the oldest form."""
    if node.callable.__class__ is Global and node.callable.module.startswith("torch"):
        if node.callable.name.endswith("Tensor") or node.callable.path == "torch.nn.parameter.Parameter":
            return _oldest(node)
    made = numpy_objects.built(machine, node)
    return made if made is not None else _modules.built(machine, node)


def _oldest(node: Object) -> Any:
    """``torch.FloatTensor`` and BUILD ``(storage, offset, size, strides)``; a Parameter is made from one or wraps one."""
    state = node.state
    if node.args and isinstance(node.args[0], Tensor):
        return node.args[0]
    if isinstance(state, tuple) and len(state) >= 4 and isinstance(state[0], StridedTensor):
        return _view(*state[:4])
    if isinstance(state, tuple) and state and isinstance(state[0], Tensor):
        return state[0]
    if isinstance(state, dict) and isinstance(state.get("data"), Tensor):
        return state["data"]
    return None


def machine(
    source: Any,
    *,
    persistent: Callable[[Any], Any],
    extra: Mapping[str, Constructor] | None = None,
    built: Callable[[Machine, Object], Any] = built,
) -> Machine:
    """A machine that knows torch's, numpy's and Python's names, and those of ``extra``."""
    return Machine(
        source,
        constructors={**CONSTRUCTORS, **(extra or {})},
        persistent=persistent,
        built=built,
        encoding="utf-8",
    )
