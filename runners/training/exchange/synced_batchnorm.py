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
from goalgrid.runners.training.exchange.collectives import ProcessGroup


def synchronised(group: ProcessGroup) -> AbstractContextManager[object]:
    """While active, batch norms in training use mean and variance over the values of all replicas."""
    return nullcontext() if group.replicas == 1 else _Synchronised(group)


class _Synchronised(TorchFunctionMode):
    """Replaces `batch_norm` and `sum_of_batch`, whichever module calls them."""

    def __init__(self, group: ProcessGroup) -> None:
        super().__init__()
        self.group = group

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is sum_of_batch:
            return _Sum.apply(*args, self.group)
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
        normal, mean, var = _Normal.apply(values.float(), eps, self.group)
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
    def forward(ctx: Any, part: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return _summed(part, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _summed(gradient, ctx.group), None


def _summed(part: Tensor, group: ProcessGroup) -> Tensor:
    whole = part.clone()
    group.sum(whole)
    return whole


class _Normal(torch.autograd.Function):
    """y = (x - mean) / sqrt(var + eps), with mean and variance per channel over all replicas.

    dx = (dy - mean(dy) - y mean(dy y)) / sqrt(var + eps), with means over all replicas. Returns y, mean and variance,
    the variance unbiased for the running statistics. Ioffe and Szegedy 2015, Algorithm 1.
    """

    @staticmethod
    def forward(
        ctx: Any, values: Float[Tensor, "b c *hw"], eps: float, group: ProcessGroup
    ) -> tuple[Tensor, Tensor, Tensor]:
        var, mean = torch.var_mean(values, _inner(values), correction=0)
        table = values.new_zeros(group.replicas, 3, len(mean))
        table[group.rank] = torch.stack([torch.full_like(mean, values.numel() // len(mean)), mean, var])
        group.sum(table)
        counts, means, variances = table.unbind(1)
        count = counts.sum(0)
        shares = counts / count
        mean = (shares * means).sum(0)
        var = (shares * (variances + (means - mean).square())).sum(0)
        scale = (var + eps).rsqrt()
        normal = (values - _along(mean, values)) * _along(scale, values)
        ctx.save_for_backward(normal, scale, count)
        ctx.group = group
        unbiased = var * (count / (count - 1))
        ctx.mark_non_differentiable(mean, unbiased)
        return normal, mean, unbiased

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> Any:
        normal, scale, count = ctx.saved_tensors
        inner = _inner(gradient)
        sums = torch.stack([gradient.sum(inner), (gradient * normal).sum(inner)])
        ctx.group.sum(sums)
        mean, slope = sums / count
        centred = gradient - _along(mean, gradient) - normal * _along(slope, gradient)
        return centred * _along(scale, gradient), None, None


def _inner(values: Float[Tensor, "b c *hw"]) -> list[int]:
    """All axes but the channels'."""
    return [0, *range(2, values.ndim)]


def _along(channels: Float[Tensor, " c"], values: Float[Tensor, "b c *hw"]) -> Tensor:
    """One value per channel, shaped to broadcast over `values`."""
    return channels.view(1, -1, *[1] * (values.ndim - 2))
