"""Meta-learnt weights of positives and negatives, trained alongside the model: our interpretation of Meta-SPN.

The paper leaves details open; docs/negatives.md lists our choices. Finite differences, as in DARTS, replace the second
derivative, which cuDNN's recurrent networks do not support.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from goalgrid.grid.identity import derived_seed
from goalgrid.grid.settings import TrialSettings
from goalgrid.objectives import build
from goalgrid.objectives.objective import Objective
from goalgrid.objectives.triplets import Triplets
from goalgrid.retrieval.components.training_method import Cost, Request, TrainingMethod
from goalgrid.retrieval.splits.pairs import DataError, Pairs

HIDDEN, LR, DECAY = 100, 1e-3, 1e-4
"""Hidden size, learning rate and weight decay of the weight networks, as in Meta-Weight-Net."""
PERTURBATION = 0.01
"""Norm of the weight perturbation in the finite differences, as in DARTS."""


class PairWeightNetwork(nn.Module):
    """V: maps a pair's similarity, and its difference to its counterpart's, to a weight between 0 and 1."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.positive, self.negative = (
                nn.Sequential(nn.Linear(2, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1), nn.Sigmoid()) for _ in range(2)
            )

    def forward(self, t: Triplets) -> tuple[Float[Tensor, "*a k"], Float[Tensor, "*a k"]]:
        """Return the weights of each triplet's positive and negative; no gradient flows to the triplets."""
        s_pos, s_neg = torch.broadcast_tensors(t.s_pos.detach(), t.finite().s_neg.detach())
        lead = s_pos - s_neg
        pairs = torch.stack([s_pos, lead], dim=-1), torch.stack([s_neg, -lead], dim=-1)
        kind = next(self.parameters()).dtype  # a diagram or a check may ask in float64
        positive, negative = self.positive(pairs[0].to(kind)), self.negative(pairs[1].to(kind))
        return positive[..., 0].to(lead.dtype), negative[..., 0].to(lead.dtype)


class LearntWeights(TrainingMethod):
    """Updates the pair weights before each step to reduce the loss of a meta batch after the step.

    Meta batches come from the half of the validation images that is not used to select the checkpoint.
    """

    name: ClassVar[str] = "weights"
    cost: ClassVar[Cost] = Cost(meta_batch=True)
    network: PairWeightNetwork

    def __init__(self, settings: TrialSettings, pairs: Pairs, device: torch.device, prepared: Any = None) -> None:
        super().__init__(settings, pairs, device, prepared)
        self.margin = float(settings.objective.parameters["margin"] or 0.0)
        self.network = PairWeightNetwork(derived_seed(settings, "meta weights")).to(device)
        images, texts = pairs.val.first(settings.dataset.val_images)
        if images < 2:
            raise DataError(
                "meta-spn selects the checkpoint on half of the validation images and learns on the other "
                "half, but there is only 1 image. Raise dataset.val_images."
            )
        self._meta = torch.from_numpy(texts[pairs.val.image_of_text[texts] >= self.selecting(images)])
        self._held: Triplets | None = None
        self._learning = False

    @classmethod
    def selecting(cls, images: int) -> int:
        return images // 2

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=LR, weight_decay=DECAY)

    def join(self, objective: Objective) -> None:
        loss: Callable[..., Tensor] = objective.loss
        objective.loss = partial(loss, weigh=self.weigh)

    def batch(self, owners: Int[np.ndarray, " b"], texts: Int[Tensor, " b"], index: int, seed: int) -> Request:
        order = torch.randperm(len(self._meta), generator=torch.Generator().manual_seed(seed))[: len(texts)]
        return Request(meta_batch=self._meta[order].numpy())

    def before_step(self, model: nn.Module, lr: float, batch: Any, mean_loss: Callable[..., Float[Tensor, ""]]) -> None:
        plain = build("triplet-hn", margin=self.margin).to(self.device)
        self.learn(model, lr, partial(mean_loss, batch), partial(mean_loss, batch.added.meta_batch, plain))

    def weigh(self, t: Triplets) -> tuple[Tensor, Tensor]:
        """Return the weights for a loss; they have gradients only within `learn`."""
        if not self._learning:
            with torch.no_grad():
                return self.network(t)
        self._held = self._held or t.detach()
        return self.network(self._held)

    def learn(
        self,
        model: nn.Module,
        lr: float,
        loss: Callable[[], Float[Tensor, ""]],
        meta_loss: Callable[[], Float[Tensor, ""]],
    ) -> None:
        """Update the weights V by one step; `loss` is the mean over the training batch. The model is restored.

        With theta' = theta - lr d loss(theta, V) / d theta and v = d meta_loss(theta') / d theta', the derivative of
        meta_loss(theta') with respect to V is -lr d/dV [loss(theta + eps v, V) - loss(theta - eps v, V)] / (2 eps).
        """
        parameters = [weight for weight in model.parameters() if weight.requires_grad]
        buffers = list(model.buffers())
        before, statistics = ([value.detach().clone() for value in values] for values in (parameters, buffers))
        network_parameters = list(self.network.parameters())
        try:
            self._learning, self._held = True, None
            step = _gradients(self._drawn(loss), parameters)  # what V reads is held from here on
            _set(parameters, before, step, -lr)
            ahead = _gradients(meta_loss(), parameters)
            size = PERTURBATION / torch.linalg.vector_norm(torch.stack(torch._foreach_norm(ahead))).clamp(min=1e-12)
            gradients = list[list[Tensor]]()
            for sign in (1.0, -1.0):
                _set(parameters, before, ahead, sign * size)
                gradients.append(_gradients(self._drawn(loss), network_parameters))
        finally:
            _set([*parameters, *buffers], [*before, *statistics])
            self._learning, self._held = False, None
        for weight, more, less in zip(network_parameters, *gradients, strict=True):
            weight.grad = (more - less) * (-lr / (2 * size))
        self.optimizer.step()

    def _drawn(self, loss: Callable[[], Tensor]) -> Tensor:
        """Compute the loss with the same dropout masks as in the model's training step."""
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            return loss()

    def state(self) -> dict[str, Any]:
        return {"weights": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.network.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])


def _gradients(loss: Tensor, of: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of a loss; 0 for tensors that it does not depend on."""
    derivatives = torch.autograd.grad(loss, list(of), allow_unused=True)
    return [torch.zeros_like(one) if part is None else part for one, part in zip(of, derivatives, strict=True)]


@torch.no_grad()
def _set(
    tensors: Sequence[Tensor], to: Sequence[Tensor], towards: Sequence[Tensor] | None = None, by: float | Tensor = 0.0
) -> None:
    for place, (tensor, value) in enumerate(zip(tensors, to, strict=True)):
        tensor.copy_(value if towards is None else value + by * towards[place])
