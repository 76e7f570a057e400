"""Cross attention of all images with all captions at once, without the attended vectors. SCAN, BFAN.

With the products A of regions and words, a query's product with what it attends to is the sum of a_j A_j, and the
squared norm of the latter is a' G a, G the products of the context with itself. Captions of one length are a group.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import leaky_relu
from torch.utils.checkpoint import checkpoint

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings.scorers import BfanSettings, Direction, ScanSettings, ScorePooling
from goalgrid.retrieval.scorers.sets import TokenSets, by_size

EPS = 1e-8
"""The published code adds it to norms, and clamps the product of two norms to it."""
SMALLEST = 1e-30
"""Least square of a norm whose root is taken: below, the root has no gradient."""
LEAK = 0.1
BLOCK = {"cpu": 2**20, "cuda": 2**26}
"""Products of regions and words that are worked on at once: on a CPU, what stays in the cache."""
PAIRS = 16
"""Pairs whose vectors are gathered at once."""

Focus = Callable[[Float[Tensor, "b c q k"], Int[Tensor, "b 1 1 1"] | int], Float[Tensor, "b c q k"]]
"""Function that selects attention to a context, given the number of its members."""
Pool = Callable[[Float[Tensor, "b q k"], Bool[Tensor, "#b #q k"] | None], Float[Tensor, "b q"]]
"""From the cosines of queries to a score; None: all queries are present."""


class SetScorer(nn.Module):
    """Base class of set scorers, which score images and captions given as sets of vectors.

    They are built from their settings, the number of regions and the vector width `dim`.
    """

    by_pair = True
    """Whether a pair's score depends on that pair alone, so that selected pairs can be rescored."""
    mean_places = False
    """Whether ties get the mean of their ranks, see `mean_places` of `evaluation.rank`."""

    def image_whole(self, images: TokenSets) -> TokenSets:
        """Add a vector of the whole image, if the scorer needs it."""
        return images

    def text_whole(self, texts: TokenSets) -> TokenSets:
        """Add a vector of the whole caption, if the scorer needs it."""
        return texts

    def pair_weights(self) -> list[nn.Parameter]:
        """Return the weights used to score pairs; the others compute vectors of whole images or captions."""
        return list(self.parameters())

    def looks(self, regions: Float[Tensor, "n d"], words: Float[Tensor, "l d"]) -> dict[str, Float[Tensor, "l n"]]:
        """Return the attention weights by direction: each word's row sums to 1 in t2i, each region's column in i2t."""
        raise UserError(f"the scorer {type(self).__name__} gives scores, and no attention to draw.")

    @abstractmethod
    def forward(self, images: TokenSets, texts: TokenSets) -> Float[Tensor, "i t"]:
        """Score all images by all captions."""

    def pairs(
        self, images: TokenSets, texts: TokenSets, rows: Int[Tensor, " p"], columns: Int[Tensor, " p"]
    ) -> Float[Tensor, " p"]:
        """Score pairs, given by image rows and caption columns; only if scores are `by_pair`."""
        raise NotImplementedError


def norms(products: Float[Tensor, "b n n"]) -> Float[Tensor, "b n"]:
    return products.diagonal(dim1=1, dim2=2).clamp(min=SMALLEST).sqrt()


def cosines(
    dots: Float[Tensor, "b c q k"],
    of_context: Float[Tensor, "b c c"],
    norms: Float[Tensor, "#b #q k"],
    sharpness: float,
    focus: Focus,
    present: Bool[Tensor, "b c"] | None,
) -> Float[Tensor, "b q k"]:
    """cos(q, sum of a_j c_j) = sum of a_j A_j / (|q| sqrt(a' G a)), for k queries in each of q sets, and b contexts.

    `dots` is A, `of_context` G, `norms` |q|. `present` masks the members of each context; None: all are present.
    """
    count = dots.shape[1] if present is None else present.sum(1)[:, None, None, None]
    weights = focus(attention(dots, sharpness, present), count)
    along = (weights * dots).sum(1)
    flat = weights.flatten(2)
    squares = (flat * (of_context @ flat)).sum(1).view(along.shape)
    return along / (norms * squares.clamp(min=SMALLEST).sqrt()).clamp(min=EPS)


