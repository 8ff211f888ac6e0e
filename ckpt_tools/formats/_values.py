"""How a tree with nesting and values goes into a format of flat, named tensors, and how it comes back.

Tensors are stored under their path, the parts joined by ``/``. Numbers, truth values and texts go where the format has
a place for them, under their path too. Whatever names alone cannot tell (which parts were numbers, kinds of mappings,
second names, values without a place, the order) is told by one JSON text, the *outline*, stored as :data:`OUTLINE`.
A flat mapping of tensors needs none. ``docs/conversion.md`` describes it.

    {"version": 1, "root": NODE}
    NODE   "t" a tensor, "a" an array of numpy beside tensors; {"t": SECOND NAME or null, "dtype": "bfloat16"}
           "i" "f" "b" "s" an int, float, bool or str in its place
           {"none": 0} {"int": "digits"} {"float": "hex"} {"bool": true} {"str": "text"} {"bytes": "base64"}
           {"complex": ["hex", "hex"]} {"numpy": ["float32", "base64"]}
           {"dict": [[KEY, NODE], …], "class": "collections.OrderedDict", "attributes": NODE}
           {"list": [NODE, …]} {"tuple": …} {"set": …} {"frozenset": …}
    KEY    a text or a whole number as it is, anything else as a NODE
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckpt_tools.core.dtypes import BY_NAME, DType
from ckpt_tools.core.issues import Issue, Severity
from ckpt_tools.core.keys import Key, printable, quoted_name
from ckpt_tools.core.limits import DEFAULT_LIMITS
from ckpt_tools.core.rebuild import is_plain
from ckpt_tools.core.tensors import NumpyArray, StridedTensor, StringTensor, Tensor, TensorInfo
from ckpt_tools.core.tree import (
    Cycle,
    Dict,
    Node,
    NumpyScalar,
    Opaque,
    Scalar,
    SetNode,
    children,
    is_container,
    part_of,
)
from ckpt_tools.errors import CorruptFile, LimitExceeded, WriteRefused
from ckpt_tools.formats._writing import refuse_collisions
from ckpt_tools.pickles.nodes import Blob, Global, LongText, TextBlob

#: The name under which the outline is stored, in every flat format.
OUTLINE = "ckpt.tree"
#: The code of the finding that an outline is not that of its file.
UNFIT_OUTLINE = "integrity-outline"
#: What a tensor is called that was all there was, without a name.
UNNAMED = "tensor"
_VERSION = 1

#: The kinds that may have a place of their own, and their letters in the outline.
_LETTERS: dict[type, str] = {int: "i", float: "f", bool: "b", str: "s"}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}
_SEQUENCES = {"list": list, "tuple": tuple}


@dataclass
class Flat:
    """A tree taken apart: named tensors and values in order, and the outline (None where names say everything)."""

    tensors: list[tuple[str, Tensor]] = field(default_factory=list)
    values: list[tuple[str, Scalar]] = field(default_factory=list)
    outline: str | None = None
    #: every name that was given, and the key it was given to
    keys: list[tuple[str, Key]] = field(default_factory=list)


def flat_name(key: Key) -> str:
    """What the leaf at ``key`` is called in a flat format."""
    return "/".join(map(str, key)) if key else UNNAMED


def reason_lost(node: Node) -> str | None:
    """Why the outline cannot hold a value; None when it can."""
    if isinstance(node, Cycle):
        return "a container that contains itself"
    if isinstance(node, Opaque):
        return f"an object of class {node.type_name}"
    if isinstance(node, Global):
        return f"the name {node.path}, which stands for an object"
    if isinstance(node, NumpyScalar) and node.dtype.name not in BY_NAME:
        return f"a numpy scalar of type {node.dtype}"
    return None


def flatten(
    root: Node,
    places: Collection[type],
    holds: Callable[[DType], bool] = lambda dtype: True,
    *,
    tells_aliases: bool = True,
    errors: str = "strict",
    outlined: bool = False,
) -> Flat:
    """Take a tree apart for a format that has places for values of the types ``places``.

    Tensors of a type that the format has no word for (``holds`` says no) get their type told in the outline, and second
    names unless the format tells those itself. Names become UTF-8, with ``errors`` as Python means it. Every leaf must be
    a tensor or something :func:`reason_lost` has nothing against, and so must the keys. WriteRefused when names collide,
    are reserved or no text, and when it nests too deep. With ``outlined`` there is an
    outline in any case.
    """
    flat = Flat()
    outline = _Outliner(flat, places, holds, tells_aliases=tells_aliases, errors=errors).outline(root)
    _refuse_names(flat.keys, errors)
    if (
        outlined
        or not isinstance(root, dict)
        or any(node != "t" or type(key) is not str for key, node in outline["dict"])
    ):
        flat.outline = json.dumps({"version": _VERSION, "root": outline}, separators=(",", ":"))
    return flat


def _refuse_names(keys: Sequence[tuple[str, Key]], errors: str) -> None:
    for name, _ in keys:
        if name == OUTLINE:
            raise WriteRefused(
                f"the name {OUTLINE} is reserved for what names alone cannot tell",
                hint="--rename gives it another, --exclude leaves it out",
            )
        if not _is_encodable(name, errors):
            raise WriteRefused(
                f"the name {printable(name)} cannot be written as UTF-8", hint="--rename gives it another"
            )
    refuse_collisions((name, quoted_name(key)) for name, key in keys)


def _is_encodable(text: str, errors: str) -> bool:
    try:
        stored = text.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return stored.decode("utf-8", errors) == text  # escaped bytes may make a character together


def second_name(tensor: Tensor, name: str | int) -> str | None:
    """The tensor's alias, where it says more than its name."""
    return tensor.alias if tensor.alias != name else None


