"""What numpy's names mean in a pickle: element types, arrays, scalars; read without numpy.

Array: ``_reconstruct(ndarray, (0,), b'b')`` and BUILD ``(1, shape, dtype, is_fortran, payload)``; protocol 5 writes
``_frombuffer(buffer, dtype, shape, order)``. Scalar: ``scalar(dtype, raw)``. Element type: ``dtype(code, False, True)``
and BUILD ``(3, byteorder, subdtype, names, fields, itemsize, alignment, flags[, metadata])``
(numpy/_core/src/multiarray/descriptor.c, methods.c). Names are those of :func:`~ckpt_tools.pickles.nodes.canonical_path`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from ckpt_tools.core.dtypes import BY_NAME, DType, composed
from ckpt_tools.core.extents import Extent, MemoryExtent
from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.core.strides import row_major_strides
from ckpt_tools.core.tensors import NumpyArray, Storage, Tensor, TensorInfo
from ckpt_tools.core.tree import Dict, NumpyScalar, Opaque
from ckpt_tools.errors import CorruptFile, LimitExceeded
from ckpt_tools.pickles.machine import Constructor, Machine
from ckpt_tools.pickles.nodes import Blob, Global, LongText, Object, TextBlob

_PLAIN_CODES = {
    f"{kind}{size}": BY_NAME[name]
    for kind, size, name in (
        ("f", 2, "float16"),
        ("f", 4, "float32"),
        ("f", 8, "float64"),
        ("f", 16, "float128"),
        ("i", 1, "int8"),
        ("i", 2, "int16"),
        ("i", 4, "int32"),
        ("i", 8, "int64"),
        ("u", 1, "uint8"),
        ("u", 2, "uint16"),
        ("u", 4, "uint32"),
        ("u", 8, "uint64"),
        ("b", 1, "bool"),
        ("c", 8, "complex64"),
        ("c", 16, "complex128"),
        ("c", 32, "complex256"),
    )
}
#: struct codes of the element types whose scalars are shown as Python values
_STRUCT_CODES = {
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "bool": "?",
    "complex64": "ff",
    "complex128": "dd",
}


class ElementType(Opaque):
    """A numpy dtype of the file: our element type, its byte order, and whether elements are Python objects."""

    __slots__ = ("big", "dtype", "of_objects")

    def __init__(self, dtype: DType, *, big: bool = False, of_objects: bool = False) -> None:
        super().__init__("numpy.dtype")
        self.dtype = dtype
        self.big = big
        self.of_objects = of_objects

    def __repr__(self) -> str:
        return self.dtype.name


#: numpy counts the bytes of an element in an int
_LARGEST_ELEMENT = 2**31 - 1
_OBJECTS = composed("object", 8, "O")


def element_type(node: Any) -> ElementType:
    """The element type that a node stands for: one that was built, or a dtype object that needed no BUILD."""
    if isinstance(node, ElementType):
        return node
    if isinstance(node, Object) and node.path == "numpy.dtype":
        return _built_dtype(node)
    if isinstance(node, Object) and node.path.startswith("numpy.dtypes."):  # numpy 2 string dtypes and their kin
        raise CorruptFile(f"an array of {node.path} cannot be read")
    if isinstance(node, Global) and node.path.startswith("numpy."):
        name = node.name.rstrip("_")
        if name in BY_NAME:
            return ElementType(BY_NAME[name])
    raise CorruptFile(f"{getattr(node, 'path', type(node).__name__)} where an element type is expected")


def _built_dtype(node: Object) -> ElementType:
    code = node.args[0] if node.args else None
    state = node.state if isinstance(node.state, tuple) else ()
    order = state[1] if len(state) > 1 else "<"
    order = order.decode("ascii") if isinstance(order, bytes) else order
    big = order == ">"
    if isinstance(code, bytes):
        code = code.decode("ascii")
    if isinstance(code, Global):
        if code.module == "ml_dtypes" and code.name in BY_NAME:
            return ElementType(BY_NAME[code.name], big=big)
        if code.path in ("numpy.record", "numpy.void"):
            code = f"V{state[5]}"
        else:
            raise CorruptFile(f"an element type of class {code.path}")
    if not isinstance(code, str) or not code:
        raise CorruptFile("an element type without a code")
    if code[0] == "V":
        return _void_type(int(code[1:] or 0), state)
    return coded_type(code, big=big, unit=_datetime_unit(state) if code[0] in "Mm" else "")


def coded_type(code: str, *, big: bool = False, unit: str = "") -> ElementType:
    """The element type of a code that says all (``f4``, ``U12``, ``M8`` with its unit, ``V2``).

    CorruptFile when numpy has none of that code.
    """
    if code in _PLAIN_CODES:
        return ElementType(_PLAIN_CODES[code], big=big)
    kind, size = code[:1], code[1:]
    if kind == "O":
        return ElementType(_OBJECTS, of_objects=True)
    nbytes = int(size or 0) if size.isdecimal() or not size else -1
    if kind and kind in "USaMmV" and 0 <= nbytes <= _LARGEST_ELEMENT:
        if kind == "U":
            return ElementType(composed(f"str{nbytes * 32}", nbytes * 4, f"<U{nbytes}", swap_nbytes=4), big=big)
        if kind == "V":
            return ElementType(composed(f"void{nbytes * 8}", nbytes, f"V{nbytes}"))
        if kind in "Sa":
            return ElementType(composed(f"bytes{nbytes * 8}", nbytes, f"S{nbytes}"))
        suffix = f"[{unit}]" if unit else ""
        name = {"M": "datetime64", "m": "timedelta64"}[kind] + suffix
        return ElementType(composed(name, 8, f"<{kind}8{suffix}", swap_nbytes=8), big=big)
    raise CorruptFile(f"an element type with code {code[:20]!r}")


def _datetime_unit(state: tuple[Any, ...]) -> str:
    """``us``, ``25s``, … from the metadata of a datetime dtype's state; empty when generic."""
    try:
        unit, count = state[8][1][:2]
        unit = unit.decode("ascii") if isinstance(unit, bytes) else str(unit)
    except (IndexError, TypeError, ValueError):
        return ""
    if unit == "generic":
        return ""
    return unit if count == 1 else f"{count}{unit}"


