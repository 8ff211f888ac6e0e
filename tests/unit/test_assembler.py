"""Pickles put together by hand load with CPython as the trees they were made of."""

from __future__ import annotations

import collections
import pickle
import pickletools
from typing import Any

import pytest

from ckpt_tools.core.tree import Dict, SetNode
from ckpt_tools.pickles.assembler import Assembler

#: What torch's restricted unpickler takes (torch/_weights_only_unpickler.py).
RESTRICTED = {
    *("PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINSTRING", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND"),
    *("APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "GLOBAL", "REDUCE", "NEWOBJ", "BUILD", "BINPERSID"),
    *("BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT"),
}


def assembled(root: Any, protocol: int) -> bytes:
    def leaf(assembler: Assembler[bytes], node: Any) -> None:
        raise AssertionError(node)

    assembler: Assembler[bytes] = Assembler(protocol, leaf, ("collections.OrderedDict", "collections.Counter"))
    assembler.tree(root)
    return b"".join(assembler.parts())


VALUES = [
    *(None, True, False, 0, 1, 255, 256, 65535, 65536, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**100, -(2**100)),
    *(0.0, -0.0, 1.5, float("inf"), "", "x", "ü\ud800", "y" * 100_000, b"", b"\x00\xff", b"z" * 100_000, 1 + 2j),
    *([], (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [[[]]], [1] * 2500),
]


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30])
def test_values(value: Any, protocol: int) -> None:
    data = assembled(value, protocol)
    back = pickle.loads(data)
    assert back == value
    assert repr(back) == repr(value)
    if protocol == 2:
        assert {code.name for code, _, _ in pickletools.genops(data)} <= RESTRICTED


@pytest.mark.parametrize("protocol", [2, 4])
def test_containers(protocol: int) -> None:
    ordered = Dict({f"k{i}": i for i in range(2500)}, type_name="collections.OrderedDict")
    ordered.attributes = Dict({"_metadata": Dict({"": 1})})
    tree = Dict(
        {"o": ordered, 3: SetNode([1, 2]), (1, "x"): Dict(), "c": Dict({"a": 2}, type_name="collections.Counter")}
    )
    back = pickle.loads(assembled(tree, protocol))
    assert type(back["o"]) is collections.OrderedDict
    assert list(back["o"].values()) == list(range(2500))
    assert back["o"]._metadata == {"": 1}
    assert back[3] == {1, 2}
    assert back[(1, "x")] == {}
    assert type(back["c"]) is collections.Counter


def test_nesting_does_not_recurse() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    data = assembled(deep, 2)
    assert data.count(b"]") == 5001


def test_constants_are_looked_up_in_the_memo() -> None:
    many = [Dict(type_name="collections.OrderedDict") for _ in range(3)]
    assert assembled(many, 2).count(b"OrderedDict") == 1
    assert pickle.loads(assembled(many, 2)) == [{}, {}, {}]
