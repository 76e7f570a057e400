"""What the papers print, against the derivative: which equations and sentences hold, and which do not."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from goalgrid.grid.objectives.goal_matrix import CELLS, GOAL, KNOWN_AS, of_a_loss
from goalgrid.objectives import build
from goalgrid.objectives.contrastive import unified
from goalgrid.objectives.objective import GradientSurrogate
from goalgrid.objectives.pair_weights import sigmoid_ms
from goalgrid.objectives.relative import ratios, relative_negatives
from goalgrid.objectives.triplets import Triplets
from tests.objectives.test_goal import unit

SIMILARITIES = torch.tensor([[0.31, 0.23], [0.72, 0.55], [0.15, 0.64]], dtype=torch.float64)
"""s_pos and s_neg of three triplets."""


def field(name: str, at: Tensor) -> Tensor:
    """What a cell gives as derivatives by s_pos and by s_neg, with m+ and m- held and without a hinge."""
    objective = build(name, **({"margin": None} if "margin" in CELLS[name].parameters else {}))
    surrogate = objective.loss
    assert isinstance(surrogate, GradientSurrogate)
    t = Triplets(at[:1], at[1:], m_pos=torch.tensor([0.3]), m_neg=torch.tensor([0.8]))
    tri, (pull, push) = surrogate.triplet_weight(t), surrogate.pair_weight(t)
    return torch.cat([-tri * pull, tri * push])


@pytest.mark.parametrize("name", GOAL)
def test_a_cell_is_the_gradient_of_a_loss_where_its_jacobian_is_symmetric(name: str) -> None:
    """GOAL §3.4: cells that are no known losses are "possibly impossible if they are not integrable"."""
    jacobians = [torch.autograd.functional.jacobian(lambda at: field(name, at), at) for at in SIMILARITIES]
    symmetric = all(torch.allclose(jacobian, jacobian.T, atol=1e-12) for jacobian in jacobians)
    assert symmetric == of_a_loss(name)


def test_seven_cells_are_gradients_of_a_loss_and_two_of_these_are_new() -> None:
    integrable = [name for name in GOAL if of_a_loss(name)]
    assert len(integrable) == 7
    assert [name for name in integrable if name not in KNOWN_AS] == ["lin_con", "lin-ms_con"]


SHAPE = {"alpha": 2.0, "beta": 10.0}
"""Of the pair weight sig-ms."""


def test_m_minus_below_1_raises_the_weight_and_is_all_that_hardest_mining_has() -> None:
    """GOAL's prose after Eq. (12) says that m- > 1 marks a near negative, raises P-, and that m- < 1 does not occur."""
    candidates = unit(50, 7)
    hardest = candidates.amax(1, keepdim=True)
    m_neg = relative_negatives(
        hardest, candidates, torch.tensor(-1.0), ratios(**SHAPE, eps=0.1, empty=1.0, sets="paper")
    )
    assert (m_neg <= 1).all()
    weights = [
        sigmoid_ms(Triplets(hardest, hardest, m_pos=m_neg, m_neg=m * m_neg), **SHAPE, lam=0.5)[1]
        for m in (0.5, 1.0, 2.0)
    ]
    assert (weights[0] > weights[1]).all()
    assert (weights[1] > weights[2]).all()


ANCHOR, POSITIVE, NEGATIVES = unit(6, seed=4), unit(6, seed=5), unit(3, 6, seed=6)
MARGIN = 0.2


def derivatives(*, hardest: bool) -> tuple[Tensor, ...]:
    """Of Triplet-HN, or of the unified loss with gamma = 1, image to text: by the anchor, positive and negatives."""
    v, t, others = (x.clone().requires_grad_() for x in (ANCHOR, POSITIVE, NEGATIVES))
    lead = others @ v - t @ v + MARGIN
    loss = lead.amax().relu() if hardest else lead.exp().sum().log1p()
    return torch.autograd.grad(loss, (v, t, others))


def tangent(gradient: Tensor, at: Tensor) -> float:
    """Norm of the part that normalisation leaves: what is orthogonal to the unit vector."""
    return float((gradient - (gradient @ at) * at).norm())


def sine(a: Tensor, b: Tensor) -> float:
    return math.sqrt(max(1 - float(normalize(a, dim=0) @ normalize(b, dim=0)) ** 2, 0.0))


def test_triplet_hn_has_the_printed_gradient_and_tangent() -> None:
    """Unified Eq. (8) to (12), SelHN Eq. (4) to (7)."""
    by_anchor, by_positive, by_negatives = derivatives(hardest=True)
    chosen = int((NEGATIVES @ ANCHOR).argmax())
    hard = NEGATIVES[chosen]
    torch.testing.assert_close(by_anchor, hard - POSITIVE)
    torch.testing.assert_close(by_positive, -ANCHOR)
    torch.testing.assert_close(by_negatives[chosen], ANCHOR)
    printed = float((hard - POSITIVE).norm()) * sine(ANCHOR, hard - POSITIVE)
    assert tangent(by_anchor, ANCHOR) == pytest.approx(printed)
    assert tangent(by_negatives[chosen], hard) == pytest.approx(sine(ANCHOR, hard))


