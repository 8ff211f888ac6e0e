"""The same networks in Keras, as far as it has the layers. Batches come channels first and are turned here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
from keras import layers

FAMILY, SUFFIX = "keras", ".weights.h5"
_EPSILON = 1e-5


def net(shape: tuple[int | None, ...], *stack: keras.layers.Layer, dtype: str = "float32") -> keras.Model:
    return keras.Sequential([keras.Input(shape, dtype=dtype), *stack])


def attention() -> keras.Model:
    inputs = keras.Input((None, 4))
    return keras.Model(inputs, layers.MultiHeadAttention(2, 2, name="layer")(inputs, inputs))


def both_ways(layer: keras.layers.Layer, name: str = "layer") -> keras.layers.Layer:
    return layers.Bidirectional(layer, name=name)


NETS: dict[str, Callable[[], keras.Model]] = {
    "linear": lambda: net((4,), layers.Dense(3, name="layer")),
    "square_linear": lambda: net((4,), layers.Dense(4, name="layer")),
    "conv1d": lambda: net((None, 4), layers.Conv1D(3, 2, name="layer")),
    "conv2d": lambda: net((None, None, 4), layers.Conv2D(4, (3, 2), name="layer")),
    "square_conv2d": lambda: net((None, None, 3), layers.Conv2D(3, 3, use_bias=False, name="layer")),
    "grouped_conv2d": lambda: net((None, None, 4), layers.Conv2D(6, 3, groups=2, name="layer")),
    "conv3d": lambda: net((None, None, None, 4), layers.Conv3D(3, (1, 2, 3), name="layer")),
    "conv_transpose1d": lambda: net((None, 4), layers.Conv1DTranspose(3, 2, 2, name="layer")),
    "conv_transpose2d": lambda: net((None, None, 4), layers.Conv2DTranspose(4, (3, 2), (3, 2), name="layer")),
    "conv_transpose3d": lambda: net(
        (None, None, None, 4), layers.Conv3DTranspose(3, (1, 2, 3), (1, 2, 3), name="layer")
    ),
    "depthwise_conv1d": lambda: net((None, 4), layers.DepthwiseConv1D(3, depth_multiplier=2, name="layer")),
    "depthwise_conv2d": lambda: net((None, None, 4), layers.DepthwiseConv2D((2, 3), depth_multiplier=2, name="layer")),
    "single_depthwise_conv2d": lambda: net((None, None, 3), layers.DepthwiseConv2D(3, name="layer")),
    "batch_norm": lambda: net((None, None, 4), layers.BatchNormalization(epsilon=_EPSILON, name="layer")),
    "layer_norm": lambda: net((4,), layers.LayerNormalization(epsilon=_EPSILON, name="layer")),
    "group_norm": lambda: net((None, None, 4), layers.GroupNormalization(2, epsilon=_EPSILON, name="layer")),
    "instance_norm": lambda: net((None, None, 4), layers.GroupNormalization(-1, epsilon=_EPSILON, name="layer")),
    "embedding": lambda: net((None,), layers.Embedding(5, 4, name="layer"), dtype="int64"),
    "square_embedding": lambda: net((None,), layers.Embedding(4, 4, name="layer"), dtype="int64"),
    "lstm": lambda: net((None, 4), layers.LSTM(3, return_sequences=True, name="layer")),
    "square_lstm": lambda: net((None, 4), layers.LSTM(4, return_sequences=True, name="layer")),
    "gru": lambda: net((None, 4), layers.GRU(4, return_sequences=True, name="layer")),
    "rnn": lambda: net((None, 4), layers.SimpleRNN(4, return_sequences=True, name="layer")),
    "bidirectional_lstm": lambda: net((None, 4), both_ways(layers.LSTM(3, return_sequences=True))),
    "bidirectional_gru": lambda: net((None, 4), both_ways(layers.GRU(4, return_sequences=True))),
    "stacked_lstm": lambda: net(
        (None, 4),
        both_ways(layers.LSTM(2, return_sequences=True)),
        both_ways(layers.LSTM(2, return_sequences=True), "layer_l1"),
    ),
    "stacked_square_gru": lambda: net(
        (None, 4),
        layers.GRU(4, return_sequences=True, name="layer"),
        layers.GRU(4, return_sequences=True, name="layer_l1"),
    ),
    "lstm_cell": lambda: net((None, 4), layers.RNN(layers.LSTMCell(4), return_sequences=True, name="layer")),
    "gru_cell": lambda: net((None, 4), layers.RNN(layers.GRUCell(3), return_sequences=True, name="layer")),
    "attention": attention,
    "prelu": lambda: net((None, None, 4), layers.PReLU(shared_axes=(1, 2), name="layer")),
    "weight_norm_linear": lambda: net((4,), layers.Dense(3, name="layer")),
    "weight_norm_conv2d": lambda: net((None, None, 4), layers.Conv2D(4, 3, name="layer")),
    "weight_norm_conv_transpose1d": lambda: net((None, 4), layers.Conv1DTranspose(3, 2, name="layer")),
}


def randomize(model: keras.Model, seed: int = 0) -> None:
    """Every variable random; what has to be positive is."""
    generator = np.random.default_rng(seed)
    for variable in model.weights:
        values = generator.standard_normal(variable.shape).astype("f4") * np.float32(0.5)
        variable.assign(np.abs(values) + np.float32(0.5) if variable.name == "moving_variance" else values)


def save(model: keras.Model, path: Path) -> None:
    model.save_weights(path)


def load(model: keras.Model, path: Path) -> None:
    model.load_weights(path)


def run(model: keras.Model, batch: np.ndarray) -> np.ndarray:
    spatial = batch.ndim > 3 or (batch.ndim == 3 and model.layers[0].name == "layer" and _convolves(model))
    output = np.asarray(model(np.moveaxis(batch, 1, -1) if spatial else batch, training=False))
    return np.moveaxis(output, -1, 1) if spatial else output


def _convolves(model: keras.Model) -> bool:
    return "Conv" in type(model.layers[0]).__name__
