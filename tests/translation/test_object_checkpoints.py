"""``tf.train.Checkpoint`` of Keras models: objects tell layers apart where Keras' names for variables do not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch
from keras import layers
from torch import nn
from translation import models_keras
from translation.converting import model_of, translate

from ckpt_tools.errors import WriteRefused
from ckpt_tools.ops.comparands import Comparand

Truth = Mapping[str, object]


def saved(model: keras.Model, path: Path, *, with_optimizer: bool = False) -> Path:
    """The checkpoint, with other values than those that layers begin with."""
    models_keras.randomize(model, seed=4)
    parts = {"model": model}
    if with_optimizer:
        parts["optimizer"] = keras.optimizers.Adam()
        parts["optimizer"].build(model.trainable_variables)
    tf.train.Checkpoint(**parts).write(str(path / "ckpt-1"))
    return path / "ckpt-1"


def torch_from(source: Path, *likes: Comparand) -> dict[str, np.ndarray]:
    translate(source, source.parent / "result.pth", "torch", likes)
    return {name: tensor.numpy() for name, tensor in torch.load(source.parent / "result.pth").items()}


def check(found: Mapping[str, np.ndarray], truth: Truth) -> None:
    for name, variable in truth.items():
        value = keras.ops.convert_to_numpy(variable)
        is_kernel = value.ndim > 1 and not name.startswith("emb")
        np.testing.assert_array_equal(found[name], np.moveaxis(value, (-1, -2), (0, 1)) if is_kernel else value)


class Norms(keras.Model):
    """Keras calls all variables ``norms/…``: one of each name."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.norm = layers.Embedding(6, 8), layers.LayerNormalization()
        self.plain = layers.BatchNormalization(center=False, scale=False)
        self.out = layers.Dense(3)

    def call(self, x):  # type: ignore[no-untyped-def]
        return self.out(self.plain(self.norm(self.emb(x))))


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_layers_that_keras_calls_one_stay_apart(with_optimizer: bool, tmp_path: Path) -> None:
    model = Norms()
    model(np.zeros((1, 2), "int32"))
    found = torch_from(saved(model, tmp_path, with_optimizer=with_optimizer))
    check(
        {name.removeprefix("model."): value for name, value in found.items()},
        {
            "emb.weight": model.emb.embeddings,
            "norm.weight": model.norm.gamma,
            "norm.bias": model.norm.beta,
            "plain.running_mean": model.plain.moving_mean,
            "plain.running_var": model.plain.moving_variance,
            "out.weight": model.out.kernel,
            "out.bias": model.out.bias,
        },
    )


def test_layers_without_a_place_are_named(tmp_path: Path) -> None:
    model = Norms()
    model(np.zeros((1, 2), "int32"))
    with pytest.raises(WriteRefused, match=r"no place for model/emb/_embeddings/.*, model/norm/beta/"):
        torch_from(saved(model, tmp_path), model_of(nn.ModuleDict({"out": nn.Linear(8, 3)})))


class Block(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv = layers.Conv2D(4, 3, padding="same")
        self.bn = layers.BatchNormalization()
        self.widen = keras.Sequential([layers.Conv2D(4, 1, use_bias=False), layers.BatchNormalization()])

    def call(self, x):  # type: ignore[no-untyped-def]
        return self.bn(self.conv(x)) + self.widen(x)


class Residual(keras.Model):
    """Square throughout, so that names alone tell what is what."""

    def __init__(self) -> None:
        super().__init__()
        self.stage1 = keras.Sequential([Block(), Block()])
        self.stage0 = keras.Sequential([Block(), Block()])
        self.hid, self.fc = layers.Dense(4), layers.Dense(4)

    def call(self, x):  # type: ignore[no-untyped-def]
        return self.fc(self.hid(keras.ops.mean(self.stage1(self.stage0(x)), (1, 2))))


def torch_block() -> nn.Module:
    widen = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4))
    return nn.ModuleDict({"conv": nn.Conv2d(4, 4, 3), "bn": nn.BatchNorm2d(4), "widen": widen})


def torch_residual() -> nn.Module:
    stages = {f"stage{index}": nn.Sequential(torch_block(), torch_block()) for index in range(2)}
    return nn.ModuleDict({**stages, "hid": nn.Linear(4, 4), "fc": nn.Linear(4, 4)})


@pytest.mark.parametrize("with_optimizer", [True, False])
@pytest.mark.parametrize("knows", [True, False])
def test_attributes_are_names(with_optimizer: bool, knows: bool, tmp_path: Path) -> None:
    model = Residual()
    model(np.zeros((1, 5, 5, 4), "f4"))
    likes = [model_of(torch_residual()), *([model_of(model, "source")] if knows else [])]
    found = torch_from(saved(model, tmp_path, with_optimizer=with_optimizer), *likes)
    truth: dict[str, object] = {"hid.weight": model.hid.kernel, "fc.weight": model.fc.kernel, "fc.bias": model.fc.bias}
    for stage in ("stage0", "stage1"):
        for index, block in enumerate(getattr(model, stage).layers):
            convolution, norm = block.widen.layers
            truth[f"{stage}.{index}.conv.bias"] = block.conv.bias
            truth[f"{stage}.{index}.bn.weight"] = block.bn.gamma
            truth[f"{stage}.{index}.bn.running_var"] = block.bn.moving_variance
            truth[f"{stage}.{index}.widen.1.bias"] = norm.beta
            kernel = np.transpose(keras.ops.convert_to_numpy(convolution.kernel), (3, 2, 0, 1))
            np.testing.assert_array_equal(found[f"{stage}.{index}.widen.0.weight"], kernel)
    check(found, truth)


