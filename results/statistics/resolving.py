"""Adds seeds until the best cell is resolved: tells which cells still compete and how many seeds each needs next.

At each look, i.e. at n = FIRST, ..., budget seeds, an interval is computed for the difference of each two competing
cells, and a cell is eliminated if another is better by more than the interval. LEVEL is split equally over the looks,
and at each look over the pairs that still compete, as in Holm's (1979) procedure. For normal errors, the probability
that no cell is eliminated wrongly is therefore at least 1 - LEVEL under any stopping rule. `benchmarks/seeds.py`
simulates it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from goalgrid.results.statistics.pairs import half_widths
from goalgrid.results.statistics.significance import LEVEL

FIRST = 3


@dataclass(frozen=True)
class Resolution:
    """State of the search for the best cell."""

    state: Literal["open", "resolved", "spent"]
    """open: more seeds are needed; resolved: competing cells differ by at most `difference`; spent: budget used up."""
    seeds: Mapping[str, int]
    """Number of seeds that each cell needs so far."""
    out: tuple[str, ...]
    """Eliminated cells (worse than another one), in the order of elimination."""
    failed: tuple[str, ...] = ()
    """Cells that are excluded because one of their trials failed."""

    @property
    def competing(self) -> list[str]:
        return [name for name in self.seeds if name not in (*self.out, *self.failed)]


def resolve(values: Mapping[str, Sequence[float]], *, budget: int, difference: float) -> Resolution:
    """Replay all looks that the finished seeds allow, and return the resulting state.

    Args:
        values: finished values of each cell, in the order of seeds; higher is better.
        budget: maximum number of seeds per cell.
        difference: cells that differ by at most this need not be separated.
    """
    seeds, out = dict.fromkeys(values, FIRST), list[str]()
    if any(len(numbers) < FIRST for numbers in values.values()):
        return Resolution("open", seeds, ())
    looks = budget - FIRST + 1
    competing = list(values)
    for n in range(FIRST, budget + 1):
        seeds |= dict.fromkeys(competing, n)
        if any(len(values[name]) < n for name in competing):
            return Resolution("open", seeds, tuple(out))
        y = np.array([values[name][:n] for name in competing], dtype=float)
        distance = y.mean(1)[:, None] - y.mean(1)
        width = half_widths(y, LEVEL / looks)
        worse = (distance > width).any(axis=0)
        best = int(y.mean(1).argmax())
        near = distance[best] + width[best] <= difference
        near[best] = True
        out += [name for name, lost in zip(competing, worse, strict=True) if lost]
        competing = [name for name, lost in zip(competing, worse, strict=True) if not lost]
        if (worse | near).all():
            return Resolution("resolved", seeds, tuple(out))
    return Resolution("spent", seeds, tuple(out))
