"""Files of Keras that say nothing of a layer but where its variables are: what names and shapes decide, and what not."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
import torch
from torch import nn
from translation import models_keras
from translation.converting import model_of, translate

from ckpt_tools.errors import WriteRefused
from ckpt_tools.formats import open_checkpoint

SHAPES = {"float32": (1, 3, 3, 4), "int32": (1, 4)}


class Holder(keras.Model):
    """Layers as attributes, called one after the other."""

    def __init__(self, **layers: keras.layers.Layer) -> None:
        super().__init__()
        self.order = list(layers)
        for name, layer in layers.items():
            setattr(self, name, layer)

    def call(self, x):  # type: ignore[no-untyped-def]
        for name in self.order:
            x = getattr(self, name)(x)
        return x


def saved(path: Path, dtype: str = "float32", **layers: keras.layers.Layer) -> Holder:
    net = Holder(**layers)
    net(np.zeros(SHAPES[dtype], dtype))
    models_keras.randomize(net, seed=4)
    models_keras.save(net, path)
    return net


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source.weights.h5"


def converted(source: Path, *models: object) -> dict[str, np.ndarray]:
    translate(source, source.with_name("target.pth"), "torch", [model_of(each) for each in models])
    return {name: tensor.numpy() for name, tensor in torch.load(source.with_name("target.pth")).items()}


def test_an_attribute_called_as_another_class_is_that_of_the_target(source: Path) -> None:
    net = saved(source, embedding=keras.layers.Dense(4, use_bias=False, name="dense"))
    target = nn.ModuleDict({"embedding": nn.Linear(4, 4, bias=False)})
    np.testing.assert_array_equal(converted(source, target)["embedding.weight"], net.weights[0].numpy().T)
    with pytest.raises(WriteRefused, match="nothing tells the kind"):
        converted(source)
    with open_checkpoint(source) as checkpoint:
        assert {tensor.alias for tensor in checkpoint.tensors.values()} == {"dense/0"}


def test_an_embedding_called_dense_is_an_embedding(source: Path) -> None:
    net = saved(source, "int32", dense=keras.layers.Embedding(4, 4, name="tok"))
    target = nn.ModuleDict({"dense": nn.Embedding(4, 4)})
    np.testing.assert_array_equal(converted(source, target)["dense.weight"], net.weights[0].numpy())
    with pytest.raises(WriteRefused, match="nothing tells the kind"):
        converted(source)


def test_one_variable_of_a_layer_that_has_one_is_that_one(source: Path) -> None:
    net = saved(source, act=keras.layers.PReLU(shared_axes=[1, 2]))
    target = nn.ModuleDict({"act": nn.PReLU(4)})
    np.testing.assert_array_equal(converted(source, target)["act.weight"], net.weights[0].numpy().ravel())


@pytest.mark.parametrize(
    ("layer", "counterpart"),
    [(keras.layers.GroupNormalization, nn.GroupNorm(2, 4)), (keras.layers.LayerNormalization, nn.LayerNorm(4))],
)
def test_variables_alike_need_a_model_of_the_source(layer: type, counterpart: nn.Module, source: Path) -> None:
    arguments = {"groups": 2} if layer is keras.layers.GroupNormalization else {}
    net = saved(source, gn=layer(**arguments))
    target = nn.ModuleDict({"gn": counterpart})
    with pytest.raises(WriteRefused, match="no place for gn/vars/0") as refused:
        converted(source, target)
    assert "another --like, with the model of the source" in (refused.value.hint or "")
    np.testing.assert_array_equal(converted(source, target, net)["gn.weight"], net.gn.gamma.numpy())


def test_shapes_that_do_not_fit_are_said_as_they_are(tmp_path: Path) -> None:
    other = saved(tmp_path / "other.weights.h5", act=keras.layers.PReLU(shared_axes=[1, 2]))
    torch.save(nn.ModuleDict({"act": nn.PReLU(1)}).state_dict(), tmp_path / "source.pth")
    with pytest.raises(WriteRefused, match=r"act.weight \[1\] does not become act/vars/0 \[1, 1, 4\]"):
        translate(tmp_path / "source.pth", tmp_path / "target.weights.h5", "keras", [model_of(other)])
