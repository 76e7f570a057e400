"""Architectures of the pretrained weights that recipes name, to build models and compute sizes without the weights."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, check_known
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.pretrained_networks import RANDOM, Pretrained
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.encoders.text import text_network, width_of
from goalgrid.retrieval.encoders.vision import Vision
from goalgrid.retrieval.model import DualEncoder, class_of
from goalgrid.runners.training import recomputation

_SIZE_LATER = "The records of trials contain the number of weights: goalgrid table GRID --metric parameters."

REGIONS, VECTOR = (36, 2048), (2048,)
"""Assumed shapes of image features that are not on this machine: BUTD regions, or a single vector."""
WORDS = {"coco": 11_353, "flickr30k": 8_481}
"""Sizes of SCAN's published vocabularies."""
ARCHITECTURES = catalog.toml("goalgrid.runners.gpu", "architectures")
"""Architectures, in terms of `transformers`, of the weights that recipes name; so the weights need not be here."""


def from_architecture(part: Any, places: Places, hint: str = "Or give their folder: --weights NAME=DIR.") -> Any:
    """Replace missing weights in an encoder's settings by random ones of the same architecture.

    Raises UserError if the architecture is unknown.
    """
    if not isinstance(part, Pretrained) or part.weights == RANDOM or part.weights in places:
        return part
    check_known("architecture of weights", part.weights, ARCHITECTURES, hint=hint)
    architecture = ARCHITECTURES[part.weights]
    small = {"size": 64} if architecture["model_type"] in ("regnet", "resnet") else {}  # width is looked up with data
    return part.model_copy(update={"weights": RANDOM, "architecture": architecture, **small})


def in_architecture(model: ModelSettings, places: Places, *hint: str) -> ModelSettings:
    """Apply `from_architecture` to both encoders of a model."""
    parts = {name: from_architecture(getattr(model, name), places, *hint) for name in ("image", "text")}
    return model.model_copy(update=parts)


def as_resnext(model: nn.Module) -> None:
    """Turn a RegNet into a ResNeXt: replace its stem, and use 32 groups in each grouped convolution."""
    for network in [part for part in model.modules() if type(part).__name__ == "RegNetModel"]:
        from transformers import ResNetConfig
        from transformers.models.resnet.modeling_resnet import ResNetEmbeddings

        setattr(network, "embedder", ResNetEmbeddings(ResNetConfig()))  # noqa: B010
        for part in network.modules():
            if isinstance(part, nn.Conv2d) and part.groups > 1:
                part.groups = 32
                part.weight = nn.Parameter(torch.empty(part.out_channels, part.in_channels // 32, 3, 3))


def expected_image(model: ModelSettings) -> tuple[int, ...]:
    """Return the expected shape of an image; features have several vectors if the recipe pools, drops or needs them."""
    image = model.image
    if image.reads:
        return (sum(read.values for read in image.reads),)
    if image.view:
        return (3, image.view.size, image.view.size)
    pooled = getattr(image, "pooling", "mean") != "mean"
    several = model.of_sets or image.of_regions or pooled or getattr(image, "drop", 0.0) > 0
    return REGIONS if several else VECTOR


@dataclass(frozen=True)
class ModelSize:
    """Numbers of weights: of the model in training (as recorded), trainable ones, and those of frozen networks."""

    parameters: int
    learning: int
    frozen: int = 0

    def __add__(self, other: "ModelSize") -> "ModelSize":
        return ModelSize(self.parameters + other.parameters, self.learning + other.learning, self.frozen + other.frozen)


def size_of(settings: ModelSettings, words: int = WORDS["coco"]) -> ModelSize:
    """Return the size of a model with a vocabulary of `words` words; raise UserError if an architecture is unknown."""
    model, frozen = _blank(settings, words)
    return ModelSize(*model.sizes, frozen)


def check_recomputation(trials: Iterable[TrialSettings]) -> None:
    """Run `recomputation.check` in advance for trials with recomputation whose architectures are known."""
    again = [settings for settings in trials if settings.train.computes_again and not settings.ensemble]
    models = list[tuple[TrialSettings, nn.Module]]()
    for settings in {(settings.recipe, settings.train, settings.model): settings for settings in again}.values():
        with suppress(UserError):  # else the training checks it as it begins
            models.append((settings, _blank(settings.model, WORDS["coco"])[0].train()))
    recomputation.check(models)


def _blank(settings: ModelSettings, words: int) -> tuple[DualEncoder, int]:
    """Build a model on the meta device; return it and the number of weights of separate frozen networks."""
    pieces, frozen = settings.text.tokenizer is not None, 0
    settings = in_architecture(settings, {}, _SIZE_LATER)
    image_shape = expected_image(settings)
    with torch.device("meta"):
        image, text = settings.image, settings.text
        if image.feature_network:
            vision = Vision(from_architecture(image.feature_network, {}, _SIZE_LATER), {})
            as_resnext(vision)
            width, frozen = vision.width, _count(vision)
            image_shape = (width,) if image.feature_network.output != "grid" else (1, width)  # of any number of cells
        if pieces:
            words = _vocabulary(text)
        if text.feature_network:
            network = text_network(text.feature_network, words, {})
            words, frozen = width_of(network, text.feature_network), frozen + _count(network)
        model = class_of(settings)(settings, image_shape, words, seed=0, places={})
        if isinstance(image, Pretrained):
            as_resnext(model)
    return model, frozen


def _vocabulary(text: Any) -> int:
    """Return the vocabulary size of a text network's tokenizer."""
    from transformers import AutoConfig, BertConfig

    fields = dict(getattr(text, "architecture", None) or {"model_type": "bert"})
    config: Any = AutoConfig.for_model(str(fields.pop("model_type")), **fields)
    text_config = getattr(config, "text_config", config)
    return int(getattr(text_config, "vocab_size", BertConfig().vocab_size))


def _count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())
