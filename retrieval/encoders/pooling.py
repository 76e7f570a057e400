"""Pooling of a set of vectors into one. Padding is ignored, so an embedding does not depend on its batch.

Each pooling takes values (b, n, d) and a mask (b, n) of the members that are present, at least one per row.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from goalgrid.grid.global_state import contain_calls, contained
from goalgrid.grid.settings.poolings import Balance, PoolingSettings
from goalgrid.grid.settings.user_modules import check_gradient, check_shape
from goalgrid.retrieval.encoders.reasoning import Gcn, PaddedGru, SelfAttention, Seq2Seq

Encoded = Float[Tensor, "b d"] | tuple[Float[Tensor, "b n d"], Bool[Tensor, "b n"]]
"""Output of an encoder: one vector per image or caption; without pooling, sets of vectors and a mask."""
Pooling = Callable[[Float[Tensor, "b n d"], Bool[Tensor, "b n"]], Any]
"""Function that returns one vector per set, (b, d); only `members` returns the sets themselves."""


def members(
    values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]
) -> tuple[Float[Tensor, "b n d"], Bool[Tensor, "b n"]]:
    """Return the sets unchanged (no pooling), for set scorers."""
    return values, present


def mean(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """Return the average of the members."""
    total = (values * present[..., None]).sum(dim=1)
    return total / present.sum(dim=1, keepdim=True).clamp(min=1)


def maximum(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """Return the maximum over the members, per dimension."""
    return values.masked_fill(~present[..., None], -torch.inf).amax(dim=1)


def first(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """Return the first member, e.g. the class token of BERT-like networks."""
    return values[torch.arange(len(values), device=values.device), present.int().argmax(dim=1)]


def last(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """Return the last member, e.g. the end token of a caption."""
    place = values.shape[1] - 1 - present.int().flip(1).argmax(dim=1)
    return values[torch.arange(len(values), device=values.device), place]


def k_max(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"], *, k: int) -> Float[Tensor, "b d"]:
    """Average the k largest values per dimension, or all values if there are fewer. VSE+2AD §3.2.1."""
    largest = values.masked_fill(~present[..., None], -torch.inf).topk(min(k, values.shape[1]), dim=1).values
    counted = present.sum(dim=1, keepdim=True).clamp(max=k)
    weight = (torch.arange(largest.shape[1], device=values.device) < counted) / counted
    return (largest.masked_fill(largest == -torch.inf, 0.0) * weight[..., None]).sum(dim=1)


def soft_max(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
    """Average the values, weighted by their own softmax, per dimension. VSE+2AD Eq. (4)."""
    weight = values.masked_fill(~present[..., None], -torch.inf).softmax(dim=1)
    return (values * weight).sum(dim=1)


class Lip(nn.Module):
    """Local importance pooling: sum_m e^g_m x_m / sum_m e^g_m with g = 12 sigmoid(IN(W x)), per dimension.

    IN normalises each dimension of W x to mean 0 and variance 1 over the set, followed by a learnt scale and shift. Gao
    et al., ICCV 2019, pool grid cells; we adapt it to sets by replacing their 3 x 3 convolution by a linear map. As
    theirs, W is initialised to 0, so that pooling starts as the mean.
    """

    GAIN = 12.0
    EPS = 1e-5

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(dim, dim, bias=False)
        nn.init.zeros_(self.weigh.weight)
        self.scale, self.shift = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
        logits = self.weigh(values).to(self.scale.dtype)
        centred = logits - mean(logits, present)[:, None]
        normal = centred * (mean(centred.square(), present)[:, None] + self.EPS).rsqrt()
        gain = self.GAIN * (normal * self.scale + self.shift).sigmoid()
        return (values * gain.masked_fill(~present[..., None], -torch.inf).softmax(dim=1)).sum(dim=1)


class AdaPool(nn.Module):
    """AdaPool: beta sum_m softmax_m(D_m) x_m + (1 - beta) SoftPool(x), D_m = 2 |x_m c| / (x_m^2 + c^2), c the mean.

    Each dimension is pooled separately; D of two zeros is 0; SoftPool is `soft_max`. Stergiou and Poppe, 2021: the
    learnt beta is initialised from N(0, 1), clamped to [0, 1]. They learn one beta per output location; here there is a
    single one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.balance = nn.Parameter(torch.randn(1).clamp(0, 1))

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
        centre = mean(values, present)[:, None]
        size = values.square() + centre.square()
        near = 2 * (values * centre).abs() / size.where(size > 0, 1.0)
        weight = near.masked_fill(~present[..., None], -torch.inf).softmax(dim=1)
        balance = self.balance.clamp(0, 1)
        return balance * (values * weight).sum(dim=1) + (1 - balance) * soft_max(values, present)


