"""Objectives side by side: each is what it is by itself, and does not depend on its company."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import objectives
from grid.objectives import GOAL, OBJECTIVES
from objectives.stacked import StackedObjective, is_cell


def embeddings(count: int, batch: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Unit vectors of images and of texts near them, and which image each pair is of: some are of the same one."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(count, batch, 6, generator=generator)
    text = image + torch.randn(count, batch, 6, generator=generator)
    owners = torch.randint(0, max(2, batch - 2), (count, batch), generator=generator)
    unit = torch.nn.functional.normalize
    return unit(image, dim=-1).requires_grad_(), unit(text, dim=-1).requires_grad_(), owners


def assert_each_as_alone(made: list[objectives.Objective], image: Tensor, text: Tensor, owners: Tensor) -> None:
    """Losses, gradients and reports are those of each objective by itself."""
    stacked = StackedObjective(made)
    losses = stacked(image, text, owners)
    scale = torch.arange(1.0, len(made) + 1)
    (losses * scale).sum().backward()
    report = stacked.report
    for k, objective in enumerate(made):
        alone = [part[k].detach().clone().requires_grad_() for part in (image, text)]
        loss = objective(*alone, owners[k])
        (loss * scale[k]).backward()
        torch.testing.assert_close(losses[k], loss, atol=1e-5, rtol=1e-5)
        for part, of_stack in zip(alone, (image, text), strict=True):
            assert of_stack.grad is not None
            torch.testing.assert_close(of_stack.grad[k], part.grad, atol=1e-6, rtol=1e-5)
        for name, values in report.items():
            expected = objective.report.get(name, torch.tensor(torch.nan))
            torch.testing.assert_close(values[k], expected, atol=1e-5, rtol=1e-4, equal_nan=True)


@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("batch", [2, 3, 20])
def test_the_whole_matrix_equals_its_cells_one_by_one(variant: str, batch: int) -> None:
    made = [objectives.build(name, variant=variant) for name in GOAL]
    assert all(map(is_cell, made))
    assert_each_as_alone(made, *embeddings(len(made), batch))


@settings(max_examples=25)
@given(
    names=st.lists(st.sampled_from(list(OBJECTIVES)), min_size=1, max_size=6),
    batch=st.integers(2, 9),
    seed=st.integers(0, 9),
    masked=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_any_objectives_side_by_side_equal_themselves_alone(
    names: list[str], batch: int, seed: int, masked: list[bool]
) -> None:
    made = [objectives.build(name, ignore_same_image=mask) for name, mask in zip(names, masked, strict=False)]
    assert_each_as_alone(made, *embeddings(len(made), batch, seed))


def test_the_same_cell_with_other_parameters_is_another() -> None:
    made = [objectives.build("sig-ms_cir", tau=tau, beta=beta) for tau in (1, 10) for beta in (5, 10)]
    assert_each_as_alone(made, *embeddings(4, 12))


def test_reductions_are_each_objectives_own() -> None:
    made = [objectives.build("lin_nca", reduction=reduction) for reduction in ("sum", "mean", "average")]
    assert_each_as_alone(made, *embeddings(3, 12))


@pytest.mark.parametrize("batch", [3, 16, 20, 32, 33])
@pytest.mark.parametrize("name", GOAL)
def test_to_the_bit_gradient_and_report_do_not_depend_on_the_company(name: str, batch: int) -> None:
    image, text, owners = embeddings(len(GOAL), batch)
    places = [*range(len(GOAL))]
    whole = StackedObjective([objectives.build(other) for other in GOAL])
    whole(image, text, owners).sum().backward()
    k = GOAL.index(name)
    for some in ([k], [k, *places[:3]], [*places[4:9], k]):
        few = [part.detach()[some].requires_grad_() for part in (image, text)]
        stacked = StackedObjective([objectives.build(GOAL[other]) for other in some])
        stacked(*few, owners[some]).sum().backward()
        place = some.index(k)
        assert all(value[place].equal(whole.report[name][k]) for name, value in stacked.report.items())
        for part, of_all in zip(few, (image, text), strict=True):
            assert part.grad is not None
            assert of_all.grad is not None
            assert part.grad[place].equal(of_all.grad[k])


def test_a_model_that_is_not_finite_spoils_no_other() -> None:
    made = [objectives.build(name) for name in ("con_con", "sig-ms_cir", "lin-ms_nca", "infonce")]
    image, text, owners = embeddings(4, 12)
    with torch.no_grad():
        image[1] = torch.nan
    stacked = StackedObjective(made)
    losses = stacked(image, text, owners)
    losses.sum().backward()
    assert losses.isfinite().tolist() == [True, False, True, True]
    assert image.grad is not None
    assert image.grad[[0, 2, 3]].isfinite().all()
    assert not image.grad[1].isfinite().all()
