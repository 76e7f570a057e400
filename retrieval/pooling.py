"""From a set of vectors to one; padding never counts, so an embedding does not depend on its batch."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Pooling = Callable[[Float[Tensor, "b n d"], Bool[Tensor, "b n"]], Float[Tensor, "b d"]]


def mean(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """Average over the members."""
    total = (values * present[..., None]).sum(dim=1)
    return total / present.sum(dim=1, keepdim=True).clamp(min=1)


def maximum(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """Largest value of each dimension over the members."""
    return values.masked_fill(~present[..., None], -torch.inf).amax(dim=1)


POOLING: dict[str, Pooling] = {"mean": mean, "max": maximum}
