"""Seeds until resolved: which cells still compete for the best, and how many seeds each of them needs now.

All cells get `FIRST` seeds. Then there are looks, at n = FIRST, ..., budget seeds. At a look, every two cells that
compete get an interval of their difference, seed by seed: the narrower of

* their own paired t interval over n seeds; all looks and all pairs of cells share the part `PAIRED` of LEVEL, and
* Tukey's interval for all pairs at once; all looks share the part `TUKEY` of LEVEL. Its error is pooled over all cells
  in their first `FIRST` seeds alone, so that it does not depend on which cells stay (Stein, 1945). It assumes, as
  Tukey's test in tables does, that the differences between cells vary alike; where a pair's own spread is larger, that
  counts.

A cell is out once another one is better beyond their interval. The looks are fixed beforehand, and the bounds hold for
all of them and all pairs at once: with a chance of 1 - LEVEL no cell is ever out that is not worse, however often one
looks and whatever decides when to stop.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from results.statistics.significance import LEVEL, error_of_blocks

FIRST = 3
"""Seeds of every cell before the first look."""
PAIRED, TUKEY = 0.75, 0.25
"""Parts of LEVEL. Tukey's gets less: it is the interval that rests on an assumption about the spread."""


@dataclass(frozen=True)
class Resolution:
    """Where the contest of cells for the best stands."""

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
    if any(len(own) < FIRST for own in values.values()):
        return Resolution("open", seeds, ())
    first = np.array([own[:FIRST] for own in values.values()], dtype=float)
    pooled = _seen(math.sqrt(error_of_blocks(first)[0]) if len(values) > 1 else 0.0, first)
    competing = list(values)
    for n in range(FIRST, budget + 1):
        seeds |= dict.fromkeys(competing, n)
        if any(len(values[name]) < n for name in competing):
            return Resolution("open", seeds, tuple(out))
        y = np.array([values[name][:n] for name in competing], dtype=float)
        distance = y.mean(1)[:, None] - y.mean(1)
        own = _seen((y[:, None] - y[None]).std(axis=2, ddof=1), y)
        of_pairs = own * _student(n, len(values), budget)
        at_once = np.maximum(own / math.sqrt(2), pooled) * _tukey(len(values), budget)
        width = np.minimum(of_pairs, at_once) / math.sqrt(n)
        np.fill_diagonal(width, 0.0)
        worse = (distance > width).any(axis=0)
        best = int(y.mean(1).argmax())
        near = distance[best] + width[best] <= difference
        near[best] = True
        out += [name for name, lost in zip(competing, worse, strict=True) if lost]
        competing = [name for name, lost in zip(competing, worse, strict=True) if not lost]
        if (worse | near).all():
            return Resolution("resolved", seeds, tuple(out))
    return Resolution("spent", seeds, tuple(out))


def _student(n: int, cells: int, budget: int) -> float:
    """Quantile of t for n seeds, at the level of all looks and all pairs of as many cells."""
    tail = PAIRED * LEVEL / _looks(budget) / max(cells * (cells - 1) / 2, 1) / 2
    return float(special.stdtrit(n - 1, 1 - tail))


@cache
def _tukey(cells: int, budget: int) -> float:
    """Quantile of the studentized range of all cells, with the freedom of the error in their first seeds."""
    from scipy import stats

    if cells < 2:
        return math.inf
    freedom = (cells - 1) * (FIRST - 1)
    return float(stats.studentized_range.ppf(1 - TUKEY * LEVEL / _looks(budget), cells, freedom))


def _seen(spread: NDArray[np.float64] | float, values: NDArray[np.float64]) -> Any:
    """The spread, or infinity where only rounding is seen: a few seeds may agree by chance, which proves nothing."""
    return np.where(np.asarray(spread) <= 1e-12 * np.abs(values).max(), math.inf, spread)


def _looks(budget: int) -> int:
    return budget - FIRST + 1
