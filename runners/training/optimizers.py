"""Optimisers with their parameter groups, gradient clipping, and learning-rate schedules."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import TrainSettings
from goalgrid.objectives.objective import Objective
from goalgrid.retrieval.model import DualEncoder
from goalgrid.retrieval.scorers.sets import sent

UNDECAYED = {"none": (), "biases-and-norms": ("bias", "LayerNorm.", "norm.", "norm1.", "norm2.")}
"""Substrings of the names of weights without weight decay, by `train.undecayed`; includes position-bias tables."""
EVERY, SHARE = 6, 0.5
"""Lookahead's k, the steps between updates of the slow weights, and alpha, their step towards the fast weights."""


def optimizer(model: DualEncoder, objective: Objective, train: TrainSettings) -> torch.optim.Optimizer:
    """Build the optimiser with a parameter group, and its learning-rate factor, for each of `DualEncoder.groups`.

    Weights without weight decay have a separate group. So have the objective's parameters, with the learning rate of
    the heads and no weight decay, as in SigLIP. Raises UserError if the model has no trainable weights.
    """
    if not model.groups():
        raise UserError(
            f"this model has no trainable weights, but train.epochs = {train.epochs}. Set train.epochs = 0 to evaluate "
            "the model as it is, or make a part trainable: model.image.head = linear or model.image.frozen = false."
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


class Ranger(torch.optim.RAdam):
    """CE's optimiser: RAdam with decoupled weight decay, then Lookahead (Zhang et al., NeurIPS 2019, Algorithm 1).

    In the first steps, until the variance of Adam's adaptive rate is tractable, the update is lr times the momentum; it
    scales with the loss, so a loss summed over the batch takes larger steps. Unlike torch's fused optimisers, it does
    not skip steps with a non-finite gradient; the trainer then stops at the next step, before it writes anything.
    """

    def __init__(self, params: Iterable[Any], lr: float, weight_decay: float) -> None:
        super().__init__(
            params, lr, betas=(0.95, 0.999), eps=1e-5, weight_decay=weight_decay, decoupled_weight_decay=True
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all weights that have a gradient; the slow weights are initialised to the initial weights."""
        weights = [weight for group in self.param_groups for weight in group["params"] if weight.grad is not None]
        for weight in weights:
            if "slow" not in self.state[weight]:  # the first step: the state as RAdam has it, and the slow weight
                moments = {"exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}
                self.state[weight].update(step=torch.tensor(0.0), **moments, slow=weight.detach().clone())
        super().step(closure)
        due = [weight for weight in weights if int(self.state[weight]["step"]) % EVERY == 0]  # in host memory
        if due:
            slow: list[Tensor] = [self.state[weight]["slow"] for weight in due]
            torch._foreach_lerp_(slow, due, SHARE)
            torch._foreach_copy_(due, slow)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": partial(torch.optim.Adam, fused=True),
    "adamw": partial(torch.optim.AdamW, fused=True),
    "ranger": lambda groups, betas, **options: Ranger(groups, **options),  # with its published betas
}
"""Optimisers by their names in `train.optimizer`."""


class Clipping:
    """Clips each network's gradient as `nn.utils.clip_grad_norm_` does.

    Args:
        norm: maximum gradient norm per network; the objective's parameters belong to the last network.
    """

    def __init__(self, model: DualEncoder, objective: Objective, norm: float) -> None:
        learnt = list(objective.parameters())
        self.norm = norm
        self._parameters = [*model.parameters(), *learnt]
        self._parts = [*model.parts(), *["objective"] * len(learnt)]
        networks = len(model.networks)
        size = (len(self._parameters) - len(learnt)) // networks
        self._networks = list(pairwise([*range(0, networks * size, size), len(self._parameters)]))
        """Indices of the first and last weight of each network."""
        self._members = dict[tuple[bool, ...], Bool[Tensor, "parts g"]]()
        """Masks of the model's parts over the gradients, keyed by the set of weights with a gradient; on the device."""

    @torch.no_grad()
    def clip(self) -> dict[str, Tensor]:
        """Clip the gradients; return their norms before clipping, total (`grad_norm`) and per part (`grad_norm_image`).

        The squared norms of the parts add up to the square of `grad_norm`. `clipped` is the share of networks whose
        gradient was clipped: 0 or 1 for a single network.
        """
        learns = tuple(weight.grad is not None for weight in self._parameters)
        norms = torch.stack(
            torch._foreach_norm([weight.grad for weight in self._parameters if weight.grad is not None])
        )
        wholes = []
        for start, end in self._networks:
            wholes.append(torch.linalg.vector_norm(norms[sum(learns[:start]) : sum(learns[:end])]))
            nn.utils.clip_grads_with_norm_(self._parameters[start:end], self.norm, wholes[-1])
        whole = wholes[0] if len(wholes) == 1 else torch.linalg.vector_norm(torch.stack(wholes))
        of = [part for part, learning in zip(self._parts, learns, strict=True) if learning]
        names = list(dict.fromkeys(of))
        if learns not in self._members:
            members = torch.tensor([[part == name for part in of] for name in names])
            self._members[learns] = sent(members, norms.device)
        parts = norms.square().where(self._members[learns], 0.0).sum(-1).sqrt_()
        clipped = torch.stack(wholes).gt(self.norm).float().mean()
        return {
            "grad_norm": whole,
            "clipped": clipped,
            **{f"grad_norm_{name}": part for name, part in zip(names, parts, strict=True)},
        }


def learning_rate(train: TrainSettings, epoch: int) -> float:
    """Return the learning rate of the heads in an epoch, counted from 0.

    >>> train = TrainSettings(epochs=3, lr=0.01, decay_every=2, decay_factor=0.5)
    >>> [learning_rate(train, epoch) for epoch in range(3)]
    [0.01, 0.01, 0.005]
    """
    return train.lr * train.decay_factor ** (epoch // train.decay_every)


def linear_rate(train: TrainSettings, epoch: int, step: int, steps: int) -> float:
    """Return the heads' learning rate: linear warm-up from 0 in the first `rise_share` of all steps, then decay to 0.

    The schedule of X-VLM.

    Args:
        step: step within the epoch, counted from 0.
        steps: number of steps per epoch.

    >>> train = TrainSettings(epochs=2, lr=0.4, schedule="linear", rise_share=0.25)
    >>> [round(linear_rate(train, epoch, step, 4), 3) for epoch in range(2) for step in range(4)]
    [0.0, 0.2, 0.4, 0.333, 0.267, 0.2, 0.133, 0.067]
    """
    total, done = train.epochs * steps, epoch * steps + step
    rise = int(train.rise_share * total)
    return train.lr * (done / rise if done < rise else (total - done) / (total - rise))


def ramp(train: TrainSettings, epoch: int, share: float) -> float:
    """Return the factor on the loss: rises from 0 to 1 in the ramp epochs after the frozen ones, else 1 (VSE-infinity).

    Args:
        share: share of the epoch trained so far, from 0 to 1.
    """
    since = epoch - train.frozen_epochs
    return (since + share) / train.ramp_epochs if 0 <= since < train.ramp_epochs else 1.0
