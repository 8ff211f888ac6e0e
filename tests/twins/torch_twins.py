"""The torch side of models that exist in torch, Paddle and Keras with the same names of layers."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class ResNet(nn.Module):
    def __init__(self, classes_num: int = 10, channels: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3)
        self.bn = nn.BatchNorm2d(channels)
        self.layer1 = nn.Sequential(Block(channels), Block(channels))
        self.layer2 = nn.Sequential(Block(channels), Block(channels))
        self.fc = nn.Linear(channels, classes_num)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer2(self.layer1(torch.relu(self.bn(self.stem(x)))))
        return self.fc(x.mean((2, 3)))


class Crnn(nn.Module):
    def __init__(self, classes_num: int = 88) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.bn1 = nn.BatchNorm2d(6)
        self.fc5 = nn.Linear(12, 7, bias=False)
        self.bn5 = nn.BatchNorm1d(7)
        self.rnn = nn.GRU(7, 5, num_layers=1, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(10, classes_num)


class Encoder(nn.Module):
    """Linear, Embedding, LayerNorm, Conv1d and LSTM, with square matrices."""

    def __init__(self, size: int = 6, vocabulary: int = 6) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size)
        self.norm = nn.LayerNorm(size)
        self.conv = nn.Conv1d(size, size, 3)
        self.linear_q = nn.Linear(size, size)
        self.linear_k = nn.Linear(size, size)
        self.out = nn.Linear(size, 4)
        self.lstm = nn.LSTM(size, size)


class Wrapped(nn.Module):
    """A trainer's module around the model."""

    def __init__(self) -> None:
        super().__init__()
        self.net = ResNet()


class Broken(nn.Module):
    def __init__(self, size: int) -> None:
        raise ValueError(f"size {size} is odd\nsecond line")


class NotOnMeta(nn.Module):
    """Looks at its values while it is built, which the meta device cannot do."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 3)
        assert float(self.fc.weight.abs().sum()) > 0


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight


def factory(**kwargs: int) -> nn.Module:
    print("a constructor that talks")
    return ResNet(**kwargs)


instance = ResNet()
shapes = {"fc.weight": (4, 3), "fc.bias": (4,)}
number = 3
