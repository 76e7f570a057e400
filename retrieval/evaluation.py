"""Retrieval metrics in both directions, from ranks found by counting. Functions of matrices, independent of models."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

RECALLS = (1, 5, 10)

CHANCE_DEVIATIONS = 3
"""An rsum counts as better than chance if it is this many standard deviations above the mean of random rankings."""

CHUNK = {"cpu": 256, "cuda": 1024}
"""Number of images per tile: small enough for a CPU's cache, large enough to keep a GPU busy."""
GRAIN = 16
"""Both sides of a tile are multiples of this; narrower matrix products may use another kernel and round differently."""


@dataclass(frozen=True, eq=False)
class Tile:
    """Similarities of some images with some texts; `right` marks the matching pairs, None if there are none."""

    images: slice
    texts: slice
    sim: Float[Tensor, "i t"]
    right: Bool[Tensor, "i t"] | None


@dataclass(frozen=True)
class Ranks:
    """Rank of the first correct answer of every query, from 0 (best); mean ranks of ties may be half-integers."""

    i2t: Int[np.ndarray, " i"] | Float[np.ndarray, " i"]
    t2i: Int[np.ndarray, " t"] | Float[np.ndarray, " t"]
    spread: float = math.nan
    """Standard deviation of the similarities; which values are small depends on the objective and its scale."""
    folds: tuple["Ranks", ...] = ()
    """Ranks of separately ranked folds, whose metrics are averaged; empty if the split was ranked as a whole."""
    similarities: Mapping[str, float] = field(default_factory=dict)
    """Means over all captions and both directions: `s_pos`, `s_neg` (hardest of the split) and `delta_s`,
    |s_neg - s_pos|. Empty over folds."""
    listed: int | None = None
    """Number of candidates per query that a second stage reranked; a correct answer that is not among them counts as a
    miss at any rank. None if all were ranked."""

    def metrics(self) -> dict[str, float]:
        """Return Recall@1, 5, 10 and the median rank of both directions, and rsum, the sum of the six recalls.

        Recalls are in percent; median ranks count from 1. A median between two integer ranks is rounded down; with mean
        ranks of ties, it is not rounded. With folds, all values are means over the folds. If only candidates are
        ranked, there is no median rank.
        """
        if self.folds:
            return _means([fold.metrics() for fold in self.folds])
        directions = {"i2t": self.i2t, "t2i": self.t2i}
        recalls = {f"{name}_r{k}": recall(ranks, k) for name, ranks in directions.items() for k in RECALLS}
        medians = {f"{name}_medr": _median(ranks) + 1 for name, ranks in directions.items()}
        medians = medians if self.listed is None else {}
        return {**recalls, **medians, "rsum": sum(recalls.values())}

    def further(self) -> dict[str, float]:
        """Return further metrics of some papers: the mean rank, from 1, and the geometric mean of the three recalls.

        With folds, these are means over the folds. A reranked list has no mean rank.
        """
        if self.folds:
            return _means([fold.further() for fold in self.folds])
        values = dict[str, float]()
        for name, ranks in (("i2t", self.i2t), ("t2i", self.t2i)):
            if self.listed is None:
                values[f"{name}_meanr"] = float(ranks.mean()) + 1
            values[f"{name}_gmean"] = math.prod(recall(ranks, k) for k in RECALLS) ** (1 / len(RECALLS))
        return values


def _means(folds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([metrics[name] for metrics in folds])) for name in folds[0]}


def chance_rsum(images: int, texts: int) -> float:
    """Return the highest plausible rsum, in percent, of random rankings of this many images and texts.

    It is the mean plus `CHANCE_DEVIATIONS` standard deviations. The captions of an image count as one query, because an
    untrained model may treat them alike.
    """
    right = texts / images
    i2t = [1 - math.prod(max(0.0, 1 - right / (texts - above)) for above in range(min(k, texts))) for k in RECALLS]
    t2i = [min(1.0, k / images) for k in RECALLS]
    mean = sum(i2t) + sum(t2i)
    variance = sum(_variance_of_hits(shares) for shares in (i2t, t2i)) / images
    return min(200.0 * len(RECALLS), 100 * (mean + CHANCE_DEVIATIONS * math.sqrt(variance)))


