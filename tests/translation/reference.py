"""Layers as each framework lays them out, written down once more: what the planner is held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ckpt_tools.mapping.kinds import LayerPart
from ckpt_tools.mapping.recipes import Recipe

Arrays = dict[str, np.ndarray]


def _norms(directions: np.ndarray) -> np.ndarray:
    return np.sqrt((directions.reshape(len(directions), -1) ** 2).sum(1))


@dataclass(frozen=True)
class Layer:
    """One layer of some kind: its tensors in each framework, by the last parts of their names. ``parts`` are what a
    model would tell of each tensor's part."""

    kind: str
    tensors: Mapping[str, Arrays]
    parts: Mapping[str, str]


def _random(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def linear(size: int, other: int, seed: int) -> Layer:
    weight, bias = _random(size, other, seed=seed), _random(size, seed=seed + 1)
    return Layer(
        "linear",
        {
            "torch": {"weight": weight, "bias": bias},
            "paddle": {"weight": weight.T, "bias": bias},
            "keras": {"kernel": weight.T, "bias": bias},
        },
        {"weight": "weight", "bias": "bias", "kernel": "weight"},
    )


def embedding(size: int, other: int, seed: int) -> Layer:
    weight = _random(size, other, seed=seed)
    return Layer(
        "embedding",
        {"torch": {"weight": weight}, "paddle": {"weight": weight}, "keras": {"embeddings": weight}},
        {"weight": "weight", "embeddings": "weight"},
    )


def convolution(size: int, other: int, seed: int) -> Layer:
    weight = _random(size, other, 3, 3, seed=seed)
    kernel = weight.transpose(2, 3, 1, 0)
    return Layer(
        "conv2d",
        {"torch": {"weight": weight}, "paddle": {"weight": weight}, "keras": {"kernel": kernel}},
        {"weight": "weight", "kernel": "weight"},
    )


def depthwise(size: int, _: int, seed: int) -> Layer:
    weight = _random(size, 1, 3, 3, seed=seed)
    kernel = weight.reshape(size, 1, 3, 3).transpose(2, 3, 0, 1)
    return Layer(
        "depthwise_conv2d",
        {"torch": {"weight": weight}, "paddle": {"weight": weight}, "keras": {"kernel": kernel}},
        {"weight": "weight", "kernel": "weight"},
    )


def layer_norm(size: int, _: int, seed: int) -> Layer:
    weight, bias = _random(size, seed=seed), _random(size, seed=seed + 1)
    return Layer(
        "layer_norm",
        {
            "torch": {"weight": weight, "bias": bias},
            "paddle": {"weight": weight, "bias": bias},
            "keras": {"gamma": weight, "beta": bias},
        },
        {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"},
    )


def lstm(size: int, other: int, seed: int) -> Layer:
    flat = {
        "weight_ih_l0": _random(4 * size, other, seed=seed),
        "weight_hh_l0": _random(4 * size, size, seed=seed + 1),
        "bias_ih_l0": _random(4 * size, seed=seed + 2),
        "bias_hh_l0": np.zeros(4 * size, "f4"),
    }
    keras = {
        "lstm_cell/kernel": flat["weight_ih_l0"].T,
        "lstm_cell/recurrent_kernel": flat["weight_hh_l0"].T,
        "lstm_cell/bias": flat["bias_ih_l0"],
    }
    parts = {name: name for name in flat}
    return Layer("lstm", {"torch": flat, "paddle": flat, "keras": keras}, parts)


def convolution1d(size: int, other: int, seed: int) -> Layer:
    weight, bias = _random(size, other, 3, seed=seed), _random(size, seed=seed + 1)
    return Layer(
        "conv1d",
        {
            "torch": {"weight": weight, "bias": bias},
            "paddle": {"weight": weight, "bias": bias},
            "keras": {"kernel": weight.transpose(2, 1, 0), "bias": bias},
        },
        {"weight": "weight", "kernel": "weight", "bias": "bias"},
    )


def batch_norm(size: int, _: int, seed: int) -> Layer:
    parts = ("weight", "bias", "running_mean", "running_var")
    values = [_random(size, seed=seed + index) for index in range(4)]
    words = {
        "torch": parts,
        "paddle": ("weight", "bias", "_mean", "_variance"),
        "keras": ("gamma", "beta", "moving_mean", "moving_variance"),
    }
    return Layer(
        "batch_norm",
        {family: dict(zip(names, values)) for family, names in words.items()},
        {name: part for names in words.values() for name, part in zip(names, parts)},
    )


def instance_norm(size: int, _: int, seed: int) -> Layer:
    weight, bias = _random(size, seed=seed), _random(size, seed=seed + 1)
    words = {"torch": ("weight", "bias"), "paddle": ("scale", "bias"), "keras": ("gamma", "beta")}
    return Layer(
        "instance_norm",
        {family: dict(zip(names, (weight, bias))) for family, names in words.items()},
        {"weight": "weight", "scale": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"},
    )


def _vector(kind: str, words: Mapping[str, str]) -> Callable[[int, int, int], Layer]:
    def layer(size: int, _: int, seed: int) -> Layer:
        weight = _random(size, seed=seed)
        named = {family: {word: weight} for family, word in words.items()}
        return Layer(kind, named, dict.fromkeys(words.values(), "weight"))

    return layer


prelu = _vector("prelu", {"torch": "weight", "paddle": "_weight", "keras": "alpha"})
rms_norm = _vector("rms_norm", {"torch": "weight", "paddle": "weight", "keras": "scale"})


def wide_layer_norm(size: int, other: int, seed: int) -> Layer:
    weight, bias = _random(size, other, seed=seed), _random(size, other, seed=seed + 1)
    return Layer(
        "layer_norm",
        {
            "torch": {"weight": weight, "bias": bias},
            "paddle": {"weight": weight.reshape(-1), "bias": bias.reshape(-1)},
            "keras": {"gamma": weight, "beta": bias},
        },
        {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"},
    )


def _own(*names: str, rank: int) -> Callable[[int, int, int], Layer]:
    """A user's own parameters, which lie the same way and have the same names everywhere."""

    def layer(size: int, other: int, seed: int) -> Layer:
        shape = (size, other, other, size)[:rank]
        arrays = {name: _random(*shape, seed=seed + index) for index, name in enumerate(names)}
        return Layer("parameter", dict.fromkeys(("torch", "paddle", "keras"), arrays), {})

    return layer


own_table = _own("weight", rank=2)
own_experts = _own("weight", rank=3)
own_affine = _own("weight", "bias", rank=2)
own_vector = _own("weight", rank=1)
own_mask = _own("mask", rank=2)


def bilinear(size: int, other: int, seed: int) -> Layer:
    weight, bias = _random(size, other, other, seed=seed), _random(size, seed=seed + 1)
    return Layer(
        "bilinear",
        {"torch": {"weight": weight, "bias": bias}, "paddle": {"weight": weight, "bias": bias.reshape(1, -1)}},
        {"weight": "weight", "bias": "bias"},
    )


LAYERS: tuple[Callable[[int, int, int], Layer], ...] = (
    linear,
    embedding,
    convolution,
    depthwise,
    layer_norm,
    lstm,
)


#: Layers of which names and shapes tell too little to have their names in another framework, and what looks like them.
ALIKE: tuple[Callable[[int, int, int], Layer], ...] = (
    *LAYERS,
    convolution1d,
    batch_norm,
    instance_norm,
    prelu,
    rms_norm,
    wide_layer_norm,
    own_table,
    own_experts,
    own_affine,
    own_vector,
    own_mask,
    bilinear,
)


def told(layer: Layer, leaf: str) -> LayerPart:
    """What a model would say of a tensor."""
    return LayerPart(layer.kind, layer.parts.get(leaf, ""))


def cook(recipe: Recipe, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Carry a recipe out."""
    if recipe.filling is not None:
        return np.full(recipe.filling.shape, recipe.filling.value, recipe.filling.dtype)
    parts = []
    for each in recipe.ingredients:
        array = arrays[each.source]
        for step in each.steps:
            array = step.apply(array)
        parts.append(array)
    if recipe.join == "concat":
        whole = np.concatenate(parts)
    elif recipe.join == "sum":
        whole = sum(parts[1:], parts[0])
    elif recipe.join == "weight_norm":
        norms = _norms(parts[1])
        whole = parts[1] * (parts[0] / norms).reshape(-1, *(1,) * (parts[1].ndim - 1))
    else:
        (whole,) = parts
    for step in recipe.steps:
        whole = step.apply(whole)
    return whole
