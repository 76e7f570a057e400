"""Clipping of gradients, with the norm of each part of the model before clipping."""

from itertools import pairwise

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from goalgrid.objectives.objective import Objective
from goalgrid.retrieval.model import Vse
from goalgrid.retrieval.scorers.sets import sent


class Clipping:
    """Clips each network's gradient as `nn.utils.clip_grad_norm_` does.

    Args:
        norm: bound on each network's gradient; the objective's parameters count with the last network.
    """

    def __init__(self, model: Vse, objective: Objective, norm: float) -> None:
        learnt = list(objective.parameters())
        self.norm = norm
        self._parameters = [*model.parameters(), *learnt]
        self._parts = [*model.parts(), *["objective"] * len(learnt)]
        networks = len(model.networks)
        size = (len(self._parameters) - len(learnt)) // networks
        self._networks = list(pairwise([*range(0, networks * size, size), len(self._parameters)]))
        """First and last weight of each network."""
        self._members = dict[tuple[bool, ...], Bool[Tensor, "parts g"]]()
        """Masks of the parts of the model over the gradients, by the set of weights with a gradient; on the device."""

    @torch.no_grad()
    def clip(self) -> dict[str, Tensor]:
        """Clip the gradients; returns their norm before, whole (`grad_norm`) and by part (`grad_norm_image`).

        The squares of the parts' norms add up to the square of `grad_norm`.
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
        return {"grad_norm": whole, **{f"grad_norm_{name}": part for name, part in zip(names, parts, strict=True)}}
