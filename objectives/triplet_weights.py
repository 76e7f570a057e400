"""Triplet weights T: how much a triplet counts, from s_pos and s_neg together. Columns of GOAL's matrix."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from goalgrid.grid.objectives.parameters import Parameter
from goalgrid.grid.registration import equations, triplet_weight
from goalgrid.objectives.triplets import Triplets

TAU = Parameter(10.0, "steepness of the triplet weight, per unit of similarity (the released class defaults to 1)")


@triplet_weight(
    "con",
    source="GOAL Eq. (5)",
    margin=Parameter(
        0.2, "a triplet counts only if s_neg + margin > s_pos; none: it always counts", released=None, optional=True
    ),
)
def constant(t: Triplets, *, margin: float | None) -> Float[Tensor, "*a k"]:
    """T = [s_neg + margin > s_pos].

    The hinge of the triplet loss. The released code has no hinge and always returns 1 (margin None).
    """
    if margin is None:
        return torch.ones_like(t.s_neg)
    return (margin + t.s_neg > t.s_pos).to(t.s_neg.dtype)


@triplet_weight("nca", source="GOAL Eq. (7)", tau=TAU)
def nca(t: Triplets, *, tau: float) -> Float[Tensor, "*a k"]:
    """T = sigmoid(tau (s_neg - s_pos)).

    The weight of NT-Xent's single mined negative: near 0 if the order of the triplet is correct, near 1 if it is not.
    """
    return torch.sigmoid(tau * (t.s_neg - t.s_pos))


@triplet_weight(
    "cir",
    source="GOAL Eq. (8)",
    tau=TAU,
    offset=Parameter(0.0, "shifts the contour T = 1/2 to (1 - s_pos)^2 + s_neg^2 = 1 - offset", released=0.5),
)
def circle(t: Triplets, *, tau: float, offset: float) -> Float[Tensor, "*a k"]:
    """T = sigmoid(tau (s_neg^2 - s_pos (2 - s_pos) + offset)).

    GOAL Eq. (8), where the offset is 0. The weight is constant on circles around (1, 0), and larger than nca's if both
    similarities are high or both are low. The released code has offset 0.5, which corresponds to a Circle-loss margin m
    with 2 m² = 1 - offset.
    """
    return torch.sigmoid(tau * (t.s_neg.square() - t.s_pos * (2 - t.s_pos) + offset))


TripletWeight = Callable[..., Float[Tensor, "*a k"]]
TRIPLET_WEIGHTS: dict[str, TripletWeight] = equations(__name__, "triplet weight")
