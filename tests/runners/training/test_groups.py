"""What an optimiser is made of."""

import pytest
import torch

from goalgrid import objectives
from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.retrieval.model import DualEncoder
from goalgrid.runners.training.optimizers import optimizer


def test_a_model_in_which_nothing_learns_is_one_message() -> None:
    recipe = catalog.recipe("clip-zero-shot-tiny")
    model = DualEncoder(recipe.model, (64,), 64, seed=0)
    with pytest.raises(UserError, match=r"this model has no trainable weights.*Set train\.epochs = 0"):
        optimizer(model, objectives.build("triplet-hn"), recipe.train)


@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_groups_have_their_own_rates_and_what_an_objective_learns_has_no_decay(
    name: str, kind: type[torch.optim.Optimizer]
) -> None:
    recipe = catalog.recipe("vse-inf-wsl-tiny")
    model, objective = DualEncoder(recipe.model, (3, 32, 32), 64, seed=0), objectives.build("siglip")
    own = {"optimizer": name, "lr": 0.5, "weight_decay": 0.25, "beta2": 0.98}
    own |= {"image_lr_factor": 0.01, "text_lr_factor": 0.1}
    made = optimizer(model, objective, recipe.train.model_copy(update=own))
    assert type(made) is kind
    names = {id(weight): name for name, weight in (*model.named_parameters(), *objective.named_parameters("learnt"))}
    found = {}
    for group in made.param_groups:
        assert (group["lr"], group["betas"], group["eps"]) == (0.5, (0.9, 0.98), 1e-8)
        for weight in group["params"]:
            found[names[id(weight)]] = (group["factor"], group["weight_decay"])
    factors = {"image.backbone": (0.01, 0.25), "text.backbone": (0.1, 0.25), "learnt": (1.0, 0.0)}
    expected = {
        name: next((factor for part, factor in factors.items() if name.startswith(part)), (1.0, 0.25))
        for name in names.values()
    }
    assert found == expected


def test_biases_and_norms_are_undecayed_where_the_recipe_says_so() -> None:
    """As X-VLM's create_optimizer: by the name, so that a table of position biases is among them."""
    recipe = catalog.recipe("xvlm-tiny")
    assert recipe.train.undecayed == "biases-and-norms"
    model, objective = DualEncoder(recipe.model, (3, 64, 64), 64, seed=0), objectives.build("itc")
    made = optimizer(model, objective, recipe.train)
    decays = {id(weight): group["weight_decay"] for group in made.param_groups for weight in group["params"]}
    bare = ("bias", "LayerNorm.", "norm.", "norm1.", "norm2.")
    kinds = set()
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            spared = any(part in name for part in bare)
            assert decays[id(weight)] == (0.0 if spared else recipe.train.weight_decay), name
            kinds |= {part for part in bare if part in name}
    assert kinds == set(bare)
