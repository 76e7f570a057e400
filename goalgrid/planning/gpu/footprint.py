"""Compute memory and work of a trial on a GPU without a GPU, by running the real model on tensors without data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from goalgrid.grid.settings import TrialSettings
from goalgrid.planning.gpu.outcomes import Hollow
from goalgrid.planning.gpu.shapes_of_data import Shapes
from goalgrid.planning.gpu.trace import Trace, Work, remove_data, without_data
from goalgrid.planning.gpu.untrained import rehearsing, untrained_model, without_weights
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.model import DualEncoder
from goalgrid.retrieval.scorers.sets import TokenSets
from goalgrid.runners.gpu.memory_probe import trained_by
from goalgrid.runners.training.embedding import EMBED_BATCH, TILE
from goalgrid.runners.training.inputs import Added, Batch
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import precision

MOMENTS = dict[tuple[type, Tensor], dict[str, Any]]()
"""Optimiser moments of traced learners, by type of optimiser and weight."""


@dataclass(frozen=True)
class Footprint:
    """Memory and work of a trial on a GPU."""

    reserved: int
    """Peak bytes held by the allocator, including fragmentation."""
    trained: int
    """The same peak in training, before the evaluation."""
    step: Work
    """A training step (empty without training); then one of a warm-up epoch, and one with a frozen image backbone."""
    warming: Work
    frozen: Work
    image: Work
    """Embedding one image in evaluation; then one caption; then scoring one pair."""
    text: Work
    score: Work
    rerank: Work | None
    """Scoring one pair in the second stage; None without one."""
    weights: int = 0
    """Bytes of all trainable weights, then the number of their tensors."""
    tensors: int = 0

    def again(self, batch: int, parts: int = 1) -> "Footprint":
        """Return the footprint with every step's embeddings computed twice, in `parts`; evaluation is unchanged.

        Each part after the first adds its gradients to the existing ones.
        """
        twice, added = (self.image + self.text) * batch, parts - 1
        steps = {
            kind: replace(
                work + twice,
                bytes=work.bytes + twice.bytes + 3 * added * self.weights,
                launches=parts * (work.launches + twice.launches) + added * self.tensors,
            )
            for kind in ("step", "warming", "frozen")
            if (work := getattr(self, kind)).launches
        }
        return replace(self, **steps)

    def of_pairs(self, pairs: float, batch: int, half: int) -> float:
        """Return the bytes of a batch, or of a part of it, with fewer pairs, by linear interpolation.

        Args:
            half: bytes with half of the pairs.
        """
        taken = self.trained - 2 * (self.trained - half) * (1 - pairs / batch)
        return max(taken, self.reserved) if self.reserved > self.trained else taken  # the evaluation needs more


def estimate(settings: TrialSettings, shapes: Shapes, places: Places) -> Footprint:
    """Compute memory and work of a trial: the heaviest step (longest captions, no layer frozen), typical steps, and
    evaluation.

    Raises:
        UserError: if the architecture of its weights is unknown.
    """
    batch, size = settings.train.batch_size, settings.train.micro_batch or settings.train.batch_size
    if settings.train.epochs and size < batch:
        whole = estimate(trained_by(settings, micro_batch=None), shapes, places)
        taken = round(whole.of_pairs(size, batch, half_peak(settings, shapes, places)))
        return replace(whole.again(batch, math.ceil(batch / size)), reserved=taken, trained=taken)
    learner = rehearsing(settings, shapes, places) if settings.train.epochs else None
    model = learner.model if learner else untrained_model(settings, shapes, places)
    trace, steps = Trace(), (Work(), Work(), Work())
    with without_data():
        if learner:
            without_weights(learner, trace)
            steps = rehearse(learner, shapes, trace, freezes=settings.train.frozen_epochs > 0)
        else:
            remove_data(model, trace)
        trained = trace.allocator.most_reserved
        parts_of_test = evaluation(model, settings, shapes, trace)
        rerank = second_stage(model, settings, shapes, trace)
    learnt = [weight.nbytes for group in model.groups().values() for weight in group] if learner else []
    return Footprint(trace.allocator.most_reserved, trained, *steps, *parts_of_test, rerank, sum(learnt), len(learnt))


def peak(settings: TrialSettings, shapes: Shapes, places: Places) -> int:
    """Return the peak bytes of the step that uses most memory."""
    learner, trace = rehearsing(settings, shapes, places), Trace()
    with without_data():
        without_weights(learner, trace)
        _make_moments(learner, trace)
        _heaviest_step(learner, shapes, trace)
    return trace.allocator.most_reserved


def half_peak(settings: TrialSettings, shapes: Shapes, places: Places) -> int:
    """Return the peak bytes of that step with half of the pairs: in a batch, or, for set scorers, in each part."""
    half = max(1, settings.train.batch_size // 2)
    changed = {"micro_batch": half} if settings.model.of_sets else {"micro_batch": None, "batch_size": max(2, half)}
    return peak(trained_by(settings, **changed), shapes, places)


def rehearse(learner: Learner, shapes: Shapes, trace: Trace, *, freezes: bool = False) -> tuple[Work, Work, Work]:
    """Run typical steps and the step that uses most memory; return the work of a typical, warm-up and frozen step.

    The optimiser's moments are created before, since its first step, which creates them, is not typical.

    Args:
        freezes: whether there are epochs with a frozen image backbone.
    """
    train = learner.settings.train
    typical = _batch(learner, shapes, around(shapes.typical, train.batch_size), trace)
    _make_moments(learner, trace)
    frozen = warming = step = _step(learner, train.epochs - 1, typical, trace)
    scorer = learner.model.networks[0].scorer
    if train.warmup_epochs and scorer and scorer.by_pair:  # then all scores get a gradient, not three a pair
        warming = _step(learner, 0, typical, trace)
    if freezes:
        frozen = _step(learner, train.epochs - 1, typical, trace, frozen=True)
    del typical
    _heaviest_step(learner, shapes, trace)
    return step, warming, frozen


def _make_moments(learner: Learner, trace: Trace) -> None:
    """Create gradients of all weights and the optimiser's moments; for networks shared by models, only once."""
    optimizer = learner.optimizer
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    with trace:
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        for weight in weights:
            if moments := MOMENTS.get((type(optimizer), weight)):
                optimizer.state[weight] = moments
                for moment in moments.values():
                    if isinstance(moment, Hollow):
                        trace.hold(moment)
        if len(optimizer.state) < len(weights):
            optimizer.step()
    MOMENTS.update({(type(optimizer), weight): moments for weight, moments in optimizer.state.items()})


