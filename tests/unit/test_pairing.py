"""Pairing by trees: what is found, and what is left because it would be a guess."""

from __future__ import annotations

from dataclasses import replace

from ckpt_tools.mapping.kinds import LayerPart
from ckpt_tools.mapping.pairing import Placed, pair
from ckpt_tools.mapping.spellings import Piece


def side(*names: str, **shapes: tuple[int, ...]) -> list[Placed]:
    """Tensors called ``path.part``; those called by a keyword have that shape."""
    found = []
    for index, name in enumerate(names):
        *path, part = name.split(".")
        shape = shapes.get(path[-1] if path else part, (4, 4))
        found.append(Placed(index, Piece(tuple(path), LayerPart("", part), shape, leaf=part), shape))
    return found


def paired(ours: list[Placed], theirs: list[Placed], *, by_structure: bool = True) -> dict[str, str]:
    pairs = pair(ours, theirs, by_structure=by_structure)
    return {theirs[at].piece.name: ours[match.ours].piece.name for at, match in pairs.items()}


def test_equal_names() -> None:
    assert paired(side("a.weight", "b.weight"), side("b.weight", "a.weight")) == {
        "a.weight": "a.weight",
        "b.weight": "b.weight",
    }


def test_names_around_everything() -> None:
    ours = side("state.module.a.weight", "state.module.b.weight", "step.bias")
    assert paired(ours, side("a.weight", "b.weight")) == {
        "a.weight": "state.module.a.weight",
        "b.weight": "state.module.b.weight",
    }
    assert paired(side("x.a.weight", "x.b.weight"), side("y.a.weight", "y.b.weight"))["y.b.weight"] == "x.b.weight"


def test_two_models_that_fit_are_not_chosen_from() -> None:
    ours = side("generator.a.weight", "generator.b.weight", "discriminator.a.weight", "discriminator.b.weight")
    assert paired(ours, side("a.weight", "b.weight")) == {}


def test_lists_by_their_numbers() -> None:
    ours = side("layers.block.fc.weight", "layers.block_1.fc.weight", "layers.block_2.fc.weight")
    theirs = side("layers.0.fc.weight", "layers.1.fc.weight", "layers.2.fc.weight")
    assert paired(ours, theirs)["layers.2.fc.weight"] == "layers.block_2.fc.weight"
    assert paired(ours, theirs, by_structure=False)["layers.0.fc.weight"] == "layers.block.fc.weight"


def test_other_numbers_are_no_order() -> None:
    assert paired(side("fc1.weight", "fc2.weight"), side("0.weight", "1.weight")) == {}


def test_words_before_numbers_are_no_coincidence() -> None:
    assert paired(side("fc0.weight", "fc1.weight"), side("dense.weight", "dense_1.weight")) == {}
    assert paired(side("fc0.weight", "fc1.weight"), side("0.weight", "1.weight"))["1.weight"] == "fc1.weight"
    ours, theirs = side("block.a.weight", "block_1.a.weight"), side("block0.a.weight", "block1.a.weight")
    assert paired(ours, theirs)["block1.a.weight"] == "block_1.a.weight"


def test_what_structure_decides() -> None:
    ours = side("a.weight", "b.weight", "c.weight", a=(2, 3), b=(5, 5), c=(5, 5))
    theirs = side("x.weight", "y.weight", "z.weight", x=(5, 5), y=(3, 2), z=(5, 5))
    assert paired(ours, theirs) == {"y.weight": "a.weight"}
    assert paired(ours, theirs, by_structure=False) == {}


def test_a_name_that_is_left_is_looked_for_near_by_first() -> None:
    ours = side("x.norm.weight", "x.extra.weight", "y.norm.weight", norm=(7,), extra=(4,))
    theirs = side("x.norm.weight", "x.other.weight", "y.norm.weight", norm=(7,), other=(4,))
    assert paired(ours, theirs)["x.other.weight"] == "x.extra.weight"


