"""What an optimiser is made of."""

import pytest

import objectives
from grid import catalog
from grid.errors import UserError
from retrieval.model import Vse
from runners.training.optimizers.groups import optimizer


def test_a_model_in_which_nothing_learns_is_one_message() -> None:
    recipe = catalog.recipe("clip-zero-shot-tiny")
    model = Vse(recipe.model, (64,), 64, seed=0)
    with pytest.raises(UserError, match=r"no weight of this model learns.*Set train\.epochs = 0"):
        optimizer(model, objectives.build("triplet-hn"), recipe.train)
