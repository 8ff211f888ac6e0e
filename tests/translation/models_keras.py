"""The same models in Keras, as far as they are worth it: attributes are called as in the others."""

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


def _built(model: keras.Model, *shape: int) -> keras.Model:
    model(np.zeros(shape, "f4"))
    return model


MODELS = {"crnn": lambda: _built(Crnn(), 2, 5, 8, 1), "resnet": lambda: _built(ResNet(), 1, 5, 4, 3)}


def run(model: keras.Model, batch: np.ndarray) -> np.ndarray:
    return np.asarray(model(np.moveaxis(batch, 1, -1), training=False))
