"""Batch norm over the parts of all replicas, so that a network learns as if one process saw the whole batch.

`nn.SyncBatchNorm` needs GPUs, and would replace modules that reshape their input first.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from goalgrid.retrieval.encoders.reasoning import sum_of_batch
from goalgrid.runners.training.exchange.collectives import Exchange


def synchronised(exchange: Exchange) -> AbstractContextManager[object]:
    """While active, batch norms in training use mean and variance over the values of all replicas."""
    return nullcontext() if exchange.replicas == 1 else _Synchronised(exchange)


class _Synchronised(TorchFunctionMode):
    """Replaces `batch_norm` and `sum_of_batch`, whichever module calls them."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self.exchange = exchange

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is sum_of_batch:
            return _Sum.apply(*args, self.exchange)
        function = self._batch_norm if func is nn.functional.batch_norm else func
        return function(*args, **(kwargs or {}))

    def _batch_norm(
        self,
        values: Float[Tensor, "b c *hw"],
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Float[Tensor, "b c *hw"]:
        if not training:
            return nn.functional.batch_norm(values, running_mean, running_var, weight, bias, False, momentum, eps)
        normal, mean, var = _Normal.apply(values.float(), eps, self.exchange)
        if running_mean is not None and running_var is not None:
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(var, momentum)
        shape = (1, -1, *[1] * (values.ndim - 2))
        if weight is not None:
            normal = normal * weight.view(shape)
        if bias is not None:
            normal = normal + bias.view(shape)
        return normal.to(values.dtype)


class _Sum(torch.autograd.Function):
    """The sum of the replicas' sums; its gradient is the sum of the replicas' gradients."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        return _summed(part, exchange)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _summed(gradient, ctx.exchange), None


def _summed(part: Tensor, exchange: Exchange) -> Tensor:
    whole = part.clone()
    exchange.sum(whole)
    return whole


class _Normal(torch.autograd.Function):
    """y = (x - mean) / sqrt(var + eps), with mean and variance per channel over all replicas.

    dx = (dy - mean(dy) - y mean(dy y)) / sqrt(var + eps), with means over all replicas. Returns y, mean and variance,
    the variance unbiased for the running statistics. Ioffe and Szegedy 2015, Algorithm 1.
    """

    @staticmethod
    def forward(
        ctx: Any, values: Float[Tensor, "b c *hw"], eps: float, exchange: Exchange
    ) -> tuple[Tensor, Tensor, Tensor]:
        var, mean = torch.var_mean(values, _inner(values), correction=0)
        table = values.new_zeros(exchange.replicas, 3, len(mean))
        table[exchange.rank] = torch.stack([torch.full_like(mean, values.numel() // len(mean)), mean, var])
        exchange.sum(table)
        counts, means, variances = table.unbind(1)
        count = counts.sum(0)
        shares = counts / count
        mean = (shares * means).sum(0)
        var = (shares * (variances + (means - mean).square())).sum(0)
        scale = (var + eps).rsqrt()
        normal = (values - _along(mean, values)) * _along(scale, values)
        ctx.save_for_backward(normal, scale, count)
        ctx.exchange = exchange
        unbiased = var * (count / (count - 1))
        ctx.mark_non_differentiable(mean, unbiased)
        return normal, mean, unbiased

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> Any:
        normal, scale, count = ctx.saved_tensors
        inner = _inner(gradient)
        sums = torch.stack([gradient.sum(inner), (gradient * normal).sum(inner)])
        ctx.exchange.sum(sums)
        mean, slope = sums / count
        centred = gradient - _along(mean, gradient) - normal * _along(slope, gradient)
        return centred * _along(scale, gradient), None, None


def _inner(values: Float[Tensor, "b c *hw"]) -> list[int]:
    """All axes but the channels'."""
    return [0, *range(2, values.ndim)]


def _along(channels: Float[Tensor, " c"], values: Float[Tensor, "b c *hw"]) -> Tensor:
    """One value per channel, shaped to broadcast over `values`."""
    return channels.view(1, -1, *[1] * (values.ndim - 2))
