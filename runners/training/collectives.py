"""What the replicas of a training exchange: processes of one machine that each take a part of every batch.

There is one operation, a sum over all replicas, by torch.distributed: nccl between GPUs, gloo between CPUs. What one
replica alone has is summed with the zeros of the others, which leaves its bits as they are. Nothing listens but on
loopback, and replicas meet in a file, which no port is needed for.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor, distributed, nn

MEETING = timedelta(minutes=1)
"""For all replicas to meet, once all of them are ready to."""

WAITING = timedelta(days=1)
"""For one another at a step: whether a training stands still is for the launch's watchdog to say, of all alike."""

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class PeerLost(RuntimeError):
    """An exchange broke off: another replica is gone."""


@dataclass(frozen=True)
class Exchange:
    """One replica's side of it; of a training in one process, which needs none, too.

    Args:
        rank: of this replica; the first, 0, is the process of the trial.
    """

    rank: int = 0
    replicas: int = 1

    def part(self, count: int) -> slice:
        """The rows of so many that are this replica's: next to one another, as many as any other's or one more or less.

        >>> [Exchange(rank, 3).part(8) for rank in range(3)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
        """
        return slice(count * self.rank // self.replicas, count * (self.rank + 1) // self.replicas)

    def sum(self, values: Tensor) -> None:
        """Add up in place what all replicas have.

        Raises:
            PeerLost: one is gone.
        """
        try:
            distributed.all_reduce(values)
        except (RuntimeError, ValueError) as error:
            raise PeerLost(str(error)) from error

    def together(self, part: Shaped[Tensor, "p *rest"], count: int) -> Shaped[Tensor, "b *rest"]:
        """The parts of all replicas, one behind the other; the gradient of its own part comes back to each.

        Every replica has the whole loss then, and its gradient with respect to every row, so none is exchanged.

        Args:
            count: of the whole.
        """
        return part if self.replicas == 1 else _Together.apply(part, self, count)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """The gradient of the whole batch's loss, in all replicas to the same bit: the sum over the parts.

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


def meet(rank: int, replicas: int, file: Path, device: torch.device) -> Exchange:
    """Wait until all replicas are there.

    Args:
        file: that none of them has written yet; the same for all.

    Raises:
        PeerLost: one does not come.
    """
    os.environ |= {"GLOO_SOCKET_IFNAME": LOOPBACK, "NCCL_SOCKET_IFNAME": LOOPBACK}
    store = distributed.FileStore(str(file), replicas)  # type: ignore[attr-defined]
    store.set_timeout(MEETING)
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        distributed.init_process_group(backend, store=store, rank=rank, world_size=replicas, timeout=WAITING)
    except RuntimeError as error:
        raise PeerLost(str(error)) from error
    return Exchange(rank, replicas)


def part_ways() -> None:
    """Leave the others, who may have left before."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def break_off() -> None:
    """End the exchange that this process waits in: on GPUs, where that would last for ever once a replica is gone."""
    if distributed.is_initialized() and distributed.get_backend() == "nccl":
        distributed.distributed_c10d._abort_process_group()
