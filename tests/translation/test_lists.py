"""Lists of layers that are alike, under other numbers and other names: paired in their order, or refused."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import paddle
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from translation import models_keras, models_paddle, models_torch
from translation.converting import model_of, translate
from translation.reference import Arrays, cook, linear, told

from ckpt_tools.errors import WriteRefused
from ckpt_tools.mapping.numbering import series
from ckpt_tools.mapping.spellings import Certainty, Stored
from ckpt_tools.mapping.translation import Side
from ckpt_tools.mapping.translation import translate as planned


class PaddleList(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.net = paddle.nn.LayerList([paddle.nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        first, second, third = self.net
        return third(paddle.nn.functional.relu(second(paddle.nn.functional.relu(first(x)))))


def torch_stack() -> nn.Module:
    """Three square layers with activations between, which take numbers of their own."""
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


class TorchNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch_stack()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


def keras_stack() -> keras.Model:
    keras.backend.clear_session()
    layers = [keras.layers.Dense(4, activation=each) for each in ("relu", "relu", None)]
    return keras.Sequential([keras.Input((4,)), *layers])


BATCH = np.random.default_rng(1).standard_normal((3, 4)).astype("f4")


def test_a_sequential_with_activations_becomes_a_list_without(tmp_path: Path) -> None:
    net, other = TorchNet(), PaddleList()
    models_torch.save(net, tmp_path / "source.pth")
    conversion = translate(tmp_path / "source.pth", tmp_path / "target.pdparams", "paddle", [model_of(other)])
    models_paddle.load(other, tmp_path / "target.pdparams")
    np.testing.assert_allclose(models_paddle.run(other, BATCH), models_torch.run(net, BATCH), rtol=1e-4, atol=1e-5)
    assert "paired in order: net.0, net.2, net.4 -> net.0, net.1, net.2" in conversion.notes


@pytest.mark.parametrize("to_keras", [True, False])
def test_a_sequential_and_what_keras_counts(to_keras: bool, tmp_path: Path) -> None:
    net, other = torch_stack(), keras_stack()
    ours, theirs = (models_torch, models_keras) if to_keras else (models_keras, models_torch)
    source, target = (net, other) if to_keras else (other, net)
    path, result = tmp_path / f"source{ours.SUFFIX}", tmp_path / f"target{theirs.SUFFIX}"
    ours.save(source, path)
    conversion = translate(path, result, theirs.FAMILY, [model_of(target)])
    theirs.load(target, result)
    np.testing.assert_allclose(theirs.run(target, BATCH), ours.run(source, BATCH), rtol=1e-4, atol=1e-5)
    assert any(note.startswith("paired in order") for note in conversion.notes)


class KerasBlock(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = keras.layers.Dense(4), keras.layers.Dense(3)

    def call(self, x):  # type: ignore[no-untyped-def]
        return self.b(self.a(x))


class KerasBlocks(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = [KerasBlock(), KerasBlock()]

    def call(self, x):  # type: ignore[no-untyped-def]
        for block in self.blocks:
            x = block(x)
        return x


def test_a_list_of_a_users_layers_from_a_file_alone(tmp_path: Path) -> None:
    net, other = nn.Module(), KerasBlocks()
    net.blocks = nn.ModuleList(nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(4, 3)}) for _ in range(2))
    expected = other(BATCH[:, :3]).numpy()
    models_keras.save(other, tmp_path / "source.weights.h5")
    translate(tmp_path / "source.weights.h5", tmp_path / "target.pth", "torch", [model_of(net)])
    net.load_state_dict(torch.load(tmp_path / "target.pth"))
    x = torch.tensor(BATCH[:, :3])
    for block in net.blocks:
        x = block["b"](block["a"](x))
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-4, atol=1e-5)


class KerasAttributes(keras.Model):
    """Keras counts ``b`` first; it runs last."""

    def __init__(self) -> None:
        super().__init__()
        self.b, self.a = keras.layers.Dense(4), keras.layers.Dense(4)

    def call(self, x):  # type: ignore[no-untyped-def]
        return self.b(self.a(x))


@pytest.mark.parametrize("with_source", [True, False])
def test_a_count_of_attributes_is_no_order(with_source: bool, tmp_path: Path) -> None:
    keras.backend.clear_session()
    other = KerasAttributes()
    other(BATCH)
    models_keras.save(other, tmp_path / "source.weights.h5")
    likes = [model_of(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))), *([model_of(other)] if with_source else [])]
    with pytest.raises(WriteRefused, match="how Keras counts"):
        translate(tmp_path / "source.weights.h5", tmp_path / "target.pth", "torch", likes)


#: What layers outside lists are called; those of one word and several numbers are moved together.
WORDS = ("fc", "fc0", "fc1", "fc2", "out", "dense", "dense_1", "x")
FRESH = ("y", "fc3", "head", "dense_2", "dense_3", "fc")


@st.composite
def names_of_layers(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Names of some layers on both sides. Neighbours lie in a container, where their numbers grow; on the other side the
    numbers, the container's name and its length may be others. Names outside are kept, moved on by one, or fresh."""
    count = draw(st.integers(1, 6))
    start, end = sorted(draw(st.tuples(st.integers(0, count), st.integers(0, count))))
    outside = draw(st.lists(st.sampled_from(WORDS), min_size=count, max_size=count, unique=True))
    moved = [outside, [draw(st.sampled_from([name, name, _moved(name), *FRESH])) for name in outside]]
    if draw(st.booleans()):
        moved[1] = [_moved(name) for name in outside]
    sides = []
    for names in moved:
        length = draw(st.sampled_from([end - start, end - start, max(end - start - 1, 0)]))
        numbers = sorted(draw(st.sets(st.integers(0, 6), min_size=length, max_size=length)))
        place = draw(st.sampled_from(["net.", "net.", "list.", ""]))
        members = {start + at: f"{place}{number}" for at, number in enumerate(numbers)}
        sides.append([members.get(at, name) for at, name in enumerate(names)])
    ours, theirs = sides
    assume(len({*theirs}) == count and not _swapped(ours, theirs))
    return ours, theirs


