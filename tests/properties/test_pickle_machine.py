"""The symbolic machine against CPython's own: the same values, the same sharing, for every opcode and protocol."""

from __future__ import annotations

import pickle
import pickletools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckpt_tools.core.tree import Dict, SetNode
from ckpt_tools.errors import CkptError
from ckpt_tools.pickles.machine import INLINE_NBYTES, Machine
from ckpt_tools.pickles.nodes import Blob, LongText, TextBlob
from ckpt_tools.pickles.python_objects import CONSTRUCTORS

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats()
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.text(alphabet="a\N{GREEK SMALL LETTER ALPHA}\U0001f600\x00\n'\\", min_size=1)
    | st.binary(max_size=600)
    | st.binary(max_size=80).map(bytearray)
)
keys = st.none() | st.booleans() | st.integers() | st.text(max_size=300) | st.binary(max_size=80) | st.tuples(st.text())
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner)
        | st.tuples(inner, inner)
        | st.tuples(inner, inner, inner)
        | st.tuples(inner, inner, inner, inner)
        | st.dictionaries(keys, inner, max_size=5)
        | st.sets(keys, max_size=4)
        | st.frozensets(keys, max_size=4)
    ),
    max_leaves=25,
)


def load(data: bytes, encoding: str = "latin-1") -> Any:
    return plain(Machine(data, constructors=CONSTRUCTORS, encoding=encoding).load())


