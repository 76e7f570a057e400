"""Polynomial losses: weights that are polynomials of the similarities. SSP and RSP of Universal Weighting."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from goalgrid.grid.objectives.parameters import MARGIN, Parameter
from goalgrid.grid.registration import objective
from goalgrid.objectives.triplets import Triplets


@objective(
    "ssp",
    source="Universal Weighting, as in Unified §4",
    known_as="SSP, Self-Similarity Polynomial",
    reductions=("mean", "mean"),
    a0=Parameter(0.5, "constant coefficient for s_pos"),
    a1=Parameter(-0.7, "linear coefficient for s_pos"),
    a2=Parameter(0.2, "quadratic coefficient for s_pos"),
    b0=Parameter(0.03, "constant coefficient for s_neg"),
    b1=Parameter(-0.4, "linear coefficient for s_neg"),
    b2=Parameter(0.9, "quadratic coefficient for s_neg"),
    margin=Parameter(0.2, "only triplets with s_neg + margin > s_pos count", only_with=("hinges", "two")),
    hinges=Parameter("one", "a hinge on the sum, or one on each polynomial", released="two", choices=("one", "two")),
)
def self_similarity(
    t: Triplets, *, a0: float, a1: float, a2: float, b0: float, b1: float, b2: float, margin: float, hinges: str
) -> Float[Tensor, "*a k"]:
    """[a0 + a1 s_pos + a2 s_pos^2 + b0 + b1 s_neg + b2 s_neg^2]+.

    The loss SSP. The released code applies a hinge to each of the two polynomials, and only counts triplets with
    s_neg + margin > s_pos.
    """
    triplet = t.finite()
    pull = a0 + a1 * triplet.s_pos + a2 * triplet.s_pos.square()
    push = b0 + b1 * triplet.s_neg + b2 * triplet.s_neg.square()
    violates = t.s_neg.detach() + margin > t.s_pos.detach()
    return HINGES[hinges](pull, push, violates).where(t.exists, 0.0)


@objective(
    "rsp",
    source="Unified Eq. (25)",
    known_as="RSP, Relative-Similarity Polynomial",
    c0=Parameter(1.0, "constant coefficient of the weight"),
    c1=Parameter(1.0, "linear coefficient of the weight"),
    c2=Parameter(0.0, "quadratic coefficient of the weight"),
    margin=MARGIN,
)
def relative_similarity(t: Triplets, *, c0: float, c1: float, c2: float, margin: float) -> Float[Tensor, "*a k"]:
    """[(c0 + c1 r + c2 r^2) r + margin]+ with r = s_neg - s_pos; the polynomial gets no gradient.

    The loss RSP, Unified Eq. (25). The Unified paper does not give the coefficients; with these defaults, the
    weight is 1 + r.
    """
    triplet = t.finite()
    r = triplet.s_neg - triplet.s_pos
    weight = (c0 + c1 * r + c2 * r.square()).detach()
    return torch.relu(weight * r + margin).where(t.exists, 0.0)


HINGES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "one": lambda pull, push, violates: torch.relu(pull + push),
    "two": lambda pull, push, violates: (torch.relu(pull) + torch.relu(push)) * violates,
}
