"""Layers of Keras' containers by their order, which a live model or its spec knows."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import keras
import numpy as np
import pytest
import torch
from keras import layers
from torch import nn
from translation import models_keras, models_torch
from translation.converting import described, model_of, translate

from ckpt_tools.errors import WriteRefused
from ckpt_tools.formats import open_checkpoint
from ckpt_tools.ops.comparands import from_checkpoint

BATCH = np.random.default_rng(7).standard_normal((2, 5, 5, 4)).astype("f4")


def postnet() -> tuple[nn.Module, keras.Model]:
    """Layers of two kinds in turn, square, one without weights between; counted in another order than used."""
    keras.backend.clear_session()
    net = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4, eps=1e-3), nn.Tanh(),
        nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4, eps=1e-3),
    )  # fmt: skip
    last, first = (layers.Conv2D(4, 3, padding="same") for _ in range(2))
    norms = [layers.BatchNormalization() for _ in range(2)]
    other = keras.Sequential(
        [keras.Input((5, 5, 4)), first, norms[0], layers.Activation("tanh"), last, norms[1]], name="postnet"
    )
    models_torch.randomize(net, seed=1)
    models_keras.randomize(other, seed=2)
    return net, other


def wrapped(net: nn.Module, other: keras.Model) -> tuple[nn.Module, keras.Model]:
    class Keras(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.postnet = other

        def call(self, x):  # type: ignore[no-untyped-def]
            return self.postnet(x)

    outer, around = nn.Sequential(), Keras()
    outer.add_module("postnet", net)
    around(BATCH)
    return outer, around


def check_both(net: nn.Module, other: keras.Model) -> None:
    """Assert that both compute the same."""
    net.eval()
    expected = net(torch.tensor(BATCH.transpose(0, 3, 1, 2))).detach().numpy().transpose(0, 2, 3, 1)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(other(BATCH)), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize("to_keras", [True, False])
def test_sequentials_of_several_kinds(is_inside: bool, to_keras: bool, tmp_path: Path) -> None:
    net, other = wrapped(*postnet()) if is_inside else postnet()
    if to_keras:
        ours: ModuleType = models_torch
        theirs: ModuleType = models_keras
        source, target = net, other
    else:
        ours, theirs, source, target = models_keras, models_torch, other, net
    path, result = tmp_path / f"source{ours.SUFFIX}", tmp_path / f"target{theirs.SUFFIX}"
    ours.save(source, path)
    translate(path, result, theirs.FAMILY, [model_of(target), model_of(source, "source")])
    theirs.load(target, result)
    check_both(net, other)


def chain(*, is_sequential: bool) -> keras.Model:
    """Two square layers, made in another order than used."""
    keras.backend.clear_session()
    last, first = layers.Dense(4), layers.Dense(4)
    if is_sequential:
        return keras.Sequential([keras.Input((4,)), first, last])
    inputs = keras.Input((4,))
    return keras.Model(inputs, last(first(inputs)))


def test_a_sequential_is_in_the_order_of_its_layers(tmp_path: Path) -> None:
    model, net = chain(is_sequential=True), nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    models_torch.save(net, tmp_path / "source.pth")
    translate(tmp_path / "source.pth", tmp_path / "target.weights.h5", "keras", [model_of(model)])
    model.load_weights(tmp_path / "target.weights.h5")
    for layer, linear in zip(model.layers, (net[0], net[2])):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer.kernel), linear.weight.detach().numpy().T)


def test_counts_against_the_order_of_a_functional_model_are_refused(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    models_torch.save(net, tmp_path / "source.pth")
    like = model_of(chain(is_sequential=False))
    with pytest.raises(WriteRefused, match=r"agree|attributes say nothing"):
        translate(tmp_path / "source.pth", tmp_path / "target.weights.h5", "keras", [like])


def test_positions_in_containers() -> None:
    keras.backend.clear_session()
    inner = keras.Sequential([keras.Input((4,)), layers.ReLU(), layers.Dense(4)], name="inner")
    inputs = keras.Input((4,))
    names = [tensor.other_names for tensor in described(keras.Model(inputs, inner(inputs))).tensors]
    assert [each["position"] for each in names] == ["(1)/1/kernel", "(1)/1/bias"]


@pytest.mark.parametrize("is_source", [True, False])
def test_counts_against_the_order_of_a_file_are_refused(is_source: bool, tmp_path: Path) -> None:
    """Files of Keras 2 list layers in the order of the model."""
    chain(is_sequential=True).save(tmp_path / "keras.h5")
    models_torch.save(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), tmp_path / "torch.pth")
    paths, family = [tmp_path / "keras.h5", tmp_path / "torch.pth"], "torch"
    if not is_source:
        paths, family = paths[::-1], "keras"
    kinds = [] if is_source else [("*.weight", "linear")]
    with open_checkpoint(paths[1]) as like, pytest.raises(WriteRefused, match="attributes say nothing of it"):
        translate(paths[0], tmp_path / f"result{paths[1].suffix}", family, [from_checkpoint(like)], kinds)


def test_attributes_that_look_counted_are_not(tmp_path: Path) -> None:
    class Counted(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.dense_1 = layers.Dense(4), layers.Dense(4)

        def call(self, x):  # type: ignore[no-untyped-def]
            return self.dense(self.dense_1(x))

    keras.backend.clear_session()
    model = Counted()
    model(np.zeros((1, 4), "f4"))
    models_keras.save(model, tmp_path / "source.weights.h5")
    with pytest.raises(WriteRefused, match="attributes say nothing of it"):
        like = model_of(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
        translate(tmp_path / "source.weights.h5", tmp_path / "target.pth", "torch", [like])