def attention(
    dots: Float[Tensor, "b c q k"], sharpness: float, present: Bool[Tensor, "b c"] | None
) -> Float[Tensor, "b c q k"]:
    """Softmax over the context of lambda A, after a leaky rectifier and brought to unit length over a set's queries.

    As in the code of SCAN. Queries that are not present have products of 0.
    """
    leaking = leaky_relu(dots, LEAK)
    exponents = leaking * (sharpness / (torch.linalg.vector_norm(leaking, dim=-1, keepdim=True) + EPS))
    if present is not None:
        exponents = exponents.masked_fill(~present[:, :, None, None], -torch.inf)
    return exponents.softmax(dim=1)


def look(
    queries: Float[Tensor, "k d"], context: Float[Tensor, "c d"], sharpness: float, focus: Focus
) -> Float[Tensor, "k c"]:
    """Return how strongly each query attends to each member of its context; a row sums to 1."""
    weights = focus(attention((context @ queries.T)[None, :, None], sharpness, None), len(context))
    return (weights / weights.sum(1, keepdim=True))[0, :, 0].T


def everything(weights: Float[Tensor, "b c q k"], count: Tensor | int) -> Float[Tensor, "b c q k"]:
    """Return the attention unchanged: SCAN attends to the whole context."""
    return weights


def above_mean(weights: Float[Tensor, "b c q k"], count: Tensor | int) -> Float[Tensor, "b c q k"]:
    """Keep attention above its mean over the present members. BFAN equal."""
    return above(weights, weights.sum(1, keepdim=True) / count)


def above_weighted_mean(weights: Float[Tensor, "b c q k"], count: Tensor | int) -> Float[Tensor, "b c q k"]:
    """Keep attention above sum of a^1.5 / sum of a^0.5. BFAN prob.

    The same as sum over k of (a_j - a_k) sqrt(a_k) > 0, for which the published code forms n x n differences.
    """
    roots = weights.detach().sqrt()
    return above(weights, (roots * weights.detach()).sum(1, keepdim=True) / roots.sum(1, keepdim=True))


def above(weights: Float[Tensor, "b c q k"], threshold: Float[Tensor, "b 1 q k"]) -> Float[Tensor, "b c q k"]:
    """Keep attention above the threshold and set the rest to 0, without a gradient through the selection.

    If nothing is above it, as in uniform attention, everything is kept; the published code divides 0 by 0 there. The
    published code also normalises the remaining attention to a sum of 1, which does not change any cosine.
    """
    constant, threshold = weights.detach(), threshold.detach()
    some = constant.amax(1, keepdim=True) > threshold
    return weights.masked_fill(constant <= threshold.where(some, -1.0), 0.0)


FOCUS: dict[str, Focus] = {"equal": above_mean, "prob": above_weighted_mean}
"""BFAN's selections of the context, by `model.scorer.focal`."""


def mean(scores: Float[Tensor, "b q k"], present: Bool[Tensor, "#b #q k"] | None) -> Float[Tensor, "b q"]:
    """Average over the queries. SCAN-AVG."""
    return scores.mean(-1) if present is None else (scores * present).sum(-1) / present.sum(-1)


def log_sum_exp(
    scores: Float[Tensor, "b q k"], present: Bool[Tensor, "#b #q k"] | None, *, sharpness: float
) -> Float[Tensor, "b q"]:
    """log(sum of exp(lambda r)) / lambda, at most 1 + log(k) / lambda. SCAN-LSE."""
    return (sharpness * _hidden(scores, present)).logsumexp(-1) / sharpness


