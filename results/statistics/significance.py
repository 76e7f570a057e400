"""Statistics for small paired samples: intervals, tests, corrections, power, rank correlation.

Trials with the same seed share initial weights and batches, so two cells are compared seed by seed. scipy.stats is
imported only where it is used because importing it is slow.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Numbers = Sequence[float] | NDArray[np.float64]

LEVEL = 0.05
"""Significance level of every test; intervals cover 1 - LEVEL."""
DRAWS, PART = 2000, 500
"""Number of bootstrap resamples, and how many are drawn at once to bound the memory for thousands of queries."""


@dataclass(frozen=True)
class Interval:
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Sample:
    """A sample, summarised by mean and sample standard deviation, as papers print it; with its values if known."""

    mean: float
    std: float
    n: int | None
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Numbers) -> "Sample":
        """Summarise values; the standard deviation is 0 if they differ only by rounding, NaN for a single value."""
        x = np.asarray(values, dtype=float)
        spread = len(x) > 1 and float(np.ptp(x)) > 2 * rounding(x)
        std = float(x.std(ddof=1)) if spread else 0.0 if len(x) > 1 else math.nan
        return cls(float(x.mean()) if len(x) else math.nan, std, len(x), tuple(values))

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN if unknown."""
        return self.std / math.sqrt(self.n) if self.n else math.nan


def t_interval(values: Numbers) -> Interval:
    """mean ± t(1 - LEVEL/2, n - 1) s / sqrt(n); NaN if the values have zero variance or there is only one."""
    sample = Sample.of(values)
    if not sample.error > 0:
        return Interval(math.nan, math.nan)
    half = float(special.stdtrit(len(values) - 1, 1 - LEVEL / 2)) * sample.error
    return Interval(sample.mean - half, sample.mean + half)


def bootstrap_interval(values: Numbers) -> Interval:
    """Return a BCa bootstrap interval of the mean, Efron (1987); for hundreds of queries: too short for a few seeds."""
    from scipy import stats

    x = np.asarray(values, dtype=float)
    if not np.ptp(x):
        return Interval(float(x[0]), float(x[0]))
    interval = stats.bootstrap(
        (x,), np.mean, n_resamples=DRAWS, batch=PART, confidence_level=1 - LEVEL, rng=np.random.default_rng(0)
    ).confidence_interval
    return Interval(float(interval.low), float(interval.high))


def paired_t(differences: Numbers) -> float:
    """Return the p value of the two-sided paired t test; NaN for zero variance, as two seeds can agree by chance."""
    sample = Sample.of(differences)
    if not sample.error > 0:
        return math.nan
    return float(2 * special.stdtr(len(differences) - 1, -abs(sample.mean) / sample.error))


def welch(one: Sample, other: Sample) -> tuple[Interval, float]:
    """Return Welch's interval for the difference of two unpaired means, and the two-sided p value.

    With Satterthwaite's degrees of freedom; Welch (1947). NaN if a sample has a single number or both have zero
    variance.
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


def holm(p_values: Numbers) -> NDArray[np.float64]:
    """Adjust p values for multiple comparisons by Holm's (1979) method, which controls the family-wise error rate.

    NaN (the test could not be computed) stays NaN and does not count as a comparison.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)  # NaN last
    steps = np.maximum.accumulate(p[order] * (np.isfinite(p).sum() - np.arange(len(p))))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def power(difference: float, std: float, n: int) -> float:
    """Return the power of the paired t test over n seeds (noncentral t).

    Args:
        difference: true mean difference.
        std: standard deviation of the differences.
        n: number of seeds.
    """
    shift = abs(difference) / std * math.sqrt(n)
    critical = float(special.stdtrit(n - 1, 1 - LEVEL / 2))
    missed = special.nctdtr(n - 1, shift, critical) - special.nctdtr(n - 1, shift, -critical)
    return 1.0 if math.isnan(missed) else 1.0 - float(missed)  # NaN: too large a shift to miss


def seeds_needed(difference: float, std: float, *, least: float = 0.8, most: int = 1000) -> int | None:
    """Return the fewest seeds for which the paired t test has power `least`; None if more than `most` are needed."""
    if not std > 0:
        return None
    seeds = range(2, most + 1)
    place = bisect_left(seeds, least, key=lambda n: power(difference, std, n))
    return seeds[place] if place < len(seeds) else None


def std_factors(n: int) -> Interval:
    """Return the chi-square confidence interval of a standard deviation, as factors of that of n observed values."""
    freedom = n - 1
    most, least = (float(special.chdtri(freedom, tail)) for tail in (LEVEL / 2, 1 - LEVEL / 2))
    return Interval(math.sqrt(freedom / most), math.sqrt(freedom / least))


def kendall(x: Numbers, y: Numbers) -> float:
    """Return Kendall's tau-b rank correlation; NaN if x or y is constant."""
    from scipy import stats

    return float(stats.kendalltau(x, y).statistic)


def kendall_p(x: Numbers, y: Numbers) -> float:
    """Return the p value of the exact two-sided Kendall test: the share of permutations with at least this |C - D|.

    C and D are the numbers of concordant and discordant pairs. Under independence, D is a sum of independent numbers
    that are uniform on 0, ..., k - 1 for k = 1, ..., n; Kendall (1938). Ties count for neither C nor D, which scipy
    does not offer. NaN if x or y is constant.
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


def rounding(x: NDArray[np.float64]) -> float:
    """Return a bound on the rounding error of floating-point sums of such numbers."""
    return 1e-12 * float(np.abs(x).max(initial=0.0))
