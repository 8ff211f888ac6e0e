"""Keras models of the user's own classes: attributes are names, whatever Keras calls layers and groups."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import keras
import numpy as np
import pytest
import torch
from torch import nn
from translation import models_keras, models_torch
from translation.converting import described, model_of, translate

from ckpt_tools.errors import WriteRefused


class TorchNet(nn.Module):
    """Square layers, called one after the other in the order of their names."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.order = sorted(names)
        for name in names:
            self.add_module(name, nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.order:
            x = torch.tanh(self.get_submodule(name)(x))
        return x


class KerasNet(keras.Model):
    """The same. Keras counts layers as they are made; groups of attributes after ``layers`` are called as it counts."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.order = sorted(names)
        for name in names:
            setattr(self, name, keras.layers.Dense(4))

    def call(self, x):  # type: ignore[no-untyped-def]
        for name in self.order:
            x = keras.ops.tanh(getattr(self, name)(x))
        return x


def pair_of(*names: str) -> tuple[nn.Module, keras.Model]:
    keras.backend.clear_session()  # so that it counts from the beginning
    net, other = TorchNet(*sorted(names)), KerasNet(*names)
    other(np.zeros((1, 4), "f4"))
    models_torch.randomize(net, seed=1)
    models_keras.randomize(other, seed=2)
    return net, other


def outputs(ours: ModuleType, net: object, theirs: ModuleType, other: object) -> tuple[np.ndarray, np.ndarray]:
    batch = np.random.default_rng(3).standard_normal((2, 4)).astype("f4")
    return theirs.run(other, batch), ours.run(net, batch)


@pytest.mark.parametrize("names", [("fc1", "fc0"), ("out1", "out0"), ("out2", "out1"), ("proj", "norm")])
@pytest.mark.parametrize("to_keras", [True, False])
def test_layers_are_told_by_attributes_not_by_counting(names: tuple[str, str], to_keras: bool, tmp_path: Path) -> None:
    net, other = pair_of(*names)
    ours, theirs = (models_torch, models_keras) if to_keras else (models_keras, models_torch)
    source, target = (net, other) if to_keras else (other, net)
    path, result = tmp_path / f"source{ours.SUFFIX}", tmp_path / f"target{theirs.SUFFIX}"
    ours.save(source, path)
    translate(path, result, theirs.FAMILY, [model_of(target), model_of(source, "source")])
    theirs.load(target, result)
    got, expected = outputs(ours, source, theirs, target)
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


def test_a_file_alone_does_not_tell_what_was_counted(tmp_path: Path) -> None:
    net, other = pair_of("out1", "out0")
    models_keras.save(other, tmp_path / "source.weights.h5")
    with pytest.raises(WriteRefused, match="no place for layers/dense"):
        translate(tmp_path / "source.weights.h5", tmp_path / "target.pth", "torch", [model_of(net)])


def test_attributes_that_speak_against_counting_are_a_conflict(tmp_path: Path) -> None:
    _, other = pair_of("out1", "out0")
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    models_torch.save(net, tmp_path / "source.pth")
    with pytest.raises(WriteRefused, match="do not agree"):
        translate(tmp_path / "source.pth", tmp_path / "target.weights.h5", "keras", [model_of(other)])


class Block(keras.layers.Layer):
    def __init__(self, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.norm = keras.layers.LayerNormalization()
        self.scale = self.add_weight(shape=(4,), name="scale")
        self.heads = {"left": [keras.layers.Dense(4)], "right": keras.layers.MultiHeadAttention(2, 2)}

    def call(self, x):  # type: ignore[no-untyped-def]
        return self.heads["right"](self.heads["left"][0](self.norm(x) * self.scale), x)


def test_attributes_of_models_within_models() -> None:
    inputs = keras.Input((3, 4))
    model = keras.Model(inputs, keras.Sequential([Block(name="block")], name="stack")(inputs))
    names = {tensor.other_names.get("attribute", tensor.name) for tensor in described(model).tensors}
    assert names == {
        *(f"stack/block/{name}" for name in ("norm/gamma", "norm/beta", "scale")),
        *(f"stack/block/heads/left/0/{name}" for name in ("kernel", "bias")),
        *(
            f"stack/block/heads/right/{layer}/{name}"
            for layer in ("query", "key", "value", "attention_output")
            for name in ("kernel", "bias")
        ),
    }
