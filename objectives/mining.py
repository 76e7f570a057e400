"""Hardest-negative mining in one tiled pass over the similarity matrix, with gradients in O(b d).

The pass finds the hardest negatives of both directions. Each tile is scanned along its rows and its columns, and the
tiles are merged like the maxima and rescaled sums of a streaming softmax. The matrix is never stored: the loss needs
only three similarities per pair, and `Similarities` passes their gradient directly to the rows of the embeddings.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.objectives.relative import Relative, relative_negatives, relative_positives
from goalgrid.objectives.triplets import BatchPairs, Triplets

WHOLE = {"cpu": 1024, "cuda": 8192}
"""Largest batch size for which the whole similarity matrix is formed, by device type."""
TILE = {"cpu": 768, "cuda": 8192}
"""Edge of the tiles for larger batches. On a CPU, a tile stays in the cache while it is scanned both ways."""

VECTORISED = 2**16
"""On a CPU, the maxima of matrices with at least this many similarities are found by vectorised passes."""
PIECE = 256
"""Number of gradient rows that are scaled at a time."""


class Hardest(NamedTuple):
    """Each anchor's hardest negative, and sums over its relative negatives (0 if no weight reads them)."""

    s_neg: Float[Tensor, "*a"]
    negative: Int[Tensor, "*a"]
    """Index of the hardest negative; the first one in case of ties."""
    number: Float[Tensor, "*a"]
    """Number of relative negatives, without the hardest."""
    total: Float[Tensor, "*a"]
    """Sum of k(s_neg - r) over them."""
    ties: Float[Tensor, "*a"]
    """Number of relative negatives exactly as hard as the hardest."""

    def mean(self, relative: Relative) -> Float[Tensor, "*a"]:
        return relative.mean(self.total, self.number - self.ties if relative.drop_ties else self.number)


RelativeSets = tuple[Relative, Tensor]
"""The relative sets of a batch, and the threshold of its relative negatives."""


def sets_of(relative: Relative | None, s_pos: Float[Tensor, " b"]) -> RelativeSets | None:
    """Return the relative sets of a batch with these positives; None for a loss that reads neither m+ nor m-."""
    return None if relative is None else (relative, relative.threshold(s_pos))


def scan(sim: Float[Tensor, "a c"], sets: RelativeSets | None) -> Hardest:
    """Find the hardest negative of each row, then of each column, and the sums for m-; -inf marks non-negatives."""
    s_neg, index = map(torch.cat, zip(hardest(sim, 1), hardest(sim, 0), strict=True))
    nothing = torch.zeros_like(s_neg)
    if sets is None:
        return Hardest(s_neg, index, nothing, nothing, nothing)
    relative, threshold = sets
    over, top = (sim - threshold).relu_(), (s_neg - threshold).relu_()
    member, itself = relative.members(sim, threshold, over), relative.members(s_neg, threshold, top)
    count = torch.cat([member.sum(1), member.sum(0)])
    total = relative.neg.total(over, member, count, top, index)
    if not relative.drop_ties:
        return Hardest(s_neg, index, count - itself, total, nothing)
    rows, columns = s_neg.split(sim.shape)
    ties = torch.cat([(sim == rows[:, None]).sum(1), (sim == columns).sum(0)])
    return Hardest(s_neg, index, count - itself, total, (ties - 1) * itself)


def hardest(sim: Float[Tensor, "a c"], dim: int) -> tuple[Float[Tensor, " n"], Int[Tensor, " n"]]:
    """Return the maximum along `dim` and its first position."""
    if sim.device.type != "cpu" or sim.numel() < VECTORISED:
        return sim.max(dim)
    # Vectorised passes take half the time: the sign of a lead is 0 at the maximum, else -1.
    s_neg = sim.amax(dim)
    last = sim.shape[dim] - 1
    after = torch.arange(last, -1, -1, dtype=sim.dtype, device=sim.device)
    sign = (sim - s_neg.clamp(min=torch.finfo(sim.dtype).min).unsqueeze(dim)).sign_()
    return s_neg, (last - torch.add(after if dim else after[:, None], sign, alpha=last).amax(dim)).long()


def merge(a: Hardest | None, b: Hardest, sets: RelativeSets | None) -> Hardest:
    """Merge two results of `scan` into the result for the candidates of `a` followed by those of `b`.

    The less hard of the two hardest negatives becomes an ordinary member of the relative set.
    """
    if a is None:
        return b
    s_neg, lower = torch.maximum(a.s_neg, b.s_neg), torch.minimum(a.s_neg, b.s_neg)
    merged = a._replace(s_neg=s_neg, negative=torch.where(a.s_neg >= b.s_neg, a.negative, b.negative))
    if sets is None:
        return merged
    relative, threshold = sets
    displaced = relative.above(lower, threshold)
    raised = [relative.neg.shift(part.total, part.number, _lead(s_neg, part.s_neg)) for part in (a, b)]
    total = raised[0] + raised[1] + relative.neg.of(_lead(s_neg, lower)).where(displaced, 0.0)
    ties = a.ties * (a.s_neg == s_neg) + b.ties * (b.s_neg == s_neg) + displaced * (lower == s_neg)
    return merged._replace(number=a.number + b.number + displaced, total=total, ties=ties)


