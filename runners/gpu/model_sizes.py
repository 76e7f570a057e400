"""The number of weights of an untrained model, which is built on the meta device, without reading weights."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.pretrained_networks import Pretrained
from goalgrid.retrieval.encoders.text import text_network, width_of
from goalgrid.retrieval.encoders.vision import Vision
from goalgrid.retrieval.model import class_of
from goalgrid.runners.gpu.architectures import as_resnext, from_architecture

_LATER = "The record of a trial has the number of its weights: goalgrid table GRID --metric parameters."


@dataclass(frozen=True)
class ModelSize:
    """Number of weights.

    Args:
        parameters: weights of the model in training, as in a record.
        learning: the part of them that training changes.
        frozen: weights of frozen networks whose features are cached.
    """

    parameters: int
    learning: int
    frozen: int = 0

    def __add__(self, other: "ModelSize") -> "ModelSize":
        return ModelSize(self.parameters + other.parameters, self.learning + other.learning, self.frozen + other.frozen)


def size_of(settings: ModelSettings, image_shape: tuple[int, ...], words: int) -> ModelSize:
    """The size of a model for these images and this vocabulary.

    Args:
        image_shape: shape of an image's features, if no network of the settings computes them.
        words: size of the vocabulary, if no tokenizer determines it.

    Raises:
        UserError: the architecture of its weights is not known here.
    """
    pieces = settings.text.tokenizer is not None
    settings = settings.model_copy(
        update={name: from_architecture(getattr(settings, name), {}, _LATER) for name in ("image", "text")}
    )
    frozen = 0
    with torch.device("meta"):
        image, text = settings.image, settings.text
        if image.feature_network:
            vision = Vision(from_architecture(image.feature_network, {}, _LATER), {})
            as_resnext(vision)
            width, frozen = vision.width, _count(vision)
            image_shape = (width,) if image.feature_network.output != "grid" else (image_shape[0], width)
        elif image.reads:
            image_shape = (sum(read.values for read in image.reads),)
        elif image.view:
            image_shape = (3, image.view.size, image.view.size)
        if pieces:
            words = _vocabulary(text)
        if text.feature_network:
            network = text_network(text.feature_network, words, {})
            words, frozen = width_of(network, text.feature_network), frozen + _count(network)
        model = class_of(settings)(settings, image_shape, words, seed=0, places={})
        if isinstance(image, Pretrained):
            as_resnext(model)
    learning = sum(weight.numel() for group in model.groups().values() for weight in group)
    return ModelSize(_count(model), learning, frozen)


def _vocabulary(text: Any) -> int:
    """The number of word pieces of a text network's tokenizer."""
    from transformers import AutoConfig, BertConfig

    fields = dict(getattr(text, "architecture", None) or {"model_type": "bert"})
    config: Any = AutoConfig.for_model(str(fields.pop("model_type")), **fields)
    text_config = getattr(config, "text_config", config)
    return int(getattr(text_config, "vocab_size", BertConfig().vocab_size))


def _count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())
