"""The diagrams draw what the weights are."""

import math

import numpy as np
import pytest
import torch
from matplotlib.quiver import Quiver

from goalgrid.grid.errors import UserError
from goalgrid.grid.objectives import resolve
from goalgrid.grid.objectives.goal_matrix import GOAL, GOAL_COLUMNS, GOAL_ROWS
from goalgrid.grid.objectives.parameters import VARIANTS
from goalgrid.objectives import LOSSES, build, diagrams
from goalgrid.objectives.triplets import Triplets
from tests.cases import every
from tests.objectives import literal


def of_means(pair: str, pos: float, neg: float, mean: float, values: dict) -> tuple[list[float], list[float]]:
    """Relative sets of a single member each, whose m+ and m- are this mean."""
    if pair == "lin-ms":
        return [pos - mean], [neg - mean]
    if pair == "sig-ms":
        return [pos - math.log(mean) / values["alpha"]], [neg + math.log(mean) / values["beta"]]
    return [], []


@every("variant", VARIANTS)
@every("name", GOAL)
def test_drawn_weights_equal_the_literal_ones(name: str, variant: str) -> None:
    s_pos, s_neg = (
        s.double() for s in torch.meshgrid(torch.linspace(-1, 1, 5), torch.linspace(-1, 1, 5), indexing="ij")
    )
    drawn = diagrams.weights(name, s_pos, s_neg, variant=variant, tau=7)
    values = resolve(name, variant=variant) | {"tau": 7}
    pair, triplet = name.split("_")
    for row in range(5):
        for column in range(5):
            pos, neg = s_pos[row, column].item(), s_neg[row, column].item()
            sets = of_means(pair, pos, neg, diagrams.MEAN, values)
            expected = literal.T[triplet](pos, neg, values), *literal.P[pair](pos, neg, sets, values)
            found = [weight.expand(5, 5)[row, column].item() for weight in drawn]
            assert found == pytest.approx(expected)


@every("variant", VARIANTS)
@every("name", LOSSES)
def test_pull_and_push_equal_the_gradient_of_each_anchor_alone(name: str, variant: str) -> None:
    generator = torch.Generator().manual_seed(1)
    s_pos = torch.rand(6, generator=generator, dtype=torch.float64)
    s_neg = torch.rand(6, 5, generator=generator, dtype=torch.float64).sort(descending=True).values
    pull, push = diagrams.pull_and_push(name, s_pos, s_neg, variant=variant)
    assert (pull.requires_grad, push.requires_grad) == (False, False)
    objective = build(name, variant=variant)
    for row in range(6):
        positive = s_pos[row].clone().requires_grad_()
        negatives = s_neg[row].clone().requires_grad_()
        mined = negatives[:1] if objective.k == 1 else negatives
        objective.loss(Triplets(positive[None, None], mined[None], always=objective.k == 1)).sum().backward()
        torch.testing.assert_close(pull[row], -positive.grad)
        torch.testing.assert_close(push[row], negatives.grad)


def test_the_unified_loss_pushes_by_a_softmax_with_a_1_for_no_negative() -> None:
    """Unified Eq. (5), differentiated."""
    pull, push = diagrams.pull_and_push("unified", torch.tensor([0.5]), torch.tensor([[0.6, 0.4, 0.1]]))
    odds = [torch.tensor(60 * (s - 0.5 + 0.2)).exp().item() for s in (0.6, 0.4, 0.1)]
    assert push[0].tolist() == pytest.approx([odd / (1 + sum(odds)) for odd in odds], rel=1e-4)
    assert pull.item() == pytest.approx(push.sum().item())


@every("variant", VARIANTS)
def test_figure_3_has_p_plus_of_every_row_on_the_left_and_p_minus_on_the_right(variant: str) -> None:
    left, right = diagrams.pair_weights(variant=variant).axes
    assert [axes.get_title() for axes in (left, right)] == ["$P_+$ over $s_{pos}$", "$P_-$ over $s_{neg}$"]
    for side, axes in enumerate((left, right)):
        assert [line.get_label() for line in axes.lines[:5]] == list(GOAL_ROWS)
        for line in axes.lines[:5]:
            values = resolve(f"{line.get_label()}_con", variant=variant)
            for s, height in list(zip(*line.get_data(), strict=True))[::40]:
                expected = literal.P[line.get_label()](s, s, of_means(line.get_label(), s, s, 0.1, values), values)
                assert height == pytest.approx(expected[side])


@every("variant", VARIANTS)
def test_figure_2_has_t_of_every_column_over_s_pos_to_the_right_and_s_neg_upwards(variant: str) -> None:
    for triplet, axes in zip(GOAL_COLUMNS, diagrams.triplet_weights(variant=variant, tau=3).axes, strict=False):
        assert axes.get_title().startswith(f"$T$ {triplet}:")
        (image,) = axes.images
        drawn, values = image.get_array(), resolve(f"con_{triplet}", variant=variant) | {"tau": 3}
        assert (image.get_extent(), image.origin, len(drawn)) == ([0, 1, 0, 1], "lower", diagrams.FINE)
        for row, column in ((0, 0), (30, 160), (160, 30), (90, 101)):
            expected = literal.T[triplet](column / 200, row / 200, values)
            assert drawn[row, column] == pytest.approx(expected)


@every("name", ["sig_nca", "triplet-hn"])
def test_an_arrow_points_along_a_step_that_pulls_the_positive_and_pushes_the_negative(name: str) -> None:
    axes = diagrams.update_field(name, **({"tau": 3} if name == "sig_nca" else {})).axes[0]
    (arrows,) = (found for found in axes.collections if isinstance(found, Quiver))
    values, lengths = resolve("sig_nca") | {"tau": 3}, np.hypot(arrows.U, arrows.V)
    for (s_pos, s_neg), along_pos, along_neg, length in zip(
        arrows.get_offsets(), arrows.U, arrows.V, lengths, strict=True
    ):
        pull = push = float(s_neg - s_pos + 0.2 > 0)
        if name == "sig_nca":
            tri = literal.T["nca"](s_pos, s_neg, values)
            pull, push = (tri * weight for weight in literal.P["sig"](s_pos, s_neg, ([], []), values))
        step = math.hypot(pull, push)
        if step > 0.1:
            assert (along_pos, along_neg) == pytest.approx((pull / step * length, -push / step * length))


def test_an_unknown_cell_is_named_and_a_loss_has_no_weights() -> None:
    with pytest.raises(UserError, match="Known"):
        diagrams.update_field("con_cirr")
    with pytest.raises(UserError, match="no triplet weight"):
        diagrams.weights("infonce", torch.zeros(1), torch.zeros(1))