def _void_type(nbytes: int, state: tuple[Any, ...]) -> ElementType:
    """A record, a sub-array or plain bytes."""
    _, _, subdtype, names, fields, itemsize = (*state, None, None, None, None, None, None)[:6]
    if subdtype is not None:
        if not isinstance(subdtype, tuple) or len(subdtype) != 2:
            raise CorruptFile("an element that is an array, without (type, shape)")
        return sub_array_type(element_type(subdtype[0]), checked_shape(subdtype[1]))
    if names:
        if not isinstance(names, tuple) or not isinstance(fields, dict):
            raise CorruptFile("a record without names and fields")
        if isinstance(itemsize, int) and itemsize > 0:
            nbytes = itemsize
        parts = []
        for name in names:
            field = fields[name]
            if not isinstance(field, tuple) or len(field) < 2:
                raise CorruptFile("a field of a record without (type, offset)")
            parts.append((str(name), element_type(field[0]), field[1]))
        return record_type(parts, nbytes)
    return coded_type(f"V{nbytes}")


def sub_array_type(base: ElementType, shape: tuple[int, ...]) -> ElementType:
    """An element that is an array of ``base`` itself: a field of a record."""
    nbytes = base.dtype.nbytes(math.prod(shape))
    return ElementType(composed(f"void{nbytes * 8}", nbytes, (_spec(base), tuple(shape))), of_objects=base.of_objects)


