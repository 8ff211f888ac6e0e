"""The same models in Keras: attributes are called as in the others, lists are Keras' own."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers, ops
from translation.twins_keras import FAMILY, SUFFIX, load, randomize, save  # noqa: F401

_EPSILON = 1e-5


class ConvBlock(layers.Layer):
    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.conv1 = layers.Conv2D(outputs, 3, padding="same", use_bias=False)
        self.bn1 = layers.BatchNormalization(epsilon=_EPSILON)

    def call(self, x):  # type: ignore[no-untyped-def]
        return ops.average_pool(ops.relu(self.bn1(self.conv1(x))), (1, 2), (1, 2))


class Crnn(keras.Model):
    """Flattens channels before frequencies, as the other two do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_block1 = ConvBlock(4)
        self.conv_block2 = ConvBlock(4)
        self.fc5 = layers.Dense(8, use_bias=False)
        self.bn5 = layers.BatchNormalization(epsilon=_EPSILON)
        self.gru = layers.Bidirectional(layers.GRU(4, return_sequences=True))
        self.gru_l1 = layers.Bidirectional(layers.GRU(4, return_sequences=True))
        self.fc = layers.Dense(3)

    def call(self, x):  # type: ignore[no-untyped-def]
        x = self.conv_block2(self.conv_block1(x))
        x = ops.reshape(ops.transpose(x, (0, 1, 3, 2)), (*x.shape[:2], 8))
        x = ops.relu(self.bn5(self.fc5(x)))
        return ops.sigmoid(self.fc(self.gru_l1(self.gru(x))))


class ResidualBlock(layers.Layer):
    def __init__(self, outputs: int, *, widens: bool = False) -> None:
        super().__init__()
        self.conv1 = layers.Conv2D(outputs, 3, padding="same", use_bias=False)
        self.bn1 = layers.BatchNormalization(epsilon=_EPSILON)
        self.conv2 = layers.Conv2D(outputs, 3, padding="same", use_bias=False)
        self.bn2 = layers.BatchNormalization(epsilon=_EPSILON)
        self.widen = layers.Conv2D(outputs, 1, use_bias=False) if widens else None
        self.widen_bn = layers.BatchNormalization(epsilon=_EPSILON) if widens else None

    def call(self, x):  # type: ignore[no-untyped-def]
        kept = x if self.widen is None else self.widen_bn(self.widen(x))
        x = self.bn2(self.conv2(ops.relu(self.bn1(self.conv1(x)))))
        return ops.relu(x + kept)


class ResNet(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = layers.Conv2D(4, 3, padding="same", use_bias=False)
        self.bn1 = layers.BatchNormalization(epsilon=_EPSILON)
        self.layer1 = [ResidualBlock(4), ResidualBlock(4)]
        self.layer2 = [ResidualBlock(8, widens=True), ResidualBlock(8)]
        self.fc = layers.Dense(8)

    def call(self, x):  # type: ignore[no-untyped-def]
        x = ops.relu(self.bn1(self.conv1(x)))
        for block in (*self.layer1, *self.layer2):
            x = block(x)
        return self.fc(ops.mean(x, (1, 2)))


class EncoderLayer(layers.Layer):
    def __init__(self, size: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.self_attn = layers.MultiHeadAttention(heads, size // heads)
        self.linear1 = layers.Dense(hidden, activation="relu")
        self.linear2 = layers.Dense(size)
        self.norm1 = layers.LayerNormalization(epsilon=_EPSILON)
        self.norm2 = layers.LayerNormalization(epsilon=_EPSILON)

    def call(self, x):  # type: ignore[no-untyped-def]
        x = self.norm1(x + self.self_attn(x, x))
        return self.norm2(x + self.linear2(self.linear1(x)))


class Encoder(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embed = layers.Embedding(8, 8)
        self.encoder = [EncoderLayer(8, 2, 8) for _ in range(2)]
        self.head = layers.Dense(8)

    def call(self, x):  # type: ignore[no-untyped-def]
        x = self.embed(x)
        for layer in self.encoder:
            x = layer(x)
        return self.head(x)


class FeedForwardTransformer(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn = layers.MultiHeadAttention(2, 4)
        self.norm1 = layers.LayerNormalization(epsilon=_EPSILON)
        self.conv1 = layers.Conv1D(8, 3, padding="same", activation="relu")
        self.conv2 = layers.Conv1D(8, 1)
        self.norm2 = layers.LayerNormalization(epsilon=_EPSILON)

    def call(self, x):  # type: ignore[no-untyped-def]
        x = self.norm1(x + self.self_attn(x, x))
        return self.norm2(x + self.conv2(self.conv1(x)))


class FastSpeech(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embed = layers.Embedding(8, 8)
        self.encoder = [FeedForwardTransformer() for _ in range(2)]
        self.predictor = keras.Sequential(
            [layers.Dense(8, activation="relu"), layers.LayerNormalization(epsilon=_EPSILON), layers.Dense(1)]
        )
        self.decoder = [FeedForwardTransformer() for _ in range(2)]
        self.feat_out = layers.Dense(8)
        self.postnet = keras.Sequential(
            [layers.Conv1D(8, 5, padding="same", use_bias=False), layers.BatchNormalization(epsilon=_EPSILON)]
        )

    def call(self, tokens):  # type: ignore[no-untyped-def]
        x = self.embed(tokens)
        for block in self.encoder:
            x = block(x)
        x = x * ops.sigmoid(self.predictor(x))
        for block in self.decoder:
            x = block(x)
        x = self.feat_out(x)
        return x + ops.tanh(self.postnet(x))


def _built(model: keras.Model, *shape: int) -> keras.Model:
    model(np.zeros(shape, "f4"))
    return model


MODELS = {
    "crnn": lambda: _built(Crnn(), 2, 5, 8, 1),
    "resnet": lambda: _built(ResNet(), 1, 5, 4, 3),
    "transformer": lambda: _built(Encoder(), 2, 6),
    "fastspeech": lambda: _built(FastSpeech(), 2, 6),
}


def run(model: keras.Model, batch: np.ndarray) -> np.ndarray:
    return np.asarray(model(np.moveaxis(batch, 1, -1) if batch.ndim > 2 else batch, training=False))
