"""Objectives as CUDA graphs: the numbers of the same kernels launched one by one; which objectives have them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.objectives import OURS
from goalgrid.grid.resources import Resources
from goalgrid.objectives import build
from goalgrid.objectives.objective import Objective
from goalgrid.runners.training.graphed import Graphs
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine
from tests.cases import every

PAIRS = 32
LEARNT = {"itc", "siglip"}
"""Their temperatures learn."""


def batches(device: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Three batches, of pairs ever more alike."""
    torch.manual_seed(0)
    for alike in range(3):
        image, noise = torch.randn(2, PAIRS, 64, device=device)
        text = alike * image + 4 * noise
        owners = torch.randint(PAIRS, (PAIRS,), device=device)
        yield (*(torch.nn.functional.normalize(part, dim=1) for part in (image, text)), owners)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sums whose order does not change from run to run."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="launches CUDA graphs")
@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("name", OURS)
def test_a_graph_has_the_objectives_numbers_and_its_report(name: str) -> None:
    objective, graphs = build(name).cuda(), Graphs(enabled=True, pairs=PAIRS)

    def measured(image: Tensor, text: Tensor, owners: Tensor, *, graphed: bool) -> list[Tensor]:
        leaves = [part.clone().requires_grad_() for part in (image, text)]
        loss = graphs(objective, 0, *leaves, owners) if graphed else objective(*leaves, owners)
        (0.3 * loss).backward()
        return [loss, *(leaf.grad.clone() for leaf in leaves if leaf.grad is not None), *objective.report.values()]

    losses = []
    for batch in batches("cuda"):
        plain, replayed = (measured(*batch, graphed=graphed) for graphed in (False, True))
        assert len(plain) == len(replayed)
        for value, same in zip(plain, replayed, strict=True):
            torch.testing.assert_close(same, value, rtol=0, atol=0, equal_nan=True)
        losses.append(float(plain[0].detach()))
    assert all(before != after for before, after in pairwise(losses))
    assert len(graphs._known) == (name not in LEARNT)


@every("name", OURS)
def test_whole_batches_have_graphs_and_learnt_temperatures_none(name: str) -> None:
    image, text, _ = next(batches("cpu"))
    learning = image.clone().requires_grad_(), text.clone().requires_grad_()
    objective, graphs = build(name), Graphs(enabled=True, pairs=PAIRS)
    assert graphs.suit(objective, *learning) == (name not in LEARNT)
    assert not graphs.suit(objective, image, text)
    assert not graphs.suit(objective, learning[0][1:], learning[1][1:])
    assert not Graphs(enabled=False, pairs=PAIRS).suit(objective, *learning)
    own = Objective(lambda t: t.s_neg, user_loss=("own", lambda t: t.s_neg))
    assert not graphs.suit(own, *learning)


@every("objective", ["con_con", "meta-spn"])
def test_a_training_method_takes_no_graphs_and_a_trial_without_one_finds_no_field_of_it(objective: str) -> None:
    words = (f"objectives={objective}", 'recipes=["cnn-bow"]', "seeds=[0]", "train.batch_size=32")
    settings = trials_of(expand(load("demo", words)))[0].settings
    learner = Learner(settings, replace(prepare(settings, Machine()), graphs=True))
    image, text, _ = next(batches("cpu"))
    learning = image.requires_grad_(), text.requires_grad_()
    assert learner._graphs.suit(learner.objective, *learning) == (not learner.methods)
    assert bool(learner.methods) == (objective == "meta-spn")
    _, batch = next(learner.begin(0).since(0))
    assert (batch.added is None) == (objective == "con_con")


def test_a_cpu_has_no_graphs() -> None:
    assert Machine().resources.cuda_graphs
    assert Machine(gpu=True).graphs == torch.cuda.is_available()
    assert not Machine(Resources(cuda_graphs=False), gpu=True).graphs
