"""Detailed measurements: values of single steps, and statistics of the validation split's triplets."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.objectives import mining
from goalgrid.objectives.objective import GradientSurrogate, Objective, ScoresObjective
from goalgrid.objectives.triplets import BatchPairs, Triplets

BINS = 40
"""Number of bins for similarities from -1 to 1, in the density of (s_pos, hardest s_neg)."""


class StepTrace:
    """The values of every N-th step of a training (`every`; None: no step is kept)."""

    def __init__(self, every: int | None) -> None:
        self.every = every
        self._blocks: list[dict[str, Any]] = []
        """Blocks of steps with the same epoch and value names: "epoch", "steps", "names", "values" (steps, names)."""
        self._open = dict[tuple[int, tuple[str, ...]], list[tuple[int, Tensor]]]()
        """Steps not yet in a block with their values (names,), keyed by epoch and names."""
        self.densities: dict[int, Tensor] = {}
        """Triplet counts (bins of s_pos, bins of s_neg) of each epoch."""

    def keep(self, epoch: int, step: int, names: tuple[str, ...], values: Float[Tensor, " names"]) -> None:
        """Keep the scalars of every N-th step; epoch and step are counted from 1."""
        if self.every and step % self.every == 0:
            self._open.setdefault((epoch, names), []).append((step, values))

    def blocks(self) -> list[dict[str, Any]]:
        """Return all kept steps in blocks of equal epoch and names, as plain values and a tensor each."""
        for (epoch, names), entries in self._open.items():
            steps, values = [step for step, _ in entries], torch.stack([values for _, values in entries])
            self._blocks.append({"epoch": epoch, "steps": steps, "names": list(names), "values": values})
        self._open.clear()
        return self._blocks

    def keep_density(self, epoch: int, counts: Tensor) -> None:
        """Keep the triplet density of the validation split after this epoch, if steps are kept."""
        if self.every:
            self.densities[epoch] = counts

    def state(self) -> dict[str, Any]:
        """Return all kept values, for a checkpoint."""
        return {"blocks": self.blocks(), "densities": self.densities}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self._blocks, self.densities = list(state["blocks"]), dict(state["densities"])
        self._open.clear()

    def rows(self) -> Iterator[dict[str, float]]:
        """Yield one row per step, in order, with "epoch" and "step"; unknown values (NaN) are omitted."""
        for block in self.blocks():
            for step, values in zip(block["steps"], block["values"].tolist(), strict=True):
                known = {k: v for k, v in zip(block["names"], values, strict=True) if not math.isnan(v)}
                yield {"epoch": block["epoch"], "step": step, **known}


def of_batches(
    objective: Objective, batches: list[tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]]
) -> tuple[dict[str, float], Int[Tensor, "p n"]]:
    """Return means over all anchors of these batches, and triplet counts (bins of s_pos, bins of s_neg).

    The means are over both directions: `val_uniform` = log E[exp(s)] over all pairs of a batch (VSE+2AD §3.3), and
    `val_gap`, the distance between the mean image and the mean text. For a cell of GOAL's matrix also `val_w_tri`,
    `val_w_pos`, `val_w_neg`, and `val_m_pos` and `val_m_neg` if it uses them.
    """
    counts = torch.zeros(BINS, BINS, dtype=torch.long, device=batches[0][0].device)
    sums, anchors, exponentials = dict[str, Tensor](), 0, list[Tensor]()
    for image, text in batches:
        hardest = mining.hardest_of_embeddings(image, text, BatchPairs(len(image)), objective.relative)
        place = [
            ((s + 1) / 2 * BINS).long().clamp(0, BINS - 1)
            for s in (hardest.s_pos.expand_as(hardest.s_neg), hardest.s_neg)
        ]
        counts += (place[0] * BINS + place[1]).flatten().bincount(minlength=BINS * BINS).reshape(BINS, BINS)
        for name, value in _weights(objective, hardest).items():
            sums[name] = sums.get(name, 0) + value.expand_as(hardest.s_neg).double().sum()
        anchors += hardest.s_neg.numel()
        exponentials.append(mining.product(image, text).double().exp().mean())
    images, texts = (torch.cat(part).double().mean(0) for part in zip(*batches, strict=True))
    means = {f"val_{name}": float(total) / anchors for name, total in sums.items()}
    uniform = float(torch.stack(exponentials).mean().log())
    return {**means, "val_uniform": uniform, "val_gap": float((images - texts).norm())}, counts


def weights_over_plane(objective: Objective) -> Float[Tensor, "p n"]:
    """Return T of a cell of GOAL's matrix, or a loss's push on a single negative, at the centre of each bin."""
    middles = (torch.arange(BINS, dtype=torch.float64) + 0.5) / BINS * 2 - 1
    s_pos, s_neg = (s.reshape(-1, 1).clone().requires_grad_() for s in torch.meshgrid(middles, middles, indexing="ij"))
    if isinstance(objective, ScoresObjective):
        return torch.full((BINS, BINS), math.nan, dtype=torch.float64)
    if isinstance(objective.loss, GradientSurrogate):
        return objective.loss.triplet_weight(Triplets(s_pos, s_neg)).detach().reshape(BINS, BINS)
    with torch.enable_grad():
        (push,) = torch.autograd.grad(objective.loss(Triplets(s_pos, s_neg)).sum(), s_neg, materialize_grads=True)
    return push.reshape(BINS, BINS)


def _weights(objective: Objective, hardest: Triplets) -> dict[str, Tensor]:
    if not isinstance(objective.loss, GradientSurrogate):
        return {}
    triplets = replace(hardest.detach(), s_pos=hardest.s_pos.expand_as(hardest.s_neg))
    w_pos, w_neg = objective.loss.pair_weight(triplets)
    weights = {"w_tri": objective.loss.triplet_weight(triplets), "w_pos": w_pos, "w_neg": w_neg}
    relative = {"m_pos": triplets.m_pos, "m_neg": triplets.m_neg}
    return weights | {name: mean for name, mean in relative.items() if mean is not None}
