"""The optimiser of a training, with a group for each part of the model that has its own rate or decay."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import TrainSettings
from goalgrid.objectives.objective import Objective
from goalgrid.retrieval.model import Vse
from goalgrid.runners.training.optimizers.ranger import Ranger

UNDECAYED = {"none": (), "biases-and-norms": ("bias", "LayerNorm.", "norm.", "norm1.", "norm2.")}
"""By `train.undecayed`: parts of the names of weights without weight decay.

As X-VLM has them: the tables of position biases are among them, and the norm within the head of the fusion encoder is
not.
"""


def optimizer(model: Vse, objective: Objective, train: TrainSettings) -> torch.optim.Optimizer:
    """The optimiser with a group for each of `Vse.groups`; each group holds the factor of its learning rate.

    Weights without weight decay have their own group. So have the objective's parameters: the rate of the heads and no
    weight decay, as in SigLIP.

    Raises:
        UserError: no weight of the model learns.
    """
    if not model.groups():
        raise UserError(
            f"no weight of this model learns, and train.epochs = {train.epochs}. Set train.epochs = 0 to evaluate the "
            "model as it is, or let a part learn: model.image.head = linear, model.image.frozen = false."
        )
    factors = {"heads": 1.0, "image": train.image_lr_factor, "text": train.text_lr_factor}
    spared = UNDECAYED[train.undecayed]
    bare = {weight for name, weight in model.named_parameters() if any(part in name for part in spared)}
    groups = list[dict[str, Any]]()
    for kind, members in model.groups().items():
        decayed = {"params": [weight for weight in members if weight not in bare]}
        without = {"params": [weight for weight in members if weight in bare], "weight_decay": 0.0}
        groups += [{**group, "factor": factors[kind]} for group in (decayed, without) if group["params"]]
    if learnt := list(objective.parameters()):
        groups.append({"params": learnt, "weight_decay": 0.0, "factor": 1.0})
    return OPTIMIZERS[train.optimizer](groups, lr=train.lr, betas=(0.9, train.beta2), weight_decay=train.weight_decay)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": partial(torch.optim.Adam, fused=True),
    "adamw": partial(torch.optim.AdamW, fused=True),
    "ranger": lambda groups, betas, **options: Ranger(groups, **options),  # with its published betas
}
"""Each optimiser by its name in `train.optimizer`."""
