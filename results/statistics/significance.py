"""Which differences of a few paired numbers are real: intervals, tests, corrections, power and rank correlation.

Trials of one seed share start weights and batches, so two cells are compared seed by seed. scipy.stats is slow to
import, so that it is imported where it is used.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

Numbers = Sequence[float] | NDArray[np.float64]

LEVEL = 0.05
"""Significance level of every test; intervals cover 1 - LEVEL."""
DRAWS, PART = 2000, 500
"""Resamples of a bootstrap, and how many of them are made at once, to bound the memory for thousands of queries."""
EXACT_UP_TO = 16
"""Seeds up to which all sign flips are listed, 65,536 of them; with more seeds, as many flips are drawn at random."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Sample:
    """Several numbers: the numbers themselves, or their mean and sample standard deviation as papers print them."""

    mean: float
    std: float
    """NaN if it is not known."""
    n: int | None
    """None if it is not known."""
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Sequence[float]) -> "Sample":
        """The sample of these numbers."""
        x = np.asarray(values, dtype=float)
        std = float(x.std(ddof=1)) if spread_seen(x) else 0.0 if len(x) > 1 else math.nan
        return cls(float(x.mean()) if len(x) else math.nan, std, len(x), tuple(values))

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN if it is not known."""
        return self.std / math.sqrt(self.n) if self.n else math.nan


def t_interval(values: Numbers) -> Interval:
    """mean ± t(1 - LEVEL/2, n - 1) s / sqrt(n); NaN for values without a spread, as a single value is."""
    x = np.asarray(values, dtype=float)
    if not spread_seen(x):
        return Interval(math.nan, math.nan)
    half = float(special.stdtrit(len(x) - 1, 1 - LEVEL / 2)) * _standard_error(x)
    return Interval(float(x.mean()) - half, float(x.mean()) + half)


def bootstrap_interval(values: Numbers) -> Interval:
    """Interval of a mean by resampling the values: for hundreds of queries, not for a handful of seeds.

    A handful of seeds has so few different resamples that the interval comes out too short; use `t_interval` there.
    BCa, Efron (1987). The draws are the same each time.
    """
    from scipy import stats

    x = np.asarray(values, dtype=float)
    if not np.ptp(x):
        return Interval(float(x[0]), float(x[0]))
    interval = stats.bootstrap(
        (x,), np.mean, n_resamples=DRAWS, batch=PART, confidence_level=1 - LEVEL, rng=np.random.default_rng(0)
    ).confidence_interval
    return Interval(float(interval.low), float(interval.high))


def paired_t(differences: Numbers) -> float:
    """p of the two-sided paired t test: t = mean / (s / sqrt(n)), n - 1 degrees of freedom.

    NaN where no spread was seen: two seeds may agree to the last digit by chance, which proves nothing.
    """
    d = np.asarray(differences, dtype=float)
    if not spread_seen(d):
        return math.nan
    return float(2 * special.stdtr(len(d) - 1, -abs(d.mean()) / _standard_error(d)))


def welch(one: Sample, other: Sample) -> tuple[Interval, float]:
    """Interval of the difference of the means of unpaired samples, and p of the two-sided test that it is 0.

    t with standard error sqrt(s1^2/n1 + s2^2/n2) and Satterthwaite's degrees of freedom; Welch (1947). NaN where a
    sample has a single number or an unknown deviation, or where neither shows a spread.
    """
    parts = np.array([one.error, other.error]) ** 2
    error = math.sqrt(parts.sum())
    if not error > 0 or not one.n or not other.n:
        return Interval(math.nan, math.nan), math.nan
    freedom = float(parts.sum() ** 2 / (parts**2 / np.array([one.n - 1, other.n - 1])).sum())
    difference = one.mean - other.mean
    half = float(special.stdtrit(freedom, 1 - LEVEL / 2)) * error
    p = float(2 * special.stdtr(freedom, -abs(difference) / error))
    return Interval(difference - half, difference + half), p


def sign_flip(differences: Numbers) -> float:
    """p of the exact two-sided permutation test: the share of all sign flips whose mean is as far from 0.

    Its only assumption: without an effect, a difference is as likely as its negative. Fisher (1935).
    """
    d = np.asarray(differences, dtype=float)
    if len(d) > EXACT_UP_TO:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (2**EXACT_UP_TO, len(d)))
        signs[0] = 1.0  # the observed signs are among the flips, so that p is never 0
    else:
        signs = 1.0 - 2.0 * (np.arange(2 ** len(d))[:, None] >> np.arange(len(d)) & 1)
    means = np.abs(signs @ d) / len(d)
    return float((means >= abs(d.mean()) - _rounding(d)).mean())


def smallest_p(n: int) -> float:
    """The smallest p that `sign_flip` can give with n seeds: 2 of the 2^n flips.

    >>> smallest_p(3), smallest_p(5)
    (0.25, 0.0625)
    """
    return 2.0 ** (1 - n)


def seeds_to_reach(level: float = LEVEL, comparisons: int = 1) -> int:
    """The fewest seeds with which an exact test can reach the level after Holm's correction over the comparisons.

    >>> seeds_to_reach(), seeds_to_reach(comparisons=14)
    (6, 10)
    """
    return 1 + math.ceil(math.log2(comparisons / level))


def holm(p_values: Numbers) -> NDArray[np.float64]:
    """Adjusted p values: tested at LEVEL, the chance of any false finding is at most LEVEL. Holm (1979).

    NaN, of a test that could not be made, stays and does not count.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)  # NaN last
    steps = np.maximum.accumulate(p[order] * (np.isfinite(p).sum() - np.arange(len(p))))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def power(difference: float, std: float, n: int) -> float:
    """Chance that the paired t test over n seeds finds this true difference: the noncentral t distribution.

    Args:
        std: standard deviation over seeds of the difference between two cells.
    """
    shift = abs(difference) / std * math.sqrt(n)
    critical = float(special.stdtrit(n - 1, 1 - LEVEL / 2))
    missed = special.nctdtr(n - 1, shift, critical) - special.nctdtr(n - 1, shift, -critical)
    return 1.0 if math.isnan(missed) else 1.0 - float(missed)  # NaN: too large a shift to miss


