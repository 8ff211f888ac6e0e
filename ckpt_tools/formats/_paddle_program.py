"""The program that belongs to combined parameters: it alone knows their names, which are stored in sorted order.

Two kinds: a ProgramDesc message (``.pdmodel``, ``__model__``; paddle/fluid/framework/framework.proto) and, since 3.0,
JSON that begins with ``{"base_code":{"magic":"pir"``. Only variables are read, operators are passed over.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckpt_tools.core.extents import Extent, FileExtent
from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.core.source import Source
from ckpt_tools.errors import CorruptFile, LimitExceeded, damage
from ckpt_tools.formats import _protobuf

Shape = tuple[int, ...]

#: A first field with a block that is number 0 and has parent -1.
_PROGRAM_DESC = re.compile(rb"\n[\x80-\xff]{0,4}[\x01-\x7f]\x08\x00\x10\xff{9}\x01")
#: The beginning of a PIR program, blanks left out.
_PIR_MAGIC = b'{"base_code":{"magic":"pir"'
#: VarType.Type of what is persistable and yet not saved: feed and fetch lists, readers, raw objects.
_NEVER_SAVED = frozenset({9, 10, 15, 17})
#: Fields of ProgramDesc, BlockDesc, VarDesc, VarType, LoDTensorDesc, Version.
_BLOCKS, _VERSION = 1, 4
_VARIABLES = 3
_NAME, _TYPE, _PERSISTABLE = 1, 2, 3
_KIND, _LOD_TENSOR = 1, 3
_TENSOR = 1
_DIMENSIONS = 2
#: A variable's description holds its name and shape.
_VARIABLE_NBYTES = 64 * 1024


@dataclass(frozen=True)
class Program:
    """The parameters of a program, name and shape (None: left open), in the order in which their stream holds them."""

    path: Path
    parameters: dict[str, Shape | None]
    producer: str
    nbytes: int


def is_program(head: bytes) -> bool:
    """Whether a file that begins like this is a program."""
    return _is_pir(head) or _PROGRAM_DESC.match(head) is not None


def _is_pir(head: bytes) -> bool:
    return b"".join(head[:200].split()).startswith(_PIR_MAGIC)


def program_of(path: Path) -> Program:
    """The program at ``path``. CorruptFile when it is none, or damaged."""
    with damage(str(path)), Source(path) as source:
        if _is_pir(source.peek(0, 256)):
            return _pir(source)
        return _program_desc(source)


def _sorted(parameters: dict[str, Shape | None]) -> dict[str, Shape | None]:
    return {name: parameters[name] for name in sorted(parameters, key=lambda n: n.encode("utf-8", "surrogateescape"))}


def _program_desc(source: Source) -> Program:
    extent = FileExtent(source, 0, source.nbytes)
    parameters: dict[str, Shape | None] = {}
    version = 0
    for field in _protobuf.scan(extent):
        if field.number == _BLOCKS and isinstance(field.value, tuple):
            for inner in _protobuf.scan(extent, *field.value):
                if inner.number == _VARIABLES and isinstance(inner.value, tuple):
                    _variable(extent, inner.value, parameters)
        elif field.number == _VERSION and isinstance(field.value, tuple):
            for _, kind, value in _protobuf.fields(extent.read(*field.value)):
                version = _protobuf.number(value) if kind == _protobuf.VARINT else version
    return Program(source.path, _sorted(parameters), f"paddle program, version {version}", source.nbytes)


def _variable(extent: Extent, span: tuple[int, int], parameters: dict[str, Shape | None]) -> None:
    offset, nbytes = span
    if nbytes > _VARIABLE_NBYTES:
        raise LimitExceeded(f"a variable described by {nbytes} bytes")
    name, kind, shape, persistable = "", None, None, False
    for field, _, value in _protobuf.fields(extent.read(offset, nbytes)):
        if field == _NAME:
            name = _protobuf.text(value)
        elif field == _TYPE:
            kind, shape = _type(_protobuf.submessage(value))
        elif field == _PERSISTABLE:
            persistable = bool(_protobuf.number(value))
    if persistable and kind not in _NEVER_SAVED:
        parameters[name] = shape


def _type(message: bytes) -> tuple[int | None, Shape | None]:
    """What a variable is: VarType.Type, and its shape if it is a tensor of known shape."""
    kind, shape = None, None
    for field, _, value in _protobuf.fields(message):
        if field == _KIND:
            kind = _protobuf.number(value)
        elif field == _LOD_TENSOR:
            for inner, _, described in _protobuf.fields(_protobuf.submessage(value)):
                if inner == _TENSOR:
                    shape = _shape(_protobuf.submessage(described))
    return kind, shape


def _shape(message: bytes) -> Shape | None:
    """The dimensions of a TensorDesc, unless some are left open (-1)."""
    fields = _protobuf.fields(message)
    shape = tuple(_protobuf.signed(_protobuf.number(value)) for field, _, value in fields if field == _DIMENSIONS)
    return shape if all(n >= 0 for n in shape) else None


def _pir(source: Source) -> Program:
    if source.nbytes > DEFAULT_LIMITS.header_nbytes:
        raise LimitExceeded(f"a program of {source.nbytes} bytes")
    document = json.loads(source.read(0, source.nbytes))
    parameters: dict[str, Shape | None] = {}
    for region in _parts(_member(document, "program"), "regions"):
        for block in _parts(region, "blocks"):
            for operation in _parts(block, "ops"):
                if _member(operation, "#") != "p":
                    continue
                attributes = _member(operation, "A")
                if not isinstance(attributes, list) or len(attributes) < 4 or not isinstance(attributes[3], str):
                    raise CorruptFile("a parameter of the program has no name")
                parameters[attributes[3]] = _pir_shape(operation)
    version = _member(_member(document, "base_code"), "version")
    return Program(source.path, _sorted(parameters), f"paddle PIR program, version {version}", source.nbytes)


def _member(node: Any, name: str) -> Any:
    return node.get(name) if isinstance(node, dict) else None


def _parts(node: Any, name: str) -> list[Any]:
    parts = _member(node, name)
    return parts if isinstance(parts, list) else []


def _pir_shape(operation: Any) -> Shape | None:
    """Of the type ``[element type, shape, layout, …]`` of a parameter's value, the shape."""
    described = _member(_member(_member(operation, "O"), "TT"), "D")
    shape = described[1] if isinstance(described, list) and len(described) > 1 else None
    if isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape):
        return tuple(shape)
    return None