def _lead(s_neg: Tensor, lower: Tensor) -> Tensor:
    """s_neg - lower, but 0 if a value is -inf: that side has no members, so its sums are 0 anyway."""
    return (s_neg - lower).nan_to_num(nan=0.0, posinf=0.0)


def product(image: Float[Tensor, "i d"], text: Float[Tensor, "t d"]) -> Float[Tensor, "i t"]:
    """x y', computed in float32 even for half-precision embeddings and under autocast.

    Half precision would produce ties: bfloat16 has only 128 values between 0.5 and 1.
    """
    if not torch.is_autocast_enabled(image.device.type):
        return full(image) @ full(text).T
    with torch.autocast(image.device.type, enabled=False):
        return full(image) @ full(text).T


def full(x: Tensor) -> Tensor:
    """Return a half-precision tensor in float32, any other unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


Mined = tuple[Float[Tensor, " b"], Hardest]
"""Similarities of the pairs, and the hardest negatives of (2, b) anchors: texts of images, then images of texts."""


def mine_similarity(sim: Float[Tensor, "b b"], pairs: BatchPairs, relative: Relative | None) -> Mined:
    """Mine negatives from a score matrix, whose values may have any range. Overwrites the matrix."""
    s_pos = sim.diagonal().clone()
    pairs.prepare(sim)
    return s_pos, Hardest(*(part.view(2, -1) for part in scan(sim, sets_of(relative, s_pos))))


def mine_embeddings(
    image: Float[Tensor, "b d"], text: Float[Tensor, "b d"], pairs: BatchPairs, relative: Relative | None
) -> Mined:
    """Mine embeddings like `mine_similarity` on their product; for large batches, one tile at a time."""
    if pairs.size <= WHOLE.get(image.device.type, WHOLE["cuda"]):
        return mine_similarity(product(image, text), pairs, relative)
    s_pos = torch.linalg.vecdot(full(image), full(text))
    sets = sets_of(relative, s_pos)
    edge = TILE.get(image.device.type, TILE["cuda"])
    starts = range(0, pairs.size, edge)
    i2t, t2i = dict[int, Hardest](), dict[int, Hardest]()
    for row, column in itertools.product(starts, starts):
        sim = product(image[row : row + edge], text[column : column + edge])
        pairs.prepare(sim, row, column)
        rows, columns = (Hardest(*parts) for parts in zip(*(x.split(sim.shape) for x in scan(sim, sets)), strict=True))
        i2t[row] = merge(i2t.get(row), rows._replace(negative=rows.negative + column), sets)
        t2i[column] = merge(t2i.get(column), columns._replace(negative=columns.negative + row), sets)
    return s_pos, _all_of(torch.stack, _all_of(torch.cat, *i2t.values()), _all_of(torch.cat, *t2i.values()))


def _all_of(join: Callable[[tuple[Tensor, ...]], Tensor], *parts: Hardest) -> Hardest:
    """Join the anchors of all parts."""
    return Hardest(*map(join, zip(*parts, strict=True)))


def triplets_of(mined: Mined, pairs: BatchPairs, relative: Relative | None) -> tuple[Triplets, Int[Tensor, "2 b"]]:
    """Return the triplets of both directions, detached, and the indices of each pair's mined text and image."""
    s_pos, hard = mined
    false = pairs.false_negatives(hard.negative)
    s_neg, row_margin = hard.s_neg[..., None], None
    if pairs.row_margin is not None:
        row_margin = torch.stack([pairs.row_margin, pairs.row_margin[hard.negative[1]]])[..., None]
        s_neg = s_neg - row_margin
    triplets = Triplets(
        s_pos[None, :, None], s_neg, row_margin=row_margin, false_negative=false, always=not pairs.masked
    )
    if relative is None:
        return triplets, hard.negative
    m_pos, m_neg = relative_positives(s_pos, hard.s_neg, relative), hard.mean(relative)
    return replace(triplets, m_pos=m_pos[..., None], m_neg=m_neg[..., None]), hard.negative


class Similarities(torch.autograd.Function):
    """The mined similarities as differentiable functions of the embeddings: s_pos, and s_neg in both directions.

    Their values are known from mining. The gradient of x.y is y for x and x for y: three scaled rows per pair, summed
    if an embedding is mined more than once.
    """

    @staticmethod
    def forward(  # with a `setup_context` torch would inspect this signature at each call, which takes 50 us
        ctx: Any,
        image: Float[Tensor, "b d"],
        text: Float[Tensor, "b d"],
        mined: Int[Tensor, "2 b"],
        s_pos: Float[Tensor, "1 b 1"],
        s_neg: Float[Tensor, "2 b 1"],
    ) -> tuple[Float[Tensor, "1 b 1"], Float[Tensor, "2 b 1"]]:
        ctx.save_for_backward(image, text, mined)
        return s_pos.clone(), s_neg.clone()

    @staticmethod
    def backward(ctx: Any, of_pos: Float[Tensor, "1 b 1"], of_neg: Float[Tensor, "2 b 1"]) -> Any:
        image, text, mined = ctx.saved_tensors
        mined_text, mined_image = mined.unbind()
        positive, i2t, t2i = *of_pos.unbind(), *of_neg.unbind()
        to_text = full(image.index_select(0, mined_image)).mul_(t2i)
        to_text = _add_scaled(to_text, positive, image)
        to_text = _add_scaled(to_text, i2t, image, mined_text)
        to_image = full(text.index_select(0, mined_text)).mul_(i2t)
        to_image = _add_scaled(to_image, positive, text)
        to_image = _add_scaled(to_image, t2i, text, mined_image)
        return to_image.to(image.dtype), to_text.to(text.dtype), None, None, None