def _moved(name: str) -> str:
    return {"fc0": "fc1", "fc1": "fc2", "fc2": "fc3", "dense": "dense_1", "dense_1": "dense_2"}.get(name, name)


def _swapped(ours: list[str], theirs: list[str]) -> bool:
    """Whether the sides call different layers by one word, or all the same numbers of one: names lie then."""
    a, b = series(ours), series(theirs)
    mean_nothing = {
        name
        for stem in a.keys() & b.keys()
        if a[stem].members.keys() != b[stem].members.keys()
        for name in (*a[stem].members.values(), *b[stem].members.values())
    }
    return any(ours.index(name) != theirs.index(name) for name in {*ours} & {*theirs} - mean_nothing if "." not in name)


@settings(max_examples=600, deadline=None)
@given(names_of_layers(), st.booleans(), st.booleans())
def test_equal_layers_under_other_names_and_numbers(
    names: tuple[list[str], list[str]], source_knows: bool, lacks_first_bias: bool
) -> None:
    ours, theirs = names
    network = [linear(3, 3, seed) for seed in range(len(ours))]
    arrays: Arrays = {}
    expected: Arrays = {}
    sides: list[list[Stored]] = [[], []]
    for at, layer in enumerate(network):
        for family, place, found, stored in (
            ("torch", ours[at], arrays, sides[0]),
            ("paddle", theirs[at], expected, sides[1]),
        ):
            for leaf, array in layer.tensors[family].items():
                if leaf == "bias" and at == 0 and lacks_first_bias:
                    continue
                found[f"{place}.{leaf}"] = array
                knows = source_knows or family == "paddle"
                stored.append(
                    Stored(
                        f"{place}.{leaf}",
                        array.shape,
                        known=told(layer, leaf) if knows else None,
                        certainty=Certainty.TOLD if knows else Certainty.NONE,
                    )
                )
    plan = planned(Side("torch", sides[0]), "paddle", Side("paddle", sides[1][::-1]))
    if plan.ambiguous or plan.unplaced or plan.unfilled or plan.conflicts:
        assert ours != theirs
        return
    made = {recipe.target: cook(recipe, arrays) for recipe in plan.recipes}
    for name, array in expected.items():
        np.testing.assert_array_equal(made[name], array, err_msg=f"{name}: {ours} -> {theirs}")
