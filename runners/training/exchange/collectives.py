"""The process group of replicas: processes of one machine that train a trial together, each on a part of every batch.

Broadcast and all_gather are all_reduces with zeros, which is bit-exact: nccl between GPUs, gloo between CPUs. They use
loopback only, and a file as rendezvous, so no port has to be chosen.
"""

import os
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor, distributed, nn

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
        pieces = flat.split([gradient.numel() for gradient in gradients])
        for gradient, piece in zip(gradients, pieces, strict=True):
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