def test_equal_similarities_alone_do_not_make_the_gradient_vanish_as_selhn_prints() -> None:
    """SelHN Eq. (8) has the cosine where the sine stands: 0 for two texts on opposite sides of the image's axis."""
    v = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    t, hard = (torch.tensor([0.08, sign * math.sqrt(1 - 0.08**2), 0.0], dtype=torch.float64) for sign in (1, -1))
    printed = float((hard - t).norm()) * float(v @ hard - v @ t)
    assert abs(printed) < 1e-12
    assert tangent(hard - t, v) == pytest.approx(1.994, abs=0.001)
    assert tangent(hard - t, v) == pytest.approx(float((hard - t).norm()) * sine(v, hard - t))
    near = normalize(t + 1e-4, dim=0)
    assert tangent(near - t, v) < 1e-3  # what does make it vanish: texts that are nearly equal


def test_the_unified_loss_has_the_printed_gradient_by_the_anchor_but_not_by_a_negative() -> None:
    """Unified Eq. (13) to (16): (15) has the negative's own D in the denominator, where the sum of all D stands."""
    value = unified(Triplets((POSITIVE @ ANCHOR)[None], NEGATIVES @ ANCHOR), gamma=1.0, margin=MARGIN, scaled=True)
    d = torch.exp(NEGATIVES @ ANCHOR - POSITIVE @ ANCHOR + MARGIN)
    torch.testing.assert_close(value.squeeze(), torch.log(1 + d.sum()))
    by_anchor, _, by_negatives = derivatives(hardest=False)
    torch.testing.assert_close(by_anchor, (d[:, None] * (NEGATIVES - POSITIVE)).sum(0) / (1 + d.sum()))
    torch.testing.assert_close(by_negatives, d[:, None] * ANCHOR / (1 + d.sum()))
    assert (by_negatives.norm(dim=1) < 0.9 * d / (1 + d)).all()
    # Three negatives that are 0.4 less similar than the positive: 0.450 as printed, 0.237 in truth.
    d = torch.full((3,), math.exp(-0.4 + MARGIN))
    assert float(d[0] / (1 + d[0])) == pytest.approx(0.450, abs=0.0005)
    assert float(d[0] / (1 + d.sum())) == pytest.approx(0.237, abs=0.0005)


def test_the_printed_tangents_of_the_unified_loss() -> None:
    """Unified Eq. (18) holds; (17) adds the norms of the negatives' parts, which may cancel: it is a bound."""
    by_anchor, _, by_negatives = derivatives(hardest=False)
    d = torch.exp(NEGATIVES @ ANCHOR - POSITIVE @ ANCHOR + MARGIN)
    parts = [
        float((t - POSITIVE).norm()) * sine(ANCHOR, t - POSITIVE) * float(weight / (1 + d.sum()))
        for t, weight in zip(NEGATIVES, d, strict=True)
    ]
    assert tangent(by_anchor, ANCHOR) < 0.95 * sum(parts)
    for t, gradient in zip(NEGATIVES, by_negatives, strict=True):
        assert tangent(gradient, t) == pytest.approx(float(gradient.norm()) * sine(ANCHOR, t))


def test_a_margin_weighs_negatives_more_than_vlc_does() -> None:
    """Unified Eq. (19): "under the same conditions, L_Unified can contribute a larger gradient than L_VLC"."""
    lead = NEGATIVES @ ANCHOR - POSITIVE @ ANCHOR
    with_margin, without = (d / (1 + d.sum()) for d in (torch.exp(lead + MARGIN), torch.exp(lead)))
    assert (with_margin > without).all()


@pytest.mark.parametrize(("variant", "perfect", "collapsed"), [("paper", 44, 1), ("released", 1, 5)])
def test_the_printed_count_of_adopt_keeps_most_negatives_for_a_perfect_model(
    variant: str, perfect: int, collapsed: int
) -> None:
    """VSE+2AD Eq. (6) keeps 44 of 64 negatives, and 1 for a collapsed model; its figure ends at 4 or 5."""
    objective = build("adopt", variant=variant)
    counts = []
    for sim in (torch.zeros(64, 64), torch.eye(64), torch.ones(64, 64)):
        objective.from_similarity(sim)
        counts.append(int(objective.report["k"]))
    assert counts[1:] == [perfect, collapsed]
    assert counts[0] > 30
