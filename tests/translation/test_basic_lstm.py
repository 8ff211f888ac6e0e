"""TensorFlow 1's BasicLSTMCell, of which only the formula is left: computed in numpy, and by torch after conversion."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from translation.reference import cook

from ckpt_tools.mapping.spellings import Stored
from ckpt_tools.mapping.translation import Side, translate

INPUTS, HIDDEN = 3, 3
FORGET_BIAS = 1.0


def sigmoid(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def basic_lstm(kernel: np.ndarray, bias: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """tensorflow/python/ops/rnn_cell_impl.py, BasicLSTMCell.call: gates i, j, f, o."""
    state = np.zeros((len(batch), HIDDEN))
    cell = np.zeros_like(state)
    outputs = []
    for step in range(batch.shape[1]):
        gates = np.concatenate([batch[:, step], state], 1) @ kernel + bias
        enter, new, forget, out = np.split(gates, 4, 1)
        cell = cell * sigmoid(forget + FORGET_BIAS) + sigmoid(enter) * np.tanh(new)
        state = np.tanh(cell) * sigmoid(out)
        outputs.append(state)
    return np.stack(outputs, 1)


def test_a_basic_lstm_cell_becomes_an_lstm_and_back(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    names = ("rnn/basic_lstm_cell/kernel", "rnn/basic_lstm_cell/bias")
    arrays = {
        names[0]: generator.standard_normal((INPUTS + HIDDEN, 4 * HIDDEN)).astype("f4"),
        names[1]: generator.standard_normal(4 * HIDDEN).astype("f4"),
    }
    ours = Side("keras", [Stored(name, array.shape) for name, array in arrays.items()])
    found = translate(ours, "torch")
    assert not found.ambiguous and not found.conflicts and not found.unplaced
    made = {recipe.target: cook(recipe, arrays) for recipe in found.recipes}
    lstm = torch.nn.LSTM(INPUTS, HIDDEN, batch_first=True)
    lstm.load_state_dict({name.removeprefix("rnn."): torch.from_numpy(array.copy()) for name, array in made.items()})
    batch = generator.standard_normal((2, 5, INPUTS)).astype("f4")
    with torch.no_grad():
        computed = lstm(torch.from_numpy(batch))[0].numpy()
    np.testing.assert_allclose(computed, basic_lstm(*arrays.values(), batch), rtol=1e-4, atol=1e-5)

    theirs = Side("torch", [Stored(name, array.shape) for name, array in made.items()])
    back = translate(theirs, "keras", ours)
    assert not back.ambiguous and not back.conflicts and not back.unplaced and not back.unfilled
    for recipe in back.recipes:
        np.testing.assert_allclose(cook(recipe, made), arrays[recipe.target], rtol=1e-6)
