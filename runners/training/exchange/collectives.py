"""What replicas exchange: the processes of one machine that train a trial together, each on a part of every batch.

There is one operation, a sum over all replicas, by torch.distributed: nccl between GPUs, gloo between CPUs. A value
that only one replica has is summed with zeros of the others, which keeps its bits. Connections use loopback only, and
replicas find one another through a file, so no port has to be chosen.
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

MEETING = timedelta(minutes=1)
"""How long replicas wait for one another to connect, once all are ready."""

WAITING = timedelta(days=1)
"""How long a replica waits for the others at a step: practically for ever. The launch's watchdog ends stuck trials."""

LEAVING = 30.0
"""Seconds that replicas wait for one another when they disconnect."""

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class PeerLost(RuntimeError):
    """An exchange failed because another replica is gone."""


@dataclass(frozen=True)
class Exchange:
    """The exchange as a replica sees it; rank 0 is the trial's own process. A single replica exchanges nothing."""

    rank: int = 0
    replicas: int = 1

    def part(self, count: int) -> slice:
        """The rows, of `count`, that are this replica's: contiguous parts whose sizes differ by at most one.

        >>> [Exchange(rank, 3).part(8) for rank in range(3)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
        """
        return slice(count * self.rank // self.replicas, count * (self.rank + 1) // self.replicas)

    def sum(self, values: Tensor) -> None:
        """Replace the values, in place, by their sum over all replicas.

        Raises:
            PeerLost: a replica is gone.
        """
        try:
            distributed.all_reduce(values)
        except (RuntimeError, ValueError) as error:
            raise PeerLost(str(error)) from error

    def together(self, part: Shaped[Tensor, "p *rest"], count: int) -> Shaped[Tensor, "b *rest"]:
        """The parts of all replicas, of `count` rows; in the backward pass, each replica keeps its part's gradient.

        Every replica then computes the whole loss and its gradient for every row, so no gradient is exchanged here.
        """
        return part if self.replicas == 1 else _Together.apply(part, self, count)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace gradients by their sum over the replicas: the whole batch's gradient, the same to the bit in all.

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


ALONE = Exchange()


class _Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, exchange: Exchange, count: int) -> Tensor:
        ctx.rows = exchange.part(count)
        whole = part.new_zeros(count, *part.shape[1:])
        whole[ctx.rows] = part
        exchange.sum(whole)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient[ctx.rows], None, None


def meet(rank: int, replicas: int, file: Path, device: torch.device, backend: str | None = None) -> Exchange:
    """Connect to the other replicas.

    Args:
        file: where they find one another; the same for all, and not written before.
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
    store.set_timeout(MEETING)
    backend = backend or ("nccl" if device.type == "cuda" else "gloo")
    try:
        distributed.init_process_group(backend, store=store, rank=rank, world_size=replicas, timeout=WAITING)
    except RuntimeError as error:
        raise PeerLost(str(error)) from error
    return Exchange(rank, replicas)


def part_ways() -> None:
    """Disconnect while the other replicas do: nccl waits for all. Breaks off where a replica does not come."""
    if not distributed.is_initialized():
        return
    leaving = threading.Thread(target=distributed.destroy_process_group, name="leaving", daemon=True)
    leaving.start()
    leaving.join(LEAVING)
    if leaving.is_alive():
        break_off()


def break_off() -> None:
    """Abort the exchange that this process waits in. Only nccl needs it: it would wait for a lost replica for ever."""
    if distributed.is_initialized() and distributed.get_backend() == "nccl":
        distributed.distributed_c10d._abort_process_group()
