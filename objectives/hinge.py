"""Hinge losses: the triplet loss, and remedies for hardest negatives whose gradient vanishes."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from goalgrid.grid.objectives.parameters import MARGIN, Parameter
from goalgrid.grid.registration import objective
from goalgrid.objectives.triplets import Triplets


@objective(
    "triplet-hn",
    formula="[max s_neg - s_pos + margin]+",
    source="SelHN Eq. (3), Unified Eq. (1)",
    known_as="Triplet-HN, VSE++",
    margin=MARGIN,
)
@objective(
    "triplet",
    on="all",
    remines=True,
    formula="sum over all negatives of [s_neg - s_pos + margin]+",
    source="SelHN Eq. (2)",
    known_as="Triplet, sum of hinges",
    margin=MARGIN,
)
def triplet(t: Triplets, *, margin: float) -> Float[Tensor, "*a k"]:
    """[s_neg - s_pos + margin]+, for all negatives (`triplet`) or only the hardest (`triplet-hn`).

    SelHN Eq. (2) and (3). Eq. (3) is VSE++ and Unified Eq. (1).
    """
    return torch.relu(t.s_neg - t.s_pos + margin)


@objective("shn", on="all", source="SelHN Eq. (13), (14)", known_as="SHN, semi-hard negatives", margin=MARGIN)
def semi_hard(t: Triplets, *, margin: float) -> Float[Tensor, "*a 1"]:
    """[s - s_pos + margin]+, where s is the hardest negative below s_pos.

    The loss SHN, SelHN Eq. (13), (14). An anchor without such a negative gets no gradient; the report value `branch` is
    the share of these anchors.
    """
    below = t.s_neg.detach() < t.s_pos.detach()
    hardest = t.s_neg.where(below, -torch.inf).max(-1, keepdim=True).values
    t.notes["branch"] = _share(hardest == -torch.inf)
    return torch.relu(hardest - t.s_pos + margin)


@objective(
    "sct",
    remines=False,
    source="SelHN Eq. (15), (16)",
    known_as="SCT, Selectively Contrastive Triplet",
    reductions=("sum", "average"),
    margin=Parameter(0.2, MARGIN.meaning, only_with=("easy", "hinge")),
    tau=Parameter(10.0, "steepness on the easy triplets", only_with=("easy", "softmax")),
    lam=Parameter(1.0, "weight of a hard negative"),
    ceiling=Parameter(None, "negatives more similar than this are always hard", released=0.8, optional=True),
    easy=Parameter("hinge", "loss of an easy triplet", released="softmax", choices=("hinge", "softmax")),
)
def selectively_contrastive(
    t: Triplets, *, margin: float, tau: float, lam: float, ceiling: float | None, easy: str
) -> Float[Tensor, "*a k"]:
    """lam s_neg where s_neg >= s_pos, else [s_neg - s_pos + margin]+.

    SCT across modalities, SelHN Eq. (15), (16): a hard negative is pushed away, and its positive is not pulled. SCT's
    released code (one modality) uses log(1 + exp(tau (s_neg - s_pos))) for easy negatives, and counts every negative
    above 0.8 as hard. The report value `branch` is the share of hard ones.
    """
    s_neg, s_pos = t.s_neg.detach(), t.s_pos.detach()
    hard = s_neg >= s_pos if ceiling is None else (s_neg >= s_pos) | (s_neg > ceiling)
    t.notes["branch"] = _share(hard)
    return torch.where(hard, lam * t.s_neg, EASY[easy](t, margin, tau))


@objective(
    "selhn",
    on="all",
    source="SelHN Eq. (9)-(12)",
    known_as="SelHN, RVSE++",
    reductions=("sum", "average"),
    margin=MARGIN,
    epsilon=Parameter(0.01, "all negatives are used if |s_neg - s_pos| is at most this"),
    divisor=Parameter(
        "batch",
        "divisor of the sum over negatives: B or B - 1",
        released="negatives",
        choices=("batch", "negatives"),
    ),
)
def selectively_hard(t: Triplets, *, margin: float, epsilon: float, divisor: str) -> Float[Tensor, "*a 1"]:
    """[max s_neg - s_pos + margin]+ if |max s_neg - s_pos| > epsilon, else 1/B sum of [s_neg - s_pos + margin]+.

    SelHN Eq. (9)-(12). If the hardest negative is as near as the positive, their gradients cancel, so the mean over all
    negatives is used; the report value `branch` is the share of these anchors. Triplet-HN in the limit epsilon = 0.
    """
    hardest = t.s_neg.max(-1, keepdim=True).values
    vanishing = (hardest - t.s_pos).detach().abs() <= epsilon
    t.notes["branch"] = _share(vanishing)
    number = t.exists.sum(-1, keepdim=True) + (divisor == "batch")
    mean = triplet(t, margin=margin).sum(-1, keepdim=True) / number.clamp(min=1)
    return torch.where(vanishing, mean, torch.relu(hardest - t.s_pos + margin))


def _share(holds: Bool[Tensor, "*a"]) -> Float[Tensor, ""]:
    return holds.float().mean()


EASY: dict[str, Callable[[Triplets, float, float], Tensor]] = {
    "hinge": lambda t, margin, tau: triplet(t, margin=margin),
    "softmax": lambda t, margin, tau: torch.nn.functional.softplus(tau * (t.s_neg - t.s_pos)),
}
