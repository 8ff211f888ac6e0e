"""Pickles put together opcode by opcode, from trees; the counterpart of the machine.

Only opcodes are used that every reader takes: protocol 2 those that torch's restricted unpickler accepts, protocol 4
raw byte strings besides. There are no frames, which are optional to every unpickler, and only what comes again and
again is put into the memo. Byte runs that stay in another file are parts of their own, so that a pickle of any size is
written without holding it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Generic, TypeVar, Union

from ckpt_tools.core.rebuild import is_plain
from ckpt_tools.core.tree import Dict, SetNode, is_container

P = TypeVar("P")

#: Pairs and elements are set in batches, as CPython does it: what waits on the stack stays small.
_BATCH = 1000
_MARK, _STOP = b"(", b"."
_FLOAT = struct.Struct(">d")

_NOTHING = object()


class Assembler(Generic[P]):
    """One pickle in the making. :meth:`parts` gives it back: byte strings, and payloads of type ``P`` between them.

    ``leaf`` writes a node that is no container and no plain Python value; it uses the methods of the assembler.
    ``kinds`` are the classes of mappings that are written as such; all others become plain dicts.
    """

    def __init__(self, protocol: int, leaf: Callable[[Assembler[P], Any], None], kinds: Collection[str] = ()) -> None:
        self.protocol = protocol
        self._leaf = leaf
        self._kinds = kinds
        self._parts: list[Union[bytes, P]] = []
        self._code: list[bytes] = [b"\x80", bytes([protocol])]
        self._memo: dict[bytes, bytes] = {}

    def parts(self) -> list[Union[bytes, P]]:
        """The pickle, finished."""
        self._code.append(_STOP)
        self._join()
        return self._parts

    def _join(self) -> None:
        if self._code:
            self._parts.append(b"".join(self._code))
            self._code = []

    # -- opcodes -------------------------------------------------------------------------------------------------

    def code(self, opcodes: bytes) -> None:
        """Opcodes as they are."""
        self._code.append(opcodes)

    def once(self, opcodes: bytes) -> bytes:
        """Opcodes that push one constant: as they are the first time, a look into the memo from then on.

        They must be written in the order in which they were asked for.
        """
        known = self._memo.get(opcodes)
        if known is not None:
            return known
        index = len(self._memo)
        put, get = (b"q", b"h") if index < 256 else (b"r", b"j")
        number = index.to_bytes(1 if index < 256 else 4, "little")
        self._memo[opcodes] = get + number
        return opcodes + put + number

    def payload(self, what: P, nbytes: int) -> None:
        """A byte string of ``nbytes`` bytes whose bytes are ``what``. Protocol 4 only."""
        self._code.append(_bytes_head(nbytes))
        self._join()
        self._parts.append(what)

    def name(self, module: str, name: str) -> None:
        """A global. Protocol 2 spells Python's own in the way of Python 2."""
        if self.protocol < 3 and module == "builtins":
            module = "__builtin__"
        self._code.append(self.once(global_opcode(module, name)))

    def scalar(self, value: Any) -> None:
        """A plain Python value: None, bool, int, float, complex, str, bytes."""
        kind = type(value)
        if kind is str:
            self._code.append(text_opcode(value))
        elif kind is int:
            self._code.append(integer_opcode(value))
        elif kind is float:
            self._code.append(b"G" + _FLOAT.pack(value))
        elif kind is bool:
            self._code.append(b"\x88" if value else b"\x89")
        elif value is None:
            self._code.append(b"N")
        elif kind is bytes:
            self._bytes(value)
        elif kind is complex:
            self.name("builtins", "complex")
            self._code += [b"G", _FLOAT.pack(value.real), b"G", _FLOAT.pack(value.imag), b"\x86R"]
        else:
            raise TypeError(f"no opcodes for a {kind.__name__}")

    def _bytes(self, value: bytes) -> None:
        if self.protocol >= 3:
            self._code += [_bytes_head(len(value)), value]
        else:
            self.name("_codecs", "encode")
            self._code += [text_opcode(value.decode("latin-1")), text_opcode("latin1"), b"\x86R"]

    # -- trees ---------------------------------------------------------------------------------------------------

    def tree(self, root: Any) -> None:
        """A node and all below it. Nesting is followed with a stack of our own."""
        frames: list[Iterator[Any]] = [self._emit(root)]
        while frames:
            node = next(frames[-1], _NOTHING)
            if node is _NOTHING:
                frames.pop()
            else:
                frames.append(self._emit(node))

    def _emit(self, node: Any) -> Iterator[Any]:
        """Write a node; yields the containers in it, each of which the caller writes before going on."""
        if not is_container(node):
            self._value(node)
        elif isinstance(node, dict):
            yield from self._mapping(node)
        elif isinstance(node, SetNode):
            self.name("builtins", "set")  # neither torch's restricted unpickler nor Paddle takes a frozenset
            self._code.append(b"]")
            yield from self._batches(node, b"e")
            self._code.append(b"\x85R")
        elif isinstance(node, tuple):
            self._code.append(_MARK if node else b")")
            yield from self._items(node)
            if node:
                self._code.append(b"t")
        elif isinstance(node, list):
            self._code.append(b"]")
            yield from self._batches(node, b"e")
        else:
            self._leaf(self, node)

    def _value(self, node: Any) -> None:
        if node is None or type(node) in _SCALARS:
            self.scalar(node)
        else:
            self._leaf(self, node)

    def _items(self, nodes: Iterable[Any]) -> Iterator[Any]:
        for node in nodes:
            if is_container(node):
                yield node
            else:
                self._value(node)

    def _batches(self, nodes: list[Any], setter: bytes) -> Iterator[Any]:
        for start in range(0, len(nodes), _BATCH):
            self._code.append(_MARK)
            yield from self._items(nodes[start : start + _BATCH])
            self._code.append(setter)

    def _mapping(self, node: dict[Any, Any]) -> Iterator[Any]:
        kind = node.type_name if isinstance(node, Dict) else "dict"
        if kind in self._kinds:
            self.name(*kind.rsplit(".", 1))
            self._code.append(b")R")
        else:
            self._code.append(b"}")
        flat = [item for pair in node.items() for item in pair]
        yield from self._batches(flat, b"u")
        attributes = node.attributes if isinstance(node, Dict) else None
        if (
            kind in self._kinds
            and kind == "collections.OrderedDict"
            and isinstance(attributes, dict)
            and is_plain(attributes)
        ):
            yield attributes
            self._code.append(b"b")


