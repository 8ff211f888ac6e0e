"""What the names of Python's own library mean in a pickle: containers, byte strings, numbers. A closed list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckpt_tools.core.tree import Dict, SetNode
from ckpt_tools.errors import CorruptFile
from ckpt_tools.pickles.machine import Constructor
from ckpt_tools.pickles.nodes import Blob, Global, LongText, TextBlob


def _mapping(type_name: str) -> Constructor:
    def make(args: Any) -> Any:
        made = Dict(type_name=type_name)
        if type_name == "collections.defaultdict":
            made.attributes = args[0] if args else None
            args = args[1:]
        if args:
            items = args[0]
            if not isinstance(items, dict) and not _are_pairs(items):
                return NotImplemented
            made.update(items)
        return made

    return make


def _are_pairs(items: Any) -> bool:
    """Whether this is a list of (key, value) with keys that can be hashed here."""
    return isinstance(items, (list, tuple)) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], (str, int, float, Global))
        for pair in items
    )


def _set(type_name: str) -> Constructor:
    def make(args: Any) -> Any:
        if not args:
            return SetNode(type_name=type_name)
        return SetNode(args[0], type_name=type_name) if isinstance(args[0], (list, tuple)) else NotImplemented

    return make


def _encode(args: Any) -> Any:
    """``_codecs.encode(text, 'latin1')``: how protocols 0-2 write bytes."""
    text, codec = (*args, "utf-8")[:2]
    if codec not in ("latin1", "latin-1"):
        return NotImplemented
    if isinstance(text, LongText):
        return TextBlob(text)
    if not isinstance(text, str):
        return NotImplemented
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise CorruptFile("bytes kept as text have a character above 255") from None


def _bytes(args: Any) -> Any:
    if not args:
        return b""
    return args[0] if isinstance(args[0], (bytes, Blob, TextBlob)) else NotImplemented


def _bytearray(args: Any) -> Any:
    if len(args) == 2:
        return _encode(args)
    return _bytes(args)


def _complex(args: Any) -> Any:
    return complex(*args) if len(args) == 2 and all(isinstance(a, (int, float)) for a in args) else NotImplemented


def _sequence(kind: type) -> Constructor:
    def make(args: Any) -> Any:
        if not args:
            return kind()
        return kind(args[0]) if isinstance(args[0], (list, tuple)) and len(args) == 1 else NotImplemented

    return make


#: Today's spelling of a name: what REDUCE of it means.
CONSTRUCTORS: Mapping[str, Constructor] = {
    "collections.OrderedDict": _mapping("collections.OrderedDict"),
    "collections.defaultdict": _mapping("collections.defaultdict"),
    "collections.Counter": _mapping("collections.Counter"),
    "builtins.dict": _mapping("dict"),
    "builtins.set": _set("set"),
    "builtins.frozenset": _set("frozenset"),
    "builtins.list": _sequence(list),
    "builtins.tuple": _sequence(tuple),
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytearray,
    "builtins.complex": _complex,
    "_codecs.encode": _encode,
}
