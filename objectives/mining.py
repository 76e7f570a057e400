"""Mining without the cost of mining: one product of the batch, in tiles, and gradients in O(b d).

The hardest negatives of both directions come from one pass over the similarity matrix. Each tile of it is scanned for
its rows and for its columns, and the tiles are merged as one merges the maxima and rescaled sums of a streaming
softmax. The matrix is never kept: what is learnt from is three similarities a pair, and `Similarities` sends their
gradient straight to the rows of the embeddings that they come from.
"""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from objectives.batch_pairs import BatchPairs
from objectives.relative import Relative, relative_negatives, relative_positives
from objectives.triplets import Triplets

WHOLE = {"cpu": 1024, "cuda": 8192}
"""Batches up to this size form their similarity matrix at once."""
TILE = {"cpu": 768, "cuda": 8192}
"""Edge of the tiles of larger ones. On a CPU a tile stays in the cache while it is scanned both ways."""

VECTORISED = 2**16
"""Matrices with at least so many similarities have their maxima found by vectorised passes, on a CPU."""
PIECE = 256
"""Rows of a gradient that are scaled at once."""


@dataclass(frozen=True)
class Hardest:
    """Each anchor's hardest negative, and its relative negatives in sum."""

    s_neg: Float[Tensor, " a"]
    index: Int[Tensor, " a"]
    """The first of a tie."""
    count: Float[Tensor, " a"] | None = None
    """Number of relative negatives; the hardest is none."""
    total: Float[Tensor, " a"] | None = None
    """Sum of k(s_neg - r) over them."""
    ties: Float[Tensor, " a"] | None = None
    """How many of them are exactly as hard as the hardest."""

    def moved(self, start: int) -> "Hardest":
        """The same with candidates numbered from `start` on."""
        return replace(self, index=self.index + start) if start else self

    def mean(self, relative: Relative) -> Float[Tensor, " a"]:
        assert self.count is not None
        assert self.total is not None
        count = self.count if self.ties is None else self.count - self.ties
        return relative.mean(self.total, count)


def scan(
    sim: Float[Tensor, "a c"], relative: Relative | None = None, threshold: Tensor | None = None
) -> tuple[Hardest, Hardest]:
    """The hardest negative of each row and of each column, with m-'s sums; -inf marks pairs that are no negatives."""
    if relative is None or threshold is None:
        return hardest(sim, 1), hardest(sim, 0)
    over = (sim - threshold).relu_()
    member = relative.members(sim, threshold, over)

    def summed(dim: int) -> Hardest:
        found = hardest(sim, dim)
        itself = relative.above(found.s_neg, threshold).to(sim.dtype)
        count = member.sum(dim)
        total = relative.neg.total(over, member, count, (found.s_neg - threshold).relu_(), found.index, dim)
        ties = ((sim == found.s_neg.unsqueeze(dim)).sum(dim) - 1) * itself if relative.drop_ties else None
        return replace(found, count=count - itself, total=total, ties=ties)

    return summed(1), summed(0)


def hardest(sim: Float[Tensor, "a c"], dim: int) -> Hardest:
    """The maximum along `dim`, and where it is first."""
    if sim.device.type != "cpu" or sim.numel() < VECTORISED:
        return Hardest(*sim.max(dim))
    # The same in passes that are vectorised, in half the time: a lead's sign is 0 at the maximum, else -1.
    s_neg = sim.amax(dim, keepdim=True)
    last = sim.shape[dim] - 1
    after = torch.arange(last, -1, -1, dtype=sim.dtype, device=sim.device)
    sign = (sim - s_neg.clamp(min=torch.finfo(sim.dtype).min)).sign_()
    first = torch.add(after if dim else after[:, None], sign, alpha=last).amax(dim)
    return Hardest(s_neg.squeeze(dim), (last - first).long())


def merge(a: Hardest | None, b: Hardest, relative: Relative | None = None, threshold: Tensor | None = None) -> Hardest:
    """What `scan` gives for the candidates of `a` followed by those of `b`.

    The hardest of the one side that is not the hardest of both becomes an ordinary member.
    """
    if a is None:
        return b
    first = a.s_neg >= b.s_neg
    s_neg, lower = torch.maximum(a.s_neg, b.s_neg), torch.minimum(a.s_neg, b.s_neg)
    merged = Hardest(s_neg, torch.where(first, a.index, b.index))
    if relative is None or threshold is None or b.count is None or b.total is None:
        return merged
    assert a.count is not None
    assert a.total is not None
    displaced = relative.above(lower, threshold)
    total = _raised(a, s_neg, relative) + _raised(b, s_neg, relative)
    total = total + relative.neg.of(_lead(s_neg, lower)).where(displaced, 0.0)
    count = a.count + b.count + displaced
    if a.ties is None or b.ties is None:
        return replace(merged, count=count, total=total)
    ties = a.ties * (a.s_neg == s_neg) + b.ties * (b.s_neg == s_neg) + displaced * (lower == s_neg)
    return replace(merged, count=count, total=total, ties=ties)


