"""Ranger, the optimiser of CE: RAdam, whose weights are drawn back to slow ones every few steps."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

EVERY, SHARE = 6, 0.5
"""Lookahead's k and alpha: steps between two updates of the slow weights, and how far these go to the fast ones."""


class Ranger(torch.optim.RAdam):
    """RAdam with weight decay apart from the gradient, then lookahead. Zhang et al., NeurIPS 2019, Algorithm 1.

    Until the variance of Adam's rate is known, for the first steps, it makes plain steps of lr times the momentum: a
    loss that is summed over the batch makes these that much larger. Unlike the fused optimisers of torch, it also makes
    a step whose gradient is not finite; the trainer ends at the next step, before anything is written.
    """

    def __init__(self, params: Iterable[Any], lr: float, weight_decay: float) -> None:
        super().__init__(
            params, lr, betas=(0.95, 0.999), eps=1e-5, weight_decay=weight_decay, decoupled_weight_decay=True
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of all weights that have a gradient; the slow weights begin as the first weights."""
        weights = [weight for group in self.param_groups for weight in group["params"] if weight.grad is not None]
        for weight in weights:
            if "slow" not in self.state[weight]:
                self._begin(weight)
        super().step(closure)
        due = [weight for weight in weights if int(self.state[weight]["step"]) % EVERY == 0]  # in host memory
        if due:
            slow: list[Tensor] = [self.state[weight]["slow"] for weight in due]
            torch._foreach_lerp_(slow, due, SHARE)
            torch._foreach_copy_(due, slow)

    def _begin(self, weight: Tensor) -> None:
        """The state of a weight before its first step, as RAdam has it, with the slow weight."""
        self.state[weight].update(
            step=torch.tensor(0.0), exp_avg=torch.zeros_like(weight), exp_avg_sq=torch.zeros_like(weight)
        )
        self.state[weight]["slow"] = weight.detach().clone()
