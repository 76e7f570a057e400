"""Polynomial losses: weights that are polynomials of the similarities. SSP and RSP of Universal Weighting."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from goalgrid.objectives.triplets import Triplets


def self_similarity(
    t: Triplets,
    *,
    a0: float = 0.5,
    a1: float = -0.7,
    a2: float = 0.2,
    b0: float = 0.03,
    b1: float = -0.4,
    b2: float = 0.9,
    margin: float = 0.2,
    hinges: str = "one",
) -> Float[Tensor, "*a k"]:
    """[a0 + a1 s_pos + a2 s_pos² + b0 + b1 s_neg + b2 s_neg²]+: the loss SSP.

    The released code has a hinge on each of the two polynomials, and only on triplets with s_neg + margin > s_pos.

    Args:
        hinges: "one" on the sum, or "two", a name in HINGES.
    """
    triplet = t.finite()
    pull = a0 + a1 * triplet.s_pos + a2 * triplet.s_pos.square()
    push = b0 + b1 * triplet.s_neg + b2 * triplet.s_neg.square()
    violates = t.s_neg.detach() + margin > t.s_pos.detach()
    return HINGES[hinges](pull, push, violates).where(t.exists, 0.0)


def relative_similarity(
    t: Triplets, *, c0: float = 1.0, c1: float = 1.0, c2: float = 0.0, margin: float = 0.2
) -> Float[Tensor, "*a k"]:
    """[G r + margin]+, r = s_neg - s_pos, with the weight G = c0 + c1 r + c2 r² constant. Unified Eq. (25): RSP.

    The Unified paper does not restate the coefficients; these make a triplet count by as much as its negative leads.
    """
    triplet = t.finite()
    r = triplet.s_neg - triplet.s_pos
    weight = (c0 + c1 * r + c2 * r.square()).detach()
    return torch.relu(weight * r + margin).where(t.exists, 0.0)


HINGES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "one": lambda pull, push, violates: torch.relu(pull + push),
    "two": lambda pull, push, violates: (torch.relu(pull) + torch.relu(push)) * violates,
}

POLYNOMIAL: dict[str, Callable[..., Tensor]] = {"ssp": self_similarity, "rsp": relative_similarity}