def record_type(fields: Sequence[tuple[str, ElementType, int]], nbytes: int) -> ElementType:
    """An element of named fields ``(name, type, offset)``, ``nbytes`` long. CorruptFile when a field does not fit."""
    for name, part, offset in fields:
        if type(offset) is not int or offset < 0 or offset + part.dtype.nbytes(1) > nbytes:
            raise CorruptFile(f"field {name} lies outside its record of {nbytes} bytes")
    spec = {
        "names": [name for name, _, _ in fields],
        "formats": [_spec(part) for _, part, _ in fields],
        "offsets": [offset for _, _, offset in fields],
        "itemsize": nbytes,
    }
    of_objects = any(part.of_objects for _, part, _ in fields)
    return ElementType(composed(f"void{nbytes * 8}", nbytes, spec), of_objects=of_objects)


def _spec(kind: ElementType) -> Any:
    """What ``numpy.dtype`` takes to build a field, in the byte order of the file."""
    if kind.of_objects:
        return "O"
    spec = kind.dtype.numpy_spec
    if spec is None:
        raise CorruptFile(f"a record with a field of {kind.dtype}")
    return spec.replace("<", ">") if kind.big and isinstance(spec, str) else spec


def payload_extent(payload: Any, nbytes: int) -> Extent:
    """The bytes of an array, however the pickle keeps them; exactly ``nbytes`` of them."""
    if isinstance(payload, (Blob, LongText)):
        extent = payload.extent
    elif isinstance(payload, TextBlob):
        return payload.extent(nbytes)
    elif isinstance(payload, (bytes, bytearray)):
        extent = MemoryExtent(bytes(payload))
    elif isinstance(payload, str):  # Python 2
        extent = MemoryExtent(payload.encode("latin-1"))
    else:
        raise CorruptFile(f"array bytes are a {getattr(payload, 'path', type(payload).__name__)}")
    if extent.nbytes != nbytes:
        raise CorruptFile(f"an array of {nbytes} bytes has {extent.nbytes}")
    return extent


def column_major_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a packed column-major (Fortran) array."""
    strides, step = [], 1
    for extent in shape:
        strides.append(step)
        step *= max(extent, 1)
    return tuple(strides)


def checked_shape(shape: Any) -> tuple[int, ...]:
    """``shape`` as a tuple of dimensions. CorruptFile when it is none."""
    if isinstance(shape, int) and not isinstance(shape, bool):
        shape = (shape,)
    if not isinstance(shape, (tuple, list)) or any(type(n) is not int or n < 0 for n in shape):
        raise CorruptFile("an array shape that is no list of whole numbers")
    if len(shape) > DEFAULT_LIMITS.rank:
        raise LimitExceeded(f"an array of {len(shape)} dimensions")
    return tuple(shape)


def array(kind: ElementType, shape: tuple[int, ...], payload: Any, *, fortran: bool, note: str | None = None) -> Tensor:
    """An array as a lazy tensor."""
    info = TensorInfo(kind.dtype, shape)
    storage = Storage(payload_extent(payload, info.nbytes), byteorder="big" if kind.big else "little")
    strides = column_major_strides(shape) if fortran and len(shape) > 1 else None
    return NumpyArray(info, storage, 0, strides, note=note)


def object_array(shape: tuple[int, ...], elements: list[Any]) -> Opaque:
    """An array of Python objects: named, its elements below it in row-major order."""
    made = Opaque(f"numpy.ndarray of objects, shape {list(shape)}")
    made.elements = elements
    return made


def _built_array(node: Object) -> Any:
    state = node.state
    if not isinstance(state, tuple) or len(state) not in (4, 5):
        raise CorruptFile("an array whose state is not (version, shape, dtype, order, bytes)")
    shape, dtype, fortran, payload = state[-4:]
    shape, kind = checked_shape(shape), element_type(dtype)
    if isinstance(payload, list):
        if len(payload) != math.prod(shape):
            raise CorruptFile(f"an array of shape {list(shape)} has {len(payload)} elements")
        return object_array(shape, payload)
    cls = node.args[0] if node.args else None
    subclass = cls.path if isinstance(cls, Global) and cls.path != "numpy.ndarray" else None
    return array(kind, shape, payload, fortran=bool(fortran), note=subclass)


def _built_masked(node: Object) -> Any:
    state = node.state
    if not isinstance(state, tuple) or len(state) != 7:
        raise CorruptFile("a masked array whose state does not have 7 parts")
    _, shape, dtype, fortran, data, mask, fill = state
    shape, kind = checked_shape(shape), element_type(dtype)
    whole = Dict(type_name="numpy.ma.MaskedArray")
    whole["data"] = array(kind, shape, data, fortran=bool(fortran))
    whole["mask"] = array(ElementType(BY_NAME["bool"]), shape, mask, fortran=bool(fortran))
    whole["fill_value"] = fill
    return whole


_BUILT = {
    "numpy.dtype": _built_dtype,
    "numpy.core.multiarray._reconstruct": _built_array,
    "numpy.ma.core._mareconstruct": _built_masked,
}


def completed(node: Object) -> Any:
    """What an object is once it has its state, if it is numpy's; None otherwise."""
    make = _BUILT.get(node.path)
    return make(node) if make else None


