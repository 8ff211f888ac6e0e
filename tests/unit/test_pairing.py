"""Pairing by trees: what is found, and what is left because it would be a guess."""

from __future__ import annotations

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
    return {theirs[at].piece.name: ours[other].piece.name for at, other in pairs.items()}


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
