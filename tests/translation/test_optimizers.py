"""Training that goes on elsewhere: after conversion with the optimizer's state, one more step leads to equal weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import keras
import numpy as np
import paddle
import pytest
import torch
from translation import twins_keras, twins_paddle, twins_torch
from translation.converting import model_of, translate

STEPS = 4
RATE = 0.01
DECAY = 0.05  # AdamW's, which no file but torch's has


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(5)
    return [
        (generator.standard_normal((6, 4)).astype("f4"), generator.standard_normal((6, 3)).astype("f4"))
        for _ in range(STEPS + 1)
    ]


class TorchRun:
    suffix = ".pth"

    def __init__(self, optimizer: str) -> None:
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)).eval()
        twins_torch.randomize(self.net, 1)
        parameters = self.net.parameters()
        self.optimizer: torch.optim.Optimizer = {
            "adam": lambda: torch.optim.Adam(parameters, RATE),
            "adamw": lambda: torch.optim.AdamW(parameters, RATE, weight_decay=DECAY),
            "sgd": lambda: torch.optim.SGD(parameters, RATE, momentum=0.9),
        }[optimizer]()

    def train(self, batch: np.ndarray, wanted: np.ndarray) -> None:
        self.optimizer.zero_grad()
        ((self.net(torch.from_numpy(batch)) - torch.from_numpy(wanted)) ** 2).mean().backward()
        self.optimizer.step()

    def save(self, path: Path) -> None:
        torch.save({"model": self.net.state_dict(), "optimizer": self.optimizer.state_dict()}, path)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        weights = next(value for key, value in state.items() if "model" in key or "params" in key)
        self.net.load_state_dict(weights)
        settings = [dict(group) for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(next(value for key, value in state.items() if "optimizer" in key))
        for group, own in zip(self.optimizer.param_groups, settings):  # what the notes say is to be set
            group.update(lr=own["lr"], weight_decay=own["weight_decay"])

    def weights(self) -> list[np.ndarray]:
        return [p.detach().numpy().T for p in self.net.parameters()]


class PaddleRun:
    suffix = ".pdz"

    def __init__(self, optimizer: str) -> None:
        self.net = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Linear(4, 3))
        self.net.eval()
        twins_paddle.randomize(self.net, 2)
        parameters = self.net.parameters()
        with paddle.utils.unique_name.guard():
            rate = paddle.optimizer.lr.LambdaDecay(RATE, lambda _: 1.0)  # only a schedule puts the rate into the file
            self.optimizer: Any = {
                "adam": lambda: paddle.optimizer.Adam(rate, parameters=parameters),
                "adamw": lambda: paddle.optimizer.AdamW(rate, parameters=parameters, weight_decay=DECAY),
                "sgd": lambda: paddle.optimizer.Momentum(rate, 0.9, parameters),
            }[optimizer]()

    def train(self, batch: np.ndarray, wanted: np.ndarray) -> None:
        ((self.net(paddle.to_tensor(batch)) - paddle.to_tensor(wanted)) ** 2).mean().backward()
        self.optimizer.step()
        self.optimizer.clear_grad()

    def save(self, path: Path) -> None:
        paddle.save({"main_params": self.net.state_dict(), "main_optimizer": self.optimizer.state_dict()}, str(path))

    def load(self, path: Path) -> None:
        state = paddle.load(str(path))
        self.net.set_state_dict(next(value for key, value in state.items() if "model" in key or "params" in key))
        self.optimizer.set_state_dict(next(value for key, value in state.items() if "optimizer" in key))

    def weights(self) -> list[np.ndarray]:
        return [getattr(self.net[at], part).numpy() for at in range(3) for part in ("weight", "bias")]


class KerasRun:
    suffix = ".weights.h5"

    def __init__(self, optimizer: str) -> None:
        layers = keras.layers
        self.net = keras.Sequential(
            [
                keras.Input((4,)),
                layers.Dense(4, name="0"),
                layers.BatchNormalization(epsilon=1e-5, name="1"),
                layers.Dense(3, name="2"),
            ]
        )
        twins_keras.randomize(self.net, 3)
        made = {
            "adam": lambda: keras.optimizers.Adam(RATE, epsilon=1e-8),
            "adamw": lambda: keras.optimizers.AdamW(RATE, DECAY, epsilon=1e-8),
            "sgd": lambda: keras.optimizers.SGD(RATE, 0.9),
        }[optimizer]()
        self.net.compile(made)
        made.build(self.net.trainable_variables)

    def train(self, batch: np.ndarray, wanted: np.ndarray) -> None:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.net(batch, training=False) - wanted) ** 2)
        variables = self.net.trainable_variables
        self.net.optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)

    def save(self, path: Path) -> None:
        self.net.save_weights(path)

    def load(self, path: Path) -> None:
        self.net.load_weights(path)

    def weights(self) -> list[np.ndarray]:
        return [np.asarray(layer.weights[at]) for layer in self.net.layers for at in (0, 1)]


RUNS: dict[str, Callable[[str], Any]] = {"torch": TorchRun, "paddle": PaddleRun, "keras": KerasRun}


def go_on(ours: Any, theirs: Any, source: Path, target: Path, family: str) -> list[str]:
    """Convert after some steps, make one more on both sides and compare the weights; the notes of the conversion."""
    *done, last = batches()
    for batch in done:
        ours.train(*batch)
        theirs.train(*batch)
    ours.save(source)
    likes = [model_of(theirs.net, "theirs"), model_of(ours.net, "ours")]
    if isinstance(ours, type(theirs)):  # two of a family cannot be told apart
        likes = likes[:1]
    conversion = translate(source, target, family, likes, with_optimizer=True)
    theirs.load(target)
    before = ours.weights()[0].copy()
    ours.train(*last)
    theirs.train(*last)
    assert np.abs(ours.weights()[0] - before).max() > 1e-4
    for one, other in zip(ours.weights(), theirs.weights()):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)
    return conversion.notes


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize(("source", "target"), [pair for pair in product(RUNS, RUNS) if pair != ("keras", "keras")])
def test_a_training_goes_on(optimizer: str, source: str, target: str, tmp_path: Path) -> None:
    ours, theirs = RUNS[source](optimizer), RUNS[target](optimizer)
    files = tmp_path / f"ours{ours.suffix}", tmp_path / f"theirs{theirs.suffix}"
    notes = go_on(ours, theirs, *files, target)
    steps = "an unknown number of" if optimizer == "sgd" else STEPS
    kind = optimizer.removesuffix("w")
    assert f"optimizer: {kind} after {steps} steps" in notes
    if source == "torch":
        assert any("taken for those of the model's parameters in their order" in note for note in notes)
    if optimizer == "adamw" and (source, target) != ("torch", "torch"):
        assert any("weight decay" in note for note in notes)


class HalfFrozen(TorchRun):
    """Two groups in an order of their own; one weight is frozen, one starts two steps after the others."""

    def __init__(self, optimizer: str) -> None:
        super().__init__(optimizer)
        first = self.net[0]
        first.bias.requires_grad_(False)
        named = dict(self.net.named_parameters())
        late = [("2.weight", named["2.weight"]), ("2.bias", named["2.bias"])]
        rest = [(name, named[name]) for name in ("1.bias", "1.weight", "0.bias", "0.weight")]
        groups: Any = [
            {"params": late, "lr": RATE, "weight_decay": DECAY},
            {"params": rest, "lr": RATE, "weight_decay": DECAY},
        ]
        adam = optimizer == "adamw"
        self.optimizer = torch.optim.AdamW(groups) if adam else torch.optim.SGD(groups, momentum=0.9)
        self.steps = 0

    def train(self, batch: np.ndarray, wanted: np.ndarray) -> None:
        self.net[2].weight.requires_grad_(self.steps >= 2)
        self.steps += 1
        super().train(batch, wanted)


class HalfFrozenPaddle(PaddleRun):
    def __init__(self, optimizer: str) -> None:
        super().__init__(optimizer)
        self.net[0].bias.stop_gradient = True
        rate = paddle.optimizer.lr.LambdaDecay(RATE, lambda _: 1.0)
        self.optimizer = (
            paddle.optimizer.AdamW(rate, parameters=self.net.parameters(), weight_decay=DECAY)
            if optimizer == "adamw"
            else paddle.optimizer.Momentum(rate, 0.9, self.net.parameters(), weight_decay=DECAY)
        )


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_groups_with_frozen_weights_and_late_ones_go_on_in_paddle(optimizer: str, tmp_path: Path) -> None:
    ours, theirs = HalfFrozen(optimizer), HalfFrozenPaddle(optimizer)
    notes = go_on(ours, theirs, tmp_path / "ours.pth", tmp_path / "theirs.pdz", "paddle")
    assert "optimizer: no state for 0.bias, where it begins anew" in notes
    assert not any("taken for" in note for note in notes)
    if optimizer == "adamw":
        assert "optimizer: adam after 2 to 4 steps" in notes
        assert any("weight decay 0.05, apart from the gradient (AdamW)" in note for note in notes)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_groups_stay_groups_in_torch(optimizer: str, tmp_path: Path) -> None:
    ours, theirs = HalfFrozen(optimizer), HalfFrozen(optimizer)
    go_on(ours, theirs, tmp_path / "ours.pth", tmp_path / "theirs.pth", "torch")
    made, own = (torch.load(tmp_path / name)["optimizer"]["param_groups"] for name in ("theirs.pth", "ours.pth"))
    assert made == own


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_paddle_s_frozen_weights_have_no_state_in_torch(optimizer: str, tmp_path: Path) -> None:
    ours, theirs = HalfFrozenPaddle(optimizer), TorchRun(optimizer)
    theirs.net[0].bias.requires_grad_(False)
    for group in theirs.optimizer.param_groups:
        group["weight_decay"] = DECAY
    notes = go_on(ours, theirs, tmp_path / "ours.pdz", tmp_path / "theirs.pth", "torch")
    assert "optimizer: no state for 0.bias, where it begins anew" in notes


class HalfFrozenKeras(KerasRun):
    """A layer in the middle of the model is not trained: Keras has no state for it at all."""

    def __init__(self, optimizer: str) -> None:
        super().__init__(optimizer)
        self.net.layers[1].trainable = False
        own = self.net.optimizer
        made = type(own).from_config(own.get_config())
        self.net.compile(made)
        made.build(self.net.trainable_variables)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("target", ["torch", "paddle"])
def test_variables_that_keras_does_not_train_are_passed_over(optimizer: str, target: str, tmp_path: Path) -> None:
    ours, theirs = HalfFrozenKeras(optimizer), RUNS[target](optimizer)
    for parameter in theirs.net[1].parameters():
        if target == "torch":
            parameter.requires_grad_(False)
        else:
            parameter.stop_gradient = True
    notes = go_on(ours, theirs, tmp_path / "ours.weights.h5", tmp_path / f"theirs{theirs.suffix}", target)
    assert "optimizer: no state for 1.weight, 1.bias, where it begins anew" in notes


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_frozen_layer_of_torch_is_no_variable_of_keras_optimizer(optimizer: str, tmp_path: Path) -> None:
    ours, theirs = TorchRun(optimizer), HalfFrozenKeras(optimizer)
    for parameter in ours.net[1].parameters():
        parameter.requires_grad_(False)
    go_on(ours, theirs, tmp_path / "ours.pth", tmp_path / "theirs.weights.h5", "keras")


class KerasCheckpoints(KerasRun):
    """The same by ``tf.train.Checkpoint``, whose object graph tells what belongs to what."""

    suffix = ""

    def save(self, path: Path) -> None:
        import tensorflow as tf

        tf.train.Checkpoint(model=self.net, optimizer=self.net.optimizer).write(str(path))


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("target", list(RUNS))
def test_a_training_in_tensorflow_s_checkpoints_goes_on(optimizer: str, target: str, tmp_path: Path) -> None:
    ours, theirs = KerasCheckpoints(optimizer), RUNS[target](optimizer)
    go_on(ours, theirs, tmp_path / "ckpt", tmp_path / f"theirs{theirs.suffix}", target)


def test_two_optimizers_with_names_go_on_each_with_its_own(tmp_path: Path) -> None:
    ours, theirs = TorchRun("adam"), PaddleRun("adam")
    body = [(name, p) for name, p in ours.net.named_parameters() if not name.startswith("2")]
    head = [(name, p) for name, p in ours.net.named_parameters() if name.startswith("2")]
    both = [torch.optim.Adam(part, RATE) for part in (head, body)]

    def train(batch: np.ndarray, wanted: np.ndarray) -> None:
        ours.net.zero_grad()
        ((ours.net(torch.from_numpy(batch)) - torch.from_numpy(wanted)) ** 2).mean().backward()
        for each in both:
            each.step()

    def save(path: Path) -> None:
        states = {f"{name}_optimizer": each.state_dict() for name, each in zip(("head", "body"), both)}
        torch.save({"model": ours.net.state_dict(), **states}, path)

    def load(path: Path) -> None:
        state = paddle.load(str(path))
        theirs.net.set_state_dict(state["model"])
        theirs.optimizer.set_state_dict({**state["head_optimizer"], **state["body_optimizer"]})

    ours.train, ours.save, theirs.load = train, save, load  # type: ignore[method-assign]
    notes = go_on(ours, theirs, tmp_path / "ours.pth", tmp_path / "theirs.pdz", "paddle")
    assert "optimizer head_optimizer: adam after 4 steps" in notes
    assert "optimizer body_optimizer: adam after 4 steps" in notes
