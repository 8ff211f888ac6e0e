"""Whole models in torch, small."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from translation.twins_torch import FAMILY, SUFFIX, load, randomize, run, save  # noqa: F401


class ConvBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.avg_pool2d(functional.relu(self.bn1(self.conv1(x))), (1, 2))


class Crnn(nn.Module):
    """Convolutions over (batch, 1, time, frequency), a recurrent layer over time, as transcribers of music have."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_block1 = ConvBlock(1, 4)
        self.conv_block2 = ConvBlock(4, 4)
        self.fc5 = nn.Linear(8, 8, bias=False)
        self.bn5 = nn.BatchNorm1d(8)
        self.gru = nn.GRU(8, 4, num_layers=2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv_block2(self.conv_block1(x))
        x = self.fc5(x.transpose(1, 2).flatten(2))
        x = functional.relu(self.bn5(x.transpose(1, 2)).transpose(1, 2))
        return torch.sigmoid(self.fc(self.gru(x)[0]))


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
            if inputs != outputs
            else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = x if self.downsample is None else self.downsample(x)
        x = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(x + kept)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(ResidualBlock(4, 4), ResidualBlock(4, 4))
        self.layer2 = nn.Sequential(ResidualBlock(4, 8), ResidualBlock(8, 8))
        self.fc = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer2(self.layer1(functional.relu(self.bn1(self.conv1(x)))))
        return self.fc(x.mean((2, 3)))


class Encoder(nn.Module):
    """An embedding and torch's own transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(x)))


class FeedForwardTransformer(nn.Module):
    """Attention and convolutions, as FastSpeech's encoder and decoder are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.self_attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm1 = nn.LayerNorm(8)
        self.conv1 = nn.Conv1d(8, 8, 3, padding=1)
        self.conv2 = nn.Conv1d(8, 8, 1)
        self.norm2 = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.self_attn(x, x, x)[0])
        hidden = self.conv2(functional.relu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)
        return self.norm2(x + hidden)


class FastSpeech(nn.Module):
    """Encoder, a predictor, decoder and postnet, without the length regulation, which has no weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 8, padding_idx=0)
        self.encoder = nn.ModuleList([FeedForwardTransformer() for _ in range(2)])
        self.predictor = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 1))
        self.decoder = nn.ModuleList([FeedForwardTransformer() for _ in range(2)])
        self.feat_out = nn.Linear(8, 8)
        self.postnet = nn.Sequential(nn.utils.weight_norm(nn.Conv1d(8, 8, 5, padding=2, bias=False)), nn.BatchNorm1d(8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.encoder:
            x = block(x)
        x = x * torch.sigmoid(self.predictor(x))
        for block in self.decoder:
            x = block(x)
        x = self.feat_out(x)
        return x + torch.tanh(self.postnet(x.transpose(1, 2))).transpose(1, 2)


MODELS = {"crnn": Crnn, "resnet": ResNet, "transformer": Encoder, "fastspeech": FastSpeech}