class _Outliner:
    def __init__(
        self,
        flat: Flat,
        places: Collection[type],
        holds: Callable[[DType], bool],
        *,
        tells_aliases: bool,
        errors: str,
        level: int = 0,
    ) -> None:
        self._flat = flat
        self._tells_aliases = tells_aliases
        self._errors = errors
        self._level = level
        self._places = places
        self._holds = holds

    def outline(self, root: Node) -> Any:
        """The outline of a tree; nesting is followed with a stack of our own."""
        whole: list[Any] = []
        pending: list[tuple[Key, Node, list[Any]]] = [((), root, whole)]
        while pending:
            key, node, into = pending.pop()
            level = self._level + len(key)
            if level > _DEEPEST:
                raise WriteRefused(f"containers nest deeper than {_DEEPEST}, which only pickles can hold")
            if not is_container(node):
                into.append(self._leaf(key, node))
                continue
            parts, told = self._container(node, level)
            into.append(told)
            # the last first: what is pushed last is taken next, and the leaves keep their order
            pending.extend((((*key, part), child, slot) for part, child, slot in reversed(parts)))
        return whole[0]

    def _container(self, node: Node, level: int) -> tuple[list[tuple[str | int, Node, list[Any]]], dict[str, Any]]:
        if isinstance(node, dict):
            pairs: list[list[Any]] = [[self._key(key, level)] for key in node]
            told: dict[str, Any] = {"dict": pairs}
            kind = getattr(node, "type_name", "dict")
            if kind != "dict":
                told["class"] = kind
            attributes = getattr(node, "attributes", None)
            if attributes is not None and is_plain(attributes):
                told["attributes"] = self._inside(level).outline(attributes)
            return [(part, child, slot) for (part, child), slot in zip(children(node), pairs)], told
        elements: list[Any] = []
        name = node.type_name if isinstance(node, SetNode) else "tuple" if isinstance(node, tuple) else "list"
        return [(part, child, elements) for part, child in children(node)], {name: elements}

    def _key(self, key: Any, level: int) -> Any:
        return key if type(key) is str or type(key) is int else self._inside(level).outline(key)

    def _inside(self, level: int) -> _Outliner:
        """For what stands within the outline altogether."""
        return _Outliner(self._flat, (), self._holds, tells_aliases=False, errors=self._errors, level=level + 1)

    def _leaf(self, key: Key, node: Node) -> Any:
        name = flat_name(key)
        if isinstance(node, Tensor):
            self._flat.tensors.append((name, node))
            self._flat.keys.append((name, key))
            letter = "a" if isinstance(node, NumpyArray) else "t"
            alias = second_name(node, key[-1] if key else "") if self._tells_aliases else None
            if not self._holds(node.info.dtype):
                return {letter: alias, "dtype": node.info.dtype.name}
            return letter if alias is None else {letter: alias}
        node = read_value(node)
        if type(node) in self._places and fits_place(node) and _is_encodable(name, self._errors):
            self._flat.values.append((name, node))
            self._flat.keys.append((name, key))
            return _LETTERS[type(node)]
        return _inline(node)


