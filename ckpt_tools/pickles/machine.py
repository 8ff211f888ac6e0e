"""A pickle machine that only ever makes inert nodes.

It follows the opcodes of CPython's ``pickle`` (Lib/pickletools.py documents all 68), keeps sharing and cycles, and
resolves no name: GLOBAL gives a :class:`Global`, REDUCE and its kin an :class:`Object`. Byte strings and texts over a
few KiB are not read but located. What is refused: extension registry codes, out-of-band buffers' contents, opcodes that
act on things they cannot act on, and whatever goes beyond :class:`~ckpt_tools.core.limits.Limits`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from ckpt_tools.core.extents import Extent, FileExtent, MemoryExtent
from ckpt_tools.core.limits import DEFAULT_LIMITS, Limits
from ckpt_tools.core.source import Source
from ckpt_tools.core.tree import Dict, NumpyScalar, Opaque, SetNode
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile
from ckpt_tools.pickles.nodes import Blob, Global, LongText, Object, Undecoded

#: Longer byte strings and texts are located, not read: array payloads are, names and messages are not.
INLINE_NBYTES = 4096
#: Bytes of pickle looked at together: arrays alternate with a few hundred bytes of opcodes.
_WINDOW_NBYTES = 16 * 1024
#: No opcode has a longer fixed-size argument (BINFLOAT, BINBYTES8: 8 bytes), with room for the opcode itself.
_FIXED_NBYTES = 16

Constructor = Callable[[Any], Any]

_STRANGE_ID = "a persistent id at byte {}: what it stands for is not in the file"

_float = struct.Struct(">d").unpack_from


class Machine:
    """Reads one pickle stream, possibly of several pickles one after the other.

    ``constructors`` maps today's spelling of a global to a function from REDUCE's argument tuple to a node, for names
    whose meaning is complete at that moment; it may return NotImplemented to leave an :class:`Object`.
    ``persistent`` gives meaning to persistent ids; without it they are refused. ``encoding`` is that of Python 2
    strings (None: they stay :class:`~ckpt_tools.pickles.nodes.Undecoded`). ``built`` is called after BUILD on an Object
    with the machine, and may return a node to stand in its place (None: the Object stays); it can move
    :attr:`position` when raw bytes follow (joblib).

    After :meth:`load`: ``position`` is the offset after STOP, ``globals`` all names in order of appearance,
    ``calls`` every Object for which a callable would run outside the constructors, ``instances`` every Object that
    would be an instance of a class, both also when they were dropped again.
    """

    def __init__(
        self,
        source: Source | Extent | bytes,
        *,
        constructors: Mapping[str, Constructor] | None = None,
        persistent: Callable[[Any], Any] | None = None,
        built: Callable[[Machine, Object], Any] | None = None,
        encoding: str | None = "latin-1",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        if isinstance(source, bytes):
            self.extent: Extent = MemoryExtent(source)
        elif isinstance(source, Source):
            self.extent = FileExtent(source, 0, source.nbytes)
        else:
            self.extent = source
        self.constructors = constructors or {}
        self.persistent = persistent
        self.built = built
        self.encoding = encoding
        self.limits = limits
        self.position = 0
        self.protocol = 0
        self.globals: dict[tuple[str, str], Global] = {}
        self.calls: list[Object] = []
        self.instances: list[Object] = []
        self.out_of_band = 0
        self._window = b""
        self._base = 0
        self._rare = _RARE

    # -- bytes -------------------------------------------------------------------------------------------------

    def _fill(self, position: int) -> tuple[bytes, int, int]:
        """A window that begins at ``position``: its bytes (padded at the end of the stream), how many of them an
        opcode may begin in, and how many are real."""
        real = min(_WINDOW_NBYTES, self.extent.nbytes - position)
        if real <= 0:
            raise TruncatedFile(f"the pickle ends at byte {position}, before its STOP")
        self._base = position
        self._window = self.extent.read(position, real)
        if position + real == self.extent.nbytes:
            return self._window + bytes(_FIXED_NBYTES), real, real
        return self._window, real - _FIXED_NBYTES, real

    def _span(self, start: int, length: int, what: str) -> None:
        if length < 0 or start + length > self.extent.nbytes:
            raise TruncatedFile(
                f"{what} of {length} bytes at byte {start}, {max(self.extent.nbytes - start, 0)} are left"
            )

    def read_bytes(self, length: int, what: str) -> bytes:
        """``length`` bytes at :attr:`position`, which moves behind them."""
        self._span(self.position, length, what)
        data = self.extent.read(self.position, length)
        self.position += length
        return data

    def skip(self, length: int, what: str) -> Extent:
        """Locate ``length`` bytes at :attr:`position` without reading them; it moves behind them."""
        self._span(self.position, length, what)
        part = self.extent.part(self.position, length)
        self.position += length
        return part

    # -- the loop ----------------------------------------------------------------------------------------------

    def load(self) -> Any:
        """Read one pickle from :attr:`position` to its STOP and return its node."""
        memo: dict[int, Any] = {}
        metastack: list[list[Any]] = []
        stack: list[Any] = []
        window, safe, real = self._fill(self.position)
        pos = 0
        from_bytes = int.from_bytes
        persistent = self.persistent
        encoding_errors = "surrogatepass"

        # Ordered by how often torch (protocol 2) and paddle (protocol 4) write them.
        while True:
            if pos >= safe:
                if len(stack) > self.limits.stack or len(metastack) > self.limits.stack:
                    raise LimitExceeded(f"a pickle that keeps over {self.limits.stack} things waiting")
                window, safe, real = self._fill(self._base + pos)
                pos = 0
            op = window[pos]
            pos += 1
            if op == 0x72:  # LONG_BINPUT
                memo[from_bytes(window[pos : pos + 4], "little")] = stack[-1]
                pos += 4
            elif op == 0x68:  # BINGET
                stack.append(memo[window[pos]])
                pos += 1
            elif op == 0x4B:  # BININT1
                stack.append(window[pos])
                pos += 1
            elif op == 0x58 or op == 0x8C:  # BINUNICODE, SHORT_BINUNICODE
                if op == 0x8C:
                    length = window[pos]
                    pos += 1
                else:
                    length = from_bytes(window[pos : pos + 4], "little")
                    pos += 4
                end = pos + length
                if end <= real:
                    stack.append(window[pos:end].decode("utf-8", encoding_errors))
                    pos = end
                else:
                    self.position = self._base + pos
                    stack.append(self._text(length))
                    window, safe, real = self._fill(self.position)
                    pos = 0
            elif op == 0x47:  # BINFLOAT
                stack.append(_float(window, pos)[0])
                pos += 8
            elif op == 0x74:  # TUPLE
                items = stack
                stack = metastack.pop()
                stack.append(tuple(items))
            elif op == 0x85:  # TUPLE1
                stack[-1] = (stack[-1],)
            elif op == 0x52:  # REDUCE
                args = stack.pop()
                function = stack[-1]
                if type(args) is not tuple:
                    raise CorruptFile(f"REDUCE without an argument tuple at byte {self._base + pos - 1}")
                if type(function) is Global and function.make is not None:
                    made = function.make(args)
                    if made is not NotImplemented:
                        stack[-1] = made
                        continue
                stack[-1] = self._call(function, args, self._base + pos - 1)
            elif op == 0x28:  # MARK
                metastack.append(stack)
                stack = []
            elif op == 0x71:  # BINPUT
                memo[window[pos]] = stack[-1]
                pos += 1
            elif op == 0x94:  # MEMOIZE
                memo[len(memo)] = stack[-1]
            elif op == 0x75:  # SETITEMS
                items = stack
                stack = metastack.pop()
                _set_items(stack[-1], items, self.limits.key_depth)
            elif op == 0x7D:  # EMPTY_DICT
                stack.append(Dict())
            elif op == 0x29:  # EMPTY_TUPLE
                stack.append(())
            elif op == 0x51:  # BINPERSID
                if persistent is None:
                    raise CorruptFile(_STRANGE_ID.format(self._base + pos - 1))
                stack[-1] = persistent(stack[-1])
            elif op == 0x89:  # NEWFALSE
                stack.append(False)
            elif op == 0x6A:  # LONG_BINGET
                stack.append(memo[from_bytes(window[pos : pos + 4], "little")])
                pos += 4
            elif op == 0x86:  # TUPLE2
                last = stack.pop()
                stack[-1] = (stack[-1], last)
            elif op == 0x4D:  # BININT2
                stack.append(window[pos] | window[pos + 1] << 8)
                pos += 2
            elif op == 0x4A:  # BININT
                stack.append(from_bytes(window[pos : pos + 4], "little", signed=True))
                pos += 4
            elif op == 0x87:  # TUPLE3
                last = stack.pop()
                middle = stack.pop()
                stack[-1] = (stack[-1], middle, last)
            elif op == 0x88:  # NEWTRUE
                stack.append(True)
            elif op == 0x4E:  # NONE
                stack.append(None)
            elif op == 0x8A:  # LONG1
                length = window[pos]
                pos += 1
                if pos + length > real:
                    window, safe, real = self._fill(self._base + pos)
                    pos = 0
                    if length > real:
                        raise TruncatedFile(f"the pickle ends inside an integer at byte {self._base}")
                stack.append(from_bytes(window[pos : pos + length], "little", signed=True))
                pos += length
            elif op == 0x73:  # SETITEM
                value = stack.pop()
                key = stack.pop()
                _set_items(stack[-1], [key, value], self.limits.key_depth)
            elif op == 0x65:  # APPENDS
                items = stack
                stack = metastack.pop()
                _append(stack[-1], items)
            elif op == 0x61:  # APPEND
                value = stack.pop()
                _append(stack[-1], [value])
            elif op == 0x5D:  # EMPTY_LIST
                stack.append([])
            elif op == 0x62:  # BUILD
                state = stack.pop()
                target = stack[-1]
                if isinstance(target, Opaque):
                    target.state = state
                    if self.built is not None and isinstance(target, Object):
                        self.position = self._base + pos
                        stood_in = self.built(self, target)
                        if stood_in is not None:
                            stack[-1] = stood_in
                            _replace(memo, target, stood_in)
                        if self.position != self._base + pos:
                            window, safe, real = self._fill(self.position)
                            pos = 0
                elif isinstance(target, Dict):
                    target.attributes = state
                else:
                    raise CorruptFile(f"BUILD on a {_kind(target)} at byte {self._base + pos - 1}")
            elif op == 0x2E:  # STOP
                self.position = self._base + pos
                if metastack:
                    raise CorruptFile(f"STOP inside a MARK at byte {self.position - 1}")
                return stack.pop()
            elif op == 0x95:  # FRAME: lengths of frames say nothing that the opcodes do not
                pos += 8
            elif op == 0x80:  # PROTO
                self.protocol = window[pos]
                pos += 1
                if self.protocol > 5:
                    raise CorruptFile(f"pickle protocol {self.protocol}, known are 0 to 5")
            else:
                rare = self._rare.get(op)
                if rare is None:
                    raise CorruptFile(
                        f"byte {self._base + pos - 1} (0x{op:02x}) is no pickle opcode"
                        if pos <= real
                        else f"the pickle ends at byte {self._base + real}, before its STOP"
                    )
                self.position = self._base + pos
                stack = rare(self, stack, metastack, memo)
                # Whatever was read may reach beyond the window.
                pos = self.position - self._base
                if pos >= safe:
                    window, safe, real = self._fill(self.position)
                    pos = 0

    # -- what the loop and the rare opcodes share ----------------------------------------------------------------

    def name(self, module: str, name: str, offset: int) -> Global:
        """The node for a global; one for each pair, so that identity is equality."""
        known = self.globals.get((module, name))
        if known is None:
            known = self.globals[module, name] = Global(module, name, offset)
            known.make = self.constructors.get(known.path)
        return known

    def _call(self, function: Any, args: tuple[Any, ...], offset: int) -> Object:
        made = Object(function, args, offset, calls=True)
        self.calls.append(made)
        return made

    def _text(self, length: int) -> str | LongText:
        if length <= INLINE_NBYTES:
            return self.read_bytes(length, "a text").decode("utf-8", "surrogatepass")
        return LongText(self.skip(length, "a text"))

    def _bytes(self, length: int) -> bytes | Blob:
        # Short ones (numpy scalars) are values, the others may be arrays.
        if length <= 64:
            return self.read_bytes(length, "a byte string")
        return Blob(self.skip(length, "a byte string"))

    def _line(self) -> bytes:
        """A line of a text opcode, without its end."""
        pieces: list[bytes] = []
        found = 0
        while True:
            step = min(256, self.extent.nbytes - self.position)
            if step <= 0:
                raise TruncatedFile(f"the pickle ends at byte {self.position}, inside a line")
            data = self.extent.read(self.position, step)
            cut = data.find(b"\n")
            if cut >= 0:
                self.position += cut + 1
                pieces.append(data[:cut])
                return b"".join(pieces)
            self.position += step
            pieces.append(data)
            found += step
            if found > self.limits.line_nbytes:
                raise LimitExceeded(f"a line of over {self.limits.line_nbytes} bytes in a text pickle")

    def _count(self, nbytes: int) -> int:
        return int.from_bytes(self.read_bytes(nbytes, "a length"), "little")


def _replace(memo: dict[int, Any], old: Any, new: Any) -> None:
    """Let later references see ``new``. What BUILD completes was put into the memo a few entries ago."""
    for index in reversed(memo):
        if memo[index] is old:
            memo[index] = new
            return


def _kind(node: Any) -> str:
    return node.path if isinstance(node, (Global, Object)) else type(node).__name__.lower()


def _checked_key(key: Any, depth: int) -> Any:
    """A key that can be hashed without deep recursion: CPython hashes nested tuples on the C stack.

    A numpy scalar is the same key as the Python value that it equals; a frozenset is named, as other objects are. A long
    text is read: names are made of it.
    """
    if isinstance(key, LongText):
        if key.extent.nbytes > DEFAULT_LIMITS.line_nbytes:
            raise LimitExceeded(f"a key of {key.extent.nbytes} bytes")
        return key.read()
    if isinstance(key, NumpyScalar) and (not isinstance(key.value, str) or key.dtype.name.startswith("str")):
        return key.value
    if isinstance(key, SetNode) and key.type_name == "frozenset":
        return Opaque("builtins.frozenset", tuple(key))
    pending = [(key, 0)]
    while pending:
        item, level = pending.pop()
        if isinstance(item, tuple):
            if level >= depth:
                raise LimitExceeded(f"a key is a tuple nested deeper than {depth}")
            pending.extend((part, level + 1) for part in item)
        elif isinstance(item, (list, dict)):
            raise CorruptFile("a container as a key")
    return key


def _set_items(target: Any, items: list[Any], key_depth: int) -> None:
    if len(items) % 2:
        raise CorruptFile("an odd number of keys and values")
    if type(target) is Dict:
        for index in range(0, len(items), 2):
            key = items[index]
            if type(key) is not str:
                key = _checked_key(key, key_depth)
            target[key] = items[index + 1]
    elif isinstance(target, Opaque):
        target.pairs.extend(zip(items[::2], items[1::2]))
    else:
        raise CorruptFile(f"items are set on a {_kind(target)}")


def _append(target: Any, items: list[Any]) -> None:
    if isinstance(target, list):
        target.extend(items)
    elif isinstance(target, Opaque):
        target.elements.extend(items)
    else:
        raise CorruptFile(f"elements are appended to a {_kind(target)}")


# -- the other opcodes: each takes (machine, stack, metastack, memo) and returns the stack to go on with ---------------

_Stack = list[Any]
_Rare = Callable[[Machine, _Stack, list[_Stack], dict[int, Any]], _Stack]


def _pushes(read: Callable[[Machine], Any]) -> _Rare:
    def opcode(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
        stack.append(read(machine))
        return stack

    return opcode


def _decimal(machine: Machine) -> Any:
    line = machine._line()
    if line in (b"00", b"01"):  # how protocol 0 writes False and True
        return line == b"01"
    if len(line) > machine.limits.integer_nbytes:
        raise LimitExceeded(f"an integer of {len(line)} digits")
    return int(line.rstrip(b"L") or b"0", 10)


def _long4(machine: Machine) -> int:
    length = int.from_bytes(machine.read_bytes(4, "a length"), "little", signed=True)
    if length < 0:
        raise CorruptFile(f"an integer of {length} bytes")
    if length > machine.limits.integer_nbytes:
        raise LimitExceeded(f"an integer of {length} bytes")
    return int.from_bytes(machine.read_bytes(length, "an integer"), "little", signed=True)


def _python2_text(machine: Machine, data: bytes | Blob) -> Any:
    """A Python 2 ``str``: text or bytes, nobody knows. Long ones (array payloads) stay bytes."""
    if machine.encoding is None:
        return Undecoded(data)
    if isinstance(data, Blob):
        if data.nbytes > INLINE_NBYTES:
            return data
        data = data.read()
    try:
        return data.decode(machine.encoding)
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _quoted(machine: Machine) -> Any:
    line = machine._line()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        raise CorruptFile("a STRING opcode without quotes")
    import codecs

    return _python2_text(machine, codecs.escape_decode(line[1:-1])[0])


def _unicode_line(machine: Machine) -> str:
    return machine._line().decode("raw-unicode-escape")


def _global(machine: Machine) -> Global:
    offset = machine.position - 1
    module = machine._line().decode("utf-8")
    return machine.name(module, machine._line().decode("utf-8"), offset)


def _stack_global(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    name, module = stack.pop(), stack.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise CorruptFile("STACK_GLOBAL without two texts")
    stack.append(machine.name(module, name, machine.position - 1))
    return stack


def _persid(machine: Machine) -> Any:
    value = machine._line().decode("ascii")
    if machine.persistent is None:
        raise CorruptFile(_STRANGE_ID.format(machine.position))
    return machine.persistent(value)


def _new(machine: Machine, cls: Any, args: Any, kwargs: Any = None) -> Any:
    if type(args) is not tuple:
        raise CorruptFile("NEWOBJ without an argument tuple")
    if type(cls) is Global and cls.make is not None:
        made = cls.make(args)
        if made is not NotImplemented:
            return made
    if isinstance(cls, (Global, Opaque)):
        made = Object(cls, args, machine.position - 1, calls=not isinstance(cls, Global))
        made.kwargs = kwargs
        (machine.calls if made.calls else machine.instances).append(made)
        return made
    raise CorruptFile(f"an instance of a {_kind(cls)}")


def _newobj(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    args, cls = stack.pop(), stack.pop()
    stack.append(_new(machine, cls, args))
    return stack


def _newobj_ex(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    kwargs, args, cls = stack.pop(), stack.pop(), stack.pop()
    stack.append(_new(machine, cls, args, kwargs))
    return stack


def _inst(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    cls = _global(machine)
    return _old_style(machine, cls, stack, metastack)


def _obj(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    return _old_style(machine, stack.pop(0), stack, metastack)


def _old_style(machine: Machine, cls: Any, args: _Stack, metastack: list[_Stack]) -> _Stack:
    """INST and OBJ call whatever they name, class or function."""
    stack = metastack.pop()
    made = Object(cls, tuple(args), machine.position - 1, calls=True)
    machine.calls.append(made)
    stack.append(made)
    return stack


def _pop(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    if stack:
        stack.pop()
        return stack
    return metastack.pop()


def _pop_mark(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    return metastack.pop()


def _dup(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    stack.append(stack[-1])
    return stack


def _get(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    stack.append(memo[int(machine._line())])
    return stack


def _put(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    memo[int(machine._line())] = stack[-1]
    return stack


def _list(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    items, stack = stack, metastack.pop()
    stack.append(items)
    return stack


def _dict(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    items, stack = stack, metastack.pop()
    made = Dict()
    _set_items(made, items, machine.limits.key_depth)
    stack.append(made)
    return stack


def _frozenset(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    items, stack = stack, metastack.pop()
    stack.append(SetNode(items, type_name="frozenset"))
    return stack


def _add_items(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    items, stack = stack, metastack.pop()
    _append(stack[-1], items)
    return stack


def _extension(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    raise CorruptFile(
        f"a code of the extension registry at byte {machine.position - 1}: what it means is not in the file"
    )


def _next_buffer(machine: Machine) -> Object:
    machine.out_of_band += 1
    return Object(Global("pickle", "PickleBuffer", machine.position - 1), (), machine.position - 1, calls=False)


def _same(machine: Machine, stack: _Stack, metastack: list[_Stack], memo: dict[int, Any]) -> _Stack:
    return stack


_RARE: dict[int, _Rare] = {
    ord("c"): _pushes(_global),
    0x93: _stack_global,
    0x81: _newobj,
    0x92: _newobj_ex,
    ord("i"): _inst,
    ord("o"): _obj,
    ord("I"): _pushes(_decimal),
    ord("L"): _pushes(_decimal),
    0x8B: _pushes(_long4),
    ord("F"): _pushes(lambda machine: float(machine._line())),
    ord("S"): _pushes(_quoted),
    ord("T"): _pushes(lambda machine: _python2_text(machine, machine._bytes(machine._count(4)))),
    ord("U"): _pushes(lambda machine: _python2_text(machine, machine._bytes(machine._count(1)))),
    ord("V"): _pushes(_unicode_line),
    0x8D: _pushes(lambda machine: machine._text(machine._count(8))),
    ord("B"): _pushes(lambda machine: machine._bytes(machine._count(4))),
    ord("C"): _pushes(lambda machine: machine._bytes(machine._count(1))),
    0x8E: _pushes(lambda machine: machine._bytes(machine._count(8))),
    0x96: _pushes(lambda machine: Blob(machine.skip(machine._count(8), "a byte array"), mutable=True)),
    0x97: _pushes(_next_buffer),
    0x98: _same,  # READONLY_BUFFER
    ord("P"): _pushes(_persid),
    ord("0"): _pop,
    ord("1"): _pop_mark,
    ord("2"): _dup,
    ord("g"): _get,
    ord("p"): _put,
    ord("l"): _list,
    ord("d"): _dict,
    0x8F: _pushes(lambda machine: SetNode()),
    0x90: _add_items,
    0x91: _frozenset,
    0x82: _extension,
    0x83: _extension,
    0x84: _extension,
}
