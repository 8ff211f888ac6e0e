"""Weights under weight norm on either side, on both, or on neither, layer by layer."""

from __future__ import annotations

import numpy as np
from translation.reference import Arrays, cook

from ckpt_tools.mapping.kinds import LayerPart
from ckpt_tools.mapping.spellings import Certainty, Stored
from ckpt_tools.mapping.translation import Side, Translation, translate


def side(family: str, shapes: dict[str, tuple[int, ...]], kind: str = "conv1d") -> Side:
    certainty = Certainty.TOLD if kind else Certainty.NONE
    known = {name: LayerPart(kind, "") if kind else None for name in shapes}
    return Side(family, [Stored(name, shape, "", "", known[name], certainty, "m") for name, shape in shapes.items()])


def random(shapes: dict[str, tuple[int, ...]]) -> Arrays:
    generator = np.random.default_rng(5)
    return {name: generator.standard_normal(shape) for name, shape in shapes.items()}


def made(found: Translation, arrays: Arrays) -> Arrays:
    assert not (found.ambiguous or found.unplaced or found.unfilled or found.conflicts), found
    return {recipe.target: cook(recipe, arrays) for recipe in found.recipes}


def fused(arrays: Arrays, owner: str) -> np.ndarray:
    magnitudes, directions = arrays[f"{owner}weight_g"], arrays[f"{owner}weight_v"]
    return magnitudes.reshape(-1, 1, 1) * directions / np.sqrt((directions**2).sum((1, 2), keepdims=True))


def test_a_weight_of_another_name_is_taken_apart() -> None:
    ours = {"layers/sequential/conv/kernel": (5, 4, 3), "fc/kernel": (2, 4, 4)}
    theirs = {"postnet.0.weight_g": (3, 1, 1), "postnet.0.weight_v": (3, 4, 5), "fc.weight": (4, 4, 2)}
    arrays = random(ours)
    got = made(translate(side("keras", ours), "torch", side("torch", theirs)), arrays)
    kernel = arrays["layers/sequential/conv/kernel"].transpose(2, 1, 0)
    np.testing.assert_array_equal(got["postnet.0.weight_v"], kernel)
    np.testing.assert_allclose(fused(got, "postnet.0."), kernel)
    np.testing.assert_array_equal(got["fc.weight"], arrays["fc/kernel"].transpose(2, 1, 0))


def test_each_layer_is_given_as_the_target_has_it() -> None:
    ours = {"a.weight_g": (3, 1, 1), "a.weight_v": (3, 4, 5), "b.weight": (3, 4, 5)}
    ours |= {"c.weight_g": (3, 1, 1), "c.weight_v": (3, 4, 5)}
    theirs = {"a.weight": (3, 4, 5), "b.weight_g": (3,), "b.weight_v": (3, 4, 5)}
    theirs |= {"c.weight_g": (3,), "c.weight_v": (3, 4, 5)}
    arrays = random(ours)
    got = made(translate(side("torch", ours), "paddle", side("paddle", theirs)), arrays)
    np.testing.assert_allclose(got["a.weight"], fused(arrays, "a."))
    np.testing.assert_allclose(fused(got, "b."), arrays["b.weight"])
    np.testing.assert_array_equal(got["c.weight_g"], arrays["c.weight_g"].reshape(-1))
    np.testing.assert_array_equal(got["c.weight_v"], arrays["c.weight_v"])


def test_rows_of_an_unknown_layer_are_not_guessed() -> None:
    ours = {"fc.weight": (4, 4)}
    theirs = {"fc.weight_g": (4, 1), "fc.weight_v": (4, 4)}
    found = translate(side("paddle", ours, ""), "torch", side("torch", theirs, ""))
    assert found.ambiguous and found.unfilled == ["fc.weight_g"]


def test_magnitudes_alone_stay_what_they_are() -> None:
    ours, theirs = {"conv.weight_g": (3, 1, 1)}, {"conv.weight_g": (3,)}
    arrays = random(ours)
    got = made(translate(side("torch", ours), "paddle", side("paddle", theirs)), arrays)
    np.testing.assert_array_equal(got["conv.weight_g"], arrays["conv.weight_g"].reshape(-1))
