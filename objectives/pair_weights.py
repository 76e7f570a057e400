"""Pair weights P+, P-: how hard a pair is pulled or pushed. Rows of GOAL's matrix.

The two -ms rows also look at relative similarities, the means m+ and m-: how the pair stands among the other
positives of the batch (for P+) and among the anchor's other negatives (for P-). See `objectives.relative`.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from goalgrid.objectives.relative import Relative, leads, ratios
from goalgrid.objectives.triplets import Triplets

PairWeights = tuple[Float[Tensor, "*#a 1"], Float[Tensor, "*a k"]]


def constant(t: Triplets) -> PairWeights:
    """P+ = P- = 1. GOAL Eq. (9)."""
    return torch.ones_like(t.s_pos), torch.ones_like(t.s_neg)


def linear(t: Triplets) -> PairWeights:
    """P+ = 1 - s_pos, P- = s_neg: Circle loss's self-paced weights.

    A negative similarity gives a negative P-, which pulls; as published, it is not clamped. GOAL Eq. (10).
    """
    return 1 - t.s_pos, t.s_neg


def sigmoid(t: Triplets, *, alpha: float = 2.0, beta: float = 10.0, lam: float = 0.5) -> PairWeights:
    """P+ = sigmoid(-alpha (s_pos - lam)), P- = sigmoid(beta (s_neg - lam)): binomial deviance's weights.

    P+ is nearly flat while P- is close to a switch at lam. GOAL Eq. (11).
    """
    return torch.sigmoid(-alpha * (t.s_pos - lam)), torch.sigmoid(beta * (t.s_neg - lam))


def linear_ms(t: Triplets) -> PairWeights:
    """P+ = (1 - m+)(1 - s_pos), P- = (1 + m-) s_neg, with m the mean lead over the relative set.

    GOAL's parameter-free form of the Multi-Similarity weights. GOAL Eq. (13).
    """
    assert t.m_pos is not None
    assert t.m_neg is not None
    return (1 - t.m_pos) * (1 - t.s_pos), (1 + t.m_neg) * t.s_neg


def sigmoid_ms(t: Triplets, *, alpha: float = 2.0, beta: float = 10.0, lam: float = 0.5) -> PairWeights:
    """P+ = 1 / (m+ + exp(alpha (s_pos - lam))), P- = 1 / (m- + exp(-beta (s_neg - lam))): Multi-Similarity's weights.

    m = 1 gives the sigmoid weights back, and an m- <= 1, as hardest mining has, only raises P-; the released code
    has m = 0 for an empty set, an unbounded exponential. (The paper's prose on m- > 1 has it the wrong way round;
    its formula is right.) GOAL Eq. (12).
    """
    assert t.m_pos is not None
    assert t.m_neg is not None
    smallest = torch.finfo(t.s_neg.dtype).tiny  # an infinite weight of a triplet that does not count would be nan
    p_pos = (t.m_pos + torch.exp(alpha * (t.s_pos - lam))).clamp(min=smallest).reciprocal()
    p_neg = (t.m_neg + torch.exp(-beta * (t.s_neg - lam))).clamp(min=smallest).reciprocal()
    return p_pos, p_neg


PairWeight = Callable[..., PairWeights]
PAIR_WEIGHTS: dict[str, PairWeight] = {
    "con": constant,
    "lin": linear,
    "sig": sigmoid,
    "lin-ms": linear_ms,
    "sig-ms": sigmoid_ms,
}
RELATIVE: dict[str, Callable[..., Relative]] = {"lin-ms": leads, "sig-ms": ratios}
"""Of the pair weights that read m+ and m-: what these are means of."""
