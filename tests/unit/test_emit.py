"""A pickle that was read and written again is the same pickle to whoever loads it."""

from __future__ import annotations

import collections
import datetime
import decimal
import io
import math
import pickle
import pickletools
import struct
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckpt_tools.core.source import Source
from ckpt_tools.errors import CkptError, CorruptFile, WriteRefused
from ckpt_tools.pickles.emit import Emitter, shared_nodes
from ckpt_tools.pickles.nodes import Global
from ckpt_tools.pickles.verbatim import VerbatimMachine

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def rewritten(data: bytes, *, memo_for_all: bool = False) -> bytes:
    machine = VerbatimMachine(data)
    root = machine.load()
    out = io.BytesIO()
    shared = None if memo_for_all else shared_nodes(root)
    Emitter(out.write, protocol=machine.protocol, shared=shared).dump(root)
    return out.getvalue()


def cycles() -> list[Any]:
    in_list: list[Any] = [1]
    in_list.append(in_list)
    in_tuple: tuple[Any, ...] = ([],)
    in_tuple[0].append(in_tuple)
    in_long_tuple: tuple[Any, ...] = ([], 1, 2, 3, 4)
    in_long_tuple[0].extend([in_long_tuple, in_long_tuple])
    in_dict: dict[Any, Any] = {}
    in_dict["self"] = (in_dict, [in_dict])
    ordered: Any = collections.OrderedDict()
    ordered["self"] = ordered
    return [in_list, in_tuple, in_long_tuple, in_dict, ordered]


