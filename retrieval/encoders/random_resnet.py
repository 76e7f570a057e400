"""ResNets with random weights, equal to those of `transformers`: the demo needs nothing else of that package."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn


class States(NamedTuple):
    """A map of cells (b, k, h, w), and its mean (b, k, 1, 1)."""

    last_hidden_state: Tensor
    pooler_output: Tensor


class RandomResnet(nn.Module):
    """ResNetModel of `transformers` 5 with layers of the type "basic": names, weights by a seed, and what it gives."""

    def __init__(self, architecture: Mapping[str, Any]) -> None:
        super().__init__()
        width, stages = architecture["embedding_size"], nn.Sequential()
        convolution, pool = _convolution(3, width, kernel=7, stride=2), nn.MaxPool2d(3, stride=2, padding=1)
        self.embedder = nn.Sequential(OrderedDict(embedder=convolution, activation=nn.ReLU(), pooler=pool))
        for outputs, depth in zip(architecture["hidden_sizes"], architecture["depths"], strict=True):
            further = (ResidualLayer(outputs, outputs) for _ in range(depth - 1))
            layers = nn.Sequential(ResidualLayer(width, outputs, stride=2 if len(stages) else 1), *further)
            stages.append(nn.Sequential(OrderedDict(layers=layers)))
            width = outputs
        self.encoder = nn.Sequential(OrderedDict(stages=stages))
        self.pooler = nn.AdaptiveAvgPool2d(1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.02)  # drawn and replaced, as there
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, pixels: Tensor) -> States:
        cells = self.encoder(self.embedder(pixels))
        return States(cells, self.pooler(cells))


class ResidualLayer(nn.Module):
    """A residual layer of two convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else _convolution(inputs, outputs, kernel=1, stride=stride)
        self.layer = nn.Sequential(_convolution(inputs, outputs, stride=stride), _convolution(outputs, outputs))

    def forward(self, values: Tensor) -> Tensor:
        first, second = self.layer
        changed: Tensor = second(first(values).relu()) + self.shortcut(values)
        return changed.relu()


def _convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(OrderedDict(convolution=convolution, normalization=nn.BatchNorm2d(outputs)))
