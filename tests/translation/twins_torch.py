"""Small torch networks, one for each kind of layer: the first of three twins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

FAMILY, SUFFIX = "torch", ".pth"
TOLERANCE = 2e-5


class Net(nn.Module):
    """A layer called ``layer``; ``run`` calls it and gives the one output that is compared."""

    def __init__(self, layer: nn.Module, run: Callable[[nn.Module, torch.Tensor], torch.Tensor] | None = None) -> None:
        super().__init__()
        self.layer = layer
        self._run = run

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.layer(batch) if self._run is None else self._run(self.layer, batch)


def recurrent(layer: nn.Module) -> Net:
    return Net(layer, lambda module, batch: module(batch)[0])


def attention(layer: nn.Module) -> Net:
    return Net(layer, lambda module, batch: module(batch, batch, batch)[0])


def by_steps(layer: nn.Module) -> Net:
    """A cell that is fed step by step from a zero state."""

    def run(cell: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        state, outputs = None, []
        for step in range(batch.shape[1]):
            state = cell(batch[:, step], state)
            outputs.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(outputs, 1)

    return Net(layer, run)


NETS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: Net(nn.Linear(4, 3)),
    "square_linear": lambda: Net(nn.Linear(4, 4)),
    "conv1d": lambda: Net(nn.Conv1d(4, 3, 2)),
    "conv2d": lambda: Net(nn.Conv2d(4, 4, (3, 2))),
    "square_conv2d": lambda: Net(nn.Conv2d(3, 3, 3, bias=False)),
    "grouped_conv2d": lambda: Net(nn.Conv2d(4, 6, 3, groups=2)),
    "conv3d": lambda: Net(nn.Conv3d(4, 3, (1, 2, 3))),
    "conv_transpose1d": lambda: Net(nn.ConvTranspose1d(4, 3, 2, stride=2)),
    "conv_transpose2d": lambda: Net(nn.ConvTranspose2d(4, 4, (3, 2), stride=(3, 2))),
    "conv_transpose3d": lambda: Net(nn.ConvTranspose3d(4, 3, (1, 2, 3), stride=(1, 2, 3))),
    "depthwise_conv1d": lambda: Net(nn.Conv1d(4, 8, 3, groups=4)),
    "depthwise_conv2d": lambda: Net(nn.Conv2d(4, 8, (2, 3), groups=4)),
    "single_depthwise_conv2d": lambda: Net(nn.Conv2d(3, 3, 3, groups=3)),
    "batch_norm": lambda: Net(nn.BatchNorm2d(4)),
    "layer_norm": lambda: Net(nn.LayerNorm(4)),
    "group_norm": lambda: Net(nn.GroupNorm(2, 4)),
    "instance_norm": lambda: Net(nn.InstanceNorm2d(4, affine=True)),
    "embedding": lambda: Net(nn.Embedding(5, 4)),
    "square_embedding": lambda: Net(nn.Embedding(4, 4)),
    "lstm": lambda: recurrent(nn.LSTM(4, 3, batch_first=True)),
    "square_lstm": lambda: recurrent(nn.LSTM(4, 4, batch_first=True)),
    "gru": lambda: recurrent(nn.GRU(4, 4, batch_first=True)),
    "rnn": lambda: recurrent(nn.RNN(4, 4, batch_first=True)),
    "bidirectional_lstm": lambda: recurrent(nn.LSTM(4, 3, batch_first=True, bidirectional=True)),
    "bidirectional_gru": lambda: recurrent(nn.GRU(4, 4, batch_first=True, bidirectional=True)),
    "stacked_lstm": lambda: recurrent(nn.LSTM(4, 2, num_layers=2, batch_first=True, bidirectional=True)),
    "stacked_square_gru": lambda: recurrent(nn.GRU(4, 4, num_layers=2, batch_first=True)),
    "lstm_cell": lambda: by_steps(nn.LSTMCell(4, 4)),
    "gru_cell": lambda: by_steps(nn.GRUCell(4, 3)),
    "attention": lambda: attention(nn.MultiheadAttention(4, 2, batch_first=True)),
    "prelu": lambda: Net(nn.PReLU(4)),
    "weight_norm_linear": lambda: Net(nn.utils.weight_norm(nn.Linear(4, 3), dim=0)),
    "weight_norm_conv2d": lambda: Net(nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3))),
    "weight_norm_conv_transpose1d": lambda: Net(nn.utils.weight_norm(nn.ConvTranspose1d(4, 3, 2))),
    "bilinear": lambda: Net(nn.Bilinear(4, 4, 3), lambda module, batch: module(batch, batch)),
}


def randomize(net: nn.Module, seed: int = 0) -> None:
    """Every parameter and buffer random; what has to be positive is."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if not tensor.is_floating_point():
                continue
            values = torch.randn(tensor.shape, generator=generator) * 0.5
            tensor.copy_(values.abs() + 0.5 if name.endswith(("var", "weight_g", "original0")) else values)
    net.eval()


def save(net: nn.Module, path: Path) -> None:
    torch.save(net.state_dict(), path)


def load(net: nn.Module, path: Path) -> None:
    net.load_state_dict(torch.load(path, weights_only=True))
    net.eval()


def run(net: nn.Module, batch: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return net(torch.from_numpy(batch)).numpy()