def _heaviest_step(learner: Learner, shapes: Shapes, trace: Trace) -> None:
    lengths = np.full(learner.settings.train.batch_size, shapes.longest)  # all equal, for few groups of sets
    _step(learner, 0, _batch(learner, shapes, lengths, trace), trace)


def _step(learner: Learner, epoch: int, batch: Batch, trace: Trace, *, frozen: bool = False) -> Work:
    for method in learner.methods:
        method.reads_scores = False  # the scores have a shape, and no values
    learner.begin(epoch)
    learner.model.hold_image_backbone(frozen)
    trace.work = Work()
    with trace:
        learner.gradient(batch, 0.0)
        learner.optimizer.step()
    return trace.work


def _batch(learner: Learner, shapes: Shapes, lengths: np.ndarray, trace: Trace) -> Batch:
    """Return a batch on the device with captions of these lengths, including additions by training methods."""
    count, costs = len(lengths), [method.cost for method in learner.methods]
    embedded = np.tile(lengths, 1 + sum(cost.extra_pairs for cost in costs))
    read = images(shapes, len(embedded), trace), captions(shapes, embedded, trace)
    added = None
    if any(cost.meta_batch for cost in costs):
        pairs = images(shapes, count, trace), captions(shapes, lengths, trace)
        added = Added(meta_batch=Batch(torch.arange(count), *pairs))
    return Batch(torch.arange(count), *read, added)


def around(length: int, count: int) -> np.ndarray:
    """Return `count` lengths evenly spaced between 0.7 and 1.3 times `length`."""
    return np.linspace(0.7 * length, 1.3 * length, count).round().astype(np.int64).clip(min=1)


def images(shapes: Shapes, count: int, trace: Trace) -> Tensor:
    """Return `count` images on the device."""
    return trace.zeros((count, *shapes.image), torch.uint8 if len(shapes.image) == 3 else torch.float32)


