"""Hinge losses: the triplet loss, remedies for hardest negatives whose gradient vanishes, and adaptive margins."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from goalgrid.objectives.mining import full
from goalgrid.objectives.triplets import Extra, Triplets

CLEAN = "clean"
"""Of what a training tells a loss: the estimated probability (b, 1) that a pair is no mismatch."""


def triplet(t: Triplets, *, margin: float = 0.2) -> Float[Tensor, "*a k"]:
    """[s_neg - s_pos + margin]+, of all negatives (`triplet`) or of the hardest (`triplet-hn`).

    SelHN Eq. (2) and (3), the latter VSE++ and Unified Eq. (1).
    """
    return torch.relu(t.s_neg - t.s_pos + margin)


def semi_hard(t: Triplets, *, margin: float = 0.2) -> Float[Tensor, "*a 1"]:
    """[s_neg - s_pos + margin]+ of the hardest negative that is below the positive.

    An anchor without such a negative learns nothing: its `branch`. SelHN Eq. (13), (14): the loss SHN.
    """
    below = t.s_neg.detach() < t.s_pos.detach()
    hardest = t.s_neg.where(below, -torch.inf).max(-1, keepdim=True).values
    t.notes["branch"] = _share(hardest == -torch.inf)
    return torch.relu(hardest - t.s_pos + margin)


def selectively_contrastive(
    t: Triplets,
    *,
    margin: float = 0.2,
    tau: float = 10.0,
    lam: float = 1.0,
    ceiling: float | None = None,
    easy: str = "hinge",
) -> Float[Tensor, "*a k"]:
    """lam s_neg where s_neg >= s_pos, else [s_neg - s_pos + margin]+: pushes a hard negative without pulling.

    SelHN Eq. (15), (16): SCT across modalities. The code of SCT (one modality) has log(1 + exp(tau (s_neg - s_pos)))
    on the easy ones, and calls a negative above 0.8 hard whatever its positive. The hard ones are its `branch`.

    Args:
        ceiling: a negative above it is hard; none: only beside its positive.
        easy: "hinge" or "softmax", a name in EASY.
    """
    s_neg, s_pos = t.s_neg.detach(), t.s_pos.detach()
    hard = s_neg >= s_pos if ceiling is None else (s_neg >= s_pos) | (s_neg > ceiling)
    t.notes["branch"] = _share(hard)
    return torch.where(hard, lam * t.s_neg, EASY[easy](t, margin, tau))


def selectively_hard(
    t: Triplets, *, margin: float = 0.2, epsilon: float = 0.01, divisor: str = "batch"
) -> Float[Tensor, "*a 1"]:
    """[max s_neg - s_pos + margin]+ where |max s_neg - s_pos| > epsilon, else 1/B sum of [s_neg - s_pos + margin]+.

    Where the hardest negative is as near as the positive, their gradients cancel, and the mean over all negatives
    takes over: its `branch`. SelHN Eq. (9)-(12). As epsilon goes to 0, this is Triplet-HN.

    Args:
        divisor: "batch" divides the sum by B (paper), "negatives" by B - 1 (released).
    """
    hardest = t.s_neg.max(-1, keepdim=True).values
    vanishing = (hardest - t.s_pos).detach().abs() <= epsilon
    t.notes["branch"] = _share(vanishing)
    number = t.exists.sum(-1, keepdim=True) + (divisor == "batch")
    mean = triplet(t, margin=margin).sum(-1, keepdim=True) / number.clamp(min=1)
    return torch.where(vanishing, mean, torch.relu(hardest - t.s_pos + margin))


def soft_margin(clean: Float[Tensor, "*a"], margin: float, base: float = 10.0) -> Float[Tensor, "*a"]:
    """m_i = margin (base^y - 1) / (base - 1), with y the probability that pair i is clean: 0 at y = 0, margin at 1.

    NCR's "exponential" form.
    """
    return margin * (base**clean - 1) / (base - 1)


def own_margin(t: Triplets, margin: float, base: float = 10.0) -> Float[Tensor, "*#a 1"] | float:
    """The margin of each anchor's pair. Without an estimate of y every pair counts as clean."""
    return soft_margin(t.extra[CLEAN], margin, base) if CLEAN in t.extra else margin


