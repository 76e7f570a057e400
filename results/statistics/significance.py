"""Significance of differences between a few paired numbers: intervals, tests, corrections, power, rank correlation.

Trials of one seed share start weights and batches, so two cells are compared seed by seed. scipy.stats is imported
where it is used, since that is slow.
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
"""Resamples of a bootstrap, and how many of them are made at once, to bound the memory for thousands of queries."""


@dataclass(frozen=True)
class Interval:
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
    n: int | None
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Numbers) -> "Sample":
        """Summarise values; the standard deviation is 0 if they differ by rounding alone, NaN for a single value."""
        x = np.asarray(values, dtype=float)
        spread = len(x) > 1 and float(np.ptp(x)) > 2 * rounding(x)
        std = float(x.std(ddof=1)) if spread else 0.0 if len(x) > 1 else math.nan
        return cls(float(x.mean()) if len(x) else math.nan, std, len(x), tuple(values))

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN if it is not known."""
        return self.std / math.sqrt(self.n) if self.n else math.nan


def t_interval(values: Numbers) -> Interval:
    """mean ± t(1 - LEVEL/2, n - 1) s / sqrt(n); NaN for values without a spread, as a single value is."""
    sample = Sample.of(values)
    if not sample.error > 0:
        return Interval(math.nan, math.nan)
    half = float(special.stdtrit(len(values) - 1, 1 - LEVEL / 2)) * sample.error
    return Interval(sample.mean - half, sample.mean + half)


def bootstrap_interval(values: Numbers) -> Interval:
    """Return a BCa interval, Efron (1987), of a mean: for hundreds of queries; for a few seeds it is too short."""
    from scipy import stats

    x = np.asarray(values, dtype=float)
    if not np.ptp(x):
        return Interval(float(x[0]), float(x[0]))
    interval = stats.bootstrap(
        (x,), np.mean, n_resamples=DRAWS, batch=PART, confidence_level=1 - LEVEL, rng=np.random.default_rng(0)
    ).confidence_interval
    return Interval(float(interval.low), float(interval.high))


def paired_t(differences: Numbers) -> float:
    """Return p of the two-sided paired t test; NaN if there is no spread: two seeds may agree by chance."""
    sample = Sample.of(differences)
    if not sample.error > 0:
        return math.nan
    return float(2 * special.stdtr(len(differences) - 1, -abs(sample.mean) / sample.error))


def welch(one: Sample, other: Sample) -> tuple[Interval, float]:
    """Return the interval of the difference of unpaired means, and p of the two-sided test that it is 0.

    Satterthwaite's degrees of freedom; Welch (1947). NaN for a single number, or if neither shows a spread.
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
    """Adjust p values: tested at LEVEL, the chance of any false finding is at most LEVEL. Holm (1979).

    NaN, of a test that could not be made, stays and does not count.
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)  # NaN last
    steps = np.maximum.accumulate(p[order] * (np.isfinite(p).sum() - np.arange(len(p))))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def power(difference: float, std: float, n: int) -> float:
    """Return the chance that the paired t test over n seeds finds this true difference of this spread: noncentral t."""
    shift = abs(difference) / std * math.sqrt(n)
    critical = float(special.stdtrit(n - 1, 1 - LEVEL / 2))
    missed = special.nctdtr(n - 1, shift, critical) - special.nctdtr(n - 1, shift, -critical)
    return 1.0 if math.isnan(missed) else 1.0 - float(missed)  # NaN: too large a shift to miss


def seeds_needed(difference: float, std: float, *, least: float = 0.8, most: int = 1000) -> int | None:
    """Return the fewest seeds with which a paired t test finds the difference with this power; None: over `most`."""
    if not std > 0:
        return None
    seeds = range(2, most + 1)
    place = bisect_left(seeds, least, key=lambda n: power(difference, std, n))
    return seeds[place] if place < len(seeds) else None


def std_factors(n: int) -> Interval:
    """Return the factors between which the true standard deviation lies, given that of n values: chi square, n - 1."""
    freedom = n - 1
    most, least = (float(special.chdtri(freedom, tail)) for tail in (LEVEL / 2, 1 - LEVEL / 2))
    return Interval(math.sqrt(freedom / most), math.sqrt(freedom / least))


def kendall(x: Numbers, y: Numbers) -> float:
    """Return Kendall's tau-b: pairs in the same order minus pairs in opposite order; NaN if x or y is constant."""
    from scipy import stats

    return float(stats.kendalltau(x, y).statistic)


def kendall_p(x: Numbers, y: Numbers) -> float:
    """Return p of the exact two-sided test that two orders are unrelated: the share of all orders with such |C - D|.

    D, the inversions of an order, is the sum of independent numbers that are uniform on 0, ..., k - 1 for k = 1, ...,
    n. Kendall (1938). A tie counts for neither order, which scipy does not offer. NaN if x or y is constant.
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
    """Return the difference between floating-point sums of such numbers that rounding alone may cause."""
    return 1e-12 * float(np.abs(x).max(initial=0.0))