def built(machine: Machine, node: Object) -> Any:
    """:func:`completed`, as a machine calls it after BUILD."""
    return completed(node)


def _scalar(args: Any) -> Any:
    if len(args) != 2:
        return NotImplemented
    kind, raw = element_type(args[0]), args[1]
    if kind.of_objects:
        return raw
    if isinstance(raw, (Blob, TextBlob)):
        raw = raw.read()
    if isinstance(raw, str):  # Python 2
        raw = raw.encode("latin-1")
    if not isinstance(raw, bytes) or len(raw) != kind.dtype.nbytes(1):
        raise CorruptFile(f"a {kind.dtype} scalar that is not {kind.dtype.nbytes(1)} bytes")
    return scalar(kind, raw)


def scalar(kind: ElementType, raw: bytes) -> NumpyScalar:
    """A numpy scalar from its bytes; ``raw`` of the result is little-endian."""
    if kind.big:
        unit = kind.dtype.swap_nbytes
        raw = b"".join(raw[i : i + unit][::-1] for i in range(0, len(raw), unit))
    name = kind.dtype.name
    value: Any
    if name in _STRUCT_CODES:
        parts = struct.unpack("<" + _STRUCT_CODES[name], raw)
        value = complex(*parts) if len(parts) == 2 else parts[0]
    elif name == "bfloat16":
        value = struct.unpack("<f", b"\0\0" + raw)[0]
    elif name.startswith("str"):
        value = raw.decode("utf-32-le").rstrip("\0")
    elif name.startswith("bytes"):
        value = raw.rstrip(b"\0")
    else:
        value = "0x" + raw[::-1].hex()
    return NumpyScalar(kind.dtype, value, raw)


def _from_buffer(args: Any) -> Any:
    """``(buffer, dtype, shape, order[, axes])``: order K is row-major of ``shape``, its axes then permuted."""
    if len(args) not in (4, 5):
        return NotImplemented
    buffer, dtype, shape, order = args[:4]
    if isinstance(buffer, Object):
        raise CorruptFile("an array whose bytes were pickled out of band: they are not in this file")
    kind, shape = element_type(dtype), checked_shape(shape)
    if order == "K" and len(args) == 5:
        axes = checked_shape(args[4])
        if sorted(axes) != list(range(len(shape))):
            raise CorruptFile(f"an array of {len(shape)} dimensions whose axes are {list(axes)}")
        info, strides = TensorInfo(kind.dtype, tuple(shape[axis] for axis in axes)), row_major_strides(shape)
        storage = Storage(payload_extent(buffer, info.nbytes), byteorder="big" if kind.big else "little")
        return NumpyArray(info, storage, 0, tuple(strides[axis] for axis in axes))
    return array(kind, shape, buffer, fortran=order == "F")


#: Today's spelling of a name: what REDUCE of it means.
CONSTRUCTORS: Mapping[str, Constructor] = {
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _from_buffer,
}
#: Names that :func:`built` gives a meaning to.
BUILT_NAMES = frozenset(_BUILT)