def maximum(scores: Float[Tensor, "b q k"], present: Bool[Tensor, "#b #q k"] | None) -> Float[Tensor, "b q"]:
    return _hidden(scores, present).amax(-1)


def total(scores: Float[Tensor, "b q k"], present: Bool[Tensor, "#b #q k"] | None) -> Float[Tensor, "b q"]:
    return scores.sum(-1) if present is None else (scores * present).sum(-1)


def _hidden(scores: Tensor, present: Tensor | None) -> Tensor:
    return scores if present is None else scores.masked_fill(~present, -torch.inf)


POOLS: dict[ScorePooling, Pool] = {"mean": mean, "max": maximum, "sum": total}
"""From the cosines of queries to a score, by `model.scorer.pooling`; "lse" has a parameter."""


class PairProducts(torch.autograd.Function):
    """Products of regions and words of some pairs, a few pairs at a time: their vectors are never gathered at once."""

    @staticmethod
    def forward(ctx: Any, regions: Tensor, words: Tensor, rows: Tensor, columns: Tensor) -> Float[Tensor, "p n l"]:
        ctx.save_for_backward(regions, words, rows, columns)
        parts = zip(rows.split(PAIRS), columns.split(PAIRS), strict=True)
        return torch.cat([regions[row] @ words[column].transpose(1, 2) for row, column in parts])

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "p n l"]) -> Any:
        regions, words, rows, columns = ctx.saved_tensors
        to_regions, to_words = torch.zeros_like(regions), torch.zeros_like(words)
        parts = (part.split(PAIRS) for part in (rows, columns, gradient))
        for row, column, part in zip(*parts, strict=True):
            to_regions.index_add_(0, row, part @ words[column])
            to_words.index_add_(0, column, part.transpose(1, 2) @ regions[row])
        return to_regions, to_words, None, None