def test_a_name_around_all_of_a_place_is_passed_over() -> None:
    blocks = ("block.a.weight", "block.b.weight", "block_1.a.weight", "block_1.b.weight")
    ours = side("head.weight", *(f"encoder.{name}" for name in blocks))
    theirs = side("head.weight", *(f"encoder.layers.{i}.{part}.weight" for i in range(2) for part in "ab"))
    assert paired(ours, theirs)["encoder.layers.1.b.weight"] == "encoder.block_1.b.weight"
    assert paired(theirs, ours)["encoder.block.a.weight"] == "encoder.layers.0.a.weight"
    assert paired(ours, theirs, by_structure=False) == {"head.weight": "head.weight"}


def test_a_place_that_holds_something_else_keeps_its_names() -> None:
    ours = side("head.weight", "encoder.a.weight", "encoder.b.weight")
    theirs = side("head.weight", "encoder.inner.a.weight", "encoder.inner.b.weight", "encoder.inner.c.weight")
    assert paired(ours, theirs) == {"head.weight": "head.weight"}
    theirs = side("head.weight", "encoder.inner.a.weight", "encoder.inner.b.bias")
    assert "encoder.inner.a.weight" not in paired(ours, theirs)
    theirs = side("head.weight", "encoder.inner.a.weight", "encoder.inner.b.weight", "encoder.other.weight")
    assert paired(ours, theirs) == {"head.weight": "head.weight"}


def said(ours: list[Placed], theirs: list[Placed]) -> set[str]:
    return {how.said for match in pair(ours, theirs).values() for how in match.how}


def test_lists_with_other_numbers_are_paired_in_order_which_is_said() -> None:
    ours, theirs = side("net.0.weight", "net.2.weight", "net.4.weight"), side(*(f"net.{i}.weight" for i in range(3)))
    assert paired(ours, theirs) == {
        "net.0.weight": "net.0.weight",
        "net.1.weight": "net.2.weight",
        "net.2.weight": "net.4.weight",
    }
    assert said(ours, theirs) == {"paired in order: net.0, net.2, net.4 -> net.0, net.1, net.2"}
    assert paired(ours, theirs, by_structure=False) == {}
    assert paired(side("l.1.weight", "l.2.weight"), side("l.0.weight", "l.1.weight"))["l.1.weight"] == "l.2.weight"
    counted = side("net.dense.weight", "net.dense_1.weight", "net.dense_2.weight")
    assert paired(ours, counted)["net.dense_1.weight"] == "net.2.weight"
    assert said(ours, theirs) and said(theirs, counted)  # that Keras counts is no name that a user gave


def test_other_structure_or_length_is_no_order() -> None:
    theirs = side("net.0.weight", "net.1.weight", "net.1.bias")
    assert paired(side("net.0.weight", "net.2.weight"), theirs) == {}
    assert paired(side("net.0.weight", "net.2.weight", "net.2.bias", "net.4.weight"), theirs) == {}
    two = side(*(f"{name}.weight" for name in ("block", "block_1", "dense", "dense_1")))
    assert paired(two, side("0.weight", "2.weight")) == {}


def test_members_of_lists_are_nothing_else() -> None:
    ours = side("l.0.weight", "l.1.weight", "l.2.weight", "y.bias")
    theirs = side("l.0.weight", "l.1.weight", "x.weight", "z.bias")
    assert paired(ours, theirs) == {"l.0.weight": "l.0.weight", "l.1.weight": "l.1.weight", "z.bias": "y.bias"}
    ours, theirs = side("l.0.a.weight", "l.1.a.weight"), side("l.0.a.weight", "l.1.b.weight", "l.1.c.weight")
    assert "l.1.c.weight" not in paired(ours, theirs)
    ours = side("l.0.a.weight", "l.0.x.weight", "l.1.a.weight", "y.weight")
    theirs = side("l.0.a.weight", "l.1.a.weight", "l.1.x.weight", "y.weight")
    assert "l.1.x.weight" not in paired(ours, theirs)


