"""`train.compile`: the same training through torch.compile, but for rounding; and another trial by its id."""

import shutil

import pytest
import torch

from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.runners.training.inputs import batches, prepare
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine

from ...conftest import SMALL

ROUNDING = 1e-4
"""Relative: eight times the 1.2e-5 by which the norm of the gradient differed on an Intel Xeon with AVX-512."""


def trial(*overrides: str) -> Trial:
    return trials_of(expand(load("demo", [*(word for word in SMALL if word != "--set"), *overrides])))[0]


def test_a_compiled_trial_has_an_id_of_its_own() -> None:
    assert trial("train.compile=true").id != trial().id == trial("train.compile=false").id


@pytest.mark.gate
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.* is deprecated:DeprecationWarning")  # torch's own code
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler here")
def test_a_compiled_step_has_the_same_loss_and_gradient_but_for_rounding() -> None:
    steps = list[dict[str, torch.Tensor]]()
    for compiled in ("false", "true"):
        settings = trial(f"train.compile={compiled}").settings
        inputs = prepare(settings, Machine())
        learner = Learner(settings, inputs)
        learner.begin(0)
        _, batch = next(iter(batches(settings, inputs, 0).since(0)))
        steps.append(learner.gradient(batch, 0.0))
    for name in ("loss", "grad_norm"):
        torch.testing.assert_close(steps[0][name], steps[1][name], rtol=ROUNDING, atol=0.0)
