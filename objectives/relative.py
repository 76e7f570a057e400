"""Relative similarity: how a pair compares with the other pairs of the batch. GOAL §3.3, the sets P and N.

m is the mean of k(s - r) over the members r of a set. s - r is called the lead; k is the identity for lin-ms and an
exponential for sig-ms. No b x b matrix of differences is formed: the relative positives are the first of the sorted
positives, so prefix sums suffice; the threshold of the relative negatives is known in advance, so their sums are
accumulated in one pass over the similarities.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Lead:
    """k(s - r) = s - r, with sums that avoid forming every pair (s, r). GOAL Eq. (13)."""

    of_nothing = 0.0
    """k(0)."""

    def of(self, lead: Tensor) -> Tensor:
        """k(lead)."""
        return lead

    def shift(self, total: Tensor, count: Tensor, delta: Tensor) -> Tensor:
        """Compute the sum of k(s + delta - r) from `total`, the sum of k(s - r)."""
        return total + count * delta

    def total(self, over: Tensor, member: Tensor, count: Tensor, top: Tensor, index: Tensor) -> Tensor:
        """Sum k(top - r) over the members of each row, then of each column, except the member at `index`, the top.

        All similarities are given relative to the threshold, and as 0 if they are below it.
        """
        # The lead of the top over itself is 0, and `over` is already 0 below the threshold, so no mask is needed.
        return count * top - torch.cat([over.sum(1), over.sum(0)])


@dataclass(frozen=True)
class Ratio:
    """k(s - r) = exp(rate (s - r)); methods as in Lead. GOAL Eq. (12): the rate is alpha for P and -beta for N."""

    rate: float
    of_nothing = 1.0

    def of(self, lead: Tensor) -> Tensor:
        return torch.exp(self.rate * lead)

    def shift(self, total: Tensor, count: Tensor, delta: Tensor) -> Tensor:
        return total * torch.exp(self.rate * delta)

    def total(self, over: Tensor, member: Tensor, count: Tensor, top: Tensor, index: Tensor) -> Tensor:
        # Relative to the top nothing overflows; the top is zeroed, since subtracting it would cancel digits.
        bits = -self.rate * LOG2_E  # exp2 takes half the time of exp
        sums = []
        for dim, negated, at in zip((1, 0), (top * -bits).split(over.shape), index.split(over.shape), strict=True):
            ratio = torch.add(negated.unsqueeze(dim), over, alpha=bits).exp2_().mul_(member)
            sums.append(ratio.scatter_(dim, at.unsqueeze(dim), 0.0).sum(dim))
        return torch.cat(sums)


Kernel = Lead | Ratio


@dataclass(frozen=True)
class Relative:
    """Definition of the relative sets, and the kernels that are averaged over them."""

    pos: Kernel
    neg: Kernel
    eps: float
    """Slack of both thresholds, in similarity."""
    empty: float
    """Mean of an empty set."""
    closed: bool
    """Whether a similarity exactly at the threshold is a member."""
    drop_ties: bool
    """Whether the mean ignores members with a lead of 0."""

    def threshold(self, s_pos: Float[Tensor, " t"]) -> Float[Tensor, ""]:
        """Return the threshold of relative negatives: smallest positive of the batch - eps.

        It is one scalar for all anchors, since the minimum is over the positives of all pairs.
        """
        return s_pos.min() - self.eps

    def above(self, value: Tensor, threshold: Tensor) -> Tensor:
        return value >= threshold if self.closed else value > threshold

    def members(self, sim: Float[Tensor, "*n"], threshold: Tensor, over: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Return the set N as a mask of zeros and ones, several times faster to compute and to sum than booleans.

        Args:
            over: similarity - threshold, or 0 if the similarity is below the threshold.
        """
        return 1 - (threshold - sim).relu_().sign_() if self.closed else over.sign()

    def mean(self, total: Tensor, count: Tensor) -> Tensor:
        return (total / count).where(count > 0, self.empty)