def _bytes_head(nbytes: int) -> bytes:
    return b"B" + nbytes.to_bytes(4, "little") if nbytes < 2**32 else b"\x8e" + nbytes.to_bytes(8, "little")


_SCALARS = frozenset((str, int, float, bool, bytes, complex))


def global_opcode(module: str, name: str) -> bytes:
    """The opcode that names a global."""
    return b"c" + module.encode("utf-8") + b"\n" + name.encode("utf-8") + b"\n"


def text_opcode(text: str) -> bytes:
    """The opcode of a text, which may hold lone surrogates."""
    raw = text.encode("utf-8", "surrogatepass")
    return b"X" + len(raw).to_bytes(4, "little") + raw


def integer_opcode(value: int) -> bytes:
    """The opcode of an integer of up to 255 bytes."""
    if 0 <= value < 256:
        return b"K" + value.to_bytes(1, "little")
    if 0 <= value < 65536:
        return b"M" + value.to_bytes(2, "little")
    if -(2**31) <= value < 2**31:
        return b"J" + value.to_bytes(4, "little", signed=True)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + len(raw).to_bytes(1, "little") + raw


def integers_opcode(numbers: tuple[int, ...]) -> bytes:
    """The opcodes of a tuple of integers."""
    if not numbers:
        return b")"
    body = b"".join(map(integer_opcode, numbers))
    return body + (b"\x85", b"\x86", b"\x87")[len(numbers) - 1] if len(numbers) <= 3 else b"(" + body + b"t"


#: The longest integer that :func:`integer_opcode` takes, in bits.
INTEGER_BITS = 255 * 8 - 1
