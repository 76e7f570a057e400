"""Memory and work of a trial on a GPU, computed without a GPU: the real model takes steps on tensors without data."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from goalgrid import objectives
from goalgrid.grid.expansion import Shared
from goalgrid.grid.objectives import needs
from goalgrid.grid.settings import TrialSettings
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.runners.gpu.architectures import from_architecture, learner_of, untrained_model, without_weights
from goalgrid.runners.gpu.estimate_evaluation import evaluation, second_stage
from goalgrid.runners.gpu.fake_inputs import Shapes, around, captions, images
from goalgrid.runners.gpu.memory_probe import heavy
from goalgrid.runners.gpu.trace import Trace, Unfilled, Work, remove_data, without_data
from goalgrid.runners.training.inputs import Batch
from goalgrid.runners.training.learner import Learner


@dataclass(frozen=True)
class Footprint:
    """Memory and work of a trial on a GPU.

    Args:
        allocated: bytes of tensors at the peak.
        reserved: bytes that the allocator holds for them, gaps included.
        step: work of a training step; empty without training.
        warming: work of a step of the warm-up epochs.
        frozen: work of a step with a frozen image backbone.
        image, text: work of embedding an image or a caption in evaluation.
        score: work of scoring an image with a caption.
        anew: work of scoring a pair in the second stage; None without one.
    """

    allocated: int
    reserved: int
    step: Work
    warming: Work
    frozen: Work
    image: Work
    text: Work
    score: Work
    anew: Work | None


def estimate(settings: TrialSettings, shapes: Shapes, places: Places) -> Footprint:
    """Memory and work of a trial: a step on the longest captions with every layer unfrozen, typical steps, evaluation.

    Raises:
        UserError: the architecture of its weights is not known here.
    """
    parts = {name: from_architecture(getattr(settings.model, name), places) for name in ("image", "text")}
    settings = settings.model_copy(update={"model": settings.model.model_copy(update=parts)})
    freezes, trains = settings.train.frozen_epochs > 0, settings.train.epochs > 0
    settings = heavy(settings) if trains else settings
    with Unfilled():
        learner = learner_of(settings, shapes, places) if trains else None
    model = learner.model if learner else untrained_model(settings, shapes, places)
    trace, steps = Trace(), (Work(), Work(), Work())
    with without_data() as mode:
        if learner:
            without_weights(learner, mode, trace)
            steps = rehearse(learner, shapes, mode, trace, freezes=freezes)
        else:
            remove_data(model, mode, trace)
        parts_of_test = evaluation(model, settings, shapes, mode, trace)
        anew = second_stage(model, settings, shapes, mode, trace)
    return Footprint(trace.allocator.most_allocated, trace.allocator.most_reserved, *steps, *parts_of_test, anew)


def rehearse(
    learner: Learner, shapes: Shapes, mode: AbstractContextManager[Any], trace: Trace, *, freezes: bool = False
) -> tuple[Work, Work, Work]:
    """Take typical steps and the step that uses most memory; returns the work of a typical, warm-up and frozen step.

    Args:
        mode: the mode of tensors without data.
        freezes: whether there are epochs with a frozen image backbone.
    """
    train = learner.settings.train
    typical = _batch(learner, shapes, around(shapes.typical, train.batch_size), mode, trace)
    frozen = warming = step = _step(learner, train.epochs - 1, typical, mode, trace)
    scorer = learner.model.networks[0].scorer
    if train.warmup_epochs and scorer and scorer.by_pair:  # then all scores get a gradient, not three a pair
        warming = _step(learner, 0, typical, mode, trace)
    if freezes:
        frozen = _step(learner, train.epochs - 1, typical, mode, trace, frozen=True)
    del typical
    longest = _batch(learner, shapes, np.full(train.batch_size, shapes.longest), mode, trace)  # for few groups of sets
    _step(learner, 0, longest, mode, trace)
    return step, warming, frozen


class Kind(NamedTuple):
    """The properties of an objective on which memory and work of a step depend.

    Args:
        needs: names of the parts that it needs.
        dense: whether all scores of sets get a gradient, not three a pair.
    """

    needs: tuple[str, ...]
    dense: bool


def kind_of(shared: Shared) -> Kind:
    """The kind of these trials' objective."""
    goal = shared.objective
    dense = False
    if shared.model.of_sets:
        dense = not objectives.build(goal.name, variant=goal.variant, **goal.parameters).learns_from_few
    return Kind(needs(goal.name), dense)


def _step(
    learner: Learner,
    epoch: int,
    batch: Batch,
    mode: AbstractContextManager[Any],
    trace: Trace,
    *,
    frozen: bool = False,
) -> Work:
    for companion in learner.companions:
        companion.rehearse()
    learner.begin(epoch)
    learner.model.hold_image_backbone(frozen)
    trace.begin()
    with mode, trace:
        learner.gradient(batch, 0.0)
        learner.optimizer.step()
    return trace.work


def _batch(
    learner: Learner, shapes: Shapes, lengths: np.ndarray, mode: AbstractContextManager[Any], trace: Trace
) -> Batch:
    """A batch on the device with captions of these lengths, and the further pairs that companions read."""
    count = len(lengths)
    embedded = np.tile(lengths, 1 + sum(companion.pairs_beside for companion in learner.companions))
    read = images(shapes, len(embedded), mode, trace), captions(shapes, embedded, mode, trace)
    second = None
    if any(companion.second_batch for companion in learner.companions):
        other = images(shapes, count, mode, trace), captions(shapes, lengths, mode, trace)
        second = Batch(torch.arange(count), *other)
    return Batch(torch.arange(count), *read, second=second)
