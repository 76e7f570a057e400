"""The architecture of a ResNet of torchvision, told by its weights."""

import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

_BLOCK = re.compile(r"img_enc\.cnn\.layer(\d)\.(\d+)\.conv(\d)\.weight$")


def resnet(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """The settings of `model.image` for the ResNet below `img_enc.cnn`: its widths and depths.

    A block has three convolutions (bottleneck, ResNet-50 and larger) or two (basic).
    """
    blocks = {
        tuple(map(int, found.groups())): value for name, value in weights.items() if (found := _BLOCK.match(name))
    }
    last = max((conv for _, _, conv in blocks), default=3)
    stages = sorted({stage for stage, _, _ in blocks})
    stem = weights.get("img_enc.cnn.conv1.weight")
    return {
        "image.weights": "random",  # replaced by theirs
        "image.architecture": {
            "model_type": "resnet",
            "layer_type": "bottleneck" if last == 3 else "basic",
            "embedding_size": 64 if stem is None else int(stem.shape[0]),
            "hidden_sizes": [int(blocks[stage, 0, last].shape[0]) for stage in stages],
            "depths": [1 + max(block for of, block, _ in blocks if of == stage) for stage in stages],
        },
    }