def relative_positives(
    s_pos: Float[Tensor, " t"], s_neg: Float[Tensor, "*a t"], relative: Relative
) -> Float[Tensor, "*a t"]:
    """m+ = mean of k(s_pos - r) over P, the other pairs' positives r < s_neg + eps. GOAL Eq. (12), (13).

    P consists of the first of the sorted positives, so its sum is a prefix sum. The anchor's own term is subtracted
    from the term of the smallest positive, which is the largest exponential, and not from the sum: for the smallest
    positive this gives exactly 0, and the other terms keep their digits. Computed in float64, since terms may differ by
    a factor of exp(2 alpha).
    """
    positive, threshold = s_pos.double().contiguous(), (s_neg + relative.eps).double().contiguous()
    ascending = positive.sort().values
    origin = ascending[0]
    ahead, behind = positive - origin, origin - ascending[1:]
    behind_first = torch.cat([positive.new_zeros(2), relative.pos.of(behind).cumsum(0)])
    cut = torch.searchsorted(ascending, threshold, right=relative.closed)
    itself = relative.above(threshold, positive).double()
    count = cut - itself
    total = behind_first[cut] + (relative.pos.of_nothing - relative.pos.of(-ahead) * itself)
    lead = relative.pos.shift(total, count, ahead)
    if relative.drop_ties:
        equals = torch.searchsorted(ascending, positive, right=True) - torch.searchsorted(ascending, positive)
        count = count - (equals - 1) * itself
    return relative.mean(lead, count).to(s_pos.dtype)


def relative_negatives(
    s_neg: Float[Tensor, "a k"], candidates: Float[Tensor, "a c"], threshold: Tensor, relative: Relative
) -> Float[Tensor, "a k"]:
    """m- = mean of k(s_neg - r) over N, the anchor's other negatives r > smallest positive - eps.

    GOAL Eq. (12), (13). Works for any mined negatives, each compared with all others; `mining.scan` computes it in one
    pass for the hardest only.
    """
    top, index = candidates.max(1, keepdim=True)
    top = top.nan_to_num(neginf=0.0)
    member = relative.above(candidates, threshold)
    of_top = relative.neg.of(top - candidates.where(member, top)).where(member, 0.0)
    itself = relative.above(s_neg, threshold)
    mined = s_neg.where(itself, top)
    count = member.sum(1, keepdim=True) - itself.long()
    # Subtract from the term of the top, not from the sum: if the top is mined, the other terms keep their digits.
    difference = of_top.gather(1, index) - relative.neg.of(top - mined).where(itself, 0.0)
    total = of_top.scatter(1, index, 0.0).sum(1, keepdim=True) + difference
    lead = relative.neg.shift(total, count, s_neg.nan_to_num(neginf=0.0) - top)
    if relative.drop_ties:
        # As in the released code, only members below the mined negative count; a member above it has no lead.
        lead, count = _strict_leads(s_neg, candidates, member)
    return relative.mean(lead, count)


def _strict_leads(s_neg: Tensor, candidates: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Return sum and number of the positive leads over the members. Forms a x k x c values: for small batches only."""
    lead = s_neg[:, :, None] - candidates[:, None, :]
    counts = member[:, None, :] & (lead > 0)
    return lead.where(counts, 0.0).sum(2), counts.sum(2)


def leads(*, eps: float, empty: float, sets: str) -> Relative:
    """m = mean lead over the set. GOAL Eq. (13)."""
    released = sets == "released"
    return Relative(Lead(), Lead(), eps, empty, closed=released, drop_ties=released)


def ratios(*, alpha: float, beta: float, eps: float, empty: float, sets: str) -> Relative:
    """m+ = mean of exp(alpha lead), m- = mean of exp(-beta lead) over the set. GOAL Eq. (12)."""
    return Relative(Ratio(alpha), Ratio(-beta), eps, empty, closed=sets == "released", drop_ties=False)