def captions(shapes: Shapes, lengths: np.ndarray, trace: Trace) -> tuple[Tensor, Tensor]:
    """Return caption indices or features without values, and real lengths, since the host branches on these."""
    count, longest, width = len(lengths), int(lengths.max()), shapes.words
    shape = {"indices": (count, longest), "states": (count, longest, width), "projected": (count, width)}
    kind = torch.int64 if shapes.captions == "indices" else torch.float16
    return trace.zeros(shape[shapes.captions], kind), torch.from_numpy(lengths)


def evaluation(model: DualEncoder, settings: TrialSettings, shapes: Shapes, trace: Trace) -> tuple[Work, Work, Work]:
    """Return the work of embedding one image, one caption, and of scoring one pair, with the whole split in memory."""
    model, count = model.eval(), settings.train.batch_size if len(shapes.image) == 3 else EMBED_BATCH
    given = images(shapes, count, trace)
    tokens = captions(shapes, around(shapes.typical, EMBED_BATCH), trace)
    with torch.no_grad():
        with trace, precision(settings, torch.device("cpu")):
            trace.work = Work()
            image = model.embed_images(given)
            of_image = trace.work * (1 / count)
            trace.work = Work()
            text = model.embed_texts(*tokens)
            of_text = trace.work * (1 / EMBED_BATCH)
        vectors = image.vectors if isinstance(image, TokenSets) else image
        size = vectors[0].numel() * vectors.element_size()
        split_bytes = [size * shapes.images, *([size * shapes.texts] if isinstance(image, Tensor) else [])]
        blocks = [trace.allocator.allocate(amount) for amount in split_bytes for _ in range(2)]  # parts, and joined
        with trace:
            trace.work = Work()
            shown = image[: min(TILE["cuda"], count)]
            model.scores(shown, text)
            of_pair = trace.work * (1 / (len(shown) * EMBED_BATCH))
        for block in blocks:
            trace.allocator.release(block)
    return of_image, of_text, of_pair


def second_stage(model: DualEncoder, settings: TrialSettings, shapes: Shapes, trace: Trace) -> Work | None:
    """Return the work of scoring one already embedded pair in the second stage; None if there is no second stage.

    The states of all captions are in memory, without padding.
    """
    if not settings.model.rerank_k:
        return None
    given = cast("Any", model)
    pixels = images(shapes, 1, trace)
    least, _ = reranked_pairs(settings, shapes.images, shapes.texts, [None])
    lengths = np.sort(around(shapes.typical, max(1, round(least / max(1, shapes.images)))))
    with torch.no_grad(), trace, precision(settings, torch.device("cpu")):
        tokens = given.image.tokens(pixels)
        states = given.text.states(*captions(shapes, around(shapes.typical, 2), trace))
        width, size = states.shape[-1], states.element_size()
        of_split = shapes.texts * shapes.typical * width * size
        blocks = [trace.allocator.allocate(of_split) for _ in range(2)]  # parts, and all joined
        trace.allocator.release(blocks.pop())
        packed = states.new_empty(int(lengths.sum()), width)
        trace.work = Work()
        given.scores_anew(tokens, packed, lengths)
        trace.allocator.release(blocks.pop())
    return trace.work * (1 / len(lengths))


def reranked_pairs(
    settings: TrialSettings, images: int, texts: int, folds: Sequence[int | None]
) -> tuple[float, float]:
    """Return bounds on the number of test pairs that the second stage scores; each pair is scored once.

    Lower bound: all short-list entries are mutual; upper bound: none is.

    Args:
        folds: images per fold, for each protocol; None: the whole split.
    """
    k = settings.model.rerank_k

    def within(fold: int) -> tuple[float, float]:
        of_images, of_texts = fold * min(k, texts * fold / images), texts * fold / images * min(k, fold)
        whole = fold * texts * fold / images
        return images / fold * max(of_images, of_texts), images / fold * min(whole, of_images + of_texts)

    sizes = sorted({min(fold or images, images) for fold in folds})
    least, most = within(sizes[0])
    for smaller, fold in pairwise(sizes):
        new, further = 1 - smaller / fold, within(fold)  # all pairs within a smaller fold are listed there
        least, most = least + new * (further[0] - texts), most + new * further[1]
    return least, most