def seeds_needed(difference: float, std: float, *, least: float = 0.8, most: int = 1000) -> int | None:
    """The fewest seeds with which a paired t test finds the difference with this power; None: more than `most`.

    None as well for a standard deviation of 0 or NaN, which says nothing about the spread of further seeds.
    """
    if not std > 0:
        return None
    seeds = range(2, most + 1)
    place = bisect_left(seeds, least, key=lambda n: power(difference, std, n))
    return seeds[place] if place < len(seeds) else None


def std_factors(n: int) -> Interval:
    """Factors by which the true standard deviation may lie below and above that of n values: chi square, n - 1."""
    freedom = n - 1
    most, least = (float(special.chdtri(freedom, tail)) for tail in (LEVEL / 2, 1 - LEVEL / 2))
    return Interval(math.sqrt(freedom / most), math.sqrt(freedom / least))


def error_of_blocks(values: NDArray[np.float64]) -> tuple[float, int]:
    """Mean square and degrees of freedom of the error, with seeds as blocks: a randomised block design.

    Args:
        values: k cells by n seeds, (k, n).
    """
    k, n = values.shape
    rest = values - values.mean(1, keepdims=True) - values.mean(0, keepdims=True) + values.mean()
    freedom = (k - 1) * (n - 1)
    return float((rest**2).sum() / freedom) if freedom else math.nan, freedom


def like_best(values: NDArray[np.float64], best: int) -> NDArray[np.bool_] | None:
    """Which cells cannot be told from the best cell; it allows for the best having been picked after the fact.

    Tukey's honest significant difference in a randomised block design, over all pairs at once. The error is pooled over
    all cells, which assumes that their differences vary alike.

    Args:
        values: k cells by n seeds, (k, n).
        best: row of the best cell.

    None where the cells' differences have no spread over seeds.
    """
    error, freedom = error_of_blocks(values)
    slack, means = _rounding(values), values.mean(1)
    if math.sqrt(error) <= slack:
        return None
    return np.abs(means - means[best]) <= max(slack, honest_difference(error, freedom, *values.shape))


def honest_difference(error: float, freedom: int, levels: int, observations: int) -> float:
    """Means of n observations that lie closer than this cannot be told apart: q(1 - LEVEL) sqrt(MS_error / n).

    NaN for an error of 0.
    """
    if not error > 0:
        return math.nan
    return _range_quantile(levels, freedom) * math.sqrt(error / observations)


@cache
def _range_quantile(levels: int, freedom: int) -> float:
    """q(1 - LEVEL) of the studentized range, which takes 0.1 s to find."""
    from scipy import stats

    return float(stats.studentized_range.ppf(1 - LEVEL, levels, freedom))


def kendall(x: Numbers, y: Numbers) -> float:
    """Kendall's tau-b: pairs in the same order minus pairs in opposite order, over all pairs that tie in neither.

    NaN where x or y is constant.
    """
    from scipy import stats

    return float(stats.kendalltau(x, y).statistic)


def kendall_p(x: Numbers, y: Numbers) -> float:
    """p of the exact two-sided test that the orders have nothing in common: all orders of y are equally likely for x.

    The share of all orders with |C - D| as large as here. D is the number of inversions of an order; over all orders of
    n things it is the sum of independent numbers that are uniform on 0, ..., k - 1 for k = 1, ..., n. Kendall (1938). A
    tie counts for neither order, which makes the test conservative, and which scipy does not offer. NaN where x or y is
    constant.
    """
    one, other = (np.sign(np.subtract.outer(values, values)) for values in (x, y))
    if not (one.any() and other.any()):
        return math.nan
    shares = np.ones(1)
    for k in range(2, len(one) + 1):
        shares = np.convolve(shares, np.full(k, 1 / k))
    pairs = len(shares) - 1
    excess = abs((one * other).sum()) / 2
    return float(min(1.0, shares[np.abs(pairs - 2 * np.arange(pairs + 1)) >= excess].sum()))


def spread_seen(values: Numbers) -> bool:
    """Whether the values differ by more than rounding."""
    x = np.asarray(values, dtype=float)
    return len(x) > 1 and float(np.ptp(x)) > 2 * _rounding(x)


def _standard_error(x: NDArray[np.float64]) -> float:
    return float(x.std(ddof=1)) / math.sqrt(len(x))


def _rounding(x: NDArray[np.float64]) -> float:
    """Difference between floating-point sums of such numbers that rounding alone may cause."""
    return 1e-12 * float(np.abs(x).max(initial=0.0))
