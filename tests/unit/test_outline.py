"""What goes beside flat tensors comes back as the same tree, and what was tampered with is not believed."""

from __future__ import annotations

import json
from typing import Any

import numpy
import pytest

from ckpt_tools.core.dtypes import BY_NAME
from ckpt_tools.core.extents import MemoryExtent
from ckpt_tools.core.tensors import NumpyArray, Storage, StridedTensor, Tensor, TensorInfo
from ckpt_tools.core.tree import Dict, NumpyScalar, SetNode
from ckpt_tools.errors import CkptError, CorruptFile, WriteRefused
from ckpt_tools.formats import _values

PLACES = (int, float, bool, str)


def tensor(alias: str | None = None, kind: type[StridedTensor] = StridedTensor) -> StridedTensor:
    return kind(TensorInfo(BY_NAME["float32"], (1,)), Storage(MemoryExtent(bytes(4))), alias=alias)


def there_and_back(root: Any, places: tuple[type, ...] = PLACES) -> Any:
    flat = _values.flatten(root, places)
    assert flat.outline is not None
    values = dict(flat.values)
    return _values.restored(flat.outline, dict(flat.tensors), lambda name, kind: values[name], values)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, type(one)) and one.alias == other.alias
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return (
            list(one) == list(other)
            and [type(k) for k in one] == [type(k) for k in other]
            and one.type_name == other.type_name
            and all(same(one[k], other[k]) for k in one)
            and (one.attributes is None) == (other.attributes is None)
        )
    if isinstance(one, (list, tuple)) and not isinstance(one, NumpyScalar):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


def tree() -> Dict:
    versions = Dict({"_metadata": Dict({"": Dict({"version": 1})}, type_name="collections.OrderedDict")})
    state = Dict({"0.weight": tensor("linear_0.w_0"), "0.bias": tensor()}, type_name="collections.OrderedDict")
    state.attributes = versions
    return Dict(
        {
            "model": state,
            "epoch": 3,
            "rate": 0.1,
            "best": float("inf"),
            "done": False,
            "text": "ü \x00 \ud800",
            "none": None,
            "bytes": b"\xff\x00",
            "big": 2**80,
            "complex": complex(1, float("inf")),
            "numpy": NumpyScalar(BY_NAME["float32"], 0.5, b"\0\0\0?"),
            "list": [1, [], (), Dict(), [tensor()]],
            "tuple": (tensor(), "x"),
            "set": SetNode([1, 2]),
            "frozen": SetNode(["a"], type_name="frozenset"),
            "array": tensor(kind=NumpyArray),
            "defaults": Dict({"a": 1}, type_name="collections.defaultdict"),
            3: tensor(),
            (1, "x"): tensor(),
            None: 1,
            2.5: tensor(),
        }
    )


@pytest.mark.parametrize("places", [PLACES, ()])
def test_a_tree_comes_back(places: tuple[type, ...]) -> None:
    assert same(tree(), there_and_back(tree(), places))


@pytest.mark.parametrize("root", [tensor(), 5, "x", [tensor()], (), Dict(type_name="collections.Counter")], ids=repr)
def test_roots_of_any_kind(root: Any) -> None:
    flat = _values.flatten(root, PLACES)
    if flat.outline is None:
        assert flat.tensors == []
    else:
        assert same(root, there_and_back(root))


def test_a_flat_mapping_of_tensors_needs_none() -> None:
    assert _values.flatten(Dict({"a": tensor(), "b/c": tensor("b/c")}), PLACES).outline is None


def test_colliding_names_are_told() -> None:
    with pytest.raises(WriteRefused, match=r'"a"/0 and "a"/"0" would both be a/0'):
        _values.flatten(Dict({"a": Dict({0: tensor(), "0": tensor()})}), PLACES)


@pytest.mark.parametrize(
    ("key", "words"),
    [("ckpt.tree", "reserved"), ("x\ud800y", "cannot be written as UTF-8")],
)
def test_names_that_cannot_be(key: str, words: str) -> None:
    with pytest.raises(WriteRefused, match=words):
        _values.flatten(Dict({key: tensor()}), PLACES)