def _variance_of_hits(shares: Sequence[float]) -> float:
    """Return the variance over queries of the number of recalls (which are nested) that a query contributes to."""
    squared = sum((2 * (len(shares) - place) - 1) * share for place, share in enumerate(shares))
    return max(0.0, squared - sum(shares) ** 2)  # rounding: where every query adds to every recall, it is 0


def recall(ranks: Int[np.ndarray, " q"] | Float[np.ndarray, " q"], k: int) -> float:
    """Return the share of queries, in percent, whose first correct answer is among the top k.

    Recall@1 counts only rank 0: if two answers tie for the first place, their mean rank is 0.5, a miss, as in CE.
    """
    return 100.0 * float((ranks == 0 if k == 1 else ranks < k).mean())


def _median(ranks: Int[np.ndarray, " q"] | Float[np.ndarray, " q"]) -> float:
    median = float(np.median(ranks))
    return float(np.floor(median)) if np.issubdtype(ranks.dtype, np.integer) else median


@runtime_checkable
class Rows(Protocol):
    """Images or texts as a scorer reads them: unit vectors (n, d), or sets of them."""

    @property
    def device(self) -> torch.device: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice | Tensor, /) -> "Rows": ...


Scoring = Callable[[Any, Any], Float[Tensor, "i t"]]
"""Function that returns the scores of all given images with all given texts."""


def rank(
    image: Rows,
    text: Rows,
    image_of_text: Int[np.ndarray, " t"],
    score: Scoring | None = None,
    *,
    chunk: int | None = None,
    mean_places: bool = False,
) -> Ranks:
    """Rank all texts for every image and all images for every text, `chunk` images at a time (default: CHUNK).

    The rank of a correct answer is the number of wrong answers above it plus half the number of ties (rounded down), so
    that a collapsed model scores at chance level. Scores of correct and wrong answers come from the same product, which
    is computed once for both directions, and are compared in its number format. An image's rank is that of its best
    caption. An image without captions gets the last rank.

    Args:
        image_of_text: row of each text's image, in any order.
        score: scoring function for images and texts that are not single vectors.
        mean_places: rank as CE and MMT do: ties get the mean of their ranks, which is not rounded; ties include an
            image's other captions with the same score as its best.
    """
    owner = torch.from_numpy(np.ascontiguousarray(image_of_text)).to(text.device)
    order = torch.argsort(owner, stable=True)
    scored = tiles(image, text, order, owner[order], chunk or CHUNK[text.device.type], score)
    first = next(scored)
    best = torch.full((len(image),), -torch.inf, dtype=first.sim.dtype, device=text.device)
    text_best = best.new_empty(len(text))
    i2t, t2i = (torch.zeros(len(queries), dtype=torch.long, device=text.device) for queries in (image, text))
    of_image, of_text = best.clone(), torch.full_like(text_best, -torch.inf)  # of the hardest wrong answers
    for tile in chain([first], scored):
        if tile.right is not None:
            right = tile.sim.masked_fill(~tile.right, -torch.inf)
            best[tile.images], text_best[tile.texts] = right.amax(dim=1), right.amax(dim=0)
            if mean_places:
                equal = (tile.sim == best[tile.images, None]) & tile.right
                i2t[tile.images] += (equal.sum(dim=1) - 1).clamp(min=0)
        wrong = tile.sim if tile.right is None else tile.sim.masked_fill(tile.right, -torch.inf)
        of_image[tile.images] = of_image[tile.images].maximum(wrong.amax(dim=1))
        of_text[tile.texts] = of_text[tile.texts].maximum(wrong.amax(dim=0))
        i2t[tile.images] += _lead(tile, best[tile.images, None], dim=1)
        t2i[tile.texts] += _lead(tile, text_best[tile.texts], dim=0)
    others = len(text) - torch.bincount(owner, minlength=len(image))
    by_row = torch.empty_like(t2i)
    by_row[order] = t2i + len(image) - 1
    similarities = _similarities(text_best, torch.stack([of_image[owner[order]], of_text]))
    of_images, of_texts = (i2t + others).cpu().numpy(), by_row.cpu().numpy()  # twice the ranks
    halved = np.true_divide if mean_places else np.floor_divide
    return Ranks(halved(of_images, 2), halved(of_texts, 2), spread(image, text, score), similarities=similarities)


def _similarities(s_pos: Float[Tensor, " t"], hardest: Float[Tensor, "2 t"]) -> dict[str, float]:
    s_pos, hardest = s_pos.double(), hardest.double()
    return {
        "s_pos": float(s_pos.mean()),
        "s_neg": float(hardest.mean()),
        "delta_s": float((hardest - s_pos).abs().mean()),
    }


