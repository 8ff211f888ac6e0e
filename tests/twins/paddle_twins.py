"""The Paddle side of the twins."""

from __future__ import annotations

from paddle import nn


class Block(nn.Layer):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2D(channels, channels, 3, padding=1)
        self.bn1 = nn.BatchNorm2D(channels)
        self.conv2 = nn.Conv2D(channels, channels, 3, padding=1)
        self.bn2 = nn.BatchNorm2D(channels)


class ResNet(nn.Layer):
    def __init__(self, classes_num: int = 10, channels: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2D(3, channels, 3)
        self.bn = nn.BatchNorm2D(channels)
        self.layer1 = nn.Sequential(Block(channels), Block(channels))
        self.layer2 = nn.Sequential(Block(channels), Block(channels))
        self.fc = nn.Linear(channels, classes_num)


class Crnn(nn.Layer):
    def __init__(self, classes_num: int = 88) -> None:
        super().__init__()
        self.conv1 = nn.Conv2D(1, 6, 3)
        self.bn1 = nn.BatchNorm2D(6)
        self.fc5 = nn.Linear(12, 7, bias_attr=False)
        self.bn5 = nn.BatchNorm1D(7)
        self.rnn = nn.GRU(7, 5, num_layers=1, direction="bidirect")
        self.fc = nn.Linear(10, classes_num)


class Encoder(nn.Layer):
    def __init__(self, size: int = 6, vocabulary: int = 6) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size)
        self.norm = nn.LayerNorm(size)
        self.conv = nn.Conv1D(size, size, 3)
        self.linear_q = nn.Linear(size, size)
        self.linear_k = nn.Linear(size, size)
        self.out = nn.Linear(size, 4)
        self.lstm = nn.LSTM(size, size)
