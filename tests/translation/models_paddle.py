"""The same models in Paddle."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional
from translation.twins_paddle import FAMILY, SUFFIX, load, randomize, run, save  # noqa: F401


class ConvBlock(nn.Layer):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2D(inputs, outputs, 3, padding=1, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(outputs)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return functional.avg_pool2d(functional.relu(self.bn1(self.conv1(x))), (1, 2))


class Crnn(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv_block1 = ConvBlock(1, 4)
        self.conv_block2 = ConvBlock(4, 4)
        self.fc5 = nn.Linear(8, 8, bias_attr=False)
        self.bn5 = nn.BatchNorm1D(8)
        self.gru = nn.GRU(8, 4, num_layers=2, direction="bidirect")
        self.fc = nn.Linear(8, 3)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.conv_block2(self.conv_block1(x))
        x = self.fc5(x.transpose([0, 2, 1, 3]).flatten(2))
        x = functional.relu(self.bn5(x.transpose([0, 2, 1])).transpose([0, 2, 1]))
        return functional.sigmoid(self.fc(self.gru(x)[0]))


class ResidualBlock(nn.Layer):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2D(inputs, outputs, 3, padding=1, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(outputs)
        self.conv2 = nn.Conv2D(outputs, outputs, 3, padding=1, bias_attr=False)
        self.bn2 = nn.BatchNorm2D(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2D(inputs, outputs, 1, bias_attr=False), nn.BatchNorm2D(outputs))
            if inputs != outputs
            else None
        )

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        kept = x if self.downsample is None else self.downsample(x)
        x = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(x + kept)


class ResNet(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2D(3, 4, 3, padding=1, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(4)
        self.layer1 = nn.Sequential(ResidualBlock(4, 4), ResidualBlock(4, 4))
        self.layer2 = nn.Sequential(ResidualBlock(4, 8), ResidualBlock(8, 8))
        self.fc = nn.Linear(8, 8)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.layer2(self.layer1(functional.relu(self.bn1(self.conv1(x)))))
        return self.fc(x.mean([2, 3]))


class Encoder(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8), 2)
        self.head = nn.Linear(8, 8)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return self.head(self.encoder(self.embed(x)))


class FeedForwardTransformer(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn = nn.MultiHeadAttention(8, 2)
        self.norm1 = nn.LayerNorm(8)
        self.conv1 = nn.Conv1D(8, 8, 3, padding=1)
        self.conv2 = nn.Conv1D(8, 8, 1)
        self.norm2 = nn.LayerNorm(8)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        x = self.norm1(x + self.self_attn(x))
        hidden = self.conv2(functional.relu(self.conv1(x.transpose([0, 2, 1])))).transpose([0, 2, 1])
        return self.norm2(x + hidden)


class FastSpeech(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.encoder = nn.LayerList([FeedForwardTransformer() for _ in range(2)])
        self.predictor = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 1))
        self.decoder = nn.LayerList([FeedForwardTransformer() for _ in range(2)])
        self.feat_out = nn.Linear(8, 8)
        self.postnet = nn.Sequential(
            nn.utils.weight_norm(nn.Conv1D(8, 8, 5, padding=2, bias_attr=False)), nn.BatchNorm1D(8)
        )

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        x = self.embed(tokens)
        for block in self.encoder:
            x = block(x)
        x = x * functional.sigmoid(self.predictor(x))
        for block in self.decoder:
            x = block(x)
        x = self.feat_out(x)
        return x + functional.tanh(self.postnet(x.transpose([0, 2, 1]))).transpose([0, 2, 1])


MODELS = {"crnn": Crnn, "resnet": ResNet, "transformer": Encoder, "fastspeech": FastSpeech}
