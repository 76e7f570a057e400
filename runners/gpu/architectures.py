"""Models without trained weights: networks by the architecture of the weights that recipes name, and their sizes."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, check_known
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.image_encoders import BackboneSettings, HeadSettings
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.pretrained_networks import RANDOM, Pretrained
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.retrieval import features
from goalgrid.retrieval.data.content import Content
from goalgrid.retrieval.data.precomp import Features
from goalgrid.retrieval.encoders import image as image_encoders
from goalgrid.retrieval.encoders import text as text_encoders
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.encoders.text import features_of, text_network, width_of
from goalgrid.retrieval.encoders.vision import Vision
from goalgrid.retrieval.model import DualEncoder, class_of
from goalgrid.retrieval.splits.pairs import Pairs, Split
from goalgrid.retrieval.words.tokens import Tokens
from goalgrid.runners.gpu.memory_probe import heavy
from goalgrid.runners.gpu.shapes_of_data import WORDS, Shapes, expected_image
from goalgrid.runners.gpu.trace import Trace, Work, remove_data, unfilled, without_data
from goalgrid.runners.training import recomputation, training_methods
from goalgrid.runners.training.inputs import Inputs
from goalgrid.runners.training.learner import Learner, model_of

MODELS = dict[str, DualEncoder]()
"""Models of this process that were traced, by their settings and the shapes that they read."""
NETWORKS = dict[str, nn.Module]()
"""Pretrained networks in them."""
_SIZE_LATER = "The record of a trial has the number of its weights: goalgrid table GRID --metric parameters."

ARCHITECTURES = catalog.toml("goalgrid.runners.gpu", "architectures")
"""Of the weights that recipes name, by `transformers`' names, so that no weights need to be here."""


def from_architecture(part: Any, places: Places, hint: str = "Or say where they lie: --weights NAME=DIR.") -> Any:
    """Its settings with random weights of the same architecture, unless its weights are here; UserError: unknown."""
    if not isinstance(part, Pretrained) or part.weights == RANDOM or part.weights in places:
        return part
    check_known("architecture of weights", part.weights, ARCHITECTURES, hint=hint)
    architecture = ARCHITECTURES[part.weights]
    small = {"size": 64} if architecture["model_type"] in ("regnet", "resnet") else {}  # width is looked up with data
    return part.model_copy(update={"weights": RANDOM, "architecture": architecture, **small})


def in_architecture(model: ModelSettings, places: Places, *hint: str) -> ModelSettings:
    """The model with `from_architecture` of both encoders."""
    parts = {name: from_architecture(getattr(model, name), places, *hint) for name in ("image", "text")}
    return model.model_copy(update=parts)


def rehearsing(settings: TrialSettings, shapes: Shapes, places: Places) -> Learner:
    """A learner of the heaviest epochs with the `untrained_model`, to trace its steps; UserError: as of `Learner`."""
    settings = heavy(settings)
    model = untrained_model(settings, shapes, places)
    with unfilled():
        return Learner(settings, inputs_of(shapes, settings, places), model)


def untrained_model(settings: TrialSettings, shapes: Shapes, places: Places) -> DualEncoder:
    """The model of a trial before training, with uninitialised weights; built once for all trials that have it."""
    settings = settings.model_copy(update={"model": in_architecture(settings.model, places)})
    inputs = inputs_of(shapes, settings, places)
    key = repr((settings.model, shapes.image, inputs.words, settings.train.compile, places))
    if key not in MODELS:
        vision = patch.object(image_encoders, "Vision", _shared(Vision))
        text = patch.object(text_encoders, "text_network", _shared(text_network))
        with unfilled(), vision, text:
            MODELS[key] = model_of(settings, inputs)
            as_resnext(MODELS[key])
            remove_data(MODELS[key])
    model = MODELS[key]
    for block in recomputation.blocks(model):
        vars(block).pop("forward", None)  # of a trial that checkpoints its blocks
    return model