class CrossAttention(SetScorer):
    """Scorer without weights: cosines between queries and their attended vectors, pooled and summed over directions."""

    def __init__(self, directions: Sequence[Direction], sharpness: float, focus: Focus, pool: Pool) -> None:
        super().__init__()
        self.directions, self.sharpness, self.focus, self.pool = directions, sharpness, focus, pool

    def looks(self, regions: Tensor, words: Tensor) -> dict[str, Tensor]:
        looks = {"t2i": look(words, regions, self.sharpness, self.focus)}
        looks["i2t"] = look(regions, words, self.sharpness, self.focus).T
        return {direction: looks[direction] for direction in self.directions}

    def forward(self, images: TokenSets, texts: TokenSets) -> Float[Tensor, "i t"]:
        images, texts = images.full(), texts.full()
        regions, present = images.vectors, images.present
        count, n, _ = regions.shape
        most = BLOCK.get(regions.device.type, BLOCK["cuda"]) // (count * n)
        groups, places = by_size(texts.sizes, most, texts.device)
        words = [texts.vectors[rows, :size] for rows, size in groups]
        listed, widths = torch.cat([part.flatten(0, 1) for part in words]), [len(rows) * size for rows, size in groups]
        products = self._products(regions.flatten(0, 1), listed)
        of_groups = {way: dots.split(widths, 1 if way == "t2i" else 0) for way, dots in products.items()}
        of_regions = regions @ regions.transpose(1, 2)
        again = torch.is_grad_enabled() and (regions.requires_grad or listed.requires_grad)
        scores = []
        for place, part in enumerate(words):
            shapes = {"t2i": (count, n, *part.shape[:2]), "i2t": (*part.shape[:2], count, n)}
            dots = {way: parts[place].view(shapes[way]) for way, parts in of_groups.items()}
            given = dots, of_regions, part @ part.transpose(1, 2), present
            scores.append(recomputed(self.block, *given) if again else self.block(*given))
        return torch.cat(scores, 1).index_select(1, places)

    def _products(
        self, regions: Float[Tensor, "r d"], words: Float[Tensor, "w d"]
    ) -> dict[Direction, Float[Tensor, "c q"]]:
        """Products by direction: with regions first, where words attend, and with words first, where regions attend."""
        products = dict[Direction, Tensor]()
        if "t2i" in self.directions:
            products["t2i"] = regions @ words.T
        if "i2t" in self.directions:
            products["i2t"] = products["t2i"].T.contiguous() if products else words @ regions.T
        return products

    def pairs(
        self, images: TokenSets, texts: TokenSets, rows: Int[Tensor, " p"], columns: Int[Tensor, " p"]
    ) -> Float[Tensor, " p"]:
        images, texts = images.full(), texts.full()
        regions, words, present = images.vectors, texts.vectors, images.present
        of_regions, of_words = regions @ regions.transpose(1, 2), words @ words.transpose(1, 2)
        products = PairProducts.apply(regions, words, rows, columns)
        groups, places = by_size(texts.sizes[columns.cpu()], len(rows) * words.shape[1], regions.device)
        scores = list[Tensor]()
        for place, size in groups:
            row, column = rows[place], columns[place]
            dots = products[place, :, None, :size]
            both: dict[Direction, Tensor] = {"t2i": dots, "i2t": dots.transpose(1, 3).contiguous()}
            there = None if present is None else present[row]
            scores.append(self.block(both, of_regions[row], of_words[column, :size, :size], there, paired=True)[:, 0])
        return torch.cat(scores).index_select(0, places)

    def block(
        self,
        products: Mapping[Direction, Float[Tensor, "b c q k"]],
        of_regions: Float[Tensor, "i n n"],
        of_words: Float[Tensor, "g l l"],
        present: Bool[Tensor, "i n"] | None,
        *,
        paired: bool = False,
    ) -> Float[Tensor, "i #g"]:
        """Score all images by captions of one length; or pairs, one caption per image: (p, 1).

        Args:
            products: of regions and words, the context first, by direction: where words attend, "t2i", (i, n, g, l), of
                pairs (p, n, 1, l); where regions attend, "i2t", (g, l, i, n), of pairs (p, l, 1, n).
            of_regions, of_words: products of the regions of an image, and of the words of a caption, with one another.
            present: which regions there are; None: all.
            paired: whether i and g are the same pairs.
        """
        axis = 1 if paired else 0  # a pair's queries meet their one context, others every context
        scores = list[Tensor]()
        for direction in self.directions:
            if direction == "t2i":
                queries = norms(of_words).unsqueeze(axis)
                values = cosines(products["t2i"], of_regions, queries, self.sharpness, self.focus, present)
                scores.append(self.pool(values, None))
            else:
                queries = norms(of_regions).unsqueeze(axis)
                values = cosines(products["i2t"], of_words, queries, self.sharpness, self.focus, None)
                pooled = self.pool(values, None if present is None else present.unsqueeze(axis))
                scores.append(pooled if paired else pooled.T)
        return reduce(torch.add, scores)


class Scan(CrossAttention):
    """Stacked cross attention. SCAN §3."""

    def __init__(self, settings: ScanSettings, regions: int, dim: int) -> None:
        lse = partial(log_sum_exp, sharpness=settings.lse_sharpness)
        pool = lse if settings.pooling == "lse" else POOLS[settings.pooling]
        super().__init__([settings.direction], settings.sharpness, everything, pool)


class Bfan(CrossAttention):
    """Bidirectional focal attention: mean over words plus mean over regions, from -2 to 2. BFAN §3."""

    def __init__(self, settings: BfanSettings, regions: int, dim: int) -> None:
        super().__init__(["t2i", "i2t"], settings.sharpness, FOCUS[settings.focal], mean)


def recomputed(work: Callable[..., Tensor], *given: Any) -> Tensor:
    """Call a function with activation checkpointing: intermediate values are recomputed in the backward pass."""
    return checkpoint(work, *given, use_reentrant=False, preserve_rng_state=False)
