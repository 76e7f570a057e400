"""The diagrams draw what the weights are."""

from pathlib import Path

import pytest
import torch

from grid.errors import UserError
from grid.objectives import resolve
from grid.objectives.goal_matrix import GOAL
from grid.objectives.parameters import VARIANTS
from objectives import diagrams
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


def test_every_diagram_is_written(tmp_path: Path) -> None:
    diagrams.triplet_weights(tmp_path / "triplet.pdf")
    diagrams.pair_weights(tmp_path / "pair.svg", variant="released", beta=40)
    diagrams.update_field(tmp_path / "field.svg", "sig-ms_con", variant="released")
    diagrams.cells(tmp_path / "cells.png")
    written = {path.name for path in tmp_path.iterdir() if path.stat().st_size > 5000}
    assert written == {"triplet.pdf", "pair.svg", "field.svg", "cells.png"}


@pytest.mark.parametrize("name", ["infonce", "con_cirr"])
def test_a_loss_has_no_weights_to_draw(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Known"):
        diagrams.update_field(tmp_path / "field.png", name)