def _raised(part: Hardest, s_neg: Tensor, relative: Relative) -> Tensor:
    assert part.count is not None
    assert part.total is not None
    return relative.neg.shift(part.total, part.count, _lead(s_neg, part.s_neg))


def _lead(s_neg: Tensor, lower: Tensor) -> Tensor:
    """Of -inf, nothing leads: such a side has no members, and no sum that this could change."""
    return (s_neg - lower).nan_to_num(nan=0.0, posinf=0.0)


def product(image: Float[Tensor, "n d"], text: Float[Tensor, "t d"]) -> Float[Tensor, "n t"]:
    """x y', in float32 also for half-precision embeddings and under autocast.

    Half-precision similarities tie: bfloat16 has 128 values between 0.5 and 1.
    """
    if not torch.is_autocast_enabled(image.device.type):
        return full(image) @ full(text).T
    with torch.autocast(image.device.type, enabled=False):
        return full(image) @ full(text).T


def full(x: Tensor) -> Tensor:
    """At least float32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


Mined = tuple[Tensor, Hardest, Hardest]
"""Similarities of the pairs, the hardest text of each image, the hardest image of each text."""


def mine_similarity(sim: Float[Tensor, "n t"], pairs: BatchPairs, relative: Relative | None) -> Mined:
    """Mine a matrix of scores of any range. The matrix is overwritten."""
    s_pos = of_positives(sim, pairs).clone()
    threshold = None if relative is None else relative.threshold(s_pos)
    pairs.hide(sim)
    return s_pos, *scan(sim, relative, threshold)


def mine_embeddings(
    image: Float[Tensor, "n d"], text: Float[Tensor, "t d"], pairs: BatchPairs, relative: Relative | None
) -> Mined:
    """Mine embeddings: `mine_similarity` of their product, of which a large batch has one tile at a time."""
    if max(pairs.images, pairs.texts) <= _size(WHOLE, image.device):
        return mine_similarity(product(image, text), pairs, relative)
    s_pos = torch.linalg.vecdot(full(pairs.of_pairs(image)), full(text))
    threshold = None if relative is None else relative.threshold(s_pos)
    edge = _size(TILE, image.device)
    i2t: list[Hardest | None] = [None] * math.ceil(pairs.images / edge)
    t2i: list[Hardest | None] = [None] * math.ceil(pairs.texts / edge)
    for r, c in itertools.product(range(len(i2t)), range(len(t2i))):
        row, column = r * edge, c * edge
        sim = product(image[row : row + edge], text[column : column + edge])
        pairs.hide(sim, row, column)
        rows, columns = scan(sim, relative, threshold)
        i2t[r] = merge(i2t[r], rows.moved(column), relative, threshold)
        t2i[c] = merge(t2i[c], columns.moved(row), relative, threshold)
    return s_pos, _joined(i2t), _joined(t2i)


def _size(sizes: dict[str, int], device: torch.device) -> int:
    return sizes[device.type if device.type in sizes else "cuda"]


def _joined(parts: list[Hardest | None]) -> Hardest:
    """The anchors of all parts in one."""

    def join(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else torch.cat(values)

    return Hardest(*map(join, Hardest.__dataclass_fields__))


def of_positives(sim: Float[Tensor, "n t"], pairs: BatchPairs) -> Float[Tensor, " t"]:
    """Similarity of each pair."""
    return sim.diagonal() if pairs.row is None else sim.gather(0, pairs.row[None])[0]


def triplets_of(mined: Mined, pairs: BatchPairs, relative: Relative | None) -> tuple[Triplets, Tensor, Tensor]:
    """Both directions' triplets of every pair, as constants, and which text and which image was mined for it."""
    s_pos, i2t, t2i = mined
    s_neg = torch.stack([pairs.of_pairs(i2t.s_neg), t2i.s_neg])
    text, image = pairs.of_pairs(i2t.index), t2i.index
    triplets = Triplets(s_pos[None, :, None], s_neg[..., None], always=not pairs.masked)
    triplets = replace(triplets, false_negative=pairs.false_negatives((text, image)))
    if relative is None:
        return triplets, text, image
    m_neg = torch.stack([pairs.of_pairs(i2t.mean(relative)), t2i.mean(relative)])
    m_pos = relative_positives(s_pos, s_neg, relative)
    return replace(triplets, m_pos=m_pos[..., None], m_neg=m_neg[..., None]), text, image


