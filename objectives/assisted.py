"""Hinge losses with additional inputs: clean probabilities, offline negatives or learnt pair weights."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from goalgrid.grid.objectives.parameters import BASE, MARGIN, MIXTURE, Parameter
from goalgrid.grid.registration import objective
from goalgrid.objectives.mining import full
from goalgrid.objectives.triplets import Extra, Triplets

CLEAN = "clean"
"""Key in `Triplets.extra` of the estimated probability (b, 1) that a pair is clean."""


def soft_margin(clean: Float[Tensor, "*a"], margin: float, base: float) -> Float[Tensor, "*a"]:
    """m_i = margin (base^y - 1) / (base - 1), with y the probability that pair i is clean: 0 at y = 0, margin at 1.

    NCR's "exponential" form.
    """
    return margin * (base**clean - 1) / (base - 1)


def own_margin(t: Triplets, margin: float, base: float) -> Float[Tensor, "*#a 1"] | float:
    """Return the margin of each anchor's pair; `margin` if there are no clean probabilities."""
    return soft_margin(t.extra[CLEAN], margin, base) if CLEAN in t.extra else margin


def row_margins(extra: Extra, *, margin: float, base: float) -> Float[Tensor, " b"] | None:
    """Return the margin of each image's pair; None if there are no clean probabilities."""
    return soft_margin(extra[CLEAN][:, 0], margin, base) if CLEAN in extra else None


@objective(
    "ncr",
    source="Unified Eq. (27)",
    known_as="NCR, Noisy Correspondence Rectifier",
    needs=("clean-probabilities",),
    margin=MARGIN,
    base=BASE,
    threshold=Parameter(0.0, "pairs with a lower clean probability are ignored", released=0.5),
    margins=Parameter(
        "anchor",
        "m_i of the anchor's pair, or of the pair in whose row of the score matrix the negative lies, as in NCR's code",
        released="row",
        choices=("anchor", "row"),
        silent=("anchor",),
    ),
    mixture=Parameter("quartiles", MIXTURE.meaning, released="k-means", choices=MIXTURE.choices, silent=MIXTURE.silent),
)
def noisy_correspondence(
    t: Triplets, *, margin: float, base: float, threshold: float, margins: str
) -> Float[Tensor, "*a k"]:
    """[max s_neg - s_pos + m_i]+ with m_i = margin (base^y - 1) / (base - 1), where y is the pair's clean probability.

    NCR's code adds a column of margins to the score matrix in both directions. So the margin of a text's negative is
    that of the negative image's pair, and it affects which negative is the hardest: max over i of [s_ij + m_i - s_jj]+.
    """
    added = t.row_margin if margins == "row" and t.row_margin is not None else own_margin(t, margin, base)
    loss = torch.relu(t.s_neg - t.s_pos + added)
    return loss * (t.extra[CLEAN] >= threshold) if CLEAN in t.extra else loss


@objective(
    "aoq",
    remines=False,
    source="AOQ, Chen et al., ECCV 2020, and its code",
    known_as="AOQ, Adaptive Offline Quintuplet loss",
    needs=("offline-negatives",),
    margin=MARGIN,
    gap=Parameter(0.3, "w falls by 1 when the offline negative is more similar than the hardest one by this much"),
    even=Parameter(1.5, "w if the offline and the hardest negative are equally similar"),
    weighting=Parameter(
        "clamped",
        "clamped: w is constant and at least 0; free: w has a gradient and may fall below 0",
        released="free",
        choices=("clamped", "free"),
    ),
)
def offline_quintuplet(t: Triplets, *, margin: float, gap: float, even: float, weighting: str) -> Float[Tensor, "*a 1"]:
    """w [max s_neg - s_pos + margin]+ + sum of [s_off - s_pos]+ with w = even - (s_off - max s_neg) / gap.

    There are two s_off: the similarity of the anchor with an offline negative, which w uses, and the similarity of
    that negative with another one. Without offline negatives this is Triplet-HN.
    """
    online = torch.relu(t.s_neg - t.s_pos + margin)
    if "offline" not in t.extra:
        return online
    offline = t.extra["offline"]
    weight = even - (offline[..., :1] - t.finite().s_neg) / gap
    if weighting == "clamped":
        weight = weight.detach().clamp(min=0)
    return weight * online + torch.relu(offline - t.s_pos).sum(-1, keepdim=True)


@objective(
    "meta-spn",
    remines=False,
    source="our reading of Meta-SPN, Wei et al., ACM MM 2021",
    known_as="Meta-SPN, our reading",
    needs=("learnt-weights",),
    margin=MARGIN,
)
def self_paced(
    t: Triplets, *, margin: float, weigh: Callable[[Triplets], tuple[Tensor, Tensor]] | None = None
) -> Float[Tensor, "*a k"]:
    """V- max s_neg - V+ s_pos if max s_neg - s_pos + margin > 0, with V learnt on half of the validation split.

    Args:
        weigh: returns V+ and V- of each triplet (default: 1).
    """
    violates = t.s_neg.detach() - t.s_pos.detach() + margin > 0
    positive, negative = weigh(t) if weigh else (1.0, 1.0)
    return (negative * t.finite().s_neg - positive * t.s_pos).where(violates, 0.0)


def pair_losses(sim: Float[Tensor, "b b"], *, margin: float = 0.2) -> Float[Tensor, " b"]:
    """Mean over the other texts of [s_it - s_ii + margin]+, plus that over the other images of [s_it - s_tt + margin]+.

    NCR uses this loss to separate clean pairs from mismatched pairs.
    """
    sim = full(sim)
    s_pos = sim.diagonal()
    i2t, t2i = torch.relu(sim - s_pos[:, None] + margin), torch.relu(sim - s_pos + margin)
    itself = max(margin, 0.0)
    return (i2t.sum(1) + t2i.sum(0) - 2 * itself) / (len(sim) - 1)