def test_tensors_of_a_numbered_series_too() -> None:
    ours, theirs = side("w1", "w2", "scale"), side("w0", "w1", "scale")
    assert paired(ours, theirs) == {"scale": "scale"}


def test_parts_of_a_layer_are_not_those_of_another() -> None:
    ours = side("a.weight", "z.bias", "e.0.weight")
    assert paired(ours, side("a.weight", "a.bias", "e.0.weight")) == {
        "a.weight": "a.weight",
        "e.0.weight": "e.0.weight",
    }


def test_what_is_paired_by_structure_is_said() -> None:
    ours, theirs = side("a.weight", "other.weight", "other.bias"), side("a.weight", "extra.weight", "extra.bias")
    assert said(ours, theirs) == {"paired by structure: other -> extra"}
    assert said(ours, ours) == set()
    ours, theirs = ([Placed(0, Piece(("x",), LayerPart("", ""), (4,), leaf=leaf), (4,))] for leaf in ("scale", "gain"))
    assert said(ours, theirs) == {"paired by structure: x.scale -> x.gain"}


def unnamed(*names: str) -> list[Placed]:
    """Variables that only have a position; the first of a layer is a matrix, the others are vectors."""
    shapes = [(4, 4) if name.endswith(".0") else (4,) for name in names]
    return [
        Placed(index, Piece(tuple(name.split(".")[:-1]), LayerPart("", ""), shape, leaf=name.split(".")[-1]), shape)
        for index, (name, shape) in enumerate(zip(names, shapes))
    ]


def test_lists_of_layers_whose_variables_have_no_names() -> None:
    ours = unnamed(*(f"blocks.{block}.a.{at}" for block in ("kb", "kb_1") for at in range(2)))
    names = [f"blocks.{block}.a.{part}" for block in range(2) for part in ("weight", "bias")]
    theirs = [replace(each, shape=shape) for each, shape in zip(side(*names), [(4, 4), (4,)] * 2)]
    assert paired(ours, theirs)["blocks.1.a.bias"] == "blocks.kb_1.a.1"
    assert said(ours, theirs) == {"paired in order: blocks.kb, blocks.kb_1 -> blocks.0, blocks.1"}
    norms = unnamed("blocks.kb.a.1", "blocks.kb.a.2", "blocks.kb_1.a.1", "blocks.kb_1.a.2")
    vectors = [replace(each, shape=(4,)) for each in theirs]
    assert paired(norms, vectors) == {}


def test_axes_of_one_are_no_difference_within_a_layer() -> None:
    ours = [replace(unnamed("act.0")[0], shape=(1, 1, 4))]
    assert paired(ours, side("act.weight", act=(4,))) == {"act.weight": "act.0"}
    ours += [replace(each, index=1) for each in side("fc.weight")]
    assert paired(ours, side("other.weight", "fc.weight", other=(4,))) == {"fc.weight": "fc.weight"}


def test_letters_may_be_shifted_as_numbers_may() -> None:
    ours, theirs = side("net.a.weight", "net.b.weight"), side("net.b.weight", "net.c.weight")
    assert paired(ours, theirs) == {"net.b.weight": "net.b.weight"}
    ours, theirs = side("net.a", "net.b"), side("net.b", "net.c")
    assert paired(ours, theirs) == {"net.b": "net.b"}


def test_other_shapes_beside_it_are_no_shift() -> None:
    ours = side("a.weight", "b.weight", "x.d.weight", a=(3, 4))
    theirs = side("b.weight", "c.weight", "x.d.weight", c=(3, 4))
    assert paired(ours, theirs)["c.weight"] == "a.weight"
    ours, theirs = (side(name, "x.d.weight", "x.e.weight") for name in ("a.weight", "c.weight"))
    assert paired(ours, theirs)["c.weight"] == "a.weight"