def read_value(node: Node) -> Node:
    """Long texts and byte strings, which stay in the file until they are wanted, as Python's own."""
    if isinstance(node, (Blob, TextBlob, LongText)):
        return node.read()
    return node


def fits_place(value: Any) -> bool:
    """Whether a place of 64 bits, or one of text without surrogates and zeros, takes the value."""
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is str:
        return "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)
    return True


def _inline(value: Any) -> dict[str, Any]:
    if value is None:
        return {"none": 0}
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": hex(value)}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, str):
        return {"str": value}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, NumpyScalar):
        return {"numpy": [value.dtype.name, base64.b64encode(value.raw).decode("ascii")]}
    raise TypeError(f"no way to write a {type(value).__name__} into an outline")


# -- the way back ------------------------------------------------------------------------------------------------------


def restored(
    outline: Tensor | str | bytes,
    tensors: Mapping[str, Tensor],
    value: Callable[[str, type], Scalar],
    values: Collection[str] = (),
) -> Node:
    """The tree that an outline, a text or a tensor of its bytes, describes of the tensors of a file.

    ``value(name, kind)`` reads a value from its place; ``values`` names what lies in such places. CorruptFile when the
    outline is damaged, names what is not there or leaves out what is.
    """
    try:
        told = json.loads(_text_of(outline))
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"the outline is no JSON: {error}") from None
    if not isinstance(told, dict) or told.get("version") != _VERSION or "root" not in told:
        raise CorruptFile("an outline of an unknown version")
    builder = _Builder(tensors, value)
    root = builder.build(told["root"])
    left = [name for name in (*tensors, *values) if name not in builder.used]
    if left:
        raise CorruptFile(f"the outline does not mention {', '.join(left[:3])}")
    return root


def outlined(
    outline: Tensor | str | bytes,
    tensors: Mapping[str, Tensor],
    value: Callable[[str, type], Scalar],
    values: Collection[str],
    where: str,
) -> tuple[Node | None, list[Issue]]:
    """Like :func:`restored`; where the outline and the file disagree (another program changed it), None and an issue."""
    try:
        return restored(outline, tensors, value, values), []
    except (CorruptFile, LimitExceeded) as error:
        message = f"the outline {OUTLINE} does not fit the file and was not used: {error.message}"
        return None, [Issue(UNFIT_OUTLINE, Severity.WARNING, where, message)]


def _text_of(outline: Tensor | str | bytes) -> str | bytes:
    if not isinstance(outline, Tensor):
        return outline
    if outline.nbytes > DEFAULT_LIMITS.header_nbytes:
        raise LimitExceeded(f"an outline of {outline.nbytes} bytes")
    return outline.elements()[0] if isinstance(outline, StringTensor) else outline.tobytes()


class _Builder:
    def __init__(self, tensors: Mapping[str, Tensor], value: Callable[[str, type], Scalar]) -> None:
        self._tensors = tensors
        self._value = value
        self.used: set[str] = set()

    def build(self, told: Any, level: int = 0, key: Key = ()) -> Node:
        if level > _DEEPEST:
            raise LimitExceeded(f"an outline nested deeper than {_DEEPEST}")
        if isinstance(told, str):
            return self._stored(told, key)
        if not isinstance(told, dict) or not told:
            raise CorruptFile("an outline with a node of unknown kind")
        kind, held = next(iter(told.items()))
        if kind == "dict":
            return self._mapping(told, level, key)
        if kind in _SEQUENCES or kind in ("set", "frozenset"):
            built = [self.build(item, level + 1, (*key, i)) for i, item in enumerate(_listed(held))]
            return SetNode(built, type_name=kind) if kind not in _SEQUENCES else _SEQUENCES[kind](built)
        if kind in ("t", "a"):
            return self._tensor(kind, held, told.get("dtype"), key)
        return _value_of(kind, held)

    def _tensor(self, letter: str, alias: Any, dtype: Any, key: Key) -> Tensor:
        tensor: Tensor = self._stored(letter, key)
        if dtype is not None:
            tensor = _retyped(tensor, dtype)
        if alias is not None:
            if not isinstance(alias, str):
                raise CorruptFile("an outline with a second name that is no text")
            tensor.alias = alias
        return tensor

    def _mapping(self, told: dict[str, Any], level: int, key: Key) -> Dict:
        kind = told.get("class", "dict")
        made = Dict(type_name=kind if isinstance(kind, str) else "dict")
        for pair in _listed(told["dict"]):
            if not isinstance(pair, list) or len(pair) != 2:
                raise CorruptFile("an outline with a mapping that is not made of pairs")
            stored = (
                pair[0]
                if type(pair[0]) in (str, int)
                else _hashable(_Builder({}, self._value).build(pair[0], level + 1))
            )
            if stored in made:
                raise CorruptFile(f"an outline with the key {part_of(stored)!r} twice")
            made[stored] = self.build(pair[1], level + 1, (*key, part_of(stored)))
        if "attributes" in told:
            made.attributes = _Builder({}, self._value).build(told["attributes"], level + 1)
        return made

    def _stored(self, letter: str, key: Key) -> Any:
        name = flat_name(key)
        if name in self.used:
            raise CorruptFile(f"an outline with two leaves called {name!r}")
        self.used.add(name)
        if letter in ("t", "a"):
            if name not in self._tensors:
                raise CorruptFile(f"the outline names a tensor {name!r}, which is not there")
            return self._tensors[name] if letter == "t" else _as_array(self._tensors[name])
        if letter not in _KINDS:
            raise CorruptFile("an outline with a node of unknown kind")
        return self._value(name, _KINDS[letter])


