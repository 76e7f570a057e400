"""Analysis of variance in a randomised block design, y = mean + all effects of the factors + seed_s + error.

Seeds are blocks because all cells of a seed start from the same weights and see the same batches. The error is the
interaction of cells with seeds, pooled over all effects; this assumes that differences between cells have equal
variance. Only complete arrays are analysed; their sums of squares are orthogonal, so types I, II and III agree.
Reference: Montgomery, Design and Analysis of Experiments, ch. 4 and 5.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, combinations, compress

import numpy as np
from scipy import special

from goalgrid.results.statistics.pairs import Array, Verdicts, ahead, ahead_unpaired
from goalgrid.results.statistics.significance import LEVEL, Interval, t_interval


@dataclass(frozen=True)
class Effect:
    name: str
    squares: float
    freedom: int
    share: float
    """eta^2: share of the total variance, including seeds and error."""
    partial_eta2: float
    """squares / (squares + squares of the error)"""
    omega2: float
    """omega^2: share of the variance, corrected for what chance alone would explain; at least 0. Hays (1963)."""
    f: float
    p: float


@dataclass(frozen=True)
class Level:
    """A level of a factor: its mean over all other factors, with an interval over seeds."""

    name: str
    mean: float
    interval: Interval
    above: tuple[str, ...] | None = None
    """Levels significantly below this one (jointly at LEVEL for all levels); None: not tested."""


@dataclass(frozen=True)
class Factor:
    name: str
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Anova:
    """Shares of the variance by effect. f and p are NaN if there is no residual error, e.g. with a single seed."""

    effects: tuple[Effect, ...]
    factors: tuple[Factor, ...]
    seeds: float
    """Share of the variance explained by the seed; NaN if runs of different cells share no seeds."""
    error: float
    """Residual share of the variance."""
    freedom: int
    """Degrees of freedom of the error."""


def anova(y: Array, factors: Mapping[str, tuple[str, ...]], *, blocks_of_seeds: bool = True) -> Anova:
    """Run an analysis of variance on a complete array.

    Args:
        y: values, with one axis per factor and the seed as the last axis.
        factors: names of the levels, by factor, in the order of the axes.
        blocks_of_seeds: whether seeds are blocks; if False, runs of different cells are independent, and the error is
            the spread of runs within cells.
    """
    *sizes, n = y.shape
    blocks = _squares(y, (y.ndim - 1,)) if blocks_of_seeds else 0.0
    crossed = (combinations(range(len(sizes)), order) for order in range(1, len(sizes) + 1))
    squares = {which: _squares(y, which) for which in chain.from_iterable(crossed)}
    total = _beyond_rounding(float(((y - y.mean()) ** 2).sum()), y)
    freedom = (math.prod(sizes) - blocks_of_seeds) * (n - 1)
    rest = max(total - blocks - sum(squares.values()), 0.0)
    rest = 0.0 if rest <= 1e-12 * total else rest  # rounding makes an error of zero look positive
    names = list(factors)
    effects = tuple(
        _effect(" x ".join(names[axis] for axis in which), squares[which], [sizes[axis] for axis in which],
                total, rest, freedom)
        for which in squares
    )  # fmt: skip
    parts = tuple(
        _factor(y, axis, name, factors[name], rest, freedom, blocks_of_seeds) for axis, name in enumerate(names)
    )
    seeds = _ratio(blocks, total) if blocks_of_seeds else math.nan
    return Anova(effects, parts, seeds, _ratio(rest, total), freedom)


def anova_of_printed(means: Array, deviations: Array, n: int, factors: Mapping[str, tuple[str, ...]]) -> Anova:
    """Run an analysis of variance from cell means and sample standard deviations over n runs; axes as in `anova`."""
    runs = np.arange(n) - (n - 1) / 2
    y = means[..., None] + deviations[..., None] * runs / runs.std(ddof=1)
    return anova(y, factors, blocks_of_seeds=False)


def _squares(y: Array, which: tuple[int, ...]) -> float:
    """Return the sum of squares of the effect of these axes, without the lower-order effects of subsets of them."""
    effect = y.mean(axis=tuple(axis for axis in range(y.ndim) if axis not in which), keepdims=True)
    for axis in which:
        effect = effect - effect.mean(axis=axis, keepdims=True)
    return _beyond_rounding(float((effect**2).sum()) * y.size / effect.size, y)


def _beyond_rounding(squares: float, y: Array) -> float:
    """Return the sum of squares, or 0 if it is within rounding error of 0."""
    return squares if squares > 1e-24 * float((y**2).sum()) else 0.0


def _effect(name: str, squares: float, sizes: list[int], total: float, rest: float, freedom: int) -> Effect:
    effect_freedom = math.prod(size - 1 for size in sizes)
    error = rest / freedom if freedom else math.nan
    f = squares / effect_freedom / error if freedom and error else math.nan
    return Effect(
        name,
        squares,
        effect_freedom,
        share=_ratio(squares, total),
        partial_eta2=_ratio(squares, squares + rest) if freedom else math.nan,
        omega2=max((squares - effect_freedom * error) / (total + error), 0.0) if total and freedom else math.nan,
        f=f,
        p=float(special.fdtrc(effect_freedom, freedom, f)) if math.isfinite(f) else math.nan,
    )


def _factor(
    y: Array, axis: int, name: str, levels: tuple[str, ...], rest: float, freedom: int, blocks_of_seeds: bool
) -> Factor:
    """Return marginal means with intervals: from the means of single seeds, or from the error within cells."""
    by_seed = np.moveaxis(y, axis, 0).mean(axis=tuple(range(1, y.ndim - 1)))
    observations = y.size // y.shape[axis]
    half = float(special.stdtrit(freedom, 1 - LEVEL / 2)) * math.sqrt(rest / freedom / observations) if freedom else 0
    verdicts = _verdicts(np.moveaxis(y, axis, 0), by_seed, blocks_of_seeds)
    marginal = tuple(
        Level(
            level,
            mean,
            t_interval(values) if blocks_of_seeds else Interval(mean - half, mean + half),
            None if verdicts is None else tuple(compress(levels, verdicts[:, place])),
        )
        for place, (level, values) in enumerate(zip(levels, by_seed, strict=True))
        for mean in [float(values.mean())]
    )
    return Factor(name, marginal)


def _verdicts(y: Array, by_seed: Array, blocks_of_seeds: bool) -> Verdicts | None:
    """Return a matrix (levels, levels): whether the column's level is above the row's; None if this is untestable.

    With blocks, the levels' means in each seed are compared. Without, each cell has its own variance over its runs, and
    a level's mean is a mean of independent cell means, with Satterthwaite's degrees of freedom. The levels are the
    first axis of y.
    """
    n = y.shape[-1]
    if n < 2:
        return None
    if blocks_of_seeds:
        return ahead(by_seed)
    squares = y.var(axis=-1, ddof=1).reshape(len(y), -1) / n
    total = squares.sum(1)
    if not total.all():
        return None
    freedom = (n - 1) * total**2 / (squares**2).sum(1)
    return ahead_unpaired(by_seed.mean(1), total / squares.shape[1] ** 2, freedom)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
