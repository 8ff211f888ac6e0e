"""Layouts of the frameworks, and which way two tensors lie."""

from __future__ import annotations

import numpy
import pytest

from ckpt_tools.mapping.kinds import LayerPart, canonical, family_of_names, from_paddle_variable, infer_parts
from ckpt_tools.mapping.layouts import between
from ckpt_tools.mapping.orientation import Pair, orient
from ckpt_tools.mapping.transforms import Blocks, Permute, describe, shape_after

LINEAR = LayerPart("linear", "weight")
EMBEDDING = LayerPart("embedding", "weight")


@pytest.mark.parametrize(
    ("source", "target", "layer", "shape", "steps", "reached"),
    [
        ("paddle", "torch", LINEAR, (2, 5), "permute(1, 0)", (5, 2)),
        ("torch", "paddle", LINEAR, (5, 2), "permute(1, 0)", (2, 5)),
        ("paddle", "keras", LINEAR, (2, 5), "", (2, 5)),
        ("paddle", "torch", EMBEDDING, (3, 3), "", (3, 3)),
        ("paddle", "torch", LayerPart("lstm", "weight_ih_l0"), (8, 2), "", (8, 2)),
        ("paddle", "torch", LayerPart("conv2d", "weight"), (4, 2, 3, 3), "", (4, 2, 3, 3)),
        ("keras", "torch", LayerPart("conv2d", "weight"), (3, 3, 2, 4), "permute(3, 2, 0, 1)", (4, 2, 3, 3)),
        ("torch", "keras", LayerPart("conv2d", "weight"), (4, 2, 3, 3), "permute(2, 3, 1, 0)", (3, 3, 2, 4)),
        ("keras", "torch", LayerPart("conv_transpose2d", "weight"), (2, 2, 5, 4), "permute(3, 2, 0, 1)", (4, 5, 2, 2)),
        (
            "keras",
            "torch",
            LayerPart("depthwise_conv2d", "weight"),
            (3, 3, 2, 1),
            "permute(2, 3, 0, 1)",
            (2, 1, 3, 3),
        ),
        ("keras", "torch", LayerPart("gru", "weight_ih_l0"), (2, 9), "permute(1, 0) then blocks(1, 0, 2)", (9, 2)),
        ("keras", "paddle", LayerPart("lstm", "weight_hh_l0"), (2, 8), "permute(1, 0)", (8, 2)),
    ],
)
def test_each_framework_lays_out_as_its_layers_do(
    source: str, target: str, layer: LayerPart, shape: tuple[int, ...], steps: str, reached: tuple[int, ...]
) -> None:
    found = between(source, target, layer, shape)
    assert found is not None
    assert describe(found) == steps
    assert shape_after(found, shape) == reached


def test_flattened_parts_are_reshaped_to_the_target() -> None:
    norm = LayerPart("layer_norm", "weight")
    assert describe(between("torch", "paddle", norm, (2, 3), (6,)) or ()) == "reshape(6)"
    gain = LayerPart("conv1d", "weight_g")
    assert describe(between("paddle", "torch", gain, (4,), (4, 1, 1)) or ()) == "reshape(4, 1, 1)"


def test_a_matrix_of_unknown_kind_has_no_layout() -> None:
    assert between("paddle", "torch", LayerPart("", "weight"), (3, 3)) is None


def test_transforms_do_to_arrays_what_they_do_to_shapes() -> None:
    array = numpy.arange(24).reshape(6, 4)
    moved = Blocks((2, 0, 1)).apply(array)
    assert moved.shape == Blocks((2, 0, 1)).shape_after(array.shape)
    assert moved[:2].tolist() == array[4:].tolist()
    assert Permute((1, 0)).apply(array).tolist() == array.T.tolist()


def one(pair: Pair, a: str | None = "paddle", b: str | None = "torch", look: object = None) -> tuple[str, bool, bool]:
    (found,) = orient([pair], a, b, look)
    return describe(found.steps), found.fits, found.ambiguous


