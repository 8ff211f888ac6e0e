"""Pickles that attack their reader, written opcode by opcode: code is named and never run, sizes are never believed."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from ckpt_tools import open_checkpoint
from ckpt_tools.core.checkpoint import Checkpoint
from ckpt_tools.errors import CkptError, CorruptFile, LimitExceeded, TruncatedFile, UnknownFormat, UnsafePickle

MARKER = "CKPT_TOUCHED"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def array() -> bytes:
    """An array in the form that numpy gives it, without the frame of a pickle."""
    return pickle.dumps(np.arange(2, dtype="f4"), 2)[2:-1]


def names(*pairs: tuple[str, bytes]) -> bytes:
    return b"}(" + b"".join(text(name) + value for name, value in pairs) + b"u"


EVAL = b"cbuiltins\neval\n"
DATA = names(("data", array()))
CODE = f"__import__('os').mkdir('{MARKER}')"


def opened(tmp_path: Path, data: bytes, name: str = "x.pdparams") -> Checkpoint:
    path = tmp_path / name
    path.write_bytes(data)
    with open_checkpoint(path) as checkpoint:
        assert isinstance(checkpoint.entries, tuple)
        return checkpoint


def test_the_call_that_paddle_writes_is_data(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, b"\x80\x02" + EVAL + text("data") + DATA + b"\x86R.", "x.bin")
    assert checkpoint.format == "paddle-pickle"
    assert checkpoint.tensors["."].info.shape == (2,)
    assert checkpoint.issues == []


def test_parameters_of_a_pickled_layer_are_data(tmp_path: Path) -> None:
    parameter = b"cpaddle.fluid.framework\nParamBase\n(" + text("shape") + text("dtype") + b"tR"
    parameter += names(("name", text("linear_0.w_0"))) + b"b"
    fill = text("t if t.value().get_tensor().set(v,p()) or True else None")
    place = b"cpaddle.fluid.framework\n_current_expected_place\n"
    call = EVAL + fill + names(("t", parameter), ("v", array()), ("p", place)) + b"\x86R"
    state = names(("_parameters", names(("weight", call))), ("_sub_layers", b"}"), ("_buffers", b"}"))
    checkpoint = opened(tmp_path, b"\x80\x02cpaddle.nn\nLinear\n)\x81" + state + b"b.", "layer.bin")
    assert checkpoint.format == "paddle-pickle"
    assert checkpoint.tensors["weight"].alias == "linear_0.w_0"


@pytest.mark.parametrize(
    "call",
    [
        EVAL + text(CODE) + b"\x85R",
        EVAL + text("data") + b"\x85R",
        EVAL + text("data") + names(("data", text("text"))) + b"\x86R",
        EVAL + text("data") + names(("data", array()), ("more", array())) + b"\x86R",
        EVAL + text("data.tofile('x')") + DATA + b"\x86R",
        EVAL + text("data") + DATA + b"}\x87R",
        EVAL + text("data") + DATA + b"\x86\x81" + b"0" + EVAL + text(CODE) + b"\x85\x81",
        b"c__builtin__\neval\n" + text(CODE) + b"\x85R",
        b"(" + text(CODE) + b"ibuiltins\neval\n",
        b"(" + EVAL + text(CODE) + b"o",
        b"cbuiltins\nmap\n" + EVAL + b"](" + text(CODE) + b"e\x86R",
        # the result is dropped again
        EVAL + text(CODE) + b"\x85R0N",
        # honest once, then not
        EVAL + text("data") + DATA + b"\x86R0" + EVAL + text(CODE) + b"\x85R",
    ],
    ids=range(13),
)
@pytest.mark.parametrize("name", ["x.pdparams", "x.pkl", "x"])
def test_any_other_eval_is_refused(call: bytes, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsafePickle, match=r"builtins\.eval.* byte \d+"):
        opened(tmp_path, b"\x80\x02" + call + b".", name)
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("name", ["x.pdparams", "x.pkl"])
def test_other_calls_are_named_and_not_made(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = b"cposix\nsystem\n" + text(f"touch {MARKER}") + b"\x85R"
    checkpoint = opened(tmp_path, b"\x80\x02}(" + text("w") + array() + text("x") + call + b"u.", name)
    assert list(checkpoint.tensors) == ["w"]
    assert checkpoint.values["x"].type_name == "posix.system"
    [issue] = checkpoint.issues
    assert issue.code == "pickle-foreign-call"
    assert "posix.system" in issue.message
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n",
        "abc",
        "import os; os.system('x')\n",
        "(this is a sentence)\n",
        "[section]\nkey = value\n",
        "{}\n",
        "collections of words\nin lines\n",
        "Version 1.0\n",
        "I.\n",
        "N\n",
        "Note.\n",
        "(lines\nof\ntext.\n",
        "]\n.",
    ],
)
@pytest.mark.parametrize("name", ["x.pkl", "x.pdparams", "x"])
def test_text_is_no_pickle(content: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat):
        opened(tmp_path, content.encode(), name)


@pytest.mark.parametrize("value", [1, 0.5, True, "text", [], {}, {1: [2, (3,)]}, b"bytes", 1 << 70, float("nan")])
@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_are_pickles(value: object, protocol: int, tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, pickle.dumps(value, protocol), "x.pkl")
    assert checkpoint.format == "pickle"
    assert checkpoint.tensors == {}
    assert len(checkpoint.values) >= 1


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x80\x02" + b"(" * 100_000 + b".", CkptError),
        (b"\x80\x02N" + b"\x85" * 200_000 + b".", LimitExceeded),
        (b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".", LimitExceeded),
        (b"\x80\x04\x8e" + b"\xff" * 8 + b".", TruncatedFile),
        (b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b".", TruncatedFile),
        (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".", TruncatedFile),
        (b"\x80\x02\x8b" + struct.pack("<i", -1) + b".", CorruptFile),
        (b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b".", LimitExceeded),
        (b"\x80\x02\x82\x01.", CorruptFile),
        (b"\x80\x02.", CorruptFile),
        (b"\x80\x02}q\x00h\x01s.", CorruptFile),
        (b"\x80\x02}]Ns.", CorruptFile),
        (b"\x80\x02NNs.", CorruptFile),
        (b"\x80\x02Nj\xff\xff\xff\xff.", CorruptFile),
        (b"\x80\x09N.", UnknownFormat),
        (b"\x80", UnknownFormat),
    ],
    ids=range(16),
)
@pytest.mark.parametrize("name", ["x.pdparams", "x.pkl"])
def test_damage_is_one_sentence(data: bytes, error: type[CkptError], name: str, tmp_path: Path) -> None:
    with pytest.raises(error) as caught:
        opened(tmp_path, data, name)
    assert len(str(caught.value).splitlines()) == 1


def test_a_bomb_of_references_is_not_unfolded(tmp_path: Path) -> None:
    program = b"\x80\x02]q\x00" + b"".join(
        b"](h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1]) for level in range(40)
    )
    with pytest.raises(LimitExceeded):
        opened(tmp_path, program + b".", "x.pkl")
    with pytest.raises(LimitExceeded):
        opened(tmp_path, program + b".", "x.pdparams")


@pytest.mark.parametrize("name", ["x.pdparams", "x.pkl"])
def test_containers_may_hold_themselves(name: str, tmp_path: Path) -> None:
    # a list in itself; a tuple in its own list, beside a named pair
    inner = b"]q\x00h\x00a" + b"0]q\x01(" + b"(h\x01" + text("name") + array() + b"\x86tq\x02" + b"eh\x02"
    checkpoint = opened(tmp_path, b"\x80\x02" + inner + b".", name)
    assert checkpoint.tensors


def state(**tables: object) -> bytes:
    return pickle.dumps({"a@@.0": np.zeros(2, "f4"), "a@@.1": np.zeros(2, "f4"), "n": 1, **tables}, 2)


@pytest.mark.parametrize(
    "table",
    [
        {"a": {"OriginShape": (5,), "slices": ["a@@.0", "a@@.1"]}},
        {"a": {"OriginShape": (4,), "slices": ["a@@.0", "a@@.9"]}},
        {"a": {"OriginShape": (4,), "slices": ["a@@.0", "n"]}},
        {"a": {"OriginShape": (4,), "slices": [[1], 2]}},
        {"a": {"OriginShape": (4,), "slices": []}},
        {"a": {"OriginShape": None, "slices": ["a@@.0", "a@@.1"]}},
        {"a": {"OriginShape": (-2, -2), "slices": ["a@@.0", "a@@.1"]}},
        {"a": {"OriginShape": (1 << 62, 4), "slices": ["a@@.0", "a@@.1"]}},
        {"a": {"slices": "a@@.0"}},
        {"a": 1},
        {
            "a": {"OriginShape": (4,), "slices": ["a@@.0", "a@@.1"]},
            "b": {"OriginShape": (4,), "slices": ["a@@.0", "a@@.1"]},
        },
        {"n": {"OriginShape": (4,), "slices": ["a@@.0", "a@@.1"]}},
    ],
    ids=range(12),
)
def test_tables_of_slices_that_lie(table: object, tmp_path: Path) -> None:
    with pytest.raises(CorruptFile):
        opened(tmp_path, state(**{"UnpackBigParamInfor@@": table}))


def test_a_table_of_names_that_lists_too_much(tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, state(**{"StructuredToParameterName@@": {"a@@.0": "x", "gone": "y", "n": "z"}}))
    assert checkpoint.tensors["a@@.0"].alias == "x"
    assert [issue.message for issue in checkpoint.issues] == ["the table of names lists gone, which is not there"]


@pytest.mark.parametrize("table", [1, [], "text", None])
def test_a_table_that_is_none_is_a_value(table: object, tmp_path: Path) -> None:
    checkpoint = opened(tmp_path, state(**{"StructuredToParameterName@@": table}))
    assert "StructuredToParameterName@@" in checkpoint.values


def test_what_follows_a_pickle_is_told(tmp_path: Path) -> None:
    one = pickle.dumps({"w": np.zeros(2)}, 4)
    [issue] = opened(tmp_path, one + one, "x.pkl").issues
    assert "another pickle follows" in issue.message
    [issue] = opened(tmp_path, one + bytes(7), "x.pkl").issues
    assert "7 bytes follow" in issue.message


def test_arrays_outside_the_file_are_refused(tmp_path: Path) -> None:
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps({"w": np.zeros(2)}, 5, buffer_callback=buffers.append)
    with pytest.raises(CorruptFile, match="out of band"):
        opened(tmp_path, data, "x.pkl")
