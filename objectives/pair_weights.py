"""Pair weights P+, P-: how strongly a pair is pulled or pushed. Rows of GOAL's matrix.

The two -ms rows also use relative similarities, the means m+ and m-: they compare the pair with the other positives of
the batch (for P+) and with the anchor's other negatives (for P-). See `objectives.relative`.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from goalgrid.grid.objectives.parameters import ALPHA, BETA, LAM, Parameter
from goalgrid.grid.registration import equations, pair_weight, registered
from goalgrid.objectives.relative import Relative, leads, ratios
from goalgrid.objectives.triplets import Triplets

EPS = Parameter(0.1, "slack of the relative sets, in similarity")
SETS = Parameter(
    "paper",
    "members of the relative sets: 'paper' excludes similarities equal to the threshold; 'released' includes them, "
    "and ignores exact ties in the mean of lin-ms",
    released="released",
    choices=("paper", "released"),
)
PairWeights = tuple[Float[Tensor, "*#a 1"], Float[Tensor, "*a k"]]


@pair_weight("con", source="GOAL Eq. (9)")
def constant(t: Triplets) -> PairWeights:
    """P+ = P- = 1."""
    return torch.ones_like(t.s_pos), torch.ones_like(t.s_neg)


@pair_weight("lin", source="GOAL Eq. (10)")
def linear(t: Triplets) -> PairWeights:
    """P+ = 1 - s_pos, P- = s_neg.

    Circle loss's self-paced weights. A negative similarity gives a negative P-, which pulls; it is not clamped, as
    published.
    """
    return 1 - t.s_pos, t.s_neg


@pair_weight("sig", source="GOAL Eq. (11)", alpha=ALPHA, beta=BETA, lam=LAM)
def sigmoid(t: Triplets, *, alpha: float, beta: float, lam: float) -> PairWeights:
    """P+ = sigmoid(-alpha (s_pos - lam)), P- = sigmoid(beta (s_neg - lam)).

    Binomial deviance's weights. P+ is nearly flat, P- almost a step at lam. GOAL Eq. (11).
    """
    return torch.sigmoid(-alpha * (t.s_pos - lam)), torch.sigmoid(beta * (t.s_neg - lam))


@pair_weight(
    "lin-ms",
    source="GOAL Eq. (13)",
    relative=leads,
    eps=EPS,
    empty=Parameter(0.0, "m of an empty relative set"),
    sets=SETS,
)
def linear_ms(t: Triplets) -> PairWeights:
    """P+ = (1 - m+)(1 - s_pos), P- = (1 + m-) s_neg.

    m is the mean lead over the relative set. GOAL's parameter-free version of the Multi-Similarity weights, Eq. (13).
    """
    assert t.m_pos is not None
    assert t.m_neg is not None
    return (1 - t.m_pos) * (1 - t.s_pos), (1 + t.m_neg) * t.s_neg


@pair_weight(
    "sig-ms",
    source="GOAL Eq. (12)",
    relative=ratios,
    alpha=ALPHA,
    beta=BETA,
    lam=LAM,
    eps=EPS,
    empty=Parameter(1.0, "m of an empty relative set; 1 is neutral", released=0.0),
    sets=SETS,
)
def sigmoid_ms(t: Triplets, *, alpha: float, beta: float, lam: float) -> PairWeights:
    """P+ = 1 / (m+ + exp(alpha (s_pos - lam))), P- = 1 / (m- + exp(-beta (s_neg - lam))).

    Multi-Similarity's weights, GOAL Eq. (12). m = 1 gives the sigmoid weights. m- <= 1, as in hardest mining, only
    raises P-. The released code has m = 0 for an empty set, i.e. an unbounded exponential. (The paper's text on m- > 1
    is reversed; its formula is right.)
    """
    assert t.m_pos is not None
    assert t.m_neg is not None
    smallest = torch.finfo(t.s_neg.dtype).tiny  # an infinite weight of a triplet that does not count would be nan
    p_pos = (t.m_pos + torch.exp(alpha * (t.s_pos - lam))).clamp(min=smallest).reciprocal()
    p_neg = (t.m_neg + torch.exp(-beta * (t.s_neg - lam))).clamp(min=smallest).reciprocal()
    return p_pos, p_neg


PairWeight = Callable[..., PairWeights]
PAIR_WEIGHTS: dict[str, PairWeight] = equations(__name__, "pair weight")
RELATIVE: dict[str, Callable[..., Relative]] = {
    one.name: one.entry.relative for one in registered[__name__] if one.entry.relative
}
"""Builders of the relative sets, whose means are m+ and m-, by the pair weight that reads them."""


def as_published(name: str) -> PairWeight:
    """Return a pair weight with the parameters of its paper, for losses that use it."""
    (parameters,) = (one.entry.own for one in registered[__name__] if one.name == name)
    return partial(PAIR_WEIGHTS[name], **{key: parameter.default for key, parameter in parameters.items()})