def _shared(build: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """The function, which builds a network once: models that have it are traced one after another."""

    def built(settings: Any, *sizes: Any) -> nn.Module:
        key = repr((build, settings.model_dump(exclude=set(HeadSettings.model_fields)), sizes))
        if key not in NETWORKS:
            NETWORKS[key] = build(settings, *sizes)
        return NETWORKS[key]

    return built


def inputs_of(shapes: Shapes, settings: TrialSettings, places: Places) -> Inputs:
    """A data set of these shapes without content, with stand-ins for what training methods prepare."""
    batch = settings.train.batch_size
    blank = Features(Path(), np.broadcast_to(np.float16(0), (batch, *shapes.image)), np.arange(batch))
    vocabulary: Any = range(shapes.words)  # it has a size and no words
    split = Split(blank, [""] * batch, np.arange(batch))
    tokens = Tokens(torch.ones(batch, 1, dtype=torch.int64), torch.ones(batch, dtype=torch.int64))
    pairs, device = Pairs(split, split, split), torch.device("cpu")
    prepared = training_methods.prepared(settings, lambda method: method.rehearsal(pairs))
    return Inputs(pairs, vocabulary, {"train": tokens}, device, places, Content("", "", ()), prepared)


def without_weights(learner: Learner, trace: Trace) -> None:
    """Replace all weights by tensors without data, and count their memory."""
    replaced = [remove_data(module, trace) for module in (learner.model, learner.objective)]
    if any(replaced):
        learner.take_weights()
    for method in learner.methods:
        if method.network is not None:
            remove_data(method.network, trace)


def of_features(backbone: BackboneSettings, places: Places) -> tuple[Work, tuple[int, ...]]:
    """The work of a frozen backbone on an image, and the shape of the features that training reads."""
    with unfilled():
        model = Vision(from_architecture(backbone, places), places).eval()
        as_resnext(model)
    shape = (features.BATCH["cuda"], 3, backbone.size, backbone.size)
    work, images = _frozen(model, lambda trace: (trace.zeros(shape, torch.uint8),), model)
    return work, tuple(images.shape[1:])


def of_caption_features(network: TransformerSettings, words: int, typical: int, places: Places) -> tuple[Work, int]:
    """The work of a frozen text network on a caption of `typical` tokens, and the width of its feature vectors."""
    part, count = from_architecture(network, places), features.BATCH["cuda"]
    with unfilled():
        model = text_network(part, words, places).eval()
    width = width_of(model, part)

    def captions(trace: Trace) -> tuple[Tensor, Tensor]:
        return trace.zeros((count, typical), torch.int64), torch.full((count,), typical)

    return _frozen(model, captions, lambda *given: features_of(model, network.output, *given))[0], width


def _frozen(
    model: nn.Module, given: Callable[[Trace], tuple[Tensor, ...]], run: Callable[..., Tensor]
) -> tuple[Work, Tensor]:
    """The work of a network on an entry of a batch, and its features of the batch."""
    with without_data():
        trace = Trace()
        remove_data(model, trace)
        batch = given(trace)
        with torch.no_grad(), torch.autocast("cpu", torch.float16), trace:
            result = run(*batch)
    return trace.work * (1 / features.BATCH["cuda"]), result


def as_resnext(model: nn.Module) -> None:
    """Give a network that stands for a ResNeXt its first layers, and 32 groups in each convolution that has groups."""
    for network in [part for part in model.modules() if type(part).__name__ == "RegNetModel"]:
        from transformers import ResNetConfig
        from transformers.models.resnet.modeling_resnet import ResNetEmbeddings

        setattr(network, "embedder", ResNetEmbeddings(ResNetConfig()))  # noqa: B010
        for part in network.modules():
            if isinstance(part, nn.Conv2d) and part.groups > 1:
                part.groups = 32
                part.weight = nn.Parameter(torch.empty(part.out_channels, part.in_channels // 32, 3, 3))


@dataclass(frozen=True)
class ModelSize:
    """Weights of the model in training, as in a record; of them, those that learn; and of frozen networks beside it."""

    parameters: int
    learning: int
    frozen: int = 0

    def __add__(self, other: "ModelSize") -> "ModelSize":
        return ModelSize(self.parameters + other.parameters, self.learning + other.learning, self.frozen + other.frozen)


def size_of(settings: ModelSettings, words: int = WORDS["coco"]) -> ModelSize:
    """The size of a model with a vocabulary of so many words; UserError: an architecture is not known here."""
    model, frozen = _blank(settings, words)
    return ModelSize(*model.sizes, frozen)


def check_recomputation(trials: Iterable[TrialSettings]) -> None:
    """As `recomputation.check` ahead of trainings that compute again and whose architectures are known here."""
    again = [settings for settings in trials if settings.train.computes_again and not settings.ensemble]
    models = list[tuple[TrialSettings, nn.Module]]()
    for settings in {(settings.recipe, settings.train, settings.model): settings for settings in again}.values():
        with suppress(UserError):  # else the training checks it as it begins
            models.append((settings, _blank(settings.model, WORDS["coco"])[0].train()))
    recomputation.check(models)


def _blank(settings: ModelSettings, words: int) -> tuple[DualEncoder, int]:
    """A model without values, and the number of weights of the frozen networks beside it."""
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
    """The number of word pieces of a text network's tokenizer."""
    from transformers import AutoConfig, BertConfig

    fields = dict(getattr(text, "architecture", None) or {"model_type": "bert"})
    config: Any = AutoConfig.for_model(str(fields.pop("model_type")), **fields)
    text_config = getattr(config, "text_config", config)
    return int(getattr(text_config, "vocab_size", BertConfig().vocab_size))


def _count(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())