def test_a_value_whose_name_is_no_text_stands_in_the_outline() -> None:
    root = Dict({"a": tensor(), "k": Dict({"x\udcff": 1, ((1, "y"),): "z"})})
    flat = _values.flatten(root, PLACES)
    assert [name for name, _ in flat.values] == ["k/((1, 'y'),)"]
    assert same(root, there_and_back(root))


@pytest.mark.parametrize("inner", [lambda deep: Dict({"n": deep}), lambda deep: [deep], lambda deep: Dict({1: deep})])
def test_what_is_written_nests_no_deeper_than_what_is_read(inner: Any) -> None:
    root = tensor()
    for _ in range(200):
        root = inner(root)
    assert same(root, there_and_back(root))
    for wrapped in (inner(root), Dict({((((1,),),),): root})):
        with pytest.raises(WriteRefused, match="nest deeper than 200"):
            _values.flatten(wrapped, PLACES)


def test_types_that_a_format_has_no_word_for() -> None:
    half = StridedTensor(TensorInfo(BY_NAME["bfloat16"], (2,)), Storage(MemoryExtent(bytes(4))))
    flat = _values.flatten(Dict({"h": half}), (), lambda dtype: dtype.numpy_spec is not None)
    assert flat.outline is not None
    raw = StridedTensor(TensorInfo(BY_NAME["uint16"], (2,)), half.storage)
    back = _values.restored(flat.outline, {"h": raw}, lambda name, kind: None)
    assert back["h"].info == half.info
    with pytest.raises(CorruptFile):
        _values.restored(flat.outline, {"h": tensor()}, lambda name, kind: None)


def outline(root: Any) -> str:
    return json.dumps({"version": 1, "root": root})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"version": 2, "root": "t"}',
        outline("x"),
        outline("t"),  # names a tensor that is not there
        outline({"dict": []}),  # does not mention the tensor
        outline({"dict": [["w", "t"], ["w", "t"]]}),
        outline({"dict": [["w", "t"], ["w", {"none": 0}]]}),
        outline({"dict": [[{"list": []}, "t"]]}),
        outline({"dict": [["w"]]}),
        outline({"dict": {"w": "t"}}),
        outline({"dict": [["w", {"t": 3}]]}),
        outline({"dict": [["w", {"t": None, "dtype": "float64"}]]}),
        outline({"dict": [["w", {"t": None, "dtype": []}]]}),
        outline({"dict": [["w", "t"], ["v", "i"]]}),
        outline({"dict": [["w", "t"], ["v", {"int": "zz"}]]}),
        outline({"dict": [["w", "t"], ["v", {"int": 5}]]}),
        outline({"dict": [["w", "t"], ["v", {"bytes": "!"}]]}),
        outline({"dict": [["w", "t"], ["v", {"numpy": ["float32", "AA=="]}]]}),
        outline({"dict": [["w", "t"], ["v", {"numpy": 3}]]}),
        outline({"dict": [["w", "t"], ["v", {"complex": ["1"]}]]}),
        outline({"dict": [["w", "t"], ["v", {}]]}),
        outline({"dict": [["w", "t"], ["v", 5]]}),
        '{"version": 1, "root": ' + '{"list": [' * 500 + "]}" * 500 + "}",
        '{"version": 1, "root": ' + "[" * 200_000,
    ],
    ids=lambda text: text[:60],
)
def test_what_does_not_fit_is_not_used(text: str) -> None:
    def value(name: str, kind: type) -> Any:
        raise CorruptFile(f"no value {name}")

    with pytest.raises(CkptError):
        _values.restored(text, {"w": tensor()}, value)
    root, issues = _values.outlined(text, {"w": tensor()}, value, (), "file")
    assert root is None
    assert [issue.code for issue in issues] == ["integrity-outline"]


def test_values_in_the_place_of_others() -> None:
    array = numpy.array(7, "<i8")
    seven = StridedTensor(TensorInfo(BY_NAME["int64"], ()), Storage(MemoryExtent(array.tobytes())))
    assert _values.stored_scalar(seven, int) == 7
    with pytest.raises(CorruptFile):
        _values.stored_scalar(seven, float)
    with pytest.raises(CorruptFile):
        _values.stored_scalar(tensor(), int)
