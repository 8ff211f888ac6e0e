"""The safetensors reader and the judge of its headers, on files made by hand."""

import json
import struct

import pytest

from ckpt_tools.core.dtypes import BY_NAME
from ckpt_tools.core.tensors import TensorInfo
from ckpt_tools.errors import CorruptFile, LimitExceeded, TruncatedFile, UnknownFormat
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.formats._safetensors_header import Entry, check, parsed


def packed(header, data=b"", *, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def opened(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    return open_checkpoint(path)


def test_tensors_in_header_order_with_metadata(tmp_path):
    header = {
        "__metadata__": {"format": "pt", "step": "7"},
        "b/w.0": entry("F32", [2, 1], 4, 12),
        "a": entry("BF16", [2], 0, 4),
        "scalar": entry("I8", [], 12, 13),
        "none": entry("F64", [0, 3], 13, 13),
    }
    data = bytes(range(13))
    with opened(tmp_path, packed(header, data)) as checkpoint:
        assert checkpoint.format == "safetensors"
        assert checkpoint.producer == "safetensors, format pt"
        assert [e.key for e in checkpoint] == [
            ("__metadata__", "format"),
            ("__metadata__", "step"),
            ("b/w.0",),
            ("a",),
            ("scalar",),
            ("none",),
        ]
        assert checkpoint.tensors["b/w.0"].tobytes() == data[4:12]
        assert checkpoint.tensors["a"].info == TensorInfo(BY_NAME["bfloat16"], (2,))
        assert checkpoint.tensors["scalar"].tobytes() == data[12:]
        assert checkpoint.tensors["none"].tobytes() == b""
        assert checkpoint.sources[0].nbytes_read == 8 + len(json.dumps(header)) + 8 + 1


def test_no_tensor_at_all_is_sound(tmp_path):
    assert not opened(tmp_path, packed({})).tensors
    assert not opened(tmp_path, packed({"__metadata__": None})).tensors
    assert not opened(tmp_path, packed(b"{}      ")).tensors


@pytest.mark.parametrize(("dtype", "shape", "nbytes"), [("F4", [8], 4), ("F6_E2M3", [4], 3), ("F6_E3M2", [2, 4], 6)])
def test_types_below_a_byte(tmp_path, dtype, shape, nbytes):
    checkpoint = opened(tmp_path, packed({"x": entry(dtype, shape, 0, nbytes)}, bytes(range(nbytes))))
    assert checkpoint.tensors["x"].nbytes == nbytes
    assert checkpoint.tensors["x"].tobytes() == bytes(range(nbytes))


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        (b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":{}}', 1, "gives 'a' twice"),
        (b'{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', 1, "gives 'dtype' twice"),
        ({"a": entry("U8", [1], 1, 2)}, 2, "a hole before tensor 'a'"),
        ({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, 3, "an overlap before tensor 'b'"),
        ({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 0, 2)}, 2, "an overlap before tensor 'b'"),
        ({"a": entry("F32", [2], 0, 4)}, 4, "needs 8 bytes"),
        ({"a": entry("U8", [2], 2, 0)}, 2, "needs 2 bytes"),
        ({"a": entry("U8", [1], 0, 1)}, 2, "1 bytes follow"),
        ({"a": entry("U4", [1], 0, 1)}, 1, "dtype 'U4'"),
        ({"a": entry("f32", [1], 0, 4)}, 4, "dtype 'f32'"),
        ({"a": entry(["F32"], [1], 0, 4)}, 4, "does not know"),
        ({"a": entry("F4", [3], 0, 2)}, 2, "whole byte"),
        ({"a": entry("F64", [2**61], 0, 8)}, 8, "too large"),
        ({"a": entry("U8", [2**64], 0, 8)}, 8, "no list of whole numbers"),
        ({"a": entry("U8", [-1], 0, 1)}, 1, "no list of whole numbers"),
        ({"a": entry("U8", [1.0], 0, 1)}, 1, "no list of whole numbers"),
        ({"a": entry("U8", [True], 0, 1)}, 1, "no list of whole numbers"),
        ({"a": entry("U8", "1", 0, 1)}, 1, "no list of whole numbers"),
        ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0]}}, 1, "not two whole numbers"),
        ({"a": {"dtype": "U8", "shape": [1]}}, 1, "not two whole numbers"),
        ({"a": [1]}, 0, "no mapping"),
        ({"__metadata__": {"x": 1}}, 0, "not a mapping from text to text"),
        ({"__metadata__": ["x"]}, 0, "not a mapping from text to text"),
        (b'{"a":NaN}', 0, "not JSON"),
        (b'{"a":', 0, "not JSON"),
        (b'{"\xff":1}', 0, "UnicodeDecodeError"),
        (b'{"a":' + b"[" * 100_000, 0, "damaged"),
        (b'{"a":{"dtype":"U8","shape":[' + b"9" * 9999 + b'],"data_offsets":[0,1]}}', 1, "damaged"),
    ],
)
def test_unsound_files_are_refused(tmp_path, header, data, words):
    with pytest.raises(CorruptFile, match=words):
        opened(tmp_path, packed(header, bytes(data)))


def test_a_file_cut_short(tmp_path):
    whole = packed({"a": entry("F32", [4], 0, 16)}, bytes(16))
    for length in range(11, len(whole)):
        with pytest.raises(TruncatedFile):
            opened(tmp_path, whole[:length])
    with pytest.raises(UnknownFormat):
        opened(tmp_path, whole[:7])


def test_limits(tmp_path):
    with pytest.raises(LimitExceeded, match="header of 100000001 bytes"):
        opened(tmp_path, packed(b'{"a":1}', length=100_000_001))
    with pytest.raises(LimitExceeded, match="65 dimensions"):
        opened(tmp_path, packed({"a": entry("U8", [1] * 65, 0, 1)}, b"x"))


def test_text_is_not_taken_for_it(tmp_path):
    with pytest.raises(UnknownFormat):
        opened(tmp_path, b'{"data":{"weights": 1}}\n')


def test_the_judge_serves_writers_too():
    info = TensorInfo(BY_NAME["int16"], (3,))
    check([Entry("b", info, 6, 12), Entry("a", info, 0, 6)], 12)
    with pytest.raises(CorruptFile):
        check([Entry("a", info, 0, 6)], 12)
    assert parsed(b'{"__metadata__":{"a":"b"}}').metadata == {"a": "b"}