def _lead(tile: Tile, score: Float[Tensor, "..."], dim: int) -> Int[Tensor, " q"]:
    """Return how many more wrong answers of a tile are above `score` than below.

    Plus the number of wrong answers, this is 2 x above + ties.
    """
    signs = (tile.sim - score).sign_()
    if tile.right is not None:
        signs.masked_fill_(tile.right, 0)
    return signs.sum(dim=dim, dtype=torch.float32).long()


def rank_in_folds(
    image: Rows, text: Rows, image_of_text: Int[np.ndarray, " t"], fold: int | None, **options: Any
) -> Ranks:
    """Call `rank` within folds of `fold` consecutive images (None: a single fold); return ranks in split order."""
    if fold is None:
        return rank(image, text, image_of_text, **options)
    rows, parts = list[np.ndarray](), list[Ranks]()
    for start in range(0, len(image), fold):
        rows.append(np.flatnonzero((image_of_text >= start) & (image_of_text < start + fold)))
        texts = text[torch.from_numpy(rows[-1])]
        parts.append(rank(image[start : start + fold], texts, image_of_text[rows[-1]] - start, **options))
    i2t, t2i = (np.concatenate(ranks) for ranks in zip(*((part.i2t, part.t2i) for part in parts), strict=True))
    return Ranks(i2t, t2i[np.argsort(np.concatenate(rows))], spread(image, text, options.get("score")), tuple(parts))


def spread(image: Rows, text: Rows, score: Scoring | None = None, *, sample: int = 512) -> float:
    """Return the standard deviation of the similarities of `sample` evenly spaced images and texts.

    With a `score`, the sample is a quarter of that.
    """
    sample = sample if score is None else sample // 4
    few: list[Any] = [
        rows[torch.linspace(0, len(rows) - 1, min(sample, len(rows)), device=rows.device).long()]
        for rows in (image, text)
    ]
    return float((score or product)(*few).std(correction=0))


def product(image: Float[Tensor, "i d"], text: Float[Tensor, "t d"]) -> Float[Tensor, "i t"]:
    """Return the cosine similarities of unit vectors."""
    return image @ text.T


def tiles(
    image: Rows,
    text: Rows,
    order: Int[Tensor, " t"],
    owner: Int[Tensor, " t"],
    chunk: int,
    score: Scoring | None = None,
) -> Iterator[Tile]:
    """Yield the similarities of every image with every text once, in tiles of `chunk` images and their texts.

    Tiles that pair images with their own texts come first, and contain all correct answers. All products have the same
    shape, padded with zeros, so that the rounding of a similarity depends only on its two vectors. `order`: the rows of
    the texts sorted by image; `owner`: the image row of each text in this order, which is also the order in tiles.
    """
    height = _grained(min(chunk, len(image)))
    rows = _slices([min(height, len(image) - start) for start in range(0, len(image), height)])
    columns = _slices(torch.bincount(owner // height, minlength=len(rows)).tolist())
    width = _grained(max(part.stop - part.start for part in columns))
    filled: Callable[[Any, int], Any] = _filled if score is None else lambda rows, size: rows
    blocks = [filled(image[part], height) for part in rows]
    described = [n for n, part in enumerate(columns) if part.stop > part.start]
    for diagonal in (True, False):
        for n in described:
            texts = filled(text[order[columns[n]]], width)
            for m in [n] if diagonal else [m for m in range(len(rows)) if m != n]:
                sim = (score or product)(blocks[m], texts)[
                    : rows[m].stop - rows[m].start, : columns[n].stop - columns[n].start
                ]
                places = torch.arange(rows[m].start, rows[m].stop, device=owner.device)
                right = owner[columns[n]] == places[:, None] if diagonal else None
                yield Tile(rows[m], columns[n], sim, right)


def _grained(size: int) -> int:
    return -(-size // GRAIN) * GRAIN


def _slices(sizes: list[int]) -> list[slice]:
    return [slice(start, stop) for start, stop in pairwise(accumulate(sizes, initial=0))]


def _filled(vectors: Float[Tensor, "n d"], size: int) -> Float[Tensor, "m d"]:
    return vectors if len(vectors) == size else pad(vectors, (0, 0, 0, size - len(vectors)))