class MeanOf(nn.Module):
    """Mean of the members after a network that relates them to each other."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
        return mean(self.network(values, present), present)


class Gpo(nn.Module):
    """Generalised pooling operator: sum over k of theta_k times the k-th largest value of each dimension.

    theta = softmax(f(1), ..., f(n)) depends only on the size of the set: f is a bidirectional GRU over sinusoidal
    position encodings. VSE-infinity §3.
    """

    WIDTH = 32
    TEMPERATURE = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.gru = PaddedGru(self.WIDTH, self.WIDTH, bidirectional=True)
        self.score = nn.Linear(self.WIDTH, 1, bias=False)

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
        return (descending(values, present) * self.theta(values, present)[..., None]).sum(dim=1)

    def theta(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        """Return the weights of the k-th largest values for each set; 0 beyond its size."""
        return self.weights(values.shape[1])[present.sum(dim=1) - 1]

    def weights(self, n: int) -> Float[Tensor, "n n"]:
        """Return theta for sets of 1, 2, ..., n members; 0 beyond the size.

        It is computed for all sizes, because finding out the sizes in a batch would make the host wait for the device.
        """
        sizes = torch.arange(1, n + 1)
        places = positions(n, self.WIDTH, self.score.weight.device).expand(n, -1, -1)
        forward, backward = self.gru.states(places, sizes).chunk(2, dim=-1)
        score = self.score((forward + backward) / 2)[..., 0] / self.TEMPERATURE
        beyond = torch.ones(n, n, dtype=torch.bool, device=score.device).triu(1)
        return score.masked_fill(beyond, -torch.inf).softmax(dim=-1)


class AdPool(nn.Module):
    """Adaptive pooling: balances a learnt weighting of the sorted members and a soft maximum. VSE+2AD Eq. (3)-(5).

    Args:
        balance: share of the learnt weighting, from 0 to 1, as opposed to the soft maximum; `random` draws it once from
            U(0, 1); `learnt` predicts it for each set, Eq. (5). Fixed shares: VSE+2AD appendix C.
        per_dimension: use one weight per member and dimension, after a ReLU, as in the released code; the paper has one
            weight per member. The released code also gives weight to padding, which is ignored here.
    """

    share: Tensor

    def __init__(self, dim: int, balance: Balance = "learnt", *, per_dimension: bool) -> None:
        super().__init__()
        self.weigh = nn.Linear(dim, dim if per_dimension else 1, bias=per_dimension)
        self.balance = nn.Linear(dim, 1, bias=per_dimension) if balance == "learnt" else None
        if balance != "learnt":
            self.register_buffer("share", torch.rand(()) if balance == "random" else torch.tensor(float(balance)))
        self.rectified = per_dimension

    def forward(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
        token, embedding = self.token_level(values, present), soft_max(values, present)
        if self.balance is None:
            return self.share * token + (1 - self.share) * embedding
        both = torch.stack([token, embedding], dim=1)
        return (self.balance(both).softmax(dim=1) * both).sum(dim=1)

    def token_share(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, " b"]:
        """Return the share of the token level in each set's vector, from 0 to 1. VSE+2AD Eq. (5)."""
        if self.balance is None:
            return self.share.expand(len(values))
        both = torch.stack([self.token_level(values, present), soft_max(values, present)], dim=1)
        share: Tensor = self.balance(both).softmax(dim=1)[:, 0, 0]
        return share

    def token_level(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b d"]:
        """Return sum_m theta_m u_m, with u sorted per dimension and theta = softmax(u W). VSE+2AD Eq. (3)."""
        ordered = descending(values, present)
        return (ordered * self._theta_of(ordered, present)).sum(dim=1)

    def theta(self, values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        """Return the weights of the k-th largest values for each set, averaged over dimensions; 0 beyond its size."""
        return self._theta_of(descending(values, present), present).mean(dim=-1)

    def _theta_of(self, ordered: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b n k"]:
        """Return the weights of sorted members; k is 1 for one weight per member, d for one per dimension."""
        score = self.weigh(ordered)
        if self.rectified:
            score = score.relu()
        beyond = torch.arange(ordered.shape[1], device=ordered.device) >= present.sum(dim=1, keepdim=True)
        return score.masked_fill(beyond[..., None], -torch.inf).softmax(dim=1)


def descending(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Float[Tensor, "b n d"]:
    """Sort the members per dimension in descending order, followed by zeros for members that are not present."""
    hidden = values.masked_fill(~present[..., None], -torch.inf)
    ordered = hidden.transpose(1, 2).sort(dim=-1, descending=True).values.transpose(1, 2)
    return ordered.masked_fill(ordered == -torch.inf, 0.0)


def positions(n: int, width: int, device: torch.device | None = None) -> Float[Tensor, "n width"]:
    """Return sinusoidal position encodings: sines at even and cosines at odd indices, wavelengths 2 pi to 20,000 pi."""
    rate = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10_000.0) / width))
    angle = torch.arange(n, device=device)[:, None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


POOLING: dict[str, Callable[[int, PoolingSettings], Pooling]] = {
    "mean": lambda dim, _: mean,
    "max": lambda dim, _: maximum,
    "first": lambda dim, _: first,
    "last": lambda dim, _: last,
    "kmax": lambda dim, own: partial(k_max, k=own.pool_k),
    "softmax": lambda dim, _: soft_max,
    "lip": lambda dim, _: Lip(dim),
    "adapool": lambda dim, _: AdaPool(),
    "gpo": lambda dim, _: Gpo(),
    "adpool": lambda dim, own: AdPool(dim, own.pool_balance, per_dimension=False),
    "adpool-released": lambda dim, own: AdPool(dim, own.pool_balance, per_dimension=True),
    "gcn": lambda dim, _: MeanOf(Gcn(dim)),
    "selfattn": lambda dim, _: MeanOf(SelfAttention(dim)),
    "seq2seq": lambda dim, _: Seq2Seq(dim),
    "none": lambda dim, _: members,
}
"""Functions that build a pooling from the vector width and the settings, by name."""


def pooling(settings: PoolingSettings, dim: int) -> Pooling:
    """Build the pooling of these settings, shipped or user-defined, for vectors of width `dim`.

    A user-defined pooling raises a UserError on a call if its output is not (b, d) or carries no gradient.
    """
    own = settings.own_pooling
    if own is None:
        return POOLING[settings.pooling](dim, settings)
    mine, parameters = own.network, settings.pool_parameters

    def checked(output: Any, values: Float[Tensor, "b n d"]) -> Any:
        part, of = f"pooling {settings.pooling!r}", f"values {tuple(values.shape)}"
        check_shape(part, mine, output, of, (len(values), values.shape[-1]))
        if values.requires_grad and torch.is_grad_enabled():
            check_gradient(part, mine, of, output)
        return output

    if isinstance(mine, type):
        with contained(mine):
            network: nn.Module = mine(dim, **parameters)
        contain_calls(network, mine)
        network.register_forward_hook(lambda _, inputs, output: checked(output, inputs[0]))
        return network

    def called(values: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"]) -> Any:
        with contained(mine):
            output = mine(values, present, **parameters)
        return checked(output, values)

    return called
