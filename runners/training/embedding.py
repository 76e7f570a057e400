"""Embeddings of a whole split."""

import numpy as np
import torch
from torch import Tensor

from grid.settings import TrialSettings
from retrieval.model import Vse
from retrieval.prefetch import ahead
from retrieval.splits.pairs import Split
from runners.training.inputs import Inputs

EMBED_BATCH = 512
"""Feature vectors or captions embedded at a time when evaluating; pixels use the batch size of training."""


def precision(settings: TrialSettings, device: torch.device) -> torch.autocast:
    """Autocast of encoders to bfloat16 where the recipe says so; objectives switch it off for themselves."""
    return torch.autocast(device.type, torch.bfloat16, enabled=settings.train.precision == "bf16")


def embedded(model: Vse, settings: TrialSettings, inputs: Inputs, split_name: str) -> tuple[Tensor, Tensor, np.ndarray]:
    """Embeddings of a split's images and captions, and the image that each caption describes.

    The validation split is cut to `dataset.val_images`.
    """
    split: Split = getattr(inputs.pairs, split_name)
    images, texts = split.first(settings.dataset.val_images if split_name == "val" else None)
    device, tokens = inputs.device, inputs.tokens[split_name]
    size = EMBED_BATCH if len(split.images.shape) < 3 else settings.train.batch_size
    image, text = list[Tensor](), list[Tensor]()
    model.eval()
    with torch.inference_mode(), precision(settings, device):
        for batch in ahead(lambda rows: split.images.gather(rows.numpy()), torch.arange(images).split(size)):
            image.append(model.embed_images(batch.to(device)))
        for rows in torch.from_numpy(texts).split(EMBED_BATCH):
            ids, lengths = tokens.gather(rows)
            text.append(model.embed_texts(ids.to(device), lengths))
        return torch.cat(image), torch.cat(text), split.image_of_text[texts]
