"""Retrieval in both directions: ranks by counting, then recalls. Functions of matrices, without model or device."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from retrieval.tiles import Tile, tiles

RECALLS = (1, 5, 10)

CHANCE_DEVIATIONS = 3
"""So many standard deviations above its mean, an rsum is no longer chance."""


@dataclass(frozen=True)
class Ranks:
    """Rank of the first right answer of every query, 0 is the best."""

    i2t: Int[np.ndarray, " i"]
    t2i: Int[np.ndarray, " t"]
    spread: float = math.nan
    """Standard deviation of the similarities; how small it may be depends on the objective and its scale."""
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


def chance_rsum(images: int, texts: int) -> float:
    """The largest rsum, in percent, that random rankings of so many images and texts plausibly reach.

    Mean plus `CHANCE_DEVIATIONS` standard deviations. An image has texts / images captions, which count as one query:
    a model that knows nothing may well treat them alike.
    """
    right = texts / images
    i2t = [1 - math.prod(max(0.0, 1 - right / (texts - above)) for above in range(min(k, texts))) for k in RECALLS]
    t2i = [min(1.0, k / images) for k in RECALLS]
    mean = sum(i2t) + sum(t2i)
    variance = sum(_variance_of_hits(shares) for shares in (i2t, t2i)) / images
    return 100 * (mean + CHANCE_DEVIATIONS * math.sqrt(variance))


def _variance_of_hits(shares: Sequence[float]) -> float:
    """Variance, over queries, of how many of the nested recalls a query adds to.

    Args:
        shares: of queries that add to each recall, the smallest first.
    """
    squared = sum((2 * (len(shares) - place) - 1) * share for place, share in enumerate(shares))
    return max(0.0, squared - sum(shares) ** 2)  # rounding: where every query adds to every recall, it is 0


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
    down), so that a collapsed model scores chance. Scores of right and wrong answers come from the same product,
    which is computed once for both directions. An image's rank is that of its best caption. An image without a
    caption gets the last rank.

    Args:
        image_of_text: row of each text's image, in any order.
    """
    owner = torch.from_numpy(np.ascontiguousarray(image_of_text)).to(text.device)
    order = torch.argsort(owner, stable=True)
    best, own = image.new_full((len(image),), -torch.inf), text.new_empty(len(text))
    i2t, t2i = (torch.zeros(len(queries), dtype=torch.long, device=text.device) for queries in (image, text))
    for tile in tiles(image, text, order, owner[order], chunk):
        if tile.right is not None:
            right = tile.sim.masked_fill(~tile.right, -torch.inf)
            best[tile.images], own[tile.texts] = right.amax(dim=1), right.amax(dim=0)
        i2t[tile.images] += _lead(tile, best[tile.images, None], dim=1)
        t2i[tile.texts] += _lead(tile, own[tile.texts], dim=0)
    wrong = len(text) - torch.bincount(owner, minlength=len(image))
    by_row = torch.empty_like(t2i)
    by_row[order] = (t2i + len(image) - 1) // 2
    return Ranks(((i2t + wrong) // 2).cpu().numpy(), by_row.cpu().numpy(), spread(image, text))


def _lead(tile: Tile, score: Float[Tensor, "..."], dim: int) -> Int[Tensor, " q"]:
    """How many more wrong answers of a tile are above `score` than below: with their number, 2 above + ties."""
    signs = (tile.sim - score).sign_()
    if tile.right is not None:
        signs.masked_fill_(tile.right, 0)
    return signs.sum(dim=dim, dtype=torch.float32).long()


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