def test_shapes_decide_where_they_can() -> None:
    assert one(Pair((2, 5), (5, 2))) == ("permute(1, 0)", True, False)
    assert one(Pair((2, 5), (2, 5))) == ("", True, False)
    assert one(Pair((2, 5), (5, 3))) == ("", False, False)
    assert one(Pair((2, 5), (5, 2)), "torch", "torch") == ("", False, False)


def test_a_square_needs_to_be_known_or_looked_at() -> None:
    assert one(Pair((3, 3), (3, 3))) == ("", True, True)
    assert one(Pair((3, 3), (3, 3), LINEAR)) == ("permute(1, 0)", True, False)
    assert one(Pair((3, 3), (3, 3), None, EMBEDDING)) == ("", True, False)
    assert one(Pair((3, 3), (3, 3)), look=lambda index, steps: True) == ("permute(1, 0)", True, False)
    assert one(Pair((3, 3), (3, 3), LINEAR), look=lambda index, steps: False) == ("", True, False)


def test_a_copy_in_another_container_keeps_its_squares() -> None:
    pairs = [Pair((2, 5), (2, 5), LINEAR), Pair((3, 3), (3, 3), LINEAR)]
    assert [describe(found.steps) for found in orient(pairs, "paddle", "torch")] == ["", ""]
    pairs.append(Pair((2, 5), (5, 2), LINEAR))
    assert [found.ambiguous for found in orient(pairs, "paddle", "torch")] == [False, True, False]


def test_paddle_variable_names_tell_kinds() -> None:
    assert from_paddle_variable("linear_0.w_0") == LINEAR
    assert from_paddle_variable("embedding_12.w_0") == EMBEDDING
    assert from_paddle_variable("conv2d_transpose_3.b_0") == LayerPart("conv_transpose2d", "bias")
    assert from_paddle_variable("batch_norm1d_0.w_2") == LayerPart("batch_norm", "running_var")
    assert from_paddle_variable("lstm_cell_0.b_1") == LayerPart("lstm_cell", "bias_hh")
    assert from_paddle_variable("my_layer_0.w_0") is None
    assert from_paddle_variable("weight") is None


def test_siblings_tell_kinds_and_a_lone_matrix_does_not() -> None:
    shapes = {
        "bn.weight": (3,),
        "bn.running_mean": (3,),
        "rnn.weight_ih_l0": (12, 4),
        "rnn.weight_hh_l0": (12, 3),
        "lstm/kernel": (4, 8),
        "lstm/recurrent_kernel": (2, 8),
        "conv.weight": (4, 2, 3),
        "fc.weight": (3, 3),
        "dense/kernel": (3, 3),
    }
    kinds = {name: layer.kind for name, layer in infer_parts(shapes).items()}
    assert kinds == {
        "bn.weight": "batch_norm",
        "bn.running_mean": "batch_norm",
        "rnn.weight_ih_l0": "lstm",
        "rnn.weight_hh_l0": "lstm",
        "lstm/kernel": "lstm",
        "lstm/recurrent_kernel": "lstm",
        "conv.weight": "conv1d",
        "dense/kernel": "linear",
    }


def test_the_framework_is_told_by_words_only_it_uses() -> None:
    assert family_of_names(["a.weight", "a.running_mean"]) == "torch"
    assert family_of_names(["a.weight", "a._mean"]) == "paddle"
    assert family_of_names(["a/kernel", "a/bias"]) == "keras"
    assert family_of_names(["block.gamma", "block.weight"]) is None
    assert family_of_names(["a._mean", "b.running_mean"]) is None


def test_canonical_names_leave_unknown_words_alone() -> None:
    assert canonical("a.b.parametrizations.weight.original") == ("a", "b", "parametrizations", "weight", "original")
    assert canonical("x") == ("x",)
