"""Which of several cells are distinguishable by their seeds: Welch's t of every two of them, judged together.

Seeds are blocks: what a seed adds to all cells is subtracted first. Every cell has its own spread, for cells spread
unequally: a test with one error for all finds differences among equal cells in up to a third of tables. Statistic:
Games and Howell (1976); parametric bootstrap: Krishnamoorthy, Lu and Mathew (2007). `benchmarks/marks.py` simulates how
often it errs and what it finds.
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
"""Draws of the bootstrap: the level that it keeps is known to 0.7 points (two standard errors)."""
MOST = 200
"""Cells of which every two are drawn, as their squares cost: 1 s for 200. More are told by `half_widths`."""
_PART = 2**19
"""Numbers that are drawn at once, to bound the memory."""


def ahead(values: Array) -> Verdicts | None:
    """Return whether the second of every two cells is above the first by more than seeds explain, as (cells, cells).

    If all cells are equal, the chance that any is said to be above another is LEVEL, for all pairs together. Of two
    cells it is the paired t test. None: no cell shows a spread.

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
    """Name the test that `ahead` makes for this number of cells."""
    if cells == 2:
        return "paired t test"
    return "Welch's t, Bonferroni" if cells > MOST else "Welch's t, parametric bootstrap"


def ahead_unpaired(means: Array, squares: Array, freedom: Array) -> Verdicts:
    """Return the same for independent means whose squared standard errors are known with these degrees of freedom."""
    variances = squares[:, None] + squares
    t = _ratio(means - means[:, None], np.sqrt(variances), float(rounding(means)))
    return t > _quantile(_of_errors(_scaled(squares), freedom, DRAWS, np.random.default_rng(0)), LEVEL)


def spreads(values: Array) -> Array:
    """Return the variance of each cell about what a seed adds to all cells: (..., k, n) -> (..., k).

    Unbiased for equal spreads.
    """
    k, n = values.shape[-2:]
    rest = values - values.mean(-1, keepdims=True)
    rest -= rest.mean(-2, keepdims=True)
    return (rest**2).sum(-1) / (n - 1) * k / max(k - 1, 1)


def leads(values: Array) -> Array:
    """Return how far the second of every two cells is above the first, in standard errors: (k, n) -> (k, k).

    0 where the two show no spread.
    """
    spread, means = spreads(values), values.mean(-1)
    return _ratio(means - means[:, None], np.sqrt((spread[:, None] + spread) / values.shape[-1]), rounding(values))


def critical(spread: Array, n: int, *, level: float = LEVEL, draws: int = DRAWS, seed: int = 0) -> float:
    """Return the lead that the largest exceeds with this chance, if all cells are equal, by their spreads over n seeds.

    The larger of two bootstraps. Whole tables, from which the seeds' means are subtracted as from the data; they are
    the careful one of few cells, and of two cells they are the paired t test, which is taken itself. And means with
    independent spreads: the careful one of many cells.
    """
    if len(spread) == 2:
        return float(special.stdtrit(n - 1, 1 - level / 2))
    if not (spread > 0).any():
        return math.inf
    return _critical(tuple(_scaled(np.sort(spread)).tolist()), n, level, draws, seed)  # in any order of the cells


def half_widths(values: Array, level: float) -> Array:
    """Return half widths of the intervals of all differences between (cells, seeds), at a joint level (Bonferroni).

    t(1 - level/pairs/2, f) s / sqrt(n), s^2 = v_i + v_j, so that a cell that spreads more widens its own intervals
    alone; Games and Howell (1976). What a seed adds to all cells is subtracted first: v_i = k/(k - 1) times the
    variance of y_is - mean_s, and f is Satterthwaite's, (n - 1) (v_i + v_j)^2 / (v_i^2 + v_j^2 + 2 v_i v_j / (k -
    1)^2), with the correlation -1/(k - 1) that the subtraction brings; Box (1954). Where the differences of a pair
    spread more than s, their own spread counts. Infinite where no spread is seen.
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
    """The largest lead of each drawn table of equal cells."""
    largest = []
    for size in _sizes(draws, len(std) * n):
        y = std[:, None] * generator.normal(size=(size, len(std), n))
        largest.append(_largest(y.mean(-1).T, spreads(y).T / n))
    return np.concatenate(largest)


def _of_errors(squares: Array, freedom: Array, draws: int, generator: np.random.Generator) -> Array:
    """The largest lead of drawn means with drawn standard errors, independent of each other."""
    largest = []
    for size in _sizes(draws, len(squares)):
        means = np.sqrt(squares) * generator.normal(size=(size, len(squares)))
        errors = squares * generator.chisquare(freedom, (size, len(squares))) / freedom
        largest.append(_largest(means.T, errors.T))
    return np.concatenate(largest)


def _largest(means: Array, squares: Array) -> Array:
    """The largest |t| of every two rows, of (cells, draws) means and squared standard errors."""
    means, squares, largest = np.ascontiguousarray(means), np.ascontiguousarray(squares), np.zeros(means.shape[1])
    for cell in range(1, len(means)):
        t = (means[:cell] - means[cell]) ** 2 / np.maximum(squares[:cell] + squares[cell], 1e-300)
        np.maximum(largest, t.max(0), out=largest)
    return np.sqrt(largest)


def _sizes(draws: int, numbers: int) -> list[int]:
    """The draws in parts of about `_PART` numbers, with so many numbers a draw."""
    size = max(1, _PART // numbers)
    return [min(size, draws - begun) for begun in range(0, draws, size)]


def _quantile(largest: Array, level: float) -> float:
    return float(np.quantile(largest, 1 - level))


def _scaled(squares: Array) -> Array:
    return squares / squares.max()


def _ratio(differences: Array, errors: Array, slack: float) -> Array:
    return np.divide(differences, errors, out=np.zeros_like(errors), where=errors > slack)
