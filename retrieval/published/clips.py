"""Which CLIP a state dict is of, told by its sizes."""

from collections.abc import Mapping
from math import isqrt
from typing import Any

from torch import Tensor

FOLDERS = {
    (1024, 14, 336): "openai/clip-vit-large-patch14-336",
    (1024, 14, 224): "openai/clip-vit-large-patch14",
    (768, 16, 224): "openai/clip-vit-base-patch16",
    (768, 32, 224): "openai/clip-vit-base-patch32",
}
"""Names on the model hub by width of the image tower, and by the sides of patch and picture in pixels."""


PATCHES = "visual.conv1.weight"
"""The weights of the patches, by OpenAI's name."""


def clip(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """The settings of the model: the CLIP that has its tokenizer and sizes, `clip` where none of OpenAI's has them.

    Args:
        weights: by the names of transformers, or by OpenAI's.
    """
    theirs = PATCHES in weights
    patches = weights[PATCHES if theirs else "vision_model.embeddings.patch_embedding.weight"]
    table = "visual.positional_embedding" if theirs else "vision_model.embeddings.position_embedding.weight"
    cells = len(weights[table]) - 1
    size = isqrt(cells) * int(patches.shape[-1])
    name = FOLDERS.get((int(patches.shape[0]), int(patches.shape[-1]), size), "clip")
    return {"image.weights": name, "text.weights": name, "image.size": size}
