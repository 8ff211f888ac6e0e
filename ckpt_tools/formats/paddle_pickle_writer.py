"""Writes ``paddle-pickle``: what ``paddle.load`` and ``set_state_dict`` take.

Source: paddle/framework/io.py. A flat mapping of tensors becomes a state dict: bare arrays and the table of variable
names. Any other tree keeps its nesting and holds ``(variable name, array)`` pairs. Protocol 4, payloads as raw byte
strings, numpy named as both numpy 1 and 2 know it. A tensor without a variable name is called by its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ckpt_tools.core.dtypes import DType
from ckpt_tools.core.tensors import NumpyArray, Tensor
from ckpt_tools.core.tree import Dict, Node, NumpyScalar, SetNode, walk
from ckpt_tools.errors import WriteRefused
from ckpt_tools.formats import _values
from ckpt_tools.formats._paddle_objects import NAME_TABLE, SLICE_TABLE
from ckpt_tools.formats._writing import Feed, Output, PlannedFile, Request, Target, WritePlan, kind_of_special
from ckpt_tools.pickles.assembler import (
    INTEGER_BITS,
    Assembler,
    global_opcode,
    integer_opcode,
    integers_opcode,
    text_opcode,
)
from ckpt_tools.pickles.nodes import Blob, TextBlob

_PROTOCOL = 4
#: The one kind of mapping that paddle.load takes beside dict.
_KINDS = ("collections.OrderedDict",)
#: numpy's codes of the element types of Paddle's tensors. It has no uint16: those bits are bfloat16.
_TENSOR_CODES = {
    "float16": "f2",
    "float32": "f4",
    "float64": "f8",
    "bfloat16": "u2",
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i8",
    "uint8": "u1",
    "bool": "b1",
    "complex64": "c8",
    "complex128": "c16",
}
#: … and of arrays that stay numpy's own.
_ARRAY_CODES = {
    **{name: code for name, code in _TENSOR_CODES.items() if name != "bfloat16"},
    "uint16": "u2",
    "uint32": "u4",
    "uint64": "u8",
}
#: What Paddle makes of element types that its pickles cannot tell.
_MISREAD = {
    "uint16": "bfloat16",
    "float8_e4m3fn": "int8",
    "float8_e5m2": "int8",
}
#: numpy's flag of element types whose elements have to be set up (texts)
_NEEDS_INIT = 8
_RECONSTRUCT = global_opcode("numpy.core.multiarray", "_reconstruct")
_ARRAY = global_opcode("numpy", "ndarray")
_SCALAR = global_opcode("numpy.core.multiarray", "scalar")
_DTYPE = global_opcode("numpy", "dtype")
_TUPLE = global_opcode("builtins", "tuple")


def _reason_lost(node: Node) -> str | None:
    if isinstance(node, Tensor):
        return kind_of_special(node) or _reason_dtype_lost(node)
    if isinstance(node, NumpyScalar):
        known = _code(node.dtype, _ARRAY_CODES) and not isinstance(node.value, bytes)
        return None if known else f"a numpy scalar of type {node.dtype}"
    if isinstance(node, (bytes, Blob, TextBlob)):
        return "a byte string, which paddle.load refuses"
    if isinstance(node, int) and node.bit_length() > INTEGER_BITS:
        return f"an integer of {node.bit_length()} bits"
    return _values.reason_lost(node)


def _reason_dtype_lost(tensor: Tensor) -> str | None:
    dtype = tensor.info.dtype
    if isinstance(tensor, NumpyArray):
        return None if _code(dtype, _ARRAY_CODES) else f"an array of {dtype}"
    if dtype.name in _TENSOR_CODES:
        return None
    return f"of dtype {dtype}" + (
        f", which Paddle would read as {_MISREAD[dtype.name]}" if dtype.name in _MISREAD else ""
    )


def _remark(node: Node) -> str | None:
    if isinstance(node, Dict) and node.type_name not in ("dict", "collections.OrderedDict"):
        return f"{node.type_name} becomes a plain dict"
    if isinstance(node, SetNode) and node.type_name == "frozenset":
        return "frozenset becomes set"
    if type(node) is tuple and len(node) == 2 and isinstance(node[0], str) and isinstance(node[1], NumpyArray):
        return "a pair of a text and an array is read by Paddle as a tensor of that name"
    return None


TARGET = Target("a pickle of Paddle", _reason_lost, nests=True, remark=_remark)


def plan(root: Node, request: Request) -> WritePlan:
    """The pickle of a tree, in one file. WriteRefused when it is to be cut, or holds keys that Paddle takes for its own."""
    if request.max_shard_nbytes is not None:
        raise WriteRefused("Paddle has no checkpoints in shards", where=str(request.path))
    if isinstance(root, dict) and not {NAME_TABLE, SLICE_TABLE}.isdisjoint(root):
        raise WriteRefused(f"a key is called {NAME_TABLE} or {SLICE_TABLE}, names that Paddle takes for its own tables")
    if _is_state_dict(root):
        table = Dict({key: _variable_name(node, key) for key, node in root.items() if isinstance(node, Tensor)})
        assembler: Assembler[Tensor] = Assembler(_PROTOCOL, _leaf, _KINDS)
        assembler.tree(Dict({**root, NAME_TABLE: table}))
    else:
        names = {id(node): _variable_name(node, key[-1] if key else "") for key, node in walk(root)}
        assembler = Assembler(_PROTOCOL, partial(_leaf, names=names), _KINDS)
        assembler.tree(root)
    parts = assembler.parts()
    nbytes = sum(part.nbytes if isinstance(part, Tensor) else len(part) for part in parts)

    def write(output: Output, feed: Feed) -> None:
        for part in parts:
            if isinstance(part, Tensor):
                for chunk in feed(part):
                    output.write(chunk)
            else:
                output.write(part)

    return WritePlan([PlannedFile(request.path, nbytes, write)])


def _is_state_dict(root: Node) -> bool:
    """Paddle's own rule: a dict of tensors, and of dicts that hold none (the state of a learning rate)."""
    if not isinstance(root, dict) or not all(type(key) is str for key in root):
        return False
    for node in root.values():
        if isinstance(node, Tensor):
            if isinstance(node, NumpyArray):
                return False
        elif not isinstance(node, dict) or any(isinstance(below, Tensor) for _, below in walk(node)):
            return False
    return True


