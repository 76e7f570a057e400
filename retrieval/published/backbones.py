"""Recognise published backbones by their weights, and convert BUTD's ResNet-101 for `transformers`."""

import re
from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goalgrid.grid import optional_dependencies
from goalgrid.grid.errors import UserError
from goalgrid.grid.store.files import atomic_write, write_json
from goalgrid.retrieval.published.checkpoint_files import CheckpointFile

BUTD = "butd/resnet-101"
"""Name of BUTD's backbone in recipes."""
FOLDERS = {
    (1024, 14, 336): "openai/clip-vit-large-patch14-336",
    (1024, 14, 224): "openai/clip-vit-large-patch14",
    (768, 16, 224): "openai/clip-vit-base-patch16",
    (768, 32, 224): "openai/clip-vit-base-patch32",
}
"""Names on the model hub by width of the image tower, patch size and image size (pixels)."""

_BLOCK = re.compile(r"img_enc\.cnn\.layer(\d)\.(\d+)\.conv(\d)\.weight$")
_BUTD = re.compile(r"(base|top)\.(\d+)\.(?:(\d+)\.)?(?:(conv|bn|downsample\.)(\d)\.)?(\w+)$")


def clip(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Derive a CLIP model's settings from weights with transformers' or OpenAI's names.

    `clip` stands for sizes that no OpenAI model has.
    """
    theirs = "visual.conv1.weight" in weights
    patches = weights["visual.conv1.weight" if theirs else "vision_model.embeddings.patch_embedding.weight"]
    table = "visual.positional_embedding" if theirs else "vision_model.embeddings.position_embedding.weight"
    cells = len(weights[table]) - 1
    size = isqrt(cells) * int(patches.shape[-1])
    name = FOLDERS.get((int(patches.shape[0]), int(patches.shape[-1]), size), "clip")
    return {"image.weights": name, "text.weights": name, "image.size": size}


def resnet(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Derive the settings of `model.image` for the ResNet in `img_enc.cnn`, with bottleneck or basic blocks."""
    blocks = {
        tuple(map(int, match.groups())): value for name, value in weights.items() if (match := _BLOCK.match(name))
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


def convert(source: Path, folder: Path) -> int:
    """Write BUTD's backbone to a folder, and return the number of tensors.

    Raises UserError if `source` is another network.
    """
    optional_dependencies.require("a backbone for transformers", "transformers")
    from safetensors.torch import save_file

    if (described := folder / "config.json").exists():  # written last
        raise UserError(f"{folder} holds a network already, there is {described.name}; give a new folder.")
    weights, config = butd(CheckpointFile.read(source))
    with atomic_write(folder / "model.safetensors") as path:
        save_file(weights, path, metadata={"format": "pt"})
    write_json(described, config)
    return len(weights)


def butd(file: CheckpointFile) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Convert BUTD's backbone to weights and configuration of `transformers`; raises UserError for other networks.

    Its first convolution reads BGR and is flipped to RGB. Blocks stride in their first convolution, and the first
    pooling has no padding, as in VSE-infinity's lib/modules/resnet.py, the source of `original_updown_backbone.pth`.
    """
    tensors, weights = file.weights, dict[str, Tensor]()
    for name, value in tensors.items():
        if match := _BUTD.match(name):
            weights[_name_in_transformers(*match.groups())] = value.float().contiguous()
    stem, stages = "embedder.embedder.convolution.weight", "encoder.stages.{}.layers.{}.layer.2.convolution.weight"
    depths = [sum(stages.format(stage, block) in weights for block in range(100)) for stage in range(4)]
    if len(weights) != len(tensors) or stem not in weights or not all(depths):
        odd = next((f"it holds {name!r}" for name in tensors if not _BUTD.match(name)), "it lacks layers")
        raise UserError(
            f"{file.path} is not the backbone of BUTD's detector: {odd}. VSE-infinity's "
            "original_updown_backbone.pth has the first layers and three stages under 'base', the fourth under 'top'."
        )
    weights[stem] = weights[stem].flip(1).contiguous()
    for name in [name for name in weights if name.endswith("running_mean")]:  # old files lack the counts
        weights.setdefault(name.replace("running_mean", "num_batches_tracked"), torch.tensor(0))
    return weights, {
        "architectures": ["ResNetModel"],
        "model_type": "resnet",
        "embedding_size": len(weights[stem]),
        "hidden_sizes": [len(weights[stages.format(stage, 0)]) for stage in range(4)],
        "depths": depths,
        "layer_type": "bottleneck",
        "downsample_in_bottleneck": True,
        "pools_without_margin": True,
    }


def _name_in_transformers(
    part: str, place: str, block: str | None, kind: str | None, number: str | None, last: str
) -> str:
    """Translate e.g. `base.4.0.conv1.weight` to `encoder.stages.0.layers.0.layer.0.convolution.weight`."""
    if block is None:
        return f"embedder.embedder.{'convolution' if place == '0' else 'normalization'}.{last}"
    assert number is not None
    stage = int(place) - 4 if part == "base" else 3
    within = "shortcut" if kind == "downsample." else f"layer.{int(number) - 1}"
    normal = kind == "bn" or (kind == "downsample." and number == "1")
    return f"encoder.stages.{stage}.layers.{block}.{within}.{'normalization' if normal else 'convolution'}.{last}"
