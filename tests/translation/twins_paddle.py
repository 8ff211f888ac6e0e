"""The same networks in Paddle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
from paddle import nn

FAMILY, SUFFIX = "paddle", ".pdparams"


class Net(nn.Layer):
    """A layer called ``layer``; ``run`` calls it and gives the one output that is compared."""

    def __init__(self, layer: nn.Layer, run: Callable[[nn.Layer, paddle.Tensor], paddle.Tensor] | None = None) -> None:
        super().__init__()
        self.layer = layer
        self._run_layer = run

    def forward(self, batch: paddle.Tensor) -> paddle.Tensor:
        return self.layer(batch) if self._run_layer is None else self._run_layer(self.layer, batch)


def recurrent(layer: nn.Layer) -> Net:
    return Net(layer, lambda module, batch: module(batch)[0])


def by_steps(layer: nn.Layer) -> Net:
    """A cell that is fed step by step from a zero state."""

    def run(cell: nn.Layer, batch: paddle.Tensor) -> paddle.Tensor:
        state, outputs = None, []
        for step in range(batch.shape[1]):
            output, state = cell(batch[:, step], state)
            outputs.append(output)
        return paddle.stack(outputs, 1)

    return Net(layer, run)


NETS: dict[str, Callable[[], nn.Layer]] = {
    "linear": lambda: Net(nn.Linear(4, 3)),
    "square_linear": lambda: Net(nn.Linear(4, 4)),
    "conv1d": lambda: Net(nn.Conv1D(4, 3, 2)),
    "conv2d": lambda: Net(nn.Conv2D(4, 4, (3, 2))),
    "square_conv2d": lambda: Net(nn.Conv2D(3, 3, 3, bias_attr=False)),
    "grouped_conv2d": lambda: Net(nn.Conv2D(4, 6, 3, groups=2)),
    "conv3d": lambda: Net(nn.Conv3D(4, 3, (1, 2, 3))),
    "conv_transpose1d": lambda: Net(nn.Conv1DTranspose(4, 3, 2, stride=2)),
    "conv_transpose2d": lambda: Net(nn.Conv2DTranspose(4, 4, (3, 2), stride=(3, 2))),
    "conv_transpose3d": lambda: Net(nn.Conv3DTranspose(4, 3, (1, 2, 3), stride=(1, 2, 3))),
    "depthwise_conv1d": lambda: Net(nn.Conv1D(4, 8, 3, groups=4)),
    "depthwise_conv2d": lambda: Net(nn.Conv2D(4, 8, (2, 3), groups=4)),
    "single_depthwise_conv2d": lambda: Net(nn.Conv2D(3, 3, 3, groups=3)),
    "batch_norm": lambda: Net(nn.BatchNorm2D(4)),
    "layer_norm": lambda: Net(nn.LayerNorm(4)),
    "group_norm": lambda: Net(nn.GroupNorm(2, 4)),
    "instance_norm": lambda: Net(nn.InstanceNorm2D(4)),
    "embedding": lambda: Net(nn.Embedding(5, 4)),
    "square_embedding": lambda: Net(nn.Embedding(4, 4)),
    "lstm": lambda: recurrent(nn.LSTM(4, 3)),
    "square_lstm": lambda: recurrent(nn.LSTM(4, 4)),
    "gru": lambda: recurrent(nn.GRU(4, 4)),
    "rnn": lambda: recurrent(nn.SimpleRNN(4, 4)),
    "bidirectional_lstm": lambda: recurrent(nn.LSTM(4, 3, direction="bidirect")),
    "bidirectional_gru": lambda: recurrent(nn.GRU(4, 4, direction="bidirect")),
    "stacked_lstm": lambda: recurrent(nn.LSTM(4, 2, num_layers=2, direction="bidirect")),
    "stacked_square_gru": lambda: recurrent(nn.GRU(4, 4, num_layers=2)),
    "lstm_cell": lambda: by_steps(nn.LSTMCell(4, 4)),
    "gru_cell": lambda: by_steps(nn.GRUCell(4, 3)),
    "attention": lambda: Net(nn.MultiHeadAttention(4, 2)),
    "prelu": lambda: Net(nn.PReLU(4)),
    "weight_norm_linear": lambda: Net(nn.utils.weight_norm(nn.Linear(4, 3), dim=1)),
    "weight_norm_conv2d": lambda: Net(nn.utils.weight_norm(nn.Conv2D(4, 4, 3))),
    "weight_norm_conv_transpose1d": lambda: Net(nn.utils.weight_norm(nn.Conv1DTranspose(4, 3, 2))),
    "bilinear": lambda: Net(nn.Bilinear(4, 4, 3), lambda module, batch: module(batch, batch)),
}


def randomize(net: nn.Layer, seed: int = 0) -> None:
    """Every parameter and buffer random; what has to be positive is. Recurrent tensors have two names."""
    generator = np.random.default_rng(seed)
    for name, tensor in net.state_dict().items():
        values = generator.standard_normal(tensor.shape).astype("f4") * np.float32(0.5)
        positive = name.endswith(("_variance", "weight_g"))
        tensor.set_value(np.abs(values) + np.float32(0.5) if positive else values)
    net.eval()


def save(net: nn.Layer, path: Path) -> None:
    paddle.save(net.state_dict(), str(path))


def load(net: nn.Layer, path: Path) -> None:
    missing, unexpected = net.set_state_dict(paddle.load(str(path)))
    assert not missing and not unexpected, (missing, unexpected)
    net.eval()


def run(net: nn.Layer, batch: np.ndarray) -> np.ndarray:
    with paddle.no_grad():
        return net(paddle.to_tensor(batch)).numpy()
