"""Pair weights P+, P-: how hard a pair is pulled or pushed. Rows of GOAL's matrix.

The two -ms rows also look at relative similarities: how the pair stands among the other positives of the batch
(for P+) and among the anchor's other negatives (for P-). A mean of differences is computed from one product of a
boolean set with a vector, so no b x b matrix of differences is formed for the positives.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from objectives.triplets import Triplets

Weights = tuple[Float[Tensor, " b"], Float[Tensor, " b"]]


def constant(t: Triplets) -> Weights:
    """P+ = P- = 1. GOAL Eq. (9)."""
    return torch.ones_like(t.s_pos), torch.ones_like(t.s_neg)


def linear(t: Triplets) -> Weights:
    """P+ = 1 - s_pos, P- = s_neg: Circle loss's self-paced weights.

    A negative similarity gives a negative P-, which pulls; as published, it is not clamped. GOAL Eq. (10).
    """
    return 1 - t.s_pos, t.s_neg


def sigmoid(t: Triplets, *, alpha: float = 2.0, beta: float = 10.0, lam: float = 0.5) -> Weights:
    """P+ = sigmoid(-alpha (s_pos - lam)), P- = sigmoid(beta (s_neg - lam)): binomial deviance's weights.

    P+ is nearly flat while P- is close to a switch at lam. GOAL Eq. (11).
    """
    return torch.sigmoid(-alpha * (t.s_pos - lam)), torch.sigmoid(beta * (t.s_neg - lam))


def linear_ms(t: Triplets, *, eps: float = 0.1, empty: float = 0.0, sets: str = "paper") -> Weights:
    """P+ = (1 - m+)(1 - s_pos), P- = (1 + m-) s_neg, with m the mean lead over the relative set.

    GOAL's parameter-free form of the Multi-Similarity weights. GOAL Eq. (13).

    Args:
        eps: slack of the relative sets, in similarity.
        empty: m of an empty relative set.
        sets: "released" also leaves exact ties out of the count of the mean, as its code does.
    """
    lead_pos = t.s_pos[:, None] - t.s_pos[None, :]
    lead_neg = t.s_neg[:, None] - t.sim
    positives, negatives = relative_positives(t, eps, sets), relative_negatives(t, eps, sets)
    if sets == "released":
        positives, negatives = positives & (lead_pos != 0), negatives & (lead_neg > 0)
    m_pos, m_neg = mean_over(positives, lead_pos, empty), mean_over(negatives, lead_neg, empty)
    return (1 - m_pos) * (1 - t.s_pos), (1 + m_neg) * t.s_neg


def sigmoid_ms(
    t: Triplets,
    *,
    alpha: float = 2.0,
    beta: float = 10.0,
    lam: float = 0.5,
    eps: float = 0.1,
    empty: float = 1.0,
    sets: str = "paper",
) -> Weights:
    """P+ = 1 / (m+ + exp(alpha (s_pos - lam))), P- = 1 / (m- + exp(-beta (s_neg - lam))): Multi-Similarity's weights.

    m+ is the mean of exp(alpha (s_pos - r)) over the relative positives r, m- that of exp(-beta (s_neg - r)) over the
    relative negatives; m = 1 gives the sigmoid weights back. Under hardest mining m- <= 1. GOAL Eq. (12).

    Args:
        empty: m of an empty relative set: 1 is neutral; the released code has 0, an unbounded exponential.
    """
    lead_pos = t.s_pos[:, None] - t.s_pos[None, :]
    lead_neg = t.s_neg[:, None] - t.sim
    m_pos = mean_over(relative_positives(t, eps, sets), torch.exp(alpha * lead_pos), empty)
    m_neg = mean_over(relative_negatives(t, eps, sets), torch.exp(-beta * lead_neg), empty)
    p_pos = 1 / (m_pos + torch.exp(alpha * (t.s_pos - lam)))
    p_neg = 1 / (m_neg + torch.exp(-beta * (t.s_neg - lam)))
    return p_pos, p_neg


def relative_positives(t: Triplets, eps: float, sets: str = "paper") -> Bool[Tensor, "b b"]:
    """[i, j]: positive j of another pair is below i's hardest negative + eps. GOAL §3.3, the set 𝒫."""
    threshold = t.s_neg[:, None] + eps
    below = t.s_pos[None, :] <= threshold if sets == "released" else t.s_pos[None, :] < threshold
    return below & t.other_positive


def relative_negatives(t: Triplets, eps: float, sets: str = "paper") -> Bool[Tensor, "b b"]:
    """[i, j]: negative j, not the hardest, is above the batch's smallest positive - eps. GOAL §3.3, the set 𝒩.

    The threshold is one scalar for all anchors, as the positives of the other pairs belong to the minimum.
    """
    threshold = t.s_pos.min() - eps
    above = t.sim >= threshold if sets == "released" else t.sim > threshold
    return above & t.other_negative


def mean_over(members: Bool[Tensor, "b b"], values: Float[Tensor, "b b"], empty: float) -> Float[Tensor, " b"]:
    """Mean of each row's values over its set; `empty` where the set is."""
    count = members.sum(dim=1)
    total = values.where(members, 0.0).sum(dim=1)
    return (total / count.clamp(min=1)).where(count > 0, empty)


PairWeight = Callable[..., Weights]
PAIR_WEIGHTS: dict[str, PairWeight] = {
    "con": constant,
    "lin": linear,
    "sig": sigmoid,
    "lin-ms": linear_ms,
    "sig-ms": sigmoid_ms,
}
