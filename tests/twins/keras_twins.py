"""The Keras side of the twins, and what TensorFlow saves besides models."""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import layers


def block(x: object, channels: int, name: str) -> object:
    y = layers.Conv2D(channels, 3, padding="same", name=f"{name}.conv1")(x)
    y = layers.BatchNormalization(name=f"{name}.bn1")(y)
    y = layers.Conv2D(channels, 3, padding="same", name=f"{name}.conv2")(y)
    return layers.add([x, layers.BatchNormalization(name=f"{name}.bn2")(y)])


def resnet(classes_num: int = 10, channels: int = 8) -> keras.Model:
    image = keras.Input((12, 12, 3))
    x = layers.BatchNormalization(name="bn")(layers.Conv2D(channels, 3, name="stem")(image))
    for stage in ("layer1", "layer2"):
        for number in (0, 1):
            x = block(x, channels, f"{stage}.{number}")
    x = layers.Dense(classes_num, name="fc")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(image, x, name="resnet")


def crnn(classes_num: int = 88) -> keras.Model:
    image = keras.Input((10, 4, 1))
    x = layers.BatchNormalization(name="bn1")(layers.Conv2D(6, 3, name="conv1")(image))
    x = layers.Reshape((8, 12))(x)
    x = layers.BatchNormalization(name="bn5")(layers.Dense(7, use_bias=False, name="fc5")(x))
    x = layers.Bidirectional(layers.GRU(5, return_sequences=True), name="rnn")(x)
    return keras.Model(image, layers.Dense(classes_num, name="fc")(x), name="crnn")


def encoder(size: int = 6, vocabulary: int = 6) -> keras.Model:
    tokens = keras.Input((9,), dtype="int32")
    x = layers.LayerNormalization(name="norm")(layers.Embedding(vocabulary, size, name="embed")(tokens))
    x = layers.Conv1D(size, 3, name="conv")(x)
    x = layers.Dense(size, name="linear_q")(x)
    x = layers.Dense(size, name="linear_k")(x)
    y = layers.Dense(4, name="out")(x)
    return keras.Model(tokens, [y, layers.LSTM(size, name="lstm")(x)], name="encoder")


class Unbuilt(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, x: object) -> object:
        return self.dense(x)


def small(extra: bool = False) -> keras.Model:
    x = keras.Input((2,))
    y = layers.BatchNormalization(name="bn")(layers.Dense(3, name="enc")(x))
    return keras.Model(x, layers.Dense(1, name="extra")(y) if extra else y, name="small")


def trained(extra: bool = False) -> tf.train.Checkpoint:
    """A model with an optimizer whose slots exist."""
    model = small(extra)
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return tf.train.Checkpoint(model=model, optimizer=optimizer, step=tf.Variable(1, dtype=tf.int64))


def model_only(extra: bool = False) -> tf.train.Checkpoint:
    return tf.train.Checkpoint(model=small(extra))


def stepped() -> tf.train.Checkpoint:
    return tf.train.Checkpoint(model=small(), step=tf.Variable(1, dtype=tf.int64), other=tf.Variable([1.0, 2.0]))


class Layer(tf.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones([2, size]))
        self.parts = [tf.Variable([1.0]), tf.Variable([2.0])]


def module() -> tf.Module:
    return Layer(3)


def wider_module() -> tf.Module:
    return Layer(4)
