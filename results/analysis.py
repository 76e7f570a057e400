"""The analysis of a grid: of every block and metric, what matters, what is best, and what differs from a baseline."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grid.errors import UserError, unknown
from grid.expansion import Cell
from results.effects import Anova, anova
from results.factors import Part, Place, factors_of, parts_of
from results.layouts.columns import DIRECTIONS
from results.observations import Observations
from results.queries import Ranks
from results.scores import Score, Scores
from results.statistics import Interval, holm, paired_t, seeds_needed, sign_flip, t_interval

NATURAL_BASELINE = "con_con"
DIRECTION_NAMES = (*DIRECTIONS, "both")
WORTH_FINDING = 0.5
"""The difference, in percent points, whose price in seeds is told."""

RANKED = "uncertainty over test images is told by the protocol that trials were set to: ranks are stored by no other"


@dataclass(frozen=True)
class Difference:
    """A cell minus the baseline, seed by seed."""

    name: str
    mean: float
    std: float
    """Of the differences of single seeds."""
    interval: Interval
    p_t: float
    """Paired t test."""
    p_flip: float
    """Exact sign-flip test."""
    holm_t: float
    holm_flip: float
    """Adjusted for all comparisons with the baseline."""
    seeds_needed: int | None
    """With which a paired t test finds 0.5 points with power 0.8."""


@dataclass(frozen=True)
class Queries:
    """Uncertainty over test images, models held fixed."""

    images: int
    cell: str
    interval: Interval
    """Of the cell's metric."""
    minus: str
    difference: Interval | None
    """Of the cell minus the other one."""


@dataclass(frozen=True)
class Analysis:
    """One metric of one block."""

    title: str
    metric: str
    protocol: str
    names: tuple[str, ...]
    seeds: tuple[int, ...]
    means: tuple[float, ...]
    anova: Anova | None
    best: str
    like_best: tuple[str, ...]
    """Cells that Tukey's test cannot tell from the best, the best included; none for one seed."""
    baseline: str
    differences: tuple[Difference, ...]
    queries: Queries | None
    notes: tuple[str, ...]


def metrics_of(metric: str, direction: str) -> list[str]:
    """`r1` in both directions: `i2t_r1`, `t2i_r1`; rsum has none."""
    if metric == "rsum":
        return ["rsum"]
    return [f"{name}_{metric}" for name in DIRECTIONS if direction in (name, "both")]


def analyse(
    cells: Sequence[Cell],
    scores: Scores,
    ranks: Ranks,
    metrics: Sequence[str],
    *,
    baseline: str | None = None,
    across: Sequence[str] = (),
) -> list[Analysis]:
    """All blocks that have finished trials, each by every metric.

    Args:
        baseline: an objective; None: con_con where it is, else the first.
        across: axes that are factors beside the objective, instead of telling blocks apart.

    Raises:
        UserError: the grid has no such objective or axis.
    """
    known = list(dict.fromkeys(cell.objective for cell in cells))
    if baseline is not None and baseline not in known:
        raise UserError(unknown("objective", baseline, known, where="in --baseline"))
    parts = parts_of(cells, across)
    return [one for part in parts for metric in metrics if (one := _analyse(part, scores, ranks, metric, baseline))]


def _analyse(part: Part, scores: Scores, ranks: Ranks, metric: str, baseline: str | None) -> Analysis | None:
    by_name = {name: scores.of(cell, metric) for name, cell in part.cells.items()}
    seen = Observations.shared(by_name)
    if not seen.seeds:
        return None
    lowest = metric.endswith("medr")
    best = seen.names[seen.best(lowest=lowest)]
    objective = _baseline(part, seen, baseline)
    against = {name: _matched(part, objective, name) for name in seen.names}
    ranked = all(scores.protocol_of(cell) == cell.trials[0].settings.dataset.protocol for cell in part.cells.values())
    return Analysis(
        part.title,
        metric,
        ", ".join(dict.fromkeys(scores.protocol_of(cell) for cell in part.cells.values())),
        seen.names,
        seen.seeds,
        tuple(map(float, seen.means)),
        anova=_anova(part, seen) if len(seen.names) > 1 else None,
        best=best,
        like_best=tuple(seen.like_best(lowest=lowest)) if len(seen.names) > 1 else (),
        baseline=objective,
        differences=_differences(seen, against),
        queries=_queries(seen, by_name, ranks, metric, best, against) if ranked else None,
        notes=(*part.notes, *seen.notes, *(() if ranked else (RANKED,))),
    )


def _anova(part: Part, seen: Observations) -> Anova:
    factors, order = factors_of({name: part.places[name] for name in seen.names}, part.across)
    values = seen.values[[seen.names.index(name) for name in order]]
    return anova(values.reshape(*map(len, factors.values()), len(seen.seeds)), factors)


def _baseline(part: Part, seen: Observations, wanted: str | None) -> str:
    """The objective to compare with."""
    present = [part.places[name][0] for name in seen.names]
    return wanted or (NATURAL_BASELINE if NATURAL_BASELINE in present else present[0])


def _matched(part: Part, objective: str, name: str) -> str | None:
    """The baseline's cell that differs from this one in nothing but the objective."""
    place: Place = (objective, *part.places[name][1:])
    return next((other for other, where in part.places.items() if where == place), None)


def _differences(seen: Observations, against: dict[str, str | None]) -> tuple[Difference, ...]:
    """Every cell minus its baseline, in the order of the cells."""
    rows = dict(zip(seen.names, seen.values, strict=True))
    pairs = {name: rows[name] - rows[base] for name, base in against.items() if base in rows and base != name}
    if not pairs or len(seen.seeds) < 2:
        return ()
    t, flip = [paired_t(d) for d in pairs.values()], [sign_flip(d) for d in pairs.values()]
    adjusted = zip(holm(t), holm(flip), strict=True)
    found = [
        Difference(
            name, float(d.mean()), float(d.std(ddof=1)), t_interval(d), p_t, p_flip, float(holm_t), float(holm_flip),
            seeds_needed(WORTH_FINDING, float(d.std(ddof=1))),
        )
        for (name, d), p_t, p_flip, (holm_t, holm_flip) in zip(pairs.items(), t, flip, adjusted, strict=True)
    ]  # fmt: skip
    return tuple(found)


def _queries(
    seen: Observations, scores: dict[str, Score], ranks: Ranks, metric: str, best: str, against: dict[str, str | None]
) -> Queries | None:
    """Of the best cell and its difference from its baseline; where it is the baseline, from the next best cell."""
    used = {name: _trials(scores[name], seen.seeds) for name in seen.names}
    own = ranks.interval(used[best], metric)
    if own is None:
        return None
    base = against[best]
    others = [place for place in np.argsort(-seen.means) if seen.names[place] != best]
    other = base if base in used and base != best else seen.names[others[0]] if others else ""
    difference = ranks.interval(used[best], metric, minus=used[other]) if other else None
    return Queries(len(ranks.by_trial[used[best][0]]["i2t"]), best, own, other, difference)


def _trials(score: Score, seeds: Sequence[int]) -> list[str]:
    return [trial for trial, seed in zip(score.trials, score.seeds, strict=True) if seed in seeds]
