"""Symbolic nodes written as a pickle again: the inverse of :class:`~ckpt_tools.pickles.verbatim.VerbatimMachine`.

The opcodes are those that CPython's pickler writes for each protocol (Lib/pickletools.py), without FRAME, which readers
do not need. What is one node with several referents stays one object, cycles included. The same nodes give the same
bytes.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from ckpt_tools.core.extents import Extent
from ckpt_tools.core.limits import MIB
from ckpt_tools.core.tree import Dict, SetNode
from ckpt_tools.errors import WriteRefused
from ckpt_tools.pickles.nodes import Blob, Global, LongText, Object, StoredScalar, Undecoded

#: Opcodes gathered before they are handed on.
_GATHERED_NBYTES = MIB
#: CPython's picklers set items and append elements in batches of this many.
_BATCH = 1000

_binfloat = struct.Struct(">cd").pack
_u16 = struct.Struct("<H").pack
_u32 = struct.Struct("<I").pack
_u64 = struct.Struct("<Q").pack
_i32 = struct.Struct("<i").pack

Frame = Iterator[Any]


class Emitter:
    """Writes one pickle. ``write`` takes the bytes; ``protocol`` is 0 to 5.

    ``shared`` holds the ids of the nodes that are referred to more than once (:func:`shared_nodes`): only those are put
    into the memo; None puts everything there that a pickler would. Nodes must live until the end: they are known by
    identity.
    """

    def __init__(
        self, write: Callable[[bytes], object], *, protocol: int, shared: Collection[int] | None = None
    ) -> None:
        self.protocol = protocol
        self._write = write
        self._shared = shared
        self._memo: dict[int, bytes] = {}  # the opcode that gets each node back
        self._out = bytearray()
        self._leaves: dict[type, Callable[[Any], None]] = {
            type(None): self.none,
            bool: self.boolean,
            int: self.integer,
            float: self.real,
            str: self._text_once,
        }
        self._branches: dict[type, Callable[[Any], Frame | None]] = {
            bytes: self._bytes,
            Blob: self._blob,
            LongText: self._long_text,
            Undecoded: self._undecoded,
            Global: self._global,
            tuple: self._tuple,
            list: self._list,
            Dict: self._dict,
            SetNode: self._set,
            StoredScalar: self._scalar,
            Object: self._object,
        }

    def dump(self, root: Any) -> None:
        """A whole pickle of ``root``, handed on completely."""
        self.proto()
        self.emit(root)
        self.stop()

    def emit(self, root: Any) -> None:
        """The opcodes that leave ``root`` on the stack, with all that hangs on it, however deep it nests."""
        frames: list[Frame] = [iter((root,))]
        while frames:
            for node in frames[-1]:
                frame = self._begin(node)
                if frame is not None:
                    frames.append(frame)
                    break
            else:
                frames.pop()
            if len(self._out) > _GATHERED_NBYTES:
                self.flush()

    def flush(self) -> None:
        """Hand on what was gathered."""
        out, self._out = self._out, bytearray()
        self._write(bytes(out))

    # -- one opcode each ---------------------------------------------------------------------------------------

    def proto(self) -> None:
        if self.protocol >= 2:
            self._out += bytes((0x80, self.protocol))

    def stop(self) -> None:
        self._out += b"."
        self.flush()

    def mark(self) -> None:
        self._out += b"("

    def none(self, _: None = None) -> None:
        self._out += b"N"

    def boolean(self, value: bool) -> None:
        if self.protocol >= 2:
            self._out += b"\x88" if value else b"\x89"
        else:
            self._out += b"I01\n" if value else b"I00\n"

    def integer(self, value: int) -> None:
        if self.protocol == 0:
            self._out += b"I%d\n" % value if -0x80000000 <= value < 0x80000000 else b"L%dL\n" % value
        elif 0 <= value < 0x100:
            self._out += bytes((0x4B, value))
        elif 0 <= value < 0x10000:
            self._out += b"M" + _u16(value)
        elif -0x80000000 <= value < 0x80000000:
            self._out += b"J" + _i32(value)
        elif self.protocol == 1:
            self._out += b"L%dL\n" % value
        else:
            data = _two_complement(value)
            self._out += bytes((0x8A, len(data))) if len(data) < 0x100 else b"\x8b" + _i32(len(data))
            self._out += data

    def real(self, value: float) -> None:
        if self.protocol:
            self._out += _binfloat(b"G", value)
        else:
            self._out += b"F%s\n" % repr(value).encode("ascii")

    def text(self, value: str) -> None:
        data = value.encode("utf-8", "surrogatepass")
        if self.protocol == 0:
            self._out += b"V" + _unicode_line(value) + b"\n"
        else:
            self._text_head(len(data))
            self._out += data

    def global_name(self, module: str, name: str) -> None:
        """GLOBAL, or the two texts and STACK_GLOBAL of protocol 4."""
        if self.protocol >= 4:
            self.text(module)
            self.text(name)
            self._out += b"\x93"
        elif "\n" in module + name:
            raise WriteRefused(f"the name {module}.{name} cannot be written with pickle protocol {self.protocol}")
        else:
            self._out += f"c{module}\n{name}\n".encode()

    def reduce(self) -> None:
        self._out += b"R"

    def build(self) -> None:
        self._out += b"b"

    def memoize(self, node: Any) -> None:
        """Put the top of the stack into the memo as ``node``, unless nothing else refers to it."""
        if self._shared is not None and id(node) not in self._shared:
            return
        index = len(self._memo)
        if self.protocol == 0:
            put, get = b"p%d\n" % index, b"g%d\n" % index
        elif index < 0x100:
            put, get = bytes((0x71, index)), bytes((0x68, index))
        else:
            put, get = b"r" + _u32(index), b"j" + _u32(index)
        self._memo[id(node)] = get
        self._out += b"\x94" if self.protocol >= 4 else put

    def recall(self, node: Any) -> bool:
        """Get ``node`` from the memo; False when it is not there."""
        get = self._memo.get(id(node))
        if get is None:
            return False
        self._out += get
        return True

    # -- nodes: those without parts are written at once, the others give a frame that asks for their parts ---------

    def _begin(self, node: Any) -> Frame | None:
        leaf = self._leaves.get(type(node))
        if leaf is not None:
            leaf(node)
            return None
        return None if self.recall(node) else self._branches[type(node)](node)

    def _text_once(self, node: str) -> None:
        if not self.recall(node):
            self.text(node)
            self.memoize(node)

    def _long_text(self, node: LongText) -> None:
        if self.protocol == 0:
            self.text(node.read())
        else:
            self._text_head(node.extent.nbytes)
            self._stream(node.extent)
        self.memoize(node)

    def _text_head(self, nbytes: int) -> None:
        if self.protocol >= 4 and nbytes < 0x100:
            self._out += bytes((0x8C, nbytes))
        elif nbytes <= 0xFFFFFFFF:
            self._out += b"X" + _u32(nbytes)
        else:
            self._out += b"\x8d" + _u64(nbytes)

    def _stream(self, extent: Extent) -> None:
        if extent.nbytes < _GATHERED_NBYTES:
            self._out += extent.read(0, extent.nbytes)
            return
        self.flush()
        for chunk in extent.chunks(0, extent.nbytes, _GATHERED_NBYTES):
            self._write(chunk)

    def _bytes(self, node: bytes) -> None:
        self._bytes_head(len(node))
        self._out += node
        self.memoize(node)

    def _blob(self, node: Blob) -> None:
        if node.mutable:
            self._out += b"\x96" + _u64(node.nbytes)
        else:
            self._bytes_head(node.nbytes)
        self._stream(node.extent)
        self.memoize(node)

    def _bytes_head(self, nbytes: int) -> None:
        if nbytes < 0x100:
            self._out += bytes((0x43, nbytes))
        elif nbytes <= 0xFFFFFFFF:
            self._out += b"B" + _u32(nbytes)
        else:
            self._out += b"\x8e" + _u64(nbytes)

    def _undecoded(self, node: Undecoded) -> None:
        data = node.read()
        if self.protocol == 0:
            self._out += b"S'" + codecs.escape_encode(data)[0] + b"'\n"
        else:
            self._out += (bytes((0x55, len(data))) if len(data) < 0x100 else b"T" + _i32(len(data))) + data
        self.memoize(node)

    def _global(self, node: Global) -> None:
        self.global_name(node.module, node.name)
        self.memoize(node)

    def _tuple(self, node: tuple[Any, ...]) -> Frame:
        if not node and self.protocol:
            self._out += b")"
            return
        short = self.protocol >= 2 and len(node) <= 3
        if not short:
            self.mark()
        yield from self._each(node)
        if id(node) in self._memo:
            # A part referred back to it, and so it was built meanwhile: these parts are one too many.
            self._out += b"0" * len(node) if short else b"1" if self.protocol else b"0" * (len(node) + 1)
            self.recall(node)
            return
        self._out += _SHORT_TUPLES[len(node)] if short else b"t"
        self.memoize(node)

    def _list(self, node: list[Any]) -> Frame:
        self._out += b"]" if self.protocol else b"(l"
        self.memoize(node)
        yield from self._elements(node)

    def _each(self, parts: Iterable[Any]) -> Frame:
        """Parts one after the other; only those that are neither leaves nor in the memo are asked for."""
        leaves, memo = self._leaves, self._memo
        for part in parts:
            kind = type(part)
            if kind is float and self.protocol:
                self._out += _binfloat(b"G", part)
                continue
            get = memo.get(id(part))
            if get is not None:
                self._out += get
            elif kind in leaves:
                leaves[kind](part)
            else:
                yield part

    def _elements(self, elements: list[Any], many: bytes = b"e") -> Frame:
        if not self.protocol or (len(elements) == 1 and many == b"e"):
            for element in elements:
                yield element
                self._out += b"a"
            return
        for batch in _batches(elements):
            self.mark()
            yield from self._each(batch)
            self._out += many
            if len(self._out) > _GATHERED_NBYTES:
                self.flush()

    def _dict(self, node: Dict) -> Frame:
        self._out += b"}" if self.protocol else b"(d"
        self.memoize(node)
        yield from self._pairs(node.items(), len(node))

    def _pairs(self, pairs: Iterable[tuple[Any, Any]], count: int) -> Frame:
        if not self.protocol or count == 1:
            for key, value in pairs:
                yield key
                yield value
                self._out += b"s"
            return
        for batch in _batches(pairs) if count > _BATCH else (pairs,):
            self.mark()
            yield from self._each(chain.from_iterable(batch))
            self._out += b"u"
            if len(self._out) > _GATHERED_NBYTES:
                self.flush()

    def _set(self, node: SetNode) -> Frame:
        if node.type_name != "frozenset":
            self._out += b"\x8f"
            self.memoize(node)
            yield from self._elements(node, b"\x90")
            return
        self.mark()
        yield from node
        if id(node) in self._memo:
            self._out += b"1"
            self.recall(node)
            return
        self._out += b"\x91"
        self.memoize(node)

    def _scalar(self, node: StoredScalar) -> Frame | None:
        kind, raw = node.args
        if self._shared is None or self.protocol < 3 or id(kind) not in self._memo or not _is_short(raw):
            return self._called(node)
        # By far the most frequent: its function and element type were written before.
        if not self.recall(node.callable):
            self._global(node.callable)
        self.recall(kind)
        self._out += bytes((0x43, len(raw)))
        self._out += raw
        self._out += b"\x86R"
        self.memoize(node)
        return None

    def _called(self, node: StoredScalar | Object) -> Frame:
        yield node.callable
        yield node.args
        self.reduce()
        self.memoize(node)

    def _object(self, node: Object) -> Frame:
        yield from self._each((node.callable, node.args))
        if node.kwargs is not None:
            yield node.kwargs
        if id(node) in self._memo:
            self._out += b"00" if node.kwargs is None else b"000"
            self.recall(node)
            return
        self._out += b"\x92" if node.kwargs is not None else b"R" if node.calls else b"\x81"
        self.memoize(node)
        if node.elements:
            yield from self._elements(node.elements)
        if node.pairs:
            yield from self._pairs(node.pairs, len(node.pairs))
        if node.state is not None:
            yield node.state
            self.build()


_SHORT_TUPLES = (b")", b"\x85", b"\x86", b"\x87")


def _batches(items: Iterable[Any]) -> Iterator[Iterator[Any]]:
    rest = iter(items)
    for first in rest:
        yield chain((first,), islice(rest, _BATCH - 1))


def _two_complement(value: int) -> bytes:
    """The shortest little-endian bytes of an integer."""
    data = value.to_bytes((value.bit_length() >> 3) + 1, "little", signed=True)
    return data[:-1] if value < 0 and len(data) > 1 and data[-1] == 0xFF and data[-2] & 0x80 else data


_LINE_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "\\\0\n\r\x1a"}


def _unicode_line(text: str) -> bytes:
    """A text as UNICODE has it: on one line, in raw-unicode-escape."""
    return text.translate(_LINE_ESCAPES).encode("raw-unicode-escape")


#: Nodes without an identity that a pickle could keep.
_ANONYMOUS = frozenset({type(None), bool, int, float, complex})


def shared_nodes(root: Any) -> set[int] | None:
    """The ids of the nodes below ``root`` that are referred to more than once.

    None when something contains itself: writing it comes to an end only when everything is put into the memo.
    """
    seen: set[int] = set()
    shared: set[int] = set()
    open_nodes: set[int] = set()
    stack: list[tuple[int, Iterator[Any]]] = [(0, iter((root,)))]
    while stack:
        above, rest = stack[-1]
        for node in rest:
            identity = id(node)
            if identity in seen:
                if identity in open_nodes:
                    return None
                shared.add(identity)
                continue
            seen.add(identity)
            parts = _parts(node, shared)
            if parts:
                open_nodes.add(identity)
                stack.append((identity, iter(parts)))
                break
        else:
            open_nodes.discard(above)
            stack.pop()
    return shared


def _parts(node: Any, shared: set[int]) -> list[Any]:
    """What a node refers to and could be shared and is not yet known to be, in the order in which it is written."""
    if isinstance(node, dict):
        parts: Iterable[Any] = chain.from_iterable(node.items())
    elif isinstance(node, (list, tuple)):
        parts = node
    elif isinstance(node, StoredScalar):
        parts = (node.callable, *node.args)
    elif isinstance(node, Object):
        parts = chain((node.callable, node.args, node.kwargs), node.elements, *node.pairs, (node.state,))
    else:
        return []
    return [part for part in parts if type(part) not in _ANONYMOUS and id(part) not in shared]


def _is_short(raw: Any) -> bool:
    return type(raw) is bytes and len(raw) < 0x100
