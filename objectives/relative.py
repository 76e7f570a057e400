"""Relative similarity: how a pair compares to the other pairs of the batch. GOAL §3.3, the sets P and N.

m is a mean of k(s - r) over the members r of a set: k is the lead itself for lin-ms, an exponential of it for sig-ms.
No b x b matrix of differences is formed: positives are a head of the sorted ones, so prefix sums serve; negatives are
above a number that is known before the similarities are, so their sum is collected while the matrix streams by.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Lead:
    """k(s - r) = s - r, and how sums of it are formed without every pair (s, r). GOAL Eq. (13)."""

    of_nothing = 0.0
    """k(0)."""

    def of(self, lead: Tensor) -> Tensor:
        """k(lead)."""
        return lead

    def shift(self, total: Tensor, count: Tensor, delta: Tensor) -> Tensor:
        """Sum of k(s + delta - r) from that of k(s - r)."""
        return total + count * delta

    def total(self, over: Tensor, member: Tensor, count: Tensor, top: Tensor, index: Tensor) -> Tensor:
        """Sum k(top - r) over the members of each row, then of each column, without the member at `index`, its top.

        All are given as what they are over the threshold, which is 0 where they are under it.
        """
        # The top itself leads by 0, and what is over the threshold needs no mask.
        return count * top - torch.cat([over.sum(1), over.sum(0)])


@dataclass(frozen=True)
class Ratio:
    """k(s - r) = exp(rate (s - r)), with the methods of Lead. GOAL Eq. (12): rate alpha over P and -beta over N."""

    rate: float
    of_nothing = 1.0

    def of(self, lead: Tensor) -> Tensor:
        return torch.exp(self.rate * lead)

    def shift(self, total: Tensor, count: Tensor, delta: Tensor) -> Tensor:
        return total * torch.exp(self.rate * delta)

    def total(self, over: Tensor, member: Tensor, count: Tensor, top: Tensor, index: Tensor) -> Tensor:
        # Against its own top nothing overflows; the top is struck out rather than subtracted, which would cancel.
        bits = -self.rate * LOG2_E  # exp2 takes half the time of exp
        sums = []
        for dim, negated, at in zip((1, 0), (top * -bits).split(over.shape), index.split(over.shape), strict=True):
            ratio = torch.add(negated.unsqueeze(dim), over, alpha=bits).exp2_().mul_(member)
            sums.append(ratio.scatter_(dim, at.unsqueeze(dim), 0.0).sum(dim))
        return torch.cat(sums)


Kernel = Lead | Ratio


@dataclass(frozen=True)
class Relative:
    """The relative sets and what is averaged over them."""

    pos: Kernel
    neg: Kernel
    eps: float
    """Slack of both thresholds, in similarity."""
    empty: float
    """Mean of an empty set."""
    closed: bool
    """Whether a similarity exactly at the threshold is a member."""
    drop_ties: bool
    """Whether members without any lead do not count in the mean."""

    def threshold(self, s_pos: Float[Tensor, " t"]) -> Float[Tensor, ""]:
        """Smallest positive of the batch - eps: what a relative negative is above.

        One scalar for all anchors, as the positives of the other pairs belong to the minimum.
        """
        return s_pos.min() - self.eps

    def above(self, value: Tensor, threshold: Tensor) -> Tensor:
        return value >= threshold if self.closed else value > threshold

    def members(self, sim: Float[Tensor, "*n"], threshold: Tensor, over: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Return the set N as zeros and ones, which are several times faster to form and to sum than booleans.

        Args:
            over: what the similarities are over the threshold, 0 where they are under it.
        """
        return 1 - (threshold - sim).relu_().sign_() if self.closed else over.sign()

    def mean(self, total: Tensor, count: Tensor) -> Tensor:
        return (total / count).where(count > 0, self.empty)


def relative_positives(
    s_pos: Float[Tensor, " t"], s_neg: Float[Tensor, "*a t"], relative: Relative
) -> Float[Tensor, "*a t"]:
    """m+ = mean of k(s_pos - r) over P, the other pairs' positives r < s_neg + eps. GOAL Eq. (12), (13).

    P is a head of the sorted positives, so its sum is a prefix sum. The anchor itself is subtracted from the smallest
    positive, whose exponential is the largest, and not from the sum: for the smallest positive this leaves exactly 0,
    and the others do not vanish next to it. In float64, since they may be smaller by exp(2 alpha).
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

    For any mined negatives, each with the set of all others; `mining.scan` does it for the hardest alone, in one
    pass. GOAL Eq. (12), (13).
    """
    top, index = candidates.max(1, keepdim=True)
    top = top.nan_to_num(neginf=0.0)
    member = relative.above(candidates, threshold)
    of_top = relative.neg.of(top - candidates.where(member, top)).where(member, 0.0)
    itself = relative.above(s_neg, threshold)
    mined = s_neg.where(itself, top)
    count = member.sum(1, keepdim=True) - itself.long()
    # Subtracted from the top's own term, not from the sum: if the top is mined, the others do not vanish next to it.
    difference = of_top.gather(1, index) - relative.neg.of(top - mined).where(itself, 0.0)
    total = of_top.scatter(1, index, 0.0).sum(1, keepdim=True) + difference
    lead = relative.neg.shift(total, count, s_neg.nan_to_num(neginf=0.0) - top)
    if relative.drop_ties:
        # As released: only what the mined negative is above counts, so a member beyond it leads by nothing either.
        lead, count = _strict_leads(s_neg, candidates, member)
    return relative.mean(lead, count)


def _strict_leads(s_neg: Tensor, candidates: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
    """Sum and number of the positive leads over the members. a x k x c: for small batches."""
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
