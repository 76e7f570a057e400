"""The learnt weights of a trained model's poolings: theta over rank, and ADPOOL's balance of its two levels."""

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from goalgrid.retrieval.encoders.pooling import AdPool, Gpo
from goalgrid.retrieval.model import DualEncoder


class Means:
    """Sums over the input sets of a modality's poolings, and the number of sets."""

    def __init__(self) -> None:
        self.sets = 0
        self.theta = torch.zeros(0, dtype=torch.float64)
        self.share: Tensor | None = None

    def look(self, pool: Gpo | AdPool, read: tuple[Any, Any], _: object) -> None:
        """Add a pooling's input sets; a forward hook."""
        theta = pool.theta(*read).double().sum(dim=0)
        self.theta = pad_sequence([self.theta.to(theta.device), theta]).sum(dim=1)
        self.sets += len(read[0])
        if isinstance(pool, AdPool):
            share = pool.token_share(*read).double().sum()
            self.share = share if self.share is None else self.share + share


def theta_rows(model: DualEncoder, embed: Callable[[], object], *, compiled: bool) -> list[dict[str, float]]:
    """Return means over the images and captions of a split, a row per rank; no rows for a model without GPO and ADPOOL.

    `embed` embeds the split in a pass of its own, so that measuring changes nothing of the trial's own evaluations.
    Compiled encoders run uncompiled here, as compiled modules call no hook. A row has "rank" from 1; "theta_image" and
    "theta_text", the weights of GPO, or of ADPOOL's token level, 0 where a set has fewer members, so that they add up
    to 1; "balance_image" and "balance_text" of ADPOOL, the share of the token level. Of two networks the mean.
    """
    by_part: dict[str, Means] = {}
    with ExitStack() as stack:
        for network in model.networks:
            for part in ("image", "text"):
                for pool in getattr(network, part).modules():
                    if isinstance(pool, Gpo | AdPool):
                        look = by_part.setdefault(part, Means()).look
                        stack.callback(pool.register_forward_hook(look).remove)
        if not by_part:
            return []
        stack.enter_context(torch.compiler.set_stance("force_eager") if compiled else nullcontext())
        embed()
    rows: list[dict[str, float]] = []
    for part, means in by_part.items():
        for rank, theta in enumerate((means.theta / means.sets).tolist()):
            if rank == len(rows):
                rows.append({"rank": rank + 1})
            rows[rank][f"theta_{part}"] = theta
            if means.share is not None:
                rows[rank][f"balance_{part}"] = float(means.share) / means.sets
    return rows
