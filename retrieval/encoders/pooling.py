"""From a set of vectors to one; padding never counts, so an embedding does not depend on its batch.

Each pooling takes values (b, n, d) and which of them are present (b, n); at least one is present in every row.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from grid.settings.encoders import own_poolings
from retrieval.encoders.recurrent import PaddedGru

Encoded = Float[Tensor, "b d"] | tuple[Float[Tensor, "b n d"], Bool[Tensor, "b n"]]
"""What an encoder gives: a vector for each image or caption; without pooling, its set and which members are present."""
Pooling = Callable[[Float[Tensor, "b n d"], Bool[Tensor, "b n"]], Any]
"""Gives a vector for each set, (b, d); `members` alone gives back the sets."""


def members(
    values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]
) -> tuple[Float[Tensor, "b n d"], Bool[Tensor, "b n"]]:
    """No pooling: the sets as they are, for scorers that read sets."""
    return values, present


def mean(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """Average over the members."""
    total = (values * present[..., None]).sum(dim=1)
    return total / present.sum(dim=1, keepdim=True).clamp(min=1)


def maximum(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """Largest value of each dimension over the members."""
    return values.masked_fill(~present[..., None], -torch.inf).amax(dim=1)


def k_max(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"], *, k: int) -> Float[Tensor, "b d"]:
    """Mean of the k largest values of each dimension, or of all where there are fewer. VSE+2AD §3.2.1."""
    counted = present.sum(dim=1, keepdim=True).clamp(max=k)
    weight = (torch.arange(values.shape[1], device=values.device) < counted) / counted
    return (descending(values, present) * weight[..., None]).sum(dim=1)


def soft_max(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """Mean weighted by the softmax of the values themselves, each dimension by itself. VSE+2AD Eq. (4)."""
    weight = values.masked_fill(~present[..., None], -torch.inf).softmax(dim=1)
    return (values * weight).sum(dim=1)


class Gpo(nn.Module):
    """Generalised pooling operator: sum over k of theta_k times the k-th largest value of each dimension.

    theta = softmax(f(1), ..., f(n)) is learnt from positions alone, so that it depends on the size of the set only:
    f reads sinusoidal positions with a GRU in both directions. VSE-infinity §3.
    """

    WIDTH = 32
    TEMPERATURE = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.gru = PaddedGru(self.WIDTH, self.WIDTH, bidirectional=True)
        self.score = nn.Linear(self.WIDTH, 1, bias=False)

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
        weight = self.weights(values.shape[1])[present.sum(dim=1) - 1]
        return (descending(values, present) * weight[..., None]).sum(dim=1)

    def weights(self, n: int) -> Float[Tensor, "n n"]:
        """theta of sets of 1, 2, ..., n members, 0 beyond the size.

        Of all sizes at once: which of them a batch holds is known on its device alone.
        """
        sizes = torch.arange(1, n + 1)
        places = positions(n, self.WIDTH, self.score.weight.device).expand(n, -1, -1)
        forward, backward = self.gru.states(places, sizes).chunk(2, dim=-1)
        score = self.score((forward + backward) / 2)[..., 0] / self.TEMPERATURE
        beyond = torch.ones(n, n, dtype=torch.bool, device=score.device).triu(1)
        return score.masked_fill(beyond, -torch.inf).softmax(dim=-1)


class AdPool(nn.Module):
    """Adaptive pooling: a learnt weighting of the sorted members and a soft maximum, balanced. VSE+2AD Eq. (3)-(5).

    Args:
        per_dimension: as the released code does, one weight a member and dimension, after a ReLU; the paper has one
            weight a member. The released code also gives padding a weight; here it never has one.
    """

    def __init__(self, dim: int, *, per_dimension: bool) -> None:
        super().__init__()
        self.weigh = nn.Linear(dim, dim if per_dimension else 1, bias=per_dimension)
        self.balance = nn.Linear(dim, 1, bias=per_dimension)
        self.rectified = per_dimension

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
        both = torch.stack([self.token_level(values, present), soft_max(values, present)], dim=1)
        return (self.balance(both).softmax(dim=1) * both).sum(dim=1)

    def token_level(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
        """Sum over m of theta_m u_m, u sorted, theta = softmax(u W). VSE+2AD Eq. (3)."""
        ordered = descending(values, present)
        score = self.weigh(ordered)
        if self.rectified:
            score = score.relu()
        beyond = torch.arange(values.shape[1], device=values.device) >= present.sum(dim=1, keepdim=True)
        return (ordered * score.masked_fill(beyond[..., None], -torch.inf).softmax(dim=1)).sum(dim=1)


def descending(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
    """Members of each dimension from the largest to the smallest, then zeros for those that are not present."""
    hidden = values.masked_fill(~present[..., None], -torch.inf)
    ordered = hidden.transpose(1, 2).sort(dim=-1, descending=True).values.transpose(1, 2)
    return ordered.masked_fill(ordered == -torch.inf, 0.0)


def positions(n: int, width: int, device: torch.device | None = None) -> Float[Tensor, "n width"]:
    """Sines at even and cosines at odd places, of wavelengths from 2 pi to 10,000 times 2 pi."""
    rate = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10_000.0) / width))
    angle = torch.arange(n, device=device)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


POOLING: dict[str, Callable[[int, int], Pooling]] = {
    "mean": lambda dim, k: mean,
    "max": lambda dim, k: maximum,
    "kmax": lambda dim, k: partial(k_max, k=k),
    "softmax": lambda dim, k: soft_max,
    "gpo": lambda dim, k: Gpo(),
    "adpool": lambda dim, k: AdPool(dim, per_dimension=False),
    "adpool-released": lambda dim, k: AdPool(dim, per_dimension=True),
    "none": lambda dim, k: members,
}
"""Each pooling by name, made for vectors of `dim` values; k is k-max's."""


def pooling(name: str, dim: int, k: int) -> Pooling:
    """The pooling of this name, ours or a user's own, for vectors of `dim` values; k is k-max's."""
    own = own_poolings.get(name)
    if own is None:
        return POOLING[name](dim, k)
    return own(dim) if isinstance(own, type) else own
