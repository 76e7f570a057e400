"""Analysis of variance in a randomised block design, y = mean + all effects of the factors + seed_s + error.

Seeds are blocks because all cells of a seed start from the same weights and see the same batches. The error is the
interaction of cells with seeds, pooled over all effects, which assumes that the differences between cells vary alike.
Only complete arrays are analysed; in them the sums of squares are orthogonal, so types I, II and III agree. Montgomery,
Design and Analysis of Experiments, ch. 4 and 5.
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
    """eta^2: share of all variance, seeds and error included."""
    partial_eta2: float
    """squares / (squares + squares of the error)"""
    omega2: float
    """Share of the variance, less the share that chance alone would give: Hays (1963); not below 0."""
    f: float
    p: float


@dataclass(frozen=True)
class Level:
    """A value of a factor: the mean over all other factors, with its interval over seeds."""

    name: str
    mean: float
    interval: Interval
    above: tuple[str, ...] | None = None
    """Levels that it is above by more than seeds explain, at LEVEL for all levels together; None: not tested."""


@dataclass(frozen=True)
class Factor:
    name: str
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class Anova:
    """Shares of the variance by effect. f and p are NaN where no error is left to test by, as with a single seed."""

    effects: tuple[Effect, ...]
    factors: tuple[Factor, ...]
    seeds: float
    """Share of the variance that the seed explains; NaN if runs of different cells have no seed in common."""
    error: float
    freedom: int


def anova(y: Array, factors: Mapping[str, tuple[str, ...]], *, blocks_of_seeds: bool = True) -> Anova:
    """Analyse the variance of a complete array, with an axis for every factor and the seed as its last axis.

    `blocks_of_seeds`: False: runs of different cells have nothing in common, and the error is their spread in cells.
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
    """Analyse cells of which only means and sample standard deviations over n runs are known."""
    runs = np.arange(n) - (n - 1) / 2
    y = means[..., None] + deviations[..., None] * runs / runs.std(ddof=1)
    return anova(y, factors, blocks_of_seeds=False)


def _squares(y: Array, which: tuple[int, ...]) -> float:
    """Sum of squares of the effect of these axes: their marginal means, without what fewer of the axes explain."""
    effect = y.mean(axis=tuple(axis for axis in range(y.ndim) if axis not in which), keepdims=True)
    for axis in which:
        effect = effect - effect.mean(axis=axis, keepdims=True)
    return _beyond_rounding(float((effect**2).sum()) * y.size / effect.size, y)


def _beyond_rounding(squares: float, y: Array) -> float:
    """The sum of squares; 0 if it is no more than rounding leaves where all values of an effect are equal."""
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
    """Marginal means with intervals for new seeds: over the means of single seeds, or by the error within cells."""
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
    """Whether the second of every two levels, the first axis of y, is above the first; None: it cannot be tested.

    Over the levels' means in each seed. Without blocks, each cell has its own spread over its runs; the squared error
    of a level's mean is that of a mean of independent means, with Satterthwaite's degrees of freedom.
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
