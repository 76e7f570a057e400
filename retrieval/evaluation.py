"""Retrieval in both directions: ranks by counting, then recalls. Functions of matrices, without model or device."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

RECALLS = (1, 5, 10)


@dataclass(frozen=True)
class Ranks:
    """Rank of the first right answer of every query, 0 is the best."""

    i2t: Int[np.ndarray, " i"]
    t2i: Int[np.ndarray, " t"]
    spread: float = math.nan
    """Standard deviation of the similarities; near 0 the model has collapsed."""
    folds: tuple["Ranks", ...] = ()
    """The parts that were ranked each for itself, whose metrics are averaged; none: ranked as a whole."""

    def metrics(self) -> dict[str, float]:
        """Recall@1, 5 and 10 and the median rank of both directions, and rsum, the sum of the six recalls.

        Recalls are in percent; median ranks count from 1. Over folds, each is the mean of the folds' own.
        """
        if self.folds:
            each = [fold.metrics() for fold in self.folds]
            return {name: float(np.mean([metrics[name] for metrics in each])) for name in each[0]}
        recalls = {f"{name}_r{k}": recall(ranks, k) for name, ranks in self._directions() for k in RECALLS}
        medians = {f"{name}_medr": float(np.floor(np.median(ranks))) + 1 for name, ranks in self._directions()}
        return {**recalls, **medians, "rsum": sum(recalls.values())}

    def _directions(self) -> tuple[tuple[str, np.ndarray], ...]:
        return ("i2t", self.i2t), ("t2i", self.t2i)


def recall(ranks: Int[np.ndarray, " q"], k: int) -> float:
    """Share of queries whose first right answer is among the k best, in percent."""
    return 100.0 * float((ranks < k).mean())


def rank(
    image: Float[Tensor, "i d"],
    text: Float[Tensor, "t d"],
    image_of_text: Int[np.ndarray, " t"],
    *,
    chunk: int = 256,
) -> Ranks:
    """Rank all texts for every image and all images for every text, `chunk` images at a time.

    The rank of a right answer is the number of wrong ones above it plus half of those that tie with it (rounded
    down), so that a collapsed model scores chance. Scores of right and wrong answers come from the same product.
    An image's rank is that of its best caption. An image without a caption gets the last rank.
    """
    owner = torch.from_numpy(np.ascontiguousarray(image_of_text)).to(text.device)
    i2t = torch.empty(len(image), dtype=torch.long, device=text.device)
    above = torch.zeros(len(text), dtype=torch.long, device=text.device)
    ties = torch.zeros_like(above)
    positive = _positive_scores(image, text, owner, chunk)
    for start in range(0, len(image), chunk):
        rows = torch.arange(start, min(start + chunk, len(image)), device=text.device)
        sim = image[rows] @ text.T
        right = owner == rows[:, None]
        best = sim.masked_fill(~right, -torch.inf).amax(dim=1, keepdim=True)
        tied = ((sim == best) & ~right).sum(dim=1)
        i2t[rows] = ((sim > best) & ~right).sum(dim=1) + tied // 2
        above += (sim > positive).sum(dim=0)
        ties += ((sim == positive) & ~right).sum(dim=0)
    return Ranks(i2t.cpu().numpy(), (above + ties // 2).cpu().numpy(), spread(image, text))


def rank_in_folds(
    image: Float[Tensor, "i d"], text: Float[Tensor, "t d"], image_of_text: Int[np.ndarray, " t"], fold: int | None
) -> Ranks:
    """Rank within contiguous folds of `fold` images and their texts; the ranks of all queries in the split's order.

    Args:
        fold: images of one fold; None: the split is ranked as a whole.
    """
    if fold is None:
        return rank(image, text, image_of_text)
    i2t, t2i = np.empty(len(image), dtype=np.int64), np.empty(len(text), dtype=np.int64)
    parts = []
    for start in range(0, len(image), fold):
        texts = np.flatnonzero((image_of_text >= start) & (image_of_text < start + fold))
        part = rank(image[start : start + fold], text[torch.from_numpy(texts)], image_of_text[texts] - start)
        i2t[start : start + fold], t2i[texts] = part.i2t, part.t2i
        parts.append(part)
    return Ranks(i2t, t2i, spread(image, text), tuple(parts))


def spread(image: Float[Tensor, "i d"], text: Float[Tensor, "t d"], *, sample: int = 512) -> float:
    """Standard deviation of the similarities of up to `sample` images and texts, spread evenly over the split."""
    few = [
        vectors[torch.linspace(0, len(vectors) - 1, min(sample, len(vectors)), device=vectors.device).long()]
        for vectors in (image, text)
    ]
    return float((few[0] @ few[1].T).std(correction=0))


def _positive_scores(
    image: Float[Tensor, "i d"], text: Float[Tensor, "t d"], owner: Int[Tensor, " t"], chunk: int
) -> Float[Tensor, " t"]:
    """Score of every text with its own image, taken from the chunked product: a dot product alone rounds otherwise."""
    positive = torch.empty(len(text), dtype=text.dtype, device=text.device)
    for start in range(0, len(image), chunk):
        block = image[start : start + chunk]
        inside = ((owner >= start) & (owner < start + len(block))).nonzero()[:, 0]
        sim = block @ text.T
        positive[inside] = sim[owner[inside] - start, inside]
    return positive
