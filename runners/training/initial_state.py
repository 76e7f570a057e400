"""A trial's model and objective before training, each initialised from its own seed."""

import torch

from goalgrid import objectives
from goalgrid.grid.identity import derived_seed
from goalgrid.grid.settings import TrialSettings
from goalgrid.objectives.objective import Objective
from goalgrid.retrieval.model import Vse, class_of
from goalgrid.runners.training.inputs import Inputs


def model_of(settings: TrialSettings, inputs: Inputs) -> Vse:
    """The trial's model before training, on the device that trains."""
    shape, words, seed = inputs.pairs.train.images.shape, inputs.words, derived_seed(settings, "weights")
    kind = class_of(settings.model)
    return kind(settings.model, shape, words, seed=seed, places=inputs.places).to(inputs.device)


def objective_of(settings: TrialSettings, device: torch.device) -> Objective:
    """The trial's objective before training, on this device; its parameters have their own seed."""
    goal = settings.objective
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derived_seed(settings, "objective"))
        return objectives.build(goal.name, variant=goal.variant, **goal.parameters).to(device)
