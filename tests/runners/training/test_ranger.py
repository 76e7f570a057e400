"""Ranger equals the published steps, number by number, and goes on from its state as if it had not stopped."""

import copy

import numpy as np
import torch

from goalgrid.runners.training.optimizers import Ranger
from tests.retrieval.components.video import literal

GRADIENTS = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 4)))


def stepped(optimizer: Ranger, weight: torch.nn.Parameter, gradients: torch.Tensor) -> None:
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimizer.step()


def test_steps_equal_the_literal_ones() -> None:
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    theirs = literal.Ranger(torch.ones(4, dtype=torch.float64), 0.1, 1e-3)
    optimizer = Ranger([weight], lr=0.1, weight_decay=1e-3)
    for gradient in GRADIENTS:
        stepped(optimizer, weight, gradient[None])
        theirs.step(gradient)
        torch.testing.assert_close(weight.detach(), theirs.weight)


def test_a_restored_state_goes_on_to_the_bit() -> None:
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    optimizer = Ranger([weight], lr=0.1, weight_decay=1e-3)
    stepped(optimizer, weight, GRADIENTS[:8])
    other = torch.nn.Parameter(weight.detach().clone())
    resumed = Ranger([other], lr=0.1, weight_decay=1e-3)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    stepped(optimizer, weight, GRADIENTS[8:])
    stepped(resumed, other, GRADIENTS[8:])
    assert weight.equal(other)
