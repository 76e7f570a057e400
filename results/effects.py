"""Effects: which axis of a grid matters, as an analysis of variance in a randomised block design.

The model of a response y in cell (i, j, ...) and seed s is

    y = mean + every main effect and interaction of the factors + seed_s + error.

Seeds are blocks because they are shared: all cells of a seed start from the same weights and see the same batches, so
what a seed adds to all cells is no error. The error is the interaction of cells with seeds, pooled over all effects:
with the few seeds one can afford, an error of its own for each effect would have a handful of degrees of freedom.
Pooling takes differences between cells to vary alike. Only complete arrays are analysed, in which sums of squares are
orthogonal, so types I, II and III are one. Montgomery, Design and Analysis of Experiments, ch. 4 and 5.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from results.statistics import Interval, honest_difference, t_interval

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Effect:
    """A main effect or an interaction."""

    name: str
    squares: float
    freedom: int
    share: float
    """eta^2: of all variance, that of seeds and the error included."""
    partial_eta2: float
    """squares / (squares + squares of the error)."""
    omega2: float
    """Share of the variance without what chance alone would give it: Hays (1963); not below 0."""
    f: float
    p: float


@dataclass(frozen=True)
class Level:
    """One value of a factor: the mean over all else, its interval over seeds."""

    name: str
    mean: float
    interval: Interval


@dataclass(frozen=True)
class Factor:
    """An axis with its levels' marginal means."""

    name: str
    levels: tuple[Level, ...]
    honest: float
    """Marginal means that lie closer than this cannot be told apart (Tukey)."""


@dataclass(frozen=True)
class Anova:
    """What of the variance goes with which effect. f and p are NaN for one seed, which leaves no error."""

    effects: tuple[Effect, ...]
    factors: tuple[Factor, ...]
    seeds: float
    """Share of the variance that goes with the seed."""
    error: float
    """Share that is left over."""
    freedom: int
    """Degrees of freedom of the error."""


def anova(y: Array, factors: Mapping[str, tuple[str, ...]]) -> Anova:
    """The analysis of variance of a complete array.

    Args:
        y: one axis a factor, in their order; the last axis is the seed.
        factors: names of the levels of each.
    """
    *sizes, n = y.shape
    blocks = _squares(y, (y.ndim - 1,))
    squares = {which: _squares(y, which) for which in _subsets(len(sizes))}
    total = float(((y - y.mean()) ** 2).sum())
    freedom = (math.prod(sizes) - 1) * (n - 1)
    left = max(total - blocks - sum(squares.values()), 0.0)
    left = 0.0 if left <= 1e-12 * total else left  # what rounding leaves of an error that is none
    names = list(factors)
    effects = tuple(
        _effect(" x ".join(names[axis] for axis in which), squares[which], [sizes[axis] for axis in which],
                total, left, freedom)
        for which in squares
    )  # fmt: skip
    parts = tuple(_factor(y, axis, name, factors[name], left, freedom) for axis, name in enumerate(names))
    return Anova(effects, parts, _ratio(blocks, total), _ratio(left, total), freedom)


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    """Main effects first, then interactions of two factors, of three, ..."""
    for size in range(1, count + 1):
        yield from combinations(range(count), size)


def _squares(y: Array, which: tuple[int, ...]) -> float:
    """Sum of squares of the effect of these axes: of their means, less all effects of fewer of them.

    The effect at one point is the sum over all subsets V of `which` of (-1)^(|which| - |V|) times the mean at V.
    """
    effect = np.zeros_like(y)
    for chosen in [(), *_subsets(len(which))]:
        kept = {which[place] for place in chosen}
        others = tuple(axis for axis in range(y.ndim) if axis not in kept)
        effect = effect + (-1) ** (len(which) - len(chosen)) * y.mean(axis=others, keepdims=True)
    return float((effect**2).sum())


def _effect(name: str, squares: float, sizes: list[int], total: float, left: float, freedom: int) -> Effect:
    own = math.prod(size - 1 for size in sizes)
    error = left / freedom if freedom else math.nan
    f = math.nan if not freedom or not (squares or error) else squares / own / error if error else math.inf
    return Effect(
        name,
        squares,
        own,
        share=_ratio(squares, total),
        partial_eta2=_ratio(squares, squares + left) if freedom else math.nan,
        omega2=max((squares - own * error) / (total + error), 0.0) if total and freedom else math.nan,
        f=f,
        p=float(special.fdtrc(own, freedom, f)) if math.isfinite(f) else 0.0 if f == math.inf else math.nan,
    )


def _factor(y: Array, axis: int, name: str, levels: tuple[str, ...], left: float, freedom: int) -> Factor:
    """Marginal means; their intervals rest on the means of single seeds, so that they hold for new seeds."""
    by_seed = np.moveaxis(y, axis, 0).mean(axis=tuple(range(1, y.ndim - 1)))
    marginal = tuple(
        Level(level, float(values.mean()), t_interval(values)) for level, values in zip(levels, by_seed, strict=True)
    )
    observations = y.size // y.shape[axis]
    honest = honest_difference(left / freedom, freedom, len(levels), observations) if freedom else math.nan
    return Factor(name, marginal, honest)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