ARRAY = numpy.arange(12.0).reshape(3, 4)
VALUES: list[Any] = [
    None, True, False, [], {}, (), set(), {1, 2}, frozenset([1, (2, 3)]), b"", b"abc", b"x" * 5000, bytearray(b"xyz"),
    bytearray(), "é\n\\\0\x1a'\"", "y" * 6000, "\ud800",
    *(0, 255, 256, 65535, 65536, -1, -128, -129, 2**31, -(2**31), 2**63),
    -(2**63), 2**2100, -(2**2100), 1.5, -0.0, math.inf, -math.inf, 1e-320,
    (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((), ((),)),
    list(range(2500)), {i: str(i) for i in range(2500)}, [1], {1: 2}, 1j, range(5), slice(1, 2),
    collections.OrderedDict(a=1, b=[2]), collections.Counter("aab"), collections.defaultdict(list, {1: [2]}),
    collections.deque([1, 2]), datetime.datetime(2024, 5, 1, 10), decimal.Decimal("1.50"),
    ARRAY, ARRAY.T, ARRAY[::2, 1], numpy.array(5), numpy.zeros((0, 3)), numpy.array(["a", None], object),
    numpy.float32(1.5),
    numpy.int64(4), numpy.bool_(True), numpy.str_("text"), numpy.dtype("f4"), numpy.datetime64("2024-05-01"),
    numpy.ma.array([1, 2], mask=[0, 1]), numpy.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    numpy.arange(3, dtype=">i4"), numpy.random.default_rng(0),
]  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("memo_for_all", [False, True])
def test_every_kind_of_value_in_every_protocol(protocol: int, memo_for_all: bool) -> None:
    for value in [*VALUES, VALUES]:
        data = pickle.dumps(value, protocol)
        again = rewritten(data, memo_for_all=memo_for_all)
        assert pickle.dumps(pickle.loads(again), protocol) == pickle.dumps(pickle.loads(data), protocol)
        assert rewritten(again, memo_for_all=memo_for_all) == again
        assert all(opcode.proto <= protocol for opcode, _, _ in pickletools.genops(again))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cycles(protocol: int) -> None:
    for value in cycles():
        data = pickle.dumps(value, protocol)
        for memo_for_all in (False, True):
            again = rewritten(data, memo_for_all=memo_for_all)
            assert pickle.dumps(pickle.loads(again), protocol) == pickle.dumps(pickle.loads(data), protocol)


@pytest.mark.parametrize("protocol", [2, 3])
def test_with_a_memo_for_all_the_bytes_are_those_of_the_pickler(protocol: int) -> None:
    value = {"train": [{"loss": i / 3, "auc": numpy.float64(i), "ap": ARRAY + i, "iteration": i} for i in range(7)]}
    value["test"] = value["train"][:2]
    data = pickle.dumps(value, protocol)
    assert rewritten(data, memo_for_all=True) == data


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sharing_survives_and_nothing_else_is_shared(protocol: int) -> None:
    one, scalar, text = numpy.arange(3.0), numpy.float64(2.5), "a text"
    value = [one, one, scalar, scalar, text, text, numpy.arange(3.0), numpy.float64(2.5), [one]]
    again = pickle.loads(rewritten(pickle.dumps(value, protocol)))
    assert again[0] is again[1] is again[8][0]
    assert again[2] is again[3]
    assert again[4] is again[5]
    assert again[6] is not again[0]
    assert again[7] is not again[2]


def test_names_stay_in_the_spelling_they_have() -> None:
    data = pickle.dumps([ARRAY, numpy.float64(1)], 2)
    for spelling in (b"numpy.core.multiarray", b"numpy._core.multiarray"):
        spelled = data.replace(b"numpy._core.multiarray", spelling).replace(b"numpy.core.multiarray", spelling)
        again = rewritten(spelled)
        assert again.count(spelling) == spelled.count(spelling)
        assert numpy.array_equal(pickle.loads(again)[0], ARRAY)


def test_the_bits_of_a_float_stay() -> None:
    quiet = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
    assert pickle.dumps(quiet, 2) in (rewritten(pickle.dumps(quiet, 2)), pickle.dumps(quiet, 2))
    assert rewritten(pickle.dumps(quiet, 2)) == pickle.dumps(quiet, 2)


def test_python_2_strings_stay_strings() -> None:
    for data, protocol in ((b"(dp0\nS'a\\xff\\'b'\np1\nI01\ns.", 0), (b"}q\x00U\x03a\xff'q\x01T\x02\0\0\0xys.", 1)):
        again = rewritten(data)
        assert pickle.loads(again, encoding="bytes") == pickle.loads(data, encoding="bytes")
        assert pickle.loads(again, encoding="latin-1") == pickle.loads(data, encoding="latin-1")
        assert VerbatimMachine(data).load().keys() == VerbatimMachine(again).load().keys()
        machine = VerbatimMachine(data)
        machine.load()
        assert machine.protocol == protocol


def test_old_classes_and_keyword_arguments() -> None:
    assert pickle.loads(rewritten(b"(I2020\nI1\nI2\nidatetime\ndate\n.")) == datetime.date(2020, 1, 2)
    data = b"\x80\x04\x8c\x0bcollections\x8c\x07Counter\x93)}\x8c\x01aK\x02s\x92."
    assert pickle.loads(rewritten(data)) == pickle.loads(data)


def test_nesting_has_no_end() -> None:
    data = b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b"."
    assert rewritten(data) == data
    data = b"\x80\x02K\x01" + b"\x85" * 50_000 + b"."
    assert rewritten(data) == data


def test_a_memo_bomb_stays_small() -> None:
    data = b"\x80\x02]q\x00" + b"".join(b"]q%c(h%ch%ce" % (i + 1, i, i) for i in range(60)) + b"0" * 60 + b"h\x3c."
    assert len(rewritten(data)) < 2 * len(data)


def test_long_payloads_are_streamed(tmp_path: Any) -> None:
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps([numpy.arange(500_000.0), "é" * 2_000_000], 3))
    with Source(path) as source:
        root = VerbatimMachine(source).load()
        pieces: list[bytes] = []
        Emitter(pieces.append, protocol=3, shared=shared_nodes(root)).dump(root)
    assert max(map(len, pieces)) <= 2 << 20
    assert pickle.loads(b"".join(pieces))[1] == "é" * 2_000_000


def test_what_the_protocol_cannot_say_is_refused() -> None:
    with pytest.raises(WriteRefused, match="protocol 2"):
        Emitter(io.BytesIO().write, protocol=2).emit(Global("a\nb", "c", 0))


def test_arrays_out_of_band_are_refused() -> None:
    buffers: list[Any] = []
    data = pickle.dumps(ARRAY, 5, buffer_callback=buffers.append)
    with pytest.raises(CorruptFile, match="out of band"):
        VerbatimMachine(data).load()


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=80)
trees = st.recursive(
    leaves,
    lambda below: st.lists(below) | st.dictionaries(st.text() | st.integers(), below) | st.lists(below).map(tuple),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(trees, st.sampled_from(list(PROTOCOLS)))
def test_trees_come_back(tree: Any, protocol: int) -> None:
    tree = [tree, tree]
    data = pickle.dumps(tree, protocol)
    again = pickle.loads(rewritten(data))
    assert pickle.dumps(again, protocol) == pickle.dumps(pickle.loads(data), protocol)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_break_it(noise: bytes) -> None:
    try:
        again = rewritten(b"\x80\x04(" + noise + b".")
    except (CkptError, KeyError, IndexError, ValueError, OverflowError, struct.error):
        return
    assert rewritten(again)