def plain(node: Any) -> Any:
    """A node as the Python object it stands for."""
    if isinstance(node, Blob):
        return bytearray(node.read()) if node.mutable else node.read()
    if isinstance(node, (LongText, TextBlob)):
        return node.read()
    if isinstance(node, SetNode):
        return (frozenset if node.type_name == "frozenset" else set)(map(plain, node))
    if type(node) is Dict:
        return {plain(key): plain(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return type(node)(map(plain, node))
    return node


def same(ours: Any, theirs: Any) -> bool:
    """Equal, and alike in type throughout; NaN equals itself, a bytearray may come as bytes (no value differs)."""
    if isinstance(theirs, bytearray):
        return bytes(ours) == bytes(theirs)
    if type(ours) is not type(theirs):
        return False
    if isinstance(theirs, float):
        # text pickles keep no more of a NaN than that it is one
        return ours != ours if theirs != theirs else struct.pack("<d", ours) == struct.pack("<d", theirs)
    if isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, dict):
        return list(map(repr, ours)) == list(map(repr, theirs)) and all(map(same, ours.values(), theirs.values()))
    return bool(ours == theirs)


@given(value=values, protocol=st.sampled_from(PROTOCOLS), optimised=st.booleans())
def test_what_python_pickles_reads_the_same(value: Any, protocol: int, optimised: bool) -> None:
    data = pickle.dumps(value, protocol)
    assert same(load(pickletools.optimize(data) if optimised else data), value)


@given(value=values, protocol=st.sampled_from(PROTOCOLS))
def test_the_end_of_the_pickle_is_found_before_whatever_follows(value: Any, protocol: int) -> None:
    first = pickle.dumps(value, protocol)
    machine = Machine(first + pickle.dumps("next", protocol), constructors=CONSTRUCTORS)
    machine.load()
    assert machine.position == len(first)
    assert machine.load() == "next"


@given(value=values, protocol=st.sampled_from(PROTOCOLS), data=st.data())
def test_damage_is_refused_or_read_and_nothing_else(value: Any, protocol: int, data: st.DataObject) -> None:
    from ckpt_tools.errors import damage

    stream = bytearray(pickle.dumps(value, protocol))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    try:
        with damage():
            Machine(bytes(stream), constructors=CONSTRUCTORS).load()
    except CkptError:
        pass


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sharing_and_cycles_are_kept(protocol: int) -> None:
    shared: list[Any] = [1]
    shared.append(shared)
    node = Machine(pickle.dumps({"a": shared, "b": shared, "c": (shared,)}, protocol)).load()
    assert node["a"] is node["b"] is node["c"][0] is node["a"][1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("size", [254, 255, 256, INLINE_NBYTES, INLINE_NBYTES + 1, 16 * 1024, 70_000])
def test_texts_and_bytes_of_sizes_around_every_threshold(protocol: int, size: int) -> None:
    value = ["é" * (size // 2), b"\xff" * size, bytearray(size), "x" * size, list(range(300))]
    assert same(load(pickle.dumps(value, protocol)), value)


def _program(name: str) -> bytes:
    """A small pickle that uses the opcode of that name."""
    number = struct.Struct("<i").pack
    programs = {
        "INT": b"I-12\n.",
        "BININT": b"J" + number(-70000) + b".",
        "BININT1": b"K\xff.",
        "BININT2": b"M\xff\xff.",
        "LONG": b"L-123456789012345678901234567890L\n.",
        "LONG1": b"\x8a\x0b" + (-(2**80)).to_bytes(11, "little", signed=True) + b".",
        "LONG4": b"\x8b" + number(300) + (2**2000).to_bytes(300, "little") + b".",
        "STRING": b"S'a\\x41\\n'\n.",
        "BINSTRING": b"T" + number(3) + b"abc.",
        "SHORT_BINSTRING": b"U\x03abc.",
        "BINBYTES": b"B" + number(3) + b"a\xffc.",
        "SHORT_BINBYTES": b"C\x03a\xffc.",
        "BINBYTES8": b"\x8e" + (3).to_bytes(8, "little") + b"abc.",
        "BYTEARRAY8": b"\x96" + (3).to_bytes(8, "little") + b"abc.",
        "NONE": b"N.",
        "NEWTRUE": b"\x88.",
        "NEWFALSE": b"\x89.",
        "UNICODE": b"V\\u00e9\\u000a\n.",
        "SHORT_BINUNICODE": b"\x8c\x02\xc3\xa9.",
        "BINUNICODE": b"X" + number(2) + b"\xc3\xa9.",
        "BINUNICODE8": b"\x8d" + (2).to_bytes(8, "little") + b"\xc3\xa9.",
        "FLOAT": b"F1.5e3\n.",
        "BINFLOAT": b"G" + struct.pack(">d", -0.0) + b".",
        "EMPTY_LIST": b"].",
        "APPEND": b"]K\x01a.",
        "APPENDS": b"](K\x01K\x02e.",
        "LIST": b"(K\x01K\x02l.",
        "EMPTY_TUPLE": b").",
        "TUPLE": b"(K\x01K\x02t.",
        "TUPLE1": b"K\x01\x85.",
        "TUPLE2": b"K\x01K\x02\x86.",
        "TUPLE3": b"K\x01K\x02K\x03\x87.",
        "EMPTY_DICT": b"}.",
        "DICT": b"(K\x01K\x02d.",
        "SETITEM": b"}K\x01K\x02s.",
        "SETITEMS": b"}(K\x01K\x02K\x03K\x04u.",
        "EMPTY_SET": b"\x8f.",
        "ADDITEMS": b"\x8f(K\x01K\x02\x90.",
        "FROZENSET": b"(K\x01K\x02\x91.",
        "POP": b"K\x01K\x020.",
        "DUP": b"K\x012\x86.",
        "MARK": b"(t.",
        "POP_MARK": b"K\x01(K\x02K\x031.",
        "GET": b"K\x07p5\n0g5\n.",
        "BINGET": b"K\x07q\x050h\x05.",
        "LONG_BINGET": b"K\x07r" + number(70000) + b"0j" + number(70000) + b".",
        "PUT": b"K\x07p5\ng5\n\x86.",
        "BINPUT": b"K\x07q\x05h\x05\x86.",
        "LONG_BINPUT": b"K\x07r" + number(7) + b"h\x07\x86.",
        "MEMOIZE": b"K\x07\x94K\x08\x94h\x00h\x01\x87.",
        "REDUCE": b"cbuiltins\nset\n](K\x01e\x85R.",
        "NEWOBJ": b"cbuiltins\nset\n)\x81.",
        "NEWOBJ_EX": b"cbuiltins\nset\n)}\x92.",
        "GLOBAL": b"ccollections\nOrderedDict\n)R.",
        "STACK_GLOBAL": b"\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R.",
        "PROTO": b"\x80\x04N.",
        "STOP": b"N.",
        "FRAME": b"\x80\x04\x95" + (2).to_bytes(8, "little") + b"N.",
        "BUILD": b"ccollections\nOrderedDict\n)R}b.",
    }
    return programs[name]


#: What no pickle can do by itself: ids and buffers need a partner, registry codes a registry, classes their modules.
NEED_A_PARTNER = {"PERSID", "BINPERSID", "NEXT_BUFFER", "READONLY_BUFFER", "EXT1", "EXT2", "EXT4", "INST", "OBJ"}


@pytest.mark.parametrize("name", sorted({op.name for op in pickletools.opcodes} - NEED_A_PARTNER))
def test_every_opcode_does_what_python_does(name: str) -> None:
    program = _program(name)
    ours = load(program, encoding="ascii")
    assert same(ours, dict(theirs) if isinstance(theirs := pickle.loads(program), dict) else theirs)


@pytest.mark.parametrize("name", sorted(NEED_A_PARTNER))
def test_the_other_opcodes_are_known(name: str) -> None:
    code = next(op.code for op in pickletools.opcodes if op.name == name).encode("latin-1")
    with pytest.raises((CkptError, IndexError)) as caught:
        Machine(code).load()
    assert "no pickle opcode" not in str(caught.value)
