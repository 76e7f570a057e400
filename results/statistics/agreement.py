"""How alike two blocks order the same cells: Kendall's tau, with an interval over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.statistics.rank_correlation import kendall, kendalls
from results.statistics.significance import LEVEL, Interval, Sample, t_interval

DRAWS = 1000


@dataclass(frozen=True)
class Agreement:
    """Kendall's tau-b of the means of the same cells in two blocks."""

    blocks: tuple[str, str]
    metric: str
    cells: int
    tau: float
    interval: Interval
    """Over seeds; NaN where there are no spreads."""

    @property
    def verdict(self) -> str:
        """Whether the interval lies above 0, or below."""
        return "holds" if self.interval.low > 0 else "fails" if self.interval.high < 0 else "cannot be told"


def agreement(blocks: tuple[str, str], metric: str, cells: Sequence[tuple[Sample, Sample]]) -> Agreement:
    """The agreement of two blocks.

    The interval is of t over the taus of single seeds, on Fisher's scale, where all values are known; of printed means,
    it is of tau over draws of all means from their t distributions.

    Args:
        cells: the samples of each cell in both blocks.
    """
    means = np.array([[mine.mean, theirs.mean] for mine, theirs in cells])
    tau = kendall(means[:, 0], means[:, 1])
    return Agreement(blocks, metric, len(cells), tau, _interval(cells, means))


def _interval(cells: Sequence[tuple[Sample, Sample]], means: NDArray[np.float64]) -> Interval:
    sizes = {len(sample.values) for pair in cells for sample in pair}
    if len(sizes) == 1 and sizes.pop() > 1:
        mine, theirs = (np.array([pair[side].values for pair in cells]).T for side in (0, 1))
        near = np.arctanh(np.clip(kendalls(mine, theirs), -0.999, 0.999))
        interval = t_interval(near)
        return Interval(math.tanh(interval.low), math.tanh(interval.high))
    errors = np.array([[mine.error, theirs.error] for mine, theirs in cells])
    if np.isnan(errors).any():
        return Interval(math.nan, math.nan)
    freedom = np.array([[(sample.n or 2) - 1 for sample in pair] for pair in cells])
    draws = means + errors * np.random.default_rng(0).standard_t(freedom, (DRAWS, *means.shape))
    taus = kendalls(draws[..., 0], draws[..., 1])
    low, high = np.percentile(taus, [100 * LEVEL / 2, 100 * (1 - LEVEL / 2)])
    return Interval(float(low), float(high))
