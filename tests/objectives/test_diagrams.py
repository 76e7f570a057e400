"""The diagrams draw what the weights are."""

from pathlib import Path

import pytest
import torch

from grid.errors import UserError
from grid.objectives import resolve
from grid.objectives.goal_matrix import GOAL
from grid.objectives.parameters import VARIANTS
from objectives import LOSSES, build, diagrams
from objectives.triplets import Triplets
from tests.objectives import literal


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", GOAL)
def test_drawn_weights_equal_the_literal_ones(name: str, variant: str) -> None:
    s_pos, s_neg = (
        s.double() for s in torch.meshgrid(torch.linspace(-1, 1, 5), torch.linspace(-1, 1, 5), indexing="ij")
    )
    drawn = diagrams.weights(name, s_pos, s_neg, mean=0.3, variant=variant, tau=7)
    values = resolve(name, variant=variant) | {"tau": 7}
    pair, triplet = name.split("_")
    constants = ([0.3], [0.3])
    for row in range(5):
        for column in range(5):
            pos, neg = s_pos[row, column].item(), s_neg[row, column].item()
            if pair == "lin-ms":
                constants = ([pos - 0.3], [neg - 0.3])
            elif pair == "sig-ms":
                m = torch.tensor(0.3, dtype=torch.float64).log().item()
                constants = ([pos - m / values["alpha"]], [neg + m / values["beta"]])
            expected = literal.T[triplet](pos, neg, values), *literal.P[pair](pos, neg, constants, values)
            found = [weight.expand(5, 5)[row, column].item() for weight in drawn]
            assert found == pytest.approx(expected)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", LOSSES)
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


def test_an_unknown_cell_is_named_and_a_loss_has_no_weights(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Known"):
        diagrams.update_field(tmp_path / "field.png", "con_cirr")
    with pytest.raises(UserError, match="no triplet weight"):
        diagrams.weights("infonce", torch.zeros(1), torch.zeros(1))