def row_margins(extra: Extra, *, margin: float = 0.2, base: float = 10.0) -> Float[Tensor, " b"] | None:
    """The margin of each image's pair, where y is estimated."""
    return soft_margin(extra[CLEAN][:, 0], margin, base) if CLEAN in extra else None


def noisy_correspondence(
    t: Triplets, *, margin: float = 0.2, base: float = 10.0, threshold: float = 0.0, margins: str = "anchor"
) -> Float[Tensor, "*a k"]:
    """[s_neg - s_pos + m_i]+ with the pair's own margin. Unified Eq. (27): the loss of NCR.

    NCR's code adds a column of margins to the matrix of scores in both directions. A text's negative thus brings the
    margin of its own image's pair, by which the hardest is chosen, too: max over i of [s_ij + m_i - s_jj]+.

    Args:
        threshold: a pair that is less likely to be clean teaches nothing.
        margins: "anchor", or "row" for those that were added when the negative was mined (released).
    """
    added = t.row_margin if margins == "row" and t.row_margin is not None else own_margin(t, margin, base)
    loss = torch.relu(t.s_neg - t.s_pos + added)
    return loss * (t.extra[CLEAN] >= threshold) if CLEAN in t.extra else loss


def offline_quintuplet(
    t: Triplets, *, margin: float = 0.2, gap: float = 0.3, even: float = 1.5, weighting: str = "clamped"
) -> Float[Tensor, "*a 1"]:
    """w [s_neg - s_pos + margin]+ + sum of [s_off - s_pos]+, w = even - (s_off - s_neg) / gap. AOQ.

    s_off are similarities of the anchor with an offline negative, and of that negative with another; the first is in w.
    Without offline negatives this is Triplet-HN.

    Args:
        weighting: "free" lets w have a gradient and fall below 0, as AOQ's code; "clamped" does neither.
    """
    online = torch.relu(t.s_neg - t.s_pos + margin)
    if "offline" not in t.extra:
        return online
    offline = t.extra["offline"]
    weight = even - (offline[..., :1] - t.finite().s_neg) / gap
    if weighting == "clamped":
        weight = weight.detach().clamp(min=0)
    return weight * online + torch.relu(offline - t.s_pos).sum(-1, keepdim=True)


def self_paced(
    t: Triplets, *, margin: float = 0.2, weigh: Callable[[Triplets], tuple[Tensor, Tensor]] | None = None
) -> Float[Tensor, "*a k"]:
    """V- s_neg - V+ s_pos where s_neg - s_pos + margin > 0, with learnt weights V. Our reading of Meta-SPN.

    Args:
        weigh: gives V+ and V- of each triplet; none: 1.
    """
    violates = t.s_neg.detach() - t.s_pos.detach() + margin > 0
    positive, negative = weigh(t) if weigh else (1.0, 1.0)
    return (negative * t.finite().s_neg - positive * t.s_pos).where(violates, 0.0)


def pair_losses(sim: Float[Tensor, "b b"], *, margin: float = 0.2) -> Float[Tensor, " b"]:
    """Mean over the other texts of [s_it - s_ii + margin]+, plus that over the other images of [s_it - s_tt + margin]+.

    By this loss NCR tells clean pairs from mismatched pairs.
    """
    sim = full(sim)
    s_pos = sim.diagonal()
    i2t, t2i = torch.relu(sim - s_pos[:, None] + margin), torch.relu(sim - s_pos + margin)
    itself = max(margin, 0.0)
    return (i2t.sum(1) + t2i.sum(0) - 2 * itself) / (len(sim) - 1)


def _share(holds: Bool[Tensor, "*a"]) -> Float[Tensor, ""]:
    return holds.float().mean()


EASY: dict[str, Callable[[Triplets, float, float], Tensor]] = {
    "hinge": lambda t, margin, tau: triplet(t, margin=margin),
    "softmax": lambda t, margin, tau: torch.nn.functional.softplus(tau * (t.s_neg - t.s_pos)),
}

HINGE: dict[str, Callable[..., Tensor]] = {
    "triplet": triplet,
    "triplet-hn": triplet,
    "shn": semi_hard,
    "sct": selectively_contrastive,
    "selhn": selectively_hard,
    "ncr": noisy_correspondence,
    "aoq": offline_quintuplet,
    "meta-spn": self_paced,
}
