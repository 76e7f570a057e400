"""The learnt weights of a model's poolings: theta per rank, and ADPOOL's balance between its two levels."""

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from goalgrid.retrieval.encoders.pooling import AdPool, Gpo
from goalgrid.retrieval.model import DualEncoder


class Means:
    """Sums of pooling weights over the input sets of a modality, and the number of sets."""

    def __init__(self) -> None:
        self.sets = 0
        self.theta = torch.zeros(0, dtype=torch.float64)
        self.share: Tensor | None = None

    def look(self, pool: Gpo | AdPool, read: tuple[Any, Any], _: object) -> None:
        """Forward hook that adds the weights of a pooling's input sets."""
        theta = pool.theta(*read).double().sum(dim=0)
        self.theta = pad_sequence([self.theta.to(theta.device), theta]).sum(dim=1)
        self.sets += len(read[0])
        if isinstance(pool, AdPool):
            share = pool.token_share(*read).double().sum()
            self.share = share if self.share is None else self.share + share


def theta_rows(model: DualEncoder, embed: Callable[[], object], *, compiled: bool) -> list[dict[str, float]]:
    """Return mean pooling weights over a split, one row per rank; no rows for a model without GPO and ADPOOL.

    `embed` embeds the split in a separate pass, so that measuring does not affect the trial's evaluation. Compiled
    encoders run uncompiled here, since compiled modules call no hooks. The columns are "rank", from 1; "theta_image"
    and "theta_text", the weights of GPO or of ADPOOL's token level, which are 0 beyond the size of a set and add up to
    1; and for ADPOOL "balance_image" and "balance_text", the share of the token level. Twin networks are averaged.
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