def _as_array(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, StridedTensor):
        return tensor
    return NumpyArray(tensor.info, tensor.storage, tensor.offset, tensor.strides, note=tensor.note)


def _retyped(tensor: Tensor, name: Any) -> Tensor:
    """The same bytes as elements of the type that the outline tells."""
    dtype = BY_NAME.get(name) if isinstance(name, str) else None
    if not isinstance(tensor, StridedTensor) or dtype is None or dtype.bit_width != tensor.info.dtype.bit_width:
        raise CorruptFile(f"an outline with an element type {name!r:.40} for elements of {tensor.info.dtype}")
    kind = type(tensor)
    return kind(TensorInfo(dtype, tensor.info.shape), tensor.storage, tensor.offset, tensor.strides, note=tensor.note)


def stored_scalar(tensor: Tensor, kind: type) -> Scalar:
    """The Python value of a 0-d tensor that stands in a value's place. CorruptFile when it is no such thing."""
    name = tensor.info.dtype.name
    if tensor.info.shape == ():
        if kind is str and isinstance(tensor, StringTensor):
            return tensor.elements()[0].decode("utf-8")
        if kind is str and name.startswith("str"):
            return tensor.tobytes().decode("utf-32-le").rstrip("\0")
        if kind is int and name == "int64":
            return int.from_bytes(tensor.tobytes(), "little", signed=True)
        if kind is float and name == "float64":
            return float(struct.unpack("<d", tensor.tobytes())[0])
        if kind is bool and name == "bool":
            return tensor.tobytes() != b"\0"
    raise CorruptFile(f"{name} {list(tensor.info.shape)} in the place of a value of type {kind.__name__}")


#: Outlines nest this deep at most: JSON is parsed and followed by recursion.
_DEEPEST = 200


def _listed(held: Any) -> Sequence[Any]:
    if not isinstance(held, list):
        raise CorruptFile("an outline with a container that is no list")
    return held


def _hashable(key: Node) -> Any:
    pending = [key]
    while pending:
        part = pending.pop()
        if isinstance(part, (Dict, list)):
            raise CorruptFile("an outline with a container as a key")
        if type(part) is tuple:
            pending += part
    return key


def _value_of(kind: str, held: Any) -> Scalar:
    try:
        if kind == "none":
            return None
        if kind == "bool" and isinstance(held, bool):
            return held
        if kind == "int":
            return int(held, 16)
        if kind == "float":
            return float.fromhex(held)
        if kind == "complex":
            return complex(float.fromhex(held[0]), float.fromhex(held[1]))
        if kind == "str" and isinstance(held, str):
            return held
        if kind == "bytes":
            return base64.b64decode(held, validate=True)
        if kind == "numpy":
            return _numpy_scalar(BY_NAME[held[0]], base64.b64decode(held[1], validate=True))
    except (TypeError, ValueError, LookupError, OverflowError) as error:
        raise CorruptFile(f"an outline with a {kind} that is none: {error}") from None
    raise CorruptFile(f"an outline with a value of unknown kind {kind[:40]!r}")


def _numpy_scalar(dtype: DType, raw: bytes) -> NumpyScalar:
    from ckpt_tools.pickles.numpy_objects import ElementType, scalar

    if len(raw) != TensorInfo(dtype, ()).nbytes:
        raise ValueError(f"{len(raw)} bytes for a {dtype}")
    return scalar(ElementType(dtype), raw)
