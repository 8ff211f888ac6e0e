"""Whole models from each framework to each other: random weights in, equal outputs out."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from translation import models_keras, models_paddle, models_torch
from translation.converting import described, model_of, translate

from ckpt_tools.mapping.rule_files import parse_rule_file, rules_text
from ckpt_tools.ops.comparands import from_document
from ckpt_tools.ops.spec import spec_of

TWINS: dict[str, ModuleType] = {"torch": models_torch, "paddle": models_paddle, "keras": models_keras}


def batch_for(name: str) -> np.ndarray:
    generator = np.random.default_rng(3)
    if name in ("transformer", "fastspeech"):
        return generator.integers(0, 8, (2, 6))
    return generator.standard_normal({"crnn": (2, 1, 5, 8), "resnet": (1, 3, 5, 4)}[name]).astype("f4")


@pytest.mark.parametrize("name", models_torch.MODELS)
@pytest.mark.parametrize(("source", "target"), list(permutations(TWINS, 2)))
def test_a_model_computes_the_same_after_conversion(name: str, source: str, target: str, tmp_path: Path) -> None:
    ours, theirs = TWINS[source], TWINS[target]
    net, other = ours.MODELS[name](), theirs.MODELS[name]()
    ours.randomize(net, seed=1)
    theirs.randomize(other, seed=2)
    ours.save(net, tmp_path / f"source{ours.SUFFIX}")
    like = from_document(spec_of(described(other)), "other.spec.json")
    conversion = translate(
        tmp_path / f"source{ours.SUFFIX}", tmp_path / f"target{theirs.SUFFIX}", target, [like, model_of(net, "source")]
    )
    theirs.load(other, tmp_path / f"target{theirs.SUFFIX}")
    batch = batch_for(name)
    np.testing.assert_allclose(theirs.run(other, batch), ours.run(net, batch), rtol=2e-4, atol=2e-5)
    mapping = conversion.mapping
    assert parse_rule_file(rules_text(mapping.rules, "", mapping.recipes), "map.toml") == mapping