class Similarities(torch.autograd.Function):
    """The mined similarities as functions of the embeddings: s_pos, and s_neg of either direction, of every pair.

    Their values are known from mining. The gradient of x.y is y for x and x for y: three scaled rows a pair, added
    up where an embedding is mined more than once.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        image: Float[Tensor, "n d"],
        text: Float[Tensor, "t d"],
        row: Int[Tensor, " t"] | None,
        mined_text: Int[Tensor, " t"],
        mined_image: Int[Tensor, " t"],
        s_pos: Float[Tensor, "1 t 1"],
        s_neg: Float[Tensor, "2 t 1"],
    ) -> tuple[Float[Tensor, "1 t 1"], Float[Tensor, "2 t 1"]]:
        return s_pos.clone(), s_neg.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        image, text, row, mined_text, mined_image, *_ = inputs
        ctx.save_for_backward(image, text, row, mined_text, mined_image)

    @staticmethod
    def backward(ctx: Any, of_pos: Float[Tensor, "1 t 1"], of_neg: Float[Tensor, "2 t 1"]) -> Any:
        image, text, row, mined_text, mined_image = ctx.saved_tensors
        (positive,), (i2t, t2i) = of_pos, of_neg
        of_pair = image if row is None else image.index_select(0, row)
        to_text = full(image.index_select(0, mined_image)).mul_(t2i)
        to_text = _add_scaled(to_text, positive, of_pair)
        to_text = _add_scaled(to_text, i2t, of_pair, mined_text)
        to_image = full(text.index_select(0, mined_text)).mul_(i2t)
        to_image = _add_scaled(to_image, positive, text)
        if row is not None:
            to_image = torch.zeros_like(image, dtype=to_image.dtype).index_add(0, row, to_image)
        to_image = _add_scaled(to_image, t2i, text, mined_image)
        return to_image.to(image.dtype), to_text.to(text.dtype), None, None, None, None, None


def _add_scaled(
    total: Float[Tensor, "m d"],
    scale: Float[Tensor, "t 1"],
    rows: Float[Tensor, "t d"],
    index: Int[Tensor, " t"] | None = None,
) -> Float[Tensor, "m d"]:
    """total[index] += scale rows, in place; in pieces, as fresh memory costs more than the arithmetic."""
    if len(rows) <= PIECE:
        return total.add_(scale * rows) if index is None else total.index_add_(0, index, scale * rows)
    for start in range(0, len(rows), PIECE):
        part = slice(start, start + PIECE)
        to, at = (total[part], None) if index is None else (total, index[part])
        _add_scaled(to, scale[part], rows[part], at)
    return total


def hardest_of_embeddings(
    image: Float[Tensor, "n d"],
    text: Float[Tensor, "t d"],
    pairs: BatchPairs,
    relative: Relative | None,
) -> Triplets:
    """Every pair with its hardest negative of either direction; differentiable with respect to the embeddings."""
    with torch.no_grad():
        mined = mine_embeddings(image.detach(), text.detach(), pairs, relative)
        triplets, mined_text, mined_image = triplets_of(mined, pairs, relative)
    s_pos, s_neg = Similarities.apply(image, text, pairs.row, mined_text, mined_image, triplets.s_pos, triplets.s_neg)
    return replace(triplets, s_pos=s_pos, s_neg=s_neg)


def hardest_of_similarity(sim: Float[Tensor, "n t"], pairs: BatchPairs, relative: Relative | None) -> Triplets:
    """The same of a matrix of scores; differentiable with respect to it."""
    with torch.no_grad():
        mined = mine_similarity(full(sim.detach()).clone(), pairs, relative)
        triplets, mined_text, mined_image = triplets_of(mined, pairs, relative)
        column = torch.arange(pairs.texts, device=sim.device)
        row = column if pairs.row is None else pairs.row
        chosen = torch.cat([row, row, mined_image]), torch.cat([column, mined_text, column])
    values = full(sim[chosen]).reshape(3, -1, 1)
    s_neg = values[1:] if triplets.always else values[1:].where(triplets.exists, -torch.inf)
    return replace(triplets, s_pos=values[:1], s_neg=s_neg)


def candidates(
    sim: Float[Tensor, "n t"], pairs: BatchPairs, relative: Relative | None, k: int | None = None
) -> list[Triplets]:
    """Every pair with its k hardest negatives, or with all of them (k None), of each direction in turn.

    Differentiable with respect to the scores, and dense: where every negative counts, no gradient is sparse.
    """
    s_pos = of_positives(sim, pairs)
    negative = sim.clone()
    pairs.hide(negative)
    same = pairs.of_same_image()
    directions = []
    for transposed in (False, True):
        anchors = negative.T if transposed else pairs.of_pairs(negative)
        false = None if same is None else (same.T if transposed else pairs.of_pairs(same))
        s_neg = anchors
        if k is not None:
            s_neg, index = anchors.topk(min(k, anchors.shape[1]), dim=1)
            false = None if false is None else false.gather(1, index)
        triplets = Triplets(s_pos[:, None], s_neg, false_negative=false, always=False)
        directions.append(triplets if relative is None else _with_relative(triplets, anchors, relative))
    return directions


@torch.no_grad()
def _with_relative(triplets: Triplets, anchors: Float[Tensor, "a c"], relative: Relative) -> Triplets:
    s_pos = triplets.s_pos[:, 0].detach()
    m_pos = relative_positives(s_pos, anchors.detach().amax(1), relative)[:, None]
    threshold = relative.threshold(s_pos)
    m_neg = relative_negatives(triplets.s_neg.detach(), anchors.detach(), threshold, relative)
    return replace(triplets, m_pos=m_pos, m_neg=m_neg)
