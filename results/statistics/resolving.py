"""Seeds until resolved: which cells still compete for the best, and how many seeds each of them needs now.

At each look, at n = FIRST, ..., budget seeds, every two cells that compete get an interval of their difference, and a
cell is out once another one is better beyond their interval. All looks share LEVEL equally; at a look all pairs that
still compete share its part, as in Holm's (1979) procedure. So for normal errors no cell is ever out that is not worse,
with a chance of at least 1 - LEVEL, whatever decides when to stop. `benchmarks/seeds.py` simulates it.
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
    """State of the contest of cells for the best."""

    state: Literal["open", "resolved", "spent"]
    """open: seeds are to be trained; resolved: no cell that competes is better by `difference`; spent: no seed left."""
    seeds: Mapping[str, int]
    """How many seeds each cell is to have by now."""
    out: tuple[str, ...]
    """Cells that are worse than another, in the order in which that showed."""
    failed: tuple[str, ...] = ()
    """Cells that take no part, since a trial of theirs failed."""

    @property
    def competing(self) -> list[str]:
        return [name for name in self.seeds if name not in (*self.out, *self.failed)]


def resolve(values: Mapping[str, Sequence[float]], *, budget: int, difference: float) -> Resolution:
    """Replay all looks that these values allow.

    Args:
        values: of each cell, seed by seed in the order of seeds; as many as are done. Large is good.
        budget: most seeds of a cell.
        difference: cells need not be told apart if they differ by less.
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
