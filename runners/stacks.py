"""Trials of one seed as one stacked model, and all their weights under one optimiser."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import objectives
from grid.identity import derived_seed
from grid.settings import TrialSettings
from retrieval.model import build
from retrieval.stacked.model import StackedVse
from runners import checkpoints
from runners.inputs import Inputs
from runners.learner import optimizer
from runners.progress import Progress
from runners.trainer import Hooks

State = Mapping[str, Any]
"""Of one trial's trainer, as a checkpoint has it: "model", "optimizer" and "random"."""


@dataclass(eq=False)
class Member:
    """A trial in a pack.

    Args:
        state: that it goes on from, whenever it stands in no stack; None: from the beginning.
    """

    settings: TrialSettings
    progress: Progress
    hooks: Hooks
    state: State | None = None

    def objective(self) -> objectives.Objective:
        """What it is trained with."""
        goal = self.settings.objective
        return objectives.build(goal.name, variant=goal.variant, **goal.parameters)


class Stack:
    """Trials of one seed: they start from the same weights, read the same batches and draw the same random numbers."""

    def __init__(self, members: Sequence[Member], inputs: Inputs) -> None:
        self.members, self.device = list(members), inputs.device
        settings = members[0].settings
        shape, words, seed = inputs.pairs.train.images.shape, len(inputs.reader), derived_seed(settings, "weights")
        one = build(settings.model, shape, words, seed=seed, places=inputs.places).to(inputs.device)
        self.model = StackedVse(one, len(members))
        checkpoints.seed_torch(derived_seed(settings, "dropout"), inputs.device)
        self._random = checkpoints.random_states(inputs.device)
        for place, member in enumerate(members):
            if member.state is not None:
                self.model.load_weights_of(place, member.state["model"])
                self._random = member.state["random"]

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Draw random numbers as a trial of this seed does, wherever the generators of the process stand."""
        checkpoints.restore_torch_states(self._random, self.device)
        yield
        self._random = self._random | checkpoints.torch_states(self.device)

    def state_of(self, place: int) -> dict[str, Any]:
        """What a checkpoint holds of a trial, but for the optimiser."""
        return {"model": self.model.weights_of(place), "random": self._random}


class Weights:
    """The weights of all trials of some stacks under one optimiser, each trial's as an optimiser of its own has them.

    An optimiser's arithmetic is done tensor by tensor: a trial's weights are slices of the stacked ones, so that its
    updates are those that it would get alone, to the bit.
    """

    def __init__(self, stacks: Sequence[Stack]) -> None:
        self.stacks = list(stacks)
        members = [member for stack in stacks for member in stack.members]
        self._stacked = [(stack, [*stack.model.groups().items()]) for stack in stacks]
        slices: dict[str, list[nn.Parameter]] = {}
        self._own: list[list[nn.Parameter]] = []
        """The slices of each trial, in the order of its own optimiser."""
        for stack, groups in self._stacked:
            for place in range(len(stack.members)):
                own = {kind: [nn.Parameter(weight.detach()[place]) for weight in group] for kind, group in groups}
                self._own.append([weight for group in own.values() for weight in group])
                for kind, group in own.items():
                    slices.setdefault(kind, []).extend(group)
        self.optimizer = optimizer(slices, members[0].settings.train)
        for weights, member in zip(self._own, members, strict=True):
            if member.state is not None:
                self._load(weights, member.state["optimizer"])

    def set_rate(self, rate: float) -> None:
        """Learn at this rate, each group times its factor."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]

    def clear(self) -> None:
        """Forget the gradients."""
        for stack in self.stacks:
            stack.model.zero_grad(set_to_none=True)

    def clip(self, bound: float) -> Tensor:
        """Bound the norm of each trial's gradient; the norms before, (k). As `clip_grad_norm_` for each by itself."""
        norms = []
        row = iter(self._own)
        for stack, groups in self._stacked:
            weights = [weight for _, group in groups for weight in group]
            gradients = [_gradient(weight) for weight in weights]
            of_each = [gradient.unbind() for gradient in gradients]
            places = range(len(stack.members))
            flat = torch._foreach_norm([parts[place] for place in places for parts in of_each])
            total = torch.linalg.vector_norm(torch.stack(flat).view(len(places), -1), dim=1)
            factors = torch.ones(len(gradients[0]), device=total.device)
            factors[: len(places)] = (bound / (total + 1e-6)).clamp(max=1.0)
            for gradient in gradients:
                gradient.mul_(factors.view(-1, *[1] * (gradient.ndim - 1)))
            for place in places:
                for own, parts in zip(next(row), of_each, strict=True):
                    own.grad = parts[place]
            norms.append(total)
        return torch.cat(norms)

    def state_of(self, index: int) -> dict[str, Any]:
        """The state of a trial's own optimiser, as its `state_dict` gives it."""
        own = self._own[index]
        number = {id(weight): place for place, weight in enumerate(own)}
        groups = [
            {**group, "params": [number[id(weight)] for weight in group["params"] if id(weight) in number]}
            for group in self.optimizer.param_groups
        ]
        state = {
            place: {key: value.clone() for key, value in self.optimizer.state[weight].items()}
            for place, weight in enumerate(own)
            if weight in self.optimizer.state
        }
        return {"state": state, "param_groups": groups}

    def _load(self, own: Sequence[nn.Parameter], content: State) -> None:
        for place, values in content["state"].items():
            weight = own[place]
            state = {key: value.to(weight.device, copy=True) for key, value in values.items()}
            for key in ("exp_avg", "exp_avg_sq"):
                state[key] = torch.empty_like(weight).copy_(state[key])
            self.optimizer.state[weight] = state


def on_host(state: State) -> dict[str, Any]:
    """The same in the host's memory: on a device, all that waits to be stacked would stand beside the stacks."""

    def moved(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: moved(each) for key, each in value.items()}
        return value.cpu() if isinstance(value, Tensor) else value

    return {name: moved(state[name]) for name in ("model", "optimizer", "random")}


def _gradient(weight: nn.Parameter) -> Tensor:
    assert weight.grad is not None
    return weight.grad