def _add_scaled(
    total: Float[Tensor, "m d"],
    scale: Float[Tensor, "t 1"],
    rows: Float[Tensor, "t d"],
    index: Int[Tensor, " t"] | None = None,
) -> Float[Tensor, "m d"]:
    """total[index] += scale * rows, in place; in chunks on a CPU, where allocation costs more than arithmetic."""
    if len(rows) <= PIECE or rows.device.type != "cpu":
        return total.add_(scale * rows) if index is None else total.index_add_(0, index, scale * rows)
    for start in range(0, len(rows), PIECE):
        part = slice(start, start + PIECE)
        to, at = (total[part], None) if index is None else (total, index[part])
        _add_scaled(to, scale[part], rows[part], at)
    return total


def hardest_of_embeddings(
    image: Float[Tensor, "b d"], text: Float[Tensor, "b d"], pairs: BatchPairs, relative: Relative | None
) -> Triplets:
    """Return each pair's triplets with its hardest negatives; differentiable with respect to the embeddings."""
    with torch.no_grad():
        triplets, mined = triplets_of(mine_embeddings(image.detach(), text.detach(), pairs, relative), pairs, relative)
    s_pos, s_neg = Similarities.apply(image, text, mined, triplets.s_pos, triplets.s_neg)
    return replace(triplets, s_pos=s_pos, s_neg=s_neg)


Rescore = Callable[[Int[Tensor, " p"], Int[Tensor, " p"]], Float[Tensor, " p"]]
"""Function that scores the images of the given rows with the texts of the given columns."""


def hardest_of_similarity(
    sim: Float[Tensor, "b b"], pairs: BatchPairs, relative: Relative | None, rescore: Rescore | None = None
) -> Triplets:
    """Return each pair's triplets with its hardest negatives from a score matrix.

    Differentiable with respect to the matrix or, with `rescore`, to the parameters that `rescore` uses.
    """
    with torch.no_grad():
        mined = mine_similarity(full(sim.detach()).clone(), pairs, relative)
        triplets, (text, image) = triplets_of(mined, pairs, relative)
        pair = torch.arange(pairs.size, device=sim.device)
    rows, columns = torch.cat([pair, pair, image]), torch.cat([pair, text, pair])
    values = full(sim[rows, columns] if rescore is None else rescore(rows, columns)).reshape(3, -1, 1)
    s_neg = values[1:] if triplets.always else values[1:].where(triplets.exists, -torch.inf)
    return replace(triplets, s_pos=values[:1], s_neg=s_neg)


def candidates(
    sim: Float[Tensor, "b b"], pairs: BatchPairs, relative: Relative | None, k: int | None
) -> list[Triplets]:
    """Return each pair's triplets with its k hardest negatives (all if k is None), one result per direction.

    Differentiable with respect to the scores. The gradient is dense, since all negatives may count.
    """
    negative = sim.clone()
    pairs.prepare(negative)
    rows = None if pairs.row_margin is None else pairs.row_margin[:, None].expand_as(sim)
    directions = []
    for anchors, row_margin in ((negative, rows), (negative.T, None if rows is None else rows.T)):
        s_neg, false = anchors, pairs.of_same_image()
        if k is not None:
            s_neg, index = anchors.topk(min(k, pairs.size), dim=1)
            false = None if false is None else false.gather(1, index)
            row_margin = None if row_margin is None else row_margin.gather(1, index)
        s_neg = s_neg if row_margin is None else s_neg - row_margin
        triplets = Triplets(sim.diagonal()[:, None], s_neg, row_margin=row_margin, false_negative=false, always=False)
        directions.append(triplets if relative is None else _with_relative(triplets, anchors, relative))
    return directions


@torch.no_grad()
def _with_relative(triplets: Triplets, anchors: Float[Tensor, "a c"], relative: Relative) -> Triplets:
    s_pos = triplets.s_pos[:, 0].detach()
    m_pos = relative_positives(s_pos, anchors.detach().amax(1), relative)[:, None]
    threshold = relative.threshold(s_pos)
    m_neg = relative_negatives(triplets.s_neg.detach(), anchors.detach(), threshold, relative)
    return replace(triplets, m_pos=m_pos, m_neg=m_neg)
