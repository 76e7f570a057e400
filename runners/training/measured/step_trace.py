"""Values of single steps, which stay on their device until they are written, so that no step waits for them."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


class StepTrace:
    """The values of every N-th step of a training.

    Args:
        every: N; None: no step is kept.
    """

    def __init__(self, every: int | None) -> None:
        self.every = every
        self._blocks: list[dict[str, Any]] = []
        """Steps of one epoch with the same names: "epoch", "steps", "names", and "values" (steps, names)."""
        self._open: list[tuple[int, tuple[str, ...], int, Tensor]] = []
        """Epoch, names, step and values (names,) of steps outside the blocks."""
        self.densities: dict[int, Tensor] = {}
        """Counts of triplets by epoch, s_pos by s_neg."""

    def keep(self, epoch: int, step: int, names: tuple[str, ...], values: Float[Tensor, " names"]) -> None:
        """Keep the scalars that a step of this epoch measured, if it is an N-th step; both are counted from 1."""
        if self.every and step % self.every == 0:
            self._open.append((epoch, names, step, values))

    def blocks(self) -> list[dict[str, Any]]:
        """All kept steps, as plain values and a tensor for each epoch."""
        while self._open:
            epoch, names, *_ = self._open[0]
            same = [entry for entry in self._open if entry[:2] == (epoch, names)]
            steps, values = [entry[2] for entry in same], torch.stack([entry[3] for entry in same])
            self._blocks.append({"epoch": epoch, "steps": steps, "names": list(names), "values": values})
            self._open = [entry for entry in self._open if entry[:2] != (epoch, names)]
        return self._blocks

    def keep_density(self, epoch: int, counts: Tensor) -> None:
        """Keep the density of the validation split's triplets after this epoch, if steps are kept."""
        if self.every:
            self.densities[epoch] = counts

    def state(self) -> dict[str, Any]:
        """All kept values, for a checkpoint."""
        return {"blocks": self.blocks(), "densities": self.densities}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self._blocks, self._open, self.densities = list(state["blocks"]), [], dict(state["densities"])

    def rows(self) -> Iterator[dict[str, float]]:
        """A row a step, in order, with its "epoch" and "step"; unknown values (nan) are left out."""
        for block in self.blocks():
            for step, values in zip(block["steps"], block["values"].tolist(), strict=True):
                known = {k: v for k, v in zip(block["names"], values, strict=True) if not math.isnan(v)}
                yield {"epoch": block["epoch"], "step": step, **known}