def swapped(count: int = 2) -> list[layers.Dense]:
    """Square layers in another order than Keras counted them in."""
    keras.backend.clear_session()
    return [layers.Dense(4) for _ in range(count)][::-1]


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_the_order_of_a_sequential_is_that_of_its_layers(with_optimizer: bool, tmp_path: Path) -> None:
    first, second = swapped()
    model = keras.Sequential([keras.Input((4,)), first, second])
    target = model_of(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
    found = torch_from(saved(model, tmp_path, with_optimizer=with_optimizer), target)
    check(found, {"0.weight": first.kernel, "2.weight": second.kernel, "2.bias": second.bias})


def test_the_order_of_sequentials_within_one(tmp_path: Path) -> None:
    keras.backend.clear_session()
    second, first = (keras.Sequential([keras.Input((4,)), layers.Dense(4)]) for _ in range(2))
    model = keras.Sequential([keras.Input((4,)), first, second])
    net = nn.Module()
    net.nets = nn.ModuleList([nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Linear(4, 4))])
    found = torch_from(saved(model, tmp_path), model_of(net))
    check(found, {"nets.0.0.weight": first.layers[0].kernel, "nets.1.0.weight": second.layers[0].kernel})


def functional(*chain: layers.Layer) -> keras.Model:
    inputs = outputs = keras.Input((4,))
    for layer in chain:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


def test_layers_of_a_functional_model_that_were_made_in_another_order_are_refused(tmp_path: Path) -> None:
    source = saved(functional(*swapped()), tmp_path)
    with pytest.raises(WriteRefused, match="attributes say nothing of it"):
        torch_from(source, model_of(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))))


def test_layers_of_a_functional_model_in_the_order_that_keras_counted(tmp_path: Path) -> None:
    second, first = swapped()
    found = torch_from(
        saved(functional(first, second), tmp_path),
        model_of(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))),
    )
    check(found, {"0.weight": first.kernel, "2.weight": second.kernel})


def test_attributes_are_not_a_list(tmp_path: Path) -> None:
    class Two(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.first = layers.Dense(4), layers.Dense(4)

        def call(self, x):  # type: ignore[no-untyped-def]
            return self.last(self.first(x))

    model = Two()
    model(np.zeros((1, 4), "f4"))
    with pytest.raises(WriteRefused, match="no place for model/"):
        torch_from(saved(model, tmp_path), model_of(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))))


@pytest.mark.parametrize("knows", [True, False])
def test_attributes_that_look_counted_are_not(knows: bool, tmp_path: Path) -> None:
    class Counted(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.dense_1 = layers.Dense(4), layers.Dense(4)

        def call(self, x):  # type: ignore[no-untyped-def]
            return self.dense(self.dense_1(x))

    keras.backend.clear_session()
    model = Counted()
    model(np.zeros((1, 4), "f4"))
    likes = [model_of(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))), *([model_of(model)] if knows else [])]
    with pytest.raises(WriteRefused, match="attributes say nothing of it"):
        torch_from(saved(model, tmp_path), *likes)


class Listed(keras.Model):
    """TensorFlow does not track lists of layers in models of Keras 3."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [layers.Dense(4) for _ in range(2)]
        self.out = layers.Dense(4)

    def call(self, x):  # type: ignore[no-untyped-def]
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def torch_listed() -> nn.Module:
    net = nn.Module()
    net.blocks, net.out = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), nn.Linear(4, 4)
    return net


def test_weights_that_only_an_optimizer_has(tmp_path: Path) -> None:
    model = Listed()
    model(np.zeros((1, 4), "f4"))
    source, target = saved(model, tmp_path, with_optimizer=True), model_of(torch_listed())
    for likes in ([], [target]):
        with pytest.raises(WriteRefused, match="only of an optimizer; another --like"):
            torch_from(source, *likes)
    found = torch_from(source, target, model_of(model, "source"))
    blocks = {f"blocks.{index}.weight": block.kernel for index, block in enumerate(model.blocks)}
    check(found, {**blocks, "blocks.0.bias": model.blocks[0].bias, "out.weight": model.out.kernel})


def test_an_optimizer_of_other_layers_tells_nothing(tmp_path: Path) -> None:
    model = Listed()
    model(np.zeros((1, 4), "f4"))
    models_keras.randomize(model, seed=4)
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.blocks[1].trainable_variables)
    tf.train.Checkpoint(model=model, optimizer=optimizer).write(str(tmp_path / "ckpt-1"))
    with pytest.raises(WriteRefused, match="only of an optimizer"):
        torch_from(tmp_path / "ckpt-1", model_of(torch_listed()), model_of(model, "source"))