def _variable_name(node: Node, key: Any) -> str:
    return getattr(node, "alias", None) or str(key)


def _leaf(assembler: Assembler[Tensor], node: Node, names: Mapping[int, str] | None = None) -> None:
    """Tensors as bare arrays, or with ``names`` (by identity) as pairs; arrays, numpy scalars and long texts."""
    if isinstance(node, NumpyArray) or (isinstance(node, Tensor) and names is None):
        _array(assembler, node)
    elif isinstance(node, Tensor) and names is not None:
        assembler.code(assembler.once(_TUPLE) + text_opcode(names[id(node)]))
        _array(assembler, node)
        assembler.code(b"\x86\x85R")
    elif isinstance(node, NumpyScalar):
        assembler.code(assembler.once(_SCALAR))
        _dtype(assembler, node.dtype, _ARRAY_CODES)
        assembler.scalar(node.raw)
        assembler.code(b"\x86R")
    else:
        assembler.scalar(_values.read_value(node))


def _array(assembler: Assembler[Tensor], tensor: Tensor) -> None:
    """``numpy.ndarray.__reduce__``: version, shape, element type, whether column-major, bytes."""
    assembler.code(assembler.once(_RECONSTRUCT) + assembler.once(_ARRAY) + integers_opcode((0,)) + b"C\x01b\x87R")
    assembler.code(b"(" + integer_opcode(1) + integers_opcode(tensor.info.shape))
    _dtype(assembler, tensor.info.dtype, _ARRAY_CODES if isinstance(tensor, NumpyArray) else _TENSOR_CODES)
    assembler.code(b"\x89")
    assembler.payload(tensor, tensor.nbytes)
    assembler.code(b"tb")


def _code(dtype: DType, codes: Mapping[str, str]) -> str | None:
    """numpy's code of an element type: one of ``codes``, or of a text or byte string of fixed length."""
    spec = dtype.numpy_spec
    if isinstance(spec, str) and spec.lstrip("<|")[:1] in ("U", "S"):
        return spec.lstrip("<|")
    return codes.get(dtype.name)


def _dtype(assembler: Assembler[Tensor], dtype: DType, codes: Mapping[str, str]) -> None:
    """``numpy.dtype.__reduce__``: version, byte order, no sub-array, no fields, sizes where the code does not tell."""
    code = _code(dtype, codes) or ""
    order = "|" if code[0] == "S" or code[1:] == "1" else "<"
    text = code[0] in "US"
    sizes = (dtype.itemsize, 4 if code[0] == "U" else 1, _NEEDS_INIT if code[0] == "U" else 0) if text else (-1, -1, 0)
    built = _DTYPE + text_opcode(code) + b"\x89\x88\x87R(" + integer_opcode(3) + text_opcode(order) + b"NNN"
    assembler.code(assembler.once(built + b"".join(map(integer_opcode, sizes)) + b"tb"))
