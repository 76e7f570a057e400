"""All pairwise comparisons of cells over seeds: Welch's t with a joint significance level.

Seeds are blocks: the seed's common effect on all cells is subtracted first. Each cell has its own variance, because
variances are unequal: a test with one pooled error finds differences among equal cells in up to a third of tables.
Statistic: Games and Howell (1976); parametric bootstrap: Krishnamoorthy, Lu and Mathew (2007). `benchmarks/marks.py`
simulates its error rate and power.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from goalgrid.results.statistics.significance import LEVEL, rounding

Array = NDArray[np.float64]
Verdicts = NDArray[np.bool_]

DRAWS = 4000
"""Bootstrap draws: they determine the level to within 0.7 percentage points (two standard errors)."""
MOST = 200
"""Largest number of cells to bootstrap (1 s for 200; the cost is quadratic). Above it, `half_widths` is used."""
_PART = 2**19
"""Numbers drawn at once, to bound the memory."""


def ahead(values: Array) -> Verdicts | None:
    """Return which cells are significantly above which: entry [i, j] tells whether cell j is above cell i.

    If all cells are equal, the probability of any false finding is LEVEL, jointly over all pairs. For two cells this is
    the paired t test. None if no cell varies over seeds.

    Args:
        values: (cells, seeds).
    """
    spread, n = spreads(values), values.shape[-1]
    if not (spread > rounding(values) ** 2).any():
        return None
    if len(values) > MOST:
        means = values.mean(1)
        return means - means[:, None] > half_widths(values, LEVEL)
    return leads(values) > critical(spread, n)


def test_of(cells: int) -> str:
    """Return the name of the test that `ahead` uses for this number of cells."""
    if cells == 2:
        return "paired t test"
    return "Welch's t, Bonferroni" if cells > MOST else "Welch's t, parametric bootstrap"


def ahead_unpaired(means: Array, squares: Array, freedom: Array) -> Verdicts:
    """Return which means are significantly above which, like `ahead`, for independent means.

    Args:
        means: one mean per cell.
        squares: squared standard errors of the means.
        freedom: degrees of freedom of these errors.
    """
    variances = squares[:, None] + squares
    t = _ratio(means - means[:, None], np.sqrt(variances), float(rounding(means)))
    return t > _quantile(_of_errors(_scaled(squares), freedom, DRAWS, np.random.default_rng(0)), LEVEL)


def spreads(values: Array) -> Array:
    """Return each cell's variance over seeds after subtracting the common seed effect: (..., k, n) -> (..., k).

    Unbiased if all cells have equal variance.
    """
    k, n = values.shape[-2:]
    rest = values - values.mean(-1, keepdims=True)
    rest -= rest.mean(-2, keepdims=True)
    return (rest**2).sum(-1) / (n - 1) * k / max(k - 1, 1)


def leads(values: Array) -> Array:
    """Return the pairwise t statistics, (k, n) -> (k, k): entry [i, j] is mean j minus mean i in standard errors.

    0 if neither of the two cells varies.
    """
    spread, means = spreads(values), values.mean(-1)
    return _ratio(means - means[:, None], np.sqrt((spread[:, None] + spread) / values.shape[-1]), rounding(values))


def critical(spread: Array, n: int, *, level: float = LEVEL, draws: int = DRAWS, seed: int = 0) -> float:
    """Return the critical value of the largest pairwise t: equal cells exceed it with probability `level`.

    It is the larger of two bootstrap quantiles. One draws whole tables and subtracts the seeds' means as in the data
    (more conservative for few cells); the other draws means with independent standard errors (more conservative for
    many cells). For two cells, the quantile of the paired t test is used instead.

    Args:
        spread: variance of each cell, as in `spreads`.
        n: number of seeds.
        level: joint significance level.
        draws: number of bootstrap draws.
        seed: seed of the bootstrap.
    """
    if len(spread) == 2:
        return float(special.stdtrit(n - 1, 1 - level / 2))
    if not (spread > 0).any():
        return math.inf
    return _critical(tuple(_scaled(np.sort(spread)).tolist()), n, level, draws, seed)  # in any order of the cells


def half_widths(values: Array, level: float) -> Array:
    """Return half-widths of the intervals for all pairwise differences of cells, at a joint level (Bonferroni).

    t(1 - level/pairs/2, f) s / sqrt(n) with s^2 = v_i + v_j, so that a cell with a large variance widens only its own
    intervals; Games and Howell (1976). The common seed effect is subtracted first: v_i = k/(k - 1) times the variance
    of y_is - mean_s. f are Satterthwaite's degrees of freedom, (n - 1) (v_i + v_j)^2 / (v_i^2 + v_j^2 + 2 v_i v_j /
    (k - 1)^2), which account for the correlation -1/(k - 1) caused by the subtraction; Box (1954). If the standard
    deviation of a pair's differences is larger than s, it replaces s. Infinite if a pair does not vary.

    Args:
        values: (cells, seeds).
        level: joint significance level.
    """
    k, n = values.shape
    i, j = np.triu_indices(k, 1)
    variance = spreads(values)
    one, other = variance[i], variance[j]
    apart = (values[i] - values[j]).var(axis=1, ddof=1)
    spread = np.sqrt(np.maximum(one + other, apart))
    seen = spread > rounding(values)
    parts = one**2 + other**2 + 2 * one * other / max(k - 1, 1) ** 2
    freedom = (n - 1) * np.divide((one + other) ** 2, parts, out=np.ones_like(parts), where=seen)
    t = special.stdtrit(freedom, 1 - level / max(len(i), 1) / 2)
    width = np.zeros((k, k))
    width[i, j] = width[j, i] = np.where(seen, t * spread / math.sqrt(n), math.inf)
    return width


@lru_cache(maxsize=256)
def _critical(spread: tuple[float, ...], n: int, level: float, draws: int, seed: int) -> float:
    variances, generator = np.array(spread), np.random.default_rng(seed)
    tables = _of_tables(np.sqrt(variances), n, draws, generator)
    errors = _of_errors(variances / n, np.full(len(variances), n - 1.0), draws, generator)
    return max(_quantile(tables, level), _quantile(errors, level))


def _of_tables(std: Array, n: int, draws: int, generator: np.random.Generator) -> Array:
    """Return the largest pairwise t in each drawn table of equal cells."""
    largest = []
    for size in _sizes(draws, len(std) * n):
        y = std[:, None] * generator.normal(size=(size, len(std), n))
        largest.append(_largest(y.mean(-1).T, spreads(y).T / n))
    return np.concatenate(largest)


def _of_errors(squares: Array, freedom: Array, draws: int, generator: np.random.Generator) -> Array:
    """Return the largest pairwise t in each draw of independent means and standard errors."""
    largest = []
    for size in _sizes(draws, len(squares)):
        means = np.sqrt(squares) * generator.normal(size=(size, len(squares)))
        errors = squares * generator.chisquare(freedom, (size, len(squares))) / freedom
        largest.append(_largest(means.T, errors.T))
    return np.concatenate(largest)


def _largest(means: Array, squares: Array) -> Array:
    """Return the largest pairwise |t| per draw, from means and squared standard errors (cells, draws)."""
    means, squares, largest = np.ascontiguousarray(means), np.ascontiguousarray(squares), np.zeros(means.shape[1])
    for cell in range(1, len(means)):
        t = (means[:cell] - means[cell]) ** 2 / np.maximum(squares[:cell] + squares[cell], 1e-300)
        np.maximum(largest, t.max(0), out=largest)
    return np.sqrt(largest)


def _sizes(draws: int, numbers: int) -> list[int]:
    """Split the draws into parts of about `_PART` numbers, given the numbers per draw."""
    size = max(1, _PART // numbers)
    return [min(size, draws - begun) for begun in range(0, draws, size)]


def _quantile(largest: Array, level: float) -> float:
    return float(np.quantile(largest, 1 - level))


def _scaled(squares: Array) -> Array:
    return squares / squares.max()


def _ratio(differences: Array, errors: Array, slack: float) -> Array:
    return np.divide(differences, errors, out=np.zeros_like(errors), where=errors > slack)
