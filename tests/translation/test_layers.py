"""Every kind of layer, from each framework to each other: random weights in, equal outputs out."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from translation import twins_keras, twins_paddle, twins_torch
from translation.converting import model_of, translate

TWINS: dict[str, ModuleType] = {"torch": twins_torch, "paddle": twins_paddle, "keras": twins_keras}
#: The batch that each kind takes, channels first; the others take (2, 5, 4).
SHAPES = {
    "conv1d": (2, 4, 6),
    "conv2d": (2, 4, 6, 5),
    "square_conv2d": (2, 3, 6, 5),
    "grouped_conv2d": (2, 4, 6, 5),
    "conv3d": (2, 4, 4, 5, 6),
    "conv_transpose1d": (2, 4, 6),
    "conv_transpose2d": (2, 4, 3, 4),
    "conv_transpose3d": (2, 4, 2, 3, 2),
    "depthwise_conv1d": (2, 4, 6),
    "depthwise_conv2d": (2, 4, 5, 6),
    "single_depthwise_conv2d": (2, 3, 6, 5),
    "batch_norm": (2, 4, 3, 5),
    "group_norm": (2, 4, 3, 5),
    "instance_norm": (2, 4, 3, 5),
    "prelu": (2, 4, 3, 5),
    "weight_norm_conv2d": (2, 4, 6, 5),
    "weight_norm_conv_transpose1d": (2, 4, 6),
    **dict.fromkeys(("linear", "square_linear", "layer_norm", "weight_norm_linear", "bilinear"), (3, 4)),
}


def batch_for(kind: str) -> np.ndarray:
    generator = np.random.default_rng(7)
    if kind.endswith("embedding"):
        return generator.integers(0, 4, (2, 6))
    return generator.standard_normal(SHAPES.get(kind, (2, 5, 4))).astype("f4")


@pytest.mark.parametrize("kind", twins_torch.NETS)
@pytest.mark.parametrize(("source", "target"), list(permutations(TWINS, 2)))
def test_a_layer_computes_the_same_after_conversion(kind: str, source: str, target: str, tmp_path: Path) -> None:
    ours, theirs = TWINS[source], TWINS[target]
    if kind not in ours.NETS or kind not in theirs.NETS:
        pytest.skip(f"{source} or {target} has no {kind}")
    net, other = ours.NETS[kind](), theirs.NETS[kind]()
    ours.randomize(net, seed=1)
    theirs.randomize(other, seed=2)
    ours.save(net, tmp_path / f"source{ours.SUFFIX}")
    translate(tmp_path / f"source{ours.SUFFIX}", tmp_path / f"target{theirs.SUFFIX}", target, [model_of(other)])
    theirs.load(other, tmp_path / f"target{theirs.SUFFIX}")
    batch = batch_for(kind)
    np.testing.assert_allclose(theirs.run(other, batch), ours.run(net, batch), rtol=2e-4, atol=2e-5)
