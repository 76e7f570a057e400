"""Communication between replicas (processes of one machine): embeddings, gradients, batch-norm statistics.

Broadcast and all_gather are implemented as all_reduce with zeros, which is bit-exact, by nccl for GPUs and gloo for
CPUs. All traffic uses loopback, and the rendezvous is a file, so no port has to be chosen.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, distributed, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from goalgrid.retrieval.encoders.reasoning import sum_of_batch

INIT_TIMEOUT = timedelta(minutes=1)
"""Timeout to initialise the process group, once all replicas are ready."""
STEP_TIMEOUT = timedelta(days=1)
"""Timeout of a collective: practically infinite, since the launch's watchdog ends stuck trials."""
DESTROY_SECONDS = 30.0
BUCKET = 25 << 20
"""Bucket size in bytes for summing gradients, as in torch's `DistributedDataParallel`."""
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


T = TypeVar("T")


class PeerLost(RuntimeError):
    """A collective failed because another replica is gone."""


@dataclass(frozen=True)
class ProcessGroup:
    """The process group as seen by one rank; rank 0 is the trial's main process. A single replica has no group."""

    rank: int = 0
    size: int = 1

    def part(self, count: int) -> slice:
        """Return this rank's slice of `count` rows; the slices of all ranks differ in size by at most one.

        >>> [ProcessGroup(rank, 3).part(8) for rank in range(3)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
        """
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum(self, values: Tensor) -> None:
        """Sum the values over all ranks in place (all_reduce); raise PeerLost if a replica is gone."""
        _or_lost(partial(distributed.all_reduce, values))

    def all_gather(self, part: Shaped[Tensor, "p *rest"], count: int) -> Shaped[Tensor, "b *rest"]:
        """Gather the parts of all ranks, `count` rows in total; backward returns only the gradient of this rank's part.

        Every rank computes the loss of the whole batch and its gradient for all rows, so backward communicates nothing.
        """
        if self.size == 1:
            return part
        rows, whole = self.part(count), part.new_zeros(count, *part.shape[1:])
        whole[rows] = part.detach()
        self.sum(whole)
        return torch.cat([whole[: rows.start], part, whole[rows.stop :]])


ALONE = ProcessGroup()


class GradientSums:
    """Sums gradients over the ranks, overlapping with backward in the block; bit-identical on all ranks.

    As in `DistributedDataParallel`, parameters are divided into fixed buckets of `bucket` bytes, the last ones first,
    and all ranks send buckets in the same order. A bucket is sent once all its gradients are complete; the remaining
    ones, e.g. with a parameter without gradient, are sent at the end. `repeated` parameters already have the whole
    gradient on every rank.
    """

    def __init__(
        self,
        group: ProcessGroup,
        parameters: Iterable[nn.Parameter],
        repeated: Iterable[nn.Parameter] = (),
        *,
        bucket: int = BUCKET,
    ) -> None:
        self.group, self.repeated = group, set(repeated)
        self.buckets = list[list[nn.Parameter]]()
        room = 0
        for parameter in reversed([parameter for parameter in parameters if parameter.requires_grad]):
            if (size := parameter.numel() * parameter.element_size()) > room:
                self.buckets.append([])
                room = bucket
            self.buckets[-1].append(parameter)
            room -= size
        self._complete = set[Tensor]()
        """Parameters with a complete gradient."""
        self._sent = list[tuple[list[Tensor], Tensor, Any]]()
        self._hooks = list[RemovableHandle]()

    def __enter__(self) -> "GradientSums":
        parameters = (parameter for bucket in self.buckets for parameter in bucket)
        self._hooks = [parameter.register_post_accumulate_grad_hook(self._ready) for parameter in parameters]
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()
        if kind is not None:
            return
        while len(self._sent) < len(self.buckets):
            self._send()
        for gradients, flat, sending in self._sent:
            if sending is not None:
                _or_lost(sending.wait)
            pieces = flat.split([gradient.numel() for gradient in gradients])
            for gradient, piece in zip(gradients, pieces, strict=True):
                gradient.copy_(piece.view_as(gradient))

    def _ready(self, parameter: Tensor) -> None:
        self._complete.add(parameter)
        while len(self._sent) < len(self.buckets) and self._complete.issuperset(self.buckets[len(self._sent)]):
            self._send()

    def _send(self) -> None:
        gradients = list[Tensor]()
        for parameter in self.buckets[len(self._sent)]:
            if parameter.grad is not None:
                gradients.append(parameter.grad)
                if parameter in self.repeated:
                    parameter.grad /= self.group.size
        flat = torch.cat([gradient.flatten() for gradient in gradients or [torch.zeros(0)]])
        sending = _or_lost(partial(distributed.all_reduce, flat, async_op=True)) if gradients else None
        self._sent.append((gradients, flat, sending))


