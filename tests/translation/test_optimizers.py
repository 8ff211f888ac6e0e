"""Training that goes on elsewhere: after conversion with the optimizer's state, one more step leads to equal weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
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
        adam = optimizer == "adam"
        self.optimizer = torch.optim.Adam(parameters, RATE) if adam else torch.optim.SGD(parameters, RATE, momentum=0.9)

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
        self.optimizer.load_state_dict(next(value for key, value in state.items() if "optimizer" in key))

    def weights(self) -> list[np.ndarray]:
        return [
            self.net[0].weight.detach().numpy().T,
            self.net[1].weight.detach().numpy(),
            self.net[2].bias.detach().numpy(),
        ]


class PaddleRun:
    suffix = ".pdz"

    def __init__(self, optimizer: str) -> None:
        self.net = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.BatchNorm1D(4), paddle.nn.Linear(4, 3))
        self.net.eval()
        twins_paddle.randomize(self.net, 2)
        parameters = self.net.parameters()
        with paddle.utils.unique_name.guard():
            rate = paddle.optimizer.lr.LambdaDecay(RATE, lambda _: 1.0)  # only a schedule puts the rate into the file
            self.optimizer: Any = (
                paddle.optimizer.Adam(rate, parameters=parameters)
                if optimizer == "adam"
                else paddle.optimizer.Momentum(rate, 0.9, parameters)
            )

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
        return [self.net[0].weight.numpy(), self.net[1].weight.numpy(), self.net[2].bias.numpy()]


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
        adam = optimizer == "adam"
        made = keras.optimizers.Adam(RATE, epsilon=1e-8) if adam else keras.optimizers.SGD(RATE, 0.9)
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
        return [np.asarray(self.net.layers[at].weights[i]) for at, i in ((0, 0), (1, 0), (2, 1))]


RUNS: dict[str, Callable[[str], Any]] = {"torch": TorchRun, "paddle": PaddleRun, "keras": KerasRun}


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize(("source", "target"), list(permutations(RUNS, 2)))
def test_a_training_goes_on(optimizer: str, source: str, target: str, tmp_path: Path) -> None:
    ours, theirs = RUNS[source](optimizer), RUNS[target](optimizer)
    *done, last = batches()
    for batch in done:
        ours.train(*batch)
        theirs.train(*batch)
    ours.save(tmp_path / f"ours{ours.suffix}")
    likes = [model_of(theirs.net, "theirs"), model_of(ours.net, "ours")]
    conversion = translate(
        tmp_path / f"ours{ours.suffix}", tmp_path / f"theirs{theirs.suffix}", target, likes, with_optimizer=True
    )
    assert any(note.startswith(f"optimizer: {optimizer}") for note in conversion.notes), conversion.notes
    theirs.load(tmp_path / f"theirs{theirs.suffix}")
    before = ours.weights()[0].copy()
    ours.train(*last)
    theirs.train(*last)
    assert np.abs(ours.weights()[0] - before).max() > 1e-4
    for one, other in zip(ours.weights(), theirs.weights()):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-6)
