"""Memory and work beside training: a test, its second stage, the ranking of a training split."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from goalgrid.grid.settings import TrialSettings
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.model import Vse
from goalgrid.retrieval.parts.aoq.candidates import CAPTIONS, IMAGES, SCORES, most_similar
from goalgrid.retrieval.parts.xvlm import rerank
from goalgrid.retrieval.scorers.sets import Sets
from goalgrid.runners.gpu.architectures import from_architecture, untrained_model
from goalgrid.runners.gpu.fake_inputs import Shapes, around, captions, images
from goalgrid.runners.gpu.trace import Trace, Work, remove_data, without_data
from goalgrid.runners.training.embedding import EMBED_BATCH, TILE
from goalgrid.runners.training.machine import precision


def evaluation(
    model: Vse, settings: TrialSettings, shapes: Shapes, mode: AbstractContextManager[Any], trace: Trace
) -> tuple[Work, Work, Work]:
    """The work of embedding an image, of embedding a caption, and of scoring a pair; the whole split is in memory."""
    model, count = model.eval(), settings.train.batch_size if len(shapes.image) == 3 else EMBED_BATCH
    given = images(shapes, count, mode, trace)
    tokens = captions(shapes, around(shapes.typical, EMBED_BATCH), mode, trace)
    with torch.no_grad(), mode:
        with trace, precision(settings, torch.device("cpu")):
            trace.begin()
            image = model.embed_images(given)
            of_image = trace.work * (1 / count)
            trace.begin()
            text = model.embed_texts(*tokens)
            of_text = trace.work * (1 / EMBED_BATCH)
        vectors = image.vectors if isinstance(image, Sets) else image
        size = vectors[0].numel() * vectors.element_size()
        split_bytes = [size * shapes.images, *([size * shapes.texts] if isinstance(image, Tensor) else [])]
        several = [
            trace.allocator.allocate(amount) for amount in split_bytes for _ in range(2)
        ]  # parts, and all joined
        with trace:
            trace.begin()
            shown = image[: min(TILE, count)]
            model.scores(shown, text)
            of_pair = trace.work * (1 / (len(shown) * EMBED_BATCH))
        for block in several:
            trace.allocator.release(block)
    return of_image, of_text, of_pair


def second_stage(
    model: Vse, settings: TrialSettings, shapes: Shapes, mode: AbstractContextManager[Any], trace: Trace
) -> Work | None:
    """The work of scoring a pair by the second stage, without embedding it again; None without such an encoder.

    The states of all captions are in memory, without padding.
    """
    if not settings.model.ranked_anew:
        return None
    given = cast("Any", model)
    pixels = images(shapes, 1, mode, trace)
    least, _ = pairs_ranked_anew(settings, shapes.images, shapes.texts, [None])
    lengths = np.sort(around(shapes.typical, max(1, round(least / max(1, shapes.images)))))
    with torch.no_grad(), mode, trace, precision(settings, torch.device("cpu")):
        tokens = given.image.tokens(pixels)
        states = given.text.states(*captions(shapes, around(shapes.typical, 2), mode, trace))
        width, size = states.shape[-1], states.element_size()
        of_split = shapes.texts * shapes.typical * width * size
        several = [trace.allocator.allocate(of_split) for _ in range(2)]  # parts, and all joined
        trace.allocator.release(several.pop())
        packed = states.new_empty(int(lengths.sum()), width)
        trace.begin()
        candidates = rerank.PackedStates(packed, lengths, np.arange(len(lengths)))
        rerank.scores_of_image(given.fusion, candidates, tokens, candidates.place)
        trace.allocator.release(several.pop())
    return trace.work * (1 / len(lengths))


def pairs_ranked_anew(
    settings: TrialSettings, images: int, texts: int, folds: Sequence[int | None]
) -> tuple[float, float]:
    """Bounds on the pairs of a test that the fusion encoder scores: each query's candidates, each pair once.

    Lower bound: all short-list entries are mutual; upper bound: none is.

    Args:
        folds: images of a fold, for each protocol; None: the split as a whole.
    """
    k = settings.model.ranked_anew

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


def ranking(settings: TrialSettings, shapes: Shapes, places: Places, split: tuple[int, int]) -> tuple[int, Work]:
    """Bytes and work of ranking a training split for offline negatives by a trained model.

    Args:
        split: numbers of images and captions.
    """
    parts = {name: from_architecture(getattr(settings.model, name), places) for name in ("image", "text")}
    settings = settings.model_copy(update={"model": settings.model.model_copy(update=parts)})
    model = untrained_model(settings, shapes, places)
    with without_data() as mode:
        trace = Trace()
        remove_data(model, mode, trace)
        of_image, of_text, _ = evaluation(model, settings, shapes, mode, trace)
        several = [trace.allocator.allocate(4 * count * settings.model.dim) for count in (*split, *split)]
        for block in several[:2]:  # the embedded parts are joined by now
            trace.allocator.release(block)
        work = of_image * split[0] + of_text * split[1]
        for (anchors, others), most in (split, CAPTIONS), (split[::-1], IMAGES):
            work += _search(anchors, others, min(most, others - 1), settings.model.dim, mode, trace)
    return trace.allocator.most_reserved, work


def _search(anchors: int, others: int, most: int, width: int, mode: AbstractContextManager[Any], trace: Trace) -> Work:
    """The work of finding the candidates of all anchors, from the work of a block."""
    rows = min(anchors, max(1, SCORES // others))
    with mode:
        queries, candidates = torch.zeros(rows, width), torch.zeros(others, width)
        query_images, candidate_images = torch.zeros(rows), torch.zeros(others)
        with trace:
            trace.begin()
            most_similar(queries, candidates, query_images, candidate_images, most)
    return trace.work * (anchors / rows)