def _or_lost(call: Callable[[], T]) -> T:
    """Return the result of `call`; raise `PeerLost` if torch reports a failed collective."""
    try:
        return call()
    except (RuntimeError, ValueError) as error:
        raise PeerLost(str(error)) from error


def init(rank: int, replicas: int, file: Path, device: torch.device, backend: str | None = None) -> ProcessGroup:
    """Initialise the process group; raise PeerLost if a replica does not connect in time.

    All ranks use the same rendezvous file, which must be new. The default backend is nccl for GPUs and gloo for CPUs.
    With nccl, gloo is also initialised, to sum values on the host without waiting for the GPU.
    """
    os.environ |= {
        "GLOO_SOCKET_IFNAME": LOOPBACK,
        "NCCL_SOCKET_IFNAME": LOOPBACK,
        "TORCH_NCCL_ENABLE_MONITORING": "0",  # ends a process after 8 minutes; the launch's watchdog ends stuck trials
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # a lost replica is seen by its connection; torch would end the process
    }
    store = distributed.FileStore(str(file), replicas)  # type: ignore[attr-defined]
    store.set_timeout(INIT_TIMEOUT)
    nccl = device.type == "cuda" and backend != "gloo"
    backend = "cpu:gloo,cuda:nccl" if nccl else "gloo"
    options: dict[str, Any] = {"store": store, "rank": rank, "world_size": replicas, "timeout": STEP_TIMEOUT}
    _or_lost(partial(distributed.init_process_group, backend, **options))
    return ProcessGroup(rank, replicas)


def destroy() -> None:
    """Destroy the process group, where nccl waits for all ranks; abort if a rank does not join."""
    if not distributed.is_initialized():
        return
    leaving = threading.Thread(target=distributed.destroy_process_group, name="leaving", daemon=True)
    leaving.start()
    leaving.join(DESTROY_SECONDS)
    if leaving.is_alive():
        abort()


def abort() -> None:
    """Abort the collective that this process waits in. Only nccl needs this: it would wait for a lost rank forever."""
    if distributed.is_initialized() and "nccl" in distributed.get_backend():
        distributed.distributed_c10d._abort_process_group()


def synchronised(group: ProcessGroup) -> AbstractContextManager[object]:
    """Context manager in which batch norms in training mode use mean and variance over all replicas.

    `nn.SyncBatchNorm` only supports GPUs, and would replace batch norms that first reshape their input.
    """
    return nullcontext() if group.size == 1 else _Synchronised(group)


class _Synchronised(TorchFunctionMode):
    """Intercepts all calls of `batch_norm` and `sum_of_batch`."""

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
        normal, mean, var = _Normal.apply(values, eps, self.group)
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

    dx = (dy - mean(dy) - y mean(dy y)) / sqrt(var + eps), with means over all replicas. Returns y, the mean and the
    unbiased variance (for the running statistics). Statistics and sums are in float32; y, which backward needs, has
    the dtype of x. Ioffe and Szegedy 2015, Algorithm 1.
    """

    @staticmethod
    def forward(
        ctx: Any, values: Float[Tensor, "b c *hw"], eps: float, group: ProcessGroup
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.group, ctx.inner = group, [0, *range(2, values.ndim)]
        var, mean = torch.var_mean(values.float(), ctx.inner, correction=0)
        table = mean.new_zeros(group.size, 3, len(mean))
        table[group.rank] = torch.stack([torch.full_like(mean, values.numel() // len(mean)), mean, var])
        group.sum(table)
        counts, means, variances = table.unbind(1)
        count = counts.sum(0)
        shares = counts / count
        mean = (shares * means).sum(0)
        var = (shares * (variances + (means - mean).square())).sum(0)
        scale = (var + eps).rsqrt()
        normal = ((values - _along(mean, values)) * _along(scale, values)).to(values.dtype)
        ctx.save_for_backward(normal, scale, count)
        unbiased = var * (count / (count - 1))
        ctx.mark_non_differentiable(mean, unbiased)
        return normal, mean, unbiased

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> Any:
        normal, scale, count = ctx.saved_tensors
        exact = gradient.float()
        sums = torch.stack([exact.sum(ctx.inner), (exact * normal).sum(ctx.inner)])
        ctx.group.sum(sums)
        mean, slope = sums / count
        centred = exact - _along(mean, gradient) - normal * _along(slope, gradient)
        return (centred * _along(scale, gradient)).to(gradient.dtype), None, None


def _along(channels: Float[Tensor, " c"], values: Float[Tensor, "b c *hw"]) -> Tensor:
    """Reshape one value per channel to broadcast over `values`."""
    return channels.view(1, -1, *[1] * (values.ndim - 2))
