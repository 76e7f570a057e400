"""Build untrained models for tracing: the learner of a trial, and the frozen networks whose features it reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.image_encoders import BackboneSettings, HeadSettings
from goalgrid.grid.settings.text_encoders import TransformerSettings
from goalgrid.planning.gpu.shapes_of_data import Shapes
from goalgrid.planning.gpu.torch_private import replaced
from goalgrid.planning.gpu.trace import Trace, Work, remove_data, unfilled, without_data
from goalgrid.retrieval import features
from goalgrid.retrieval.data.content import Content
from goalgrid.retrieval.data.precomp import Features
from goalgrid.retrieval.encoders import image as image_encoders
from goalgrid.retrieval.encoders import text as text_encoders
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.encoders.text import features_of, text_network, width_of
from goalgrid.retrieval.encoders.vision import Vision
from goalgrid.retrieval.model import DualEncoder
from goalgrid.retrieval.splits.pairs import Pairs, Split
from goalgrid.retrieval.words.tokens import Tokens
from goalgrid.runners.gpu.architectures import as_resnext, from_architecture, in_architecture
from goalgrid.runners.gpu.memory_probe import heavy
from goalgrid.runners.training import recomputation, training_methods
from goalgrid.runners.training.inputs import Inputs
from goalgrid.runners.training.learner import Learner, model_of

_SIZE_LATER = "The record of a trial has the number of its weights: goalgrid table GRID --metric parameters."

MODELS = dict[str, DualEncoder]()
"""Traced models of this process, by their settings and input shapes."""
NETWORKS = dict[str, nn.Module]()
"""Pretrained networks shared by these models."""


def rehearsing(settings: TrialSettings, shapes: Shapes, places: Places) -> Learner:
    """Return a learner for the heaviest epochs with the `untrained_model`, to trace its steps; raises as `Learner`."""
    settings = heavy(settings)
    model = untrained_model(settings, shapes, places)
    with unfilled():
        return Learner(settings, inputs_of(shapes, settings, places), model)


def untrained_model(settings: TrialSettings, shapes: Shapes, places: Places) -> DualEncoder:
    """Return the model of a trial with uninitialised weights; it is built once for all trials with this model."""
    settings = settings.model_copy(update={"model": in_architecture(settings.model, places)})
    inputs = inputs_of(shapes, settings, places)
    key = repr((settings.model, shapes.image, inputs.words, settings.train.compile, places))
    if key not in MODELS:
        vision = replaced(image_encoders, Vision=_shared(Vision))
        text = replaced(text_encoders, text_network=_shared(text_network))
        with unfilled(), vision, text:
            MODELS[key] = model_of(settings, inputs)
            as_resnext(MODELS[key])
            remove_data(MODELS[key])
    model = MODELS[key]
    for block in recomputation.blocks(model):
        vars(block).pop("forward", None)  # of a trial that checkpoints its blocks
    return model


def _shared(build: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Return the function with its results cached, since models that share a network are traced one after another."""

    def built(settings: Any, *sizes: Any) -> nn.Module:
        key = repr((build, settings.model_dump(exclude=set(HeadSettings.model_fields)), sizes))
        if key not in NETWORKS:
            NETWORKS[key] = build(settings, *sizes)
        return NETWORKS[key]

    return built


def inputs_of(shapes: Shapes, settings: TrialSettings, places: Places) -> Inputs:
    """Return a data set of these shapes without content, with stand-ins for data prepared by training methods."""
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
    """Return the work of a frozen backbone per image, and the shape of its features."""
    with unfilled():
        model = Vision(from_architecture(backbone, places), places).eval()
        as_resnext(model)
    shape = (features.BATCH["cuda"], 3, backbone.size, backbone.size)
    work, images = _frozen(model, lambda trace: (trace.zeros(shape, torch.uint8),), model)
    return work, tuple(images.shape[1:])


def of_caption_features(network: TransformerSettings, words: int, typical: int, places: Places) -> tuple[Work, int]:
    """Return the work of a frozen text network per caption of `typical` tokens, and the width of its vectors."""
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
    """Return the work of a network per batch entry, and the features of the batch."""
    with without_data():
        trace = Trace()
        remove_data(model, trace)
        batch = given(trace)
        with torch.no_grad(), torch.autocast("cpu", torch.float16), trace:
            result = run(*batch)
    return trace.work * (1 / features.BATCH["cuda"]), result
