"""What replicas, processes of one machine, exchange in a step: embeddings, gradients, statistics of batch norms.

Broadcast and all_gather are all_reduces with zeros, which is bit-exact: nccl between GPUs, gloo between CPUs. They use
loopback only, and a file as rendezvous, so no port has to be chosen.
"""

import os
import sys
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, distributed, nn
from torch.overrides import TorchFunctionMode

from goalgrid.retrieval.encoders.reasoning import sum_of_batch

INIT_TIMEOUT = timedelta(minutes=1)
"""Time to initialise the process group, once all replicas are ready."""
STEP_TIMEOUT = timedelta(days=1)
"""Time for a collective: practically for ever. The launch's watchdog ends stuck trials."""
DESTROY_SECONDS = 30.0
"""Seconds to destroy the process group."""
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class PeerLost(RuntimeError):
    """A collective failed because another replica is gone."""


@dataclass(frozen=True)
class ProcessGroup:
    """The process group, as a rank sees it; rank 0 is the trial's own process. A single replica has no group."""

    rank: int = 0
    replicas: int = 1

    def part(self, count: int) -> slice:
        """This rank's rows of `count`: contiguous parts whose sizes differ by at most one.

        >>> [ProcessGroup(rank, 3).part(8) for rank in range(3)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
        """
        return slice(count * self.rank // self.replicas, count * (self.rank + 1) // self.replicas)

    def sum(self, values: Tensor) -> None:
        """all_reduce: replace the values, in place, by their sum over all ranks.

        Raises:
            PeerLost: a replica is gone.
        """
        try:
            distributed.all_reduce(values)
        except (RuntimeError, ValueError) as error:
            raise PeerLost(str(error)) from error

    def all_gather(self, part: Shaped[Tensor, "p *rest"], count: int) -> Shaped[Tensor, "b *rest"]:
        """The parts of all ranks, `count` rows; in the backward pass, each rank keeps the gradient of its part.

        Every rank computes the loss of the whole batch and its gradient for every row, so backward sends nothing.
        """
        return part if self.replicas == 1 else _AllGather.apply(part, self, count)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace gradients by their sum over the ranks: the gradient of the whole batch, bit-identical on all.

        Raises:
            PeerLost: a replica is gone.
        """
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if self.replicas == 1 or not gradients:
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        self.sum(flat)
        for gradient, piece in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(piece.view_as(gradient))


ALONE = ProcessGroup()


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: ProcessGroup, count: int) -> Tensor:
        ctx.rows = group.part(count)
        whole = part.new_zeros(count, *part.shape[1:])
        whole[ctx.rows] = part
        group.sum(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient[ctx.rows], None, None


def init(rank: int, replicas: int, file: Path, device: torch.device, backend: str | None = None) -> ProcessGroup:
    """Initialise the process group.

    Args:
        file: the rendezvous; the same for all ranks, and not written before.
        backend: None: nccl between GPUs, gloo between CPUs.

    Raises:
        PeerLost: a replica does not connect in time.
    """
    os.environ |= {
        "GLOO_SOCKET_IFNAME": LOOPBACK,
        "NCCL_SOCKET_IFNAME": LOOPBACK,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # a lost replica is seen by its connection; torch would end the process
    }
    store = distributed.FileStore(str(file), replicas)  # type: ignore[attr-defined]
    store.set_timeout(INIT_TIMEOUT)
    backend = backend or ("nccl" if device.type == "cuda" else "gloo")
    try:
        distributed.init_process_group(backend, store=store, rank=rank, world_size=replicas, timeout=STEP_TIMEOUT)
    except RuntimeError as error:
        raise PeerLost(str(error)) from error
    return ProcessGroup(rank, replicas)


def destroy() -> None:
    """Destroy the process group, for which nccl waits for all ranks; abort if a rank does not come."""
    if not distributed.is_initialized():
        return
    leaving = threading.Thread(target=distributed.destroy_process_group, name="leaving", daemon=True)
    leaving.start()
    leaving.join(DESTROY_SECONDS)
    if leaving.is_alive():
        abort()


def abort() -> None:
    """Abort the collective that this process waits in. Only nccl needs it: it would wait for a lost rank for ever."""
    if distributed.is_initialized() and distributed.get_backend() == "nccl":
        distributed.distributed_c10d._abort_process_group()


def synchronised(group: ProcessGroup) -> AbstractContextManager[object]:
    """While active, batch norms in training use mean and variance over the values of all replicas.

    `nn.SyncBatchNorm` needs GPUs, and would replace modules that reshape their input first.
    """
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
        if weight is not None:
            normal = normal * _along(weight, values)
        if bias is not None:
            normal = normal + _along(bias, values)
        return normal.to(values.dtype)


class _Sum(torch.autograd.Function):
    """The sum of the replicas' sums; its gradient is the sum of the replicas' gradients."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group, whole = group, part.clone()
        group.sum(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        whole = gradient.clone()
        ctx.group.sum(whole)
        return whole, None


class _Normal(torch.autograd.Function):
    """y = (x - mean) / sqrt(var + eps), with mean and variance per channel over all replicas.

    dx = (dy - mean(dy) - y mean(dy y)) / sqrt(var + eps), with means over all replicas. Returns y, mean and variance,
    the variance unbiased for the running statistics. Ioffe and Szegedy 2015, Algorithm 1.
    """

    @staticmethod
    def forward(
        ctx: Any, values: Float[Tensor, "b c *hw"], eps: float, group: ProcessGroup
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.group, ctx.inner = group, [0, *range(2, values.ndim)]
        var, mean = torch.var_mean(values, ctx.inner, correction=0)
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
        unbiased = var * (count / (count - 1))
        ctx.mark_non_differentiable(mean, unbiased)
        return normal, mean, unbiased

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> Any:
        normal, scale, count = ctx.saved_tensors
        sums = torch.stack([gradient.sum(ctx.inner), (gradient * normal).sum(ctx.inner)])
        ctx.group.sum(sums)
        mean, slope = sums / count
        centred = gradient - _along(mean, gradient) - normal * _along(slope, gradient)
        return centred * _along(scale, gradient), None, None


def _along(channels: Float[Tensor, " c"], values: Float[Tensor, "b c *hw"]) -> Tensor:
    """A value per channel, shaped to broadcast over `values`."""
    return channels.view(1, -1, *[1] * (values.ndim - 2))
