"""Analyses a block, or a paper's table: main effects of the axes, the best cell, and differences from the baseline."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, check_known
from goalgrid.grid.expansion import Cell
from goalgrid.grid.groups import nested
from goalgrid.grid.unequal import unequal
from goalgrid.results.analysis.claims import as_entry
from goalgrid.results.analysis.factors import GridPart, Levels, factors_of, parts_of
from goalgrid.results.analysis.observations import Observations
from goalgrid.results.analysis.queries import QueryRanks
from goalgrid.results.layouts.captions import DIRECTIONS, by_direction, noun_of
from goalgrid.results.layouts.cell_settings import chosen_of, conditions_of
from goalgrid.results.records.scores import Scores
from goalgrid.results.reference.reading import Paper
from goalgrid.results.statistics.anova import Anova, anova, anova_of_printed
from goalgrid.results.statistics.pairs import Array
from goalgrid.results.statistics.significance import Interval, Sample, holm, paired_t, seeds_needed, t_interval, welch

NATURAL_BASELINE = "con_con"
DIRECTION_NAMES = (*DIRECTIONS, "both")
WORTH_FINDING = 0.5
"""Difference in percentage points for which the analysis reports the number of seeds needed to detect it."""

UNGROUPED = "uncertainty over test {noun}s is unknown: these records do not say which {noun} each caption belongs to"
RANKED = "uncertainty over test {noun}s is available only for the trials' own protocol: others have no stored ranks"


@dataclass(frozen=True)
class BaselineDifference:
    """A cell minus the baseline, seed by seed."""

    name: str
    mean: float
    std: float
    interval: Interval
    p_t: float
    holm_t: float
    """p, adjusted for all comparisons with the baseline."""
    seeds_needed: int | None
    """Seeds needed to detect 0.5 points (in `Analysis.nearest`: the mean) by a paired t test with power 0.8."""

    @classmethod
    def of(cls, name: str, d: Array, worth: float | None = None) -> "BaselineDifference":
        """Compute from the differences by seed; `worth`: the difference to be detected (default: their mean)."""
        mean, std, p = float(d.mean()), float(d.std(ddof=1)), paired_t(d)
        return cls(name, mean, std, t_interval(d), p, p, seeds_needed(mean if worth is None else worth, std))


@dataclass(frozen=True)
class Queries:
    """Uncertainty of the best cell over test images, with the trained models held fixed."""

    images: int
    """Number of test images."""
    cell: str
    """The best cell."""
    interval: Interval
    """Interval of its metric."""
    minus: str
    """The cell that it is compared with."""
    difference: Interval | None
    """Interval of the difference from that cell."""


@dataclass(frozen=True)
class Analysis:
    """Analysis of a metric over the finished trials of a block."""

    title: str
    metric: str
    protocol: str
    names: tuple[str, ...]
    seeds: tuple[int, ...]
    means: tuple[float, ...]
    anova: Anova | None
    best: str
    """Name of the best cell; empty if all cells are at chance."""
    like_best: tuple[str, ...]
    """Cells that are not significantly worse than the best, including the best; empty for a single seed."""
    baseline: str
    differences: tuple[BaselineDifference, ...]
    queries: Queries | None
    notes: tuple[str, ...]
    noun: str = "image"
    paired: bool = True
    """Whether differences are paired by seed; differences of printed numbers are not."""
    nearest: BaselineDifference | None = None
    """Minus the second-best cell: the best one's lead, and the seeds needed to detect it; None: not tested."""
    caveats: tuple[str, ...] = ()
    """Sentences on finished trials that are not used here."""
    at_chance: tuple[str, ...] = ()
    """Cells at chance level on the validation split; none of them can be the best."""
    conditions: tuple[str, ...] = ()
    """Sentences on settings chosen by validation, and on settings that differ between cells."""
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """By cell, the settings that differ between cells without being an axis; empty if there are none."""
    chosen: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """By cell, the settings chosen by validation; empty if there are none."""


def metrics_of(metric: str, direction: str) -> list[str]:
    """Return a metric's names in a direction or both, e.g. `i2t_r1` and `t2i_r1` for `r1`; rsum has no direction."""
    return [name for name in by_direction(metric) if metric == "rsum" or direction in (name[:3], "both")]


def analyse(
    cells: Sequence[Cell],
    scores: Scores,
    ranks: QueryRanks | None,
    metrics: Sequence[str],
    *,
    baseline: str | None = None,
    across: Sequence[str] = (),
) -> list[Analysis]:
    """Analyse each block that has finished trials, for each metric.

    Args:
        cells: cells of the grid.
        scores: their scores.
        ranks: query ranks for the uncertainty over test images; None: leave that out.
        metrics: metrics, with their direction.
        baseline: objective to compare with; default: con_con if the block has it, else the first objective.
        across: axes to use as factors in addition to the objective, instead of splitting the grid into blocks by them.
    """
    known = list(dict.fromkeys(cell.objective for cell in cells))
    if baseline is not None:
        check_known("objective", baseline, known, where="in --baseline")
    analyses = [_analyse(part, scores, ranks, name, baseline) for part in parts_of(cells, across) for name in metrics]
    return [analysis for analysis in analyses if analysis]


def _analyse(
    part: GridPart, scores: Scores, ranks: QueryRanks | None, metric: str, baseline: str | None
) -> Analysis | None:
    by_name = {name: scores.of(cell, metric) for name, cell in part.cells.items()}
    observations = Observations.shared(by_name)
    if not observations.seeds:
        return None
    lowest = metric.endswith("medr")
    at_chance = tuple(name for name in observations.names if by_name[name].at_chance)
    ranked = sorted(observations.ranked(lowest=lowest), key=at_chance.__contains__)
    best, second = [*ranked, ""][:2]
    learnt = best not in at_chance
    present = [part.places[name][0] for name in observations.names]
    objective = baseline or (NATURAL_BASELINE if NATURAL_BASELINE in present else present[0])
    named = {place: name for name, place in part.places.items()}  # the baseline differs in the objective alone
    against = {name: named.get((objective, *part.places[name][1:])) for name in observations.names}
    rows = dict(zip(observations.names, observations.values, strict=True))
    several = len(observations.seeds) > 1
    by_own = all(scores.protocol_of(cell) == cell.trials[0].settings.dataset.protocol for cell in part.cells.values())
    base = against[best]
    other = base if base and base in rows and base != best else second  # of the baseline itself, the second best
    used = {name: by_name[name].of_seeds(observations.seeds) for name in (best, other) if name}
    queries = _queries(used, ranks, metric, best, other) if by_own and ranks and learnt else None
    members = list(part.cells.values())
    noun = noun_of(members)
    untold = () if queries or not learnt or metric.endswith("medr") else (UNGROUPED,)
    untold = untold if by_own else (RANKED,)
    return Analysis(
        part.title,
        metric,
        ", ".join(dict.fromkeys(scores.protocol_of(cell) for cell in part.cells.values())),
        observations.names,
        observations.seeds,
        tuple(map(float, observations.means)),
        anova=anova(*crossed(part, observations)) if len(observations.names) > 1 else None,
        best=best if learnt else "",
        like_best=tuple(observations.like_best(lowest=lowest)) if learnt else (),
        baseline=objective,
        differences=_differences(rows, against) if several else (),
        queries=queries,
        notes=(*part.notes, *observations.notes, *(note.format(noun=noun) for note in untold)),
        noun=noun,
        nearest=BaselineDifference.of(second, rows[best] - rows[second]) if second and several and learnt else None,
        caveats=observations.caveats,
        at_chance=at_chance,
        conditions=conditions_of(members),
        settings={name: values for name, values in zip(part.cells, unequal(members), strict=True) if values},
        chosen={name: values for name, cell in part.cells.items() if (values := chosen_of(cell))},
    )


def crossed(part: GridPart, observations: Observations) -> tuple[Array, dict[str, Levels]]:
    """Return the observations as an array with one axis per factor and the seeds last, and the factors' levels."""
    factors, order = factors_of({name: part.places[name] for name in observations.names}, part.across)
    values = observations.values[[observations.names.index(name) for name in order]]
    return values.reshape(*map(len, factors.values()), len(observations.seeds)), factors


def _differences(rows: Mapping[str, Array], against: Mapping[str, str | None]) -> tuple[BaselineDifference, ...]:
    pairs = {name: rows[name] - rows[base] for name, base in against.items() if base and base in rows and base != name}
    return _adjusted([BaselineDifference.of(name, d, WORTH_FINDING) for name, d in pairs.items()])


def _adjusted(tests: Sequence[BaselineDifference]) -> tuple[BaselineDifference, ...]:
    adjusted = holm([test.p_t for test in tests]).tolist()
    return tuple(replace(test, holm_t=p) for test, p in zip(tests, adjusted, strict=True))


def _queries(used: Mapping[str, list[str]], ranks: QueryRanks, metric: str, best: str, other: str) -> Queries | None:
    """Return the uncertainty of the best cell, and of its lead over another cell if given; `used`: their trial ids."""
    interval = ranks.interval(used[best], metric)
    if interval is None:
        return None
    difference = ranks.interval(used[best], metric, minus=used[other]) if other else None
    return Queries(len(ranks.by_trial[used[best][0]]["i2t"]), best, interval, other, difference)


def printed_analyses(table: str) -> list[Analysis]:
    """Analyse each block and metric of a paper's table that has standard deviations."""
    printed = [result for row in Paper.read(table).rows.values() for result in row.values()]
    spread = [r for r in printed if r.objective and not math.isnan(r.value.std) and r.value.n]
    blocks = nested(((r.model, r.dataset, r.protocol, r.metric), str(r.objective), as_entry(r).sample) for r in spread)
    analyses = [
        _printed(f"{model} on {dataset}", protocol, metric, samples, catalog.noun(dataset))
        for (model, dataset, protocol, metric), samples in blocks.items()
        if len(samples) > 1
    ]
    if not analyses:
        raise UserError(
            f"table {table!r} prints no standard deviations for several objectives, so nothing can be tested. "
            "GOAL's Tables 3 to 5 print them: goal-table3-coco, goal-table4-coco, goal-table5-coco."
        )
    return analyses


def _printed(title: str, protocol: str, metric: str, samples: Mapping[str, Sample], noun: str) -> Analysis:
    factors, order = factors_of({name: (name,) for name in samples})
    shape, n = tuple(map(len, factors.values())), samples[order[0]].n or 0
    means, deviations = (
        np.array([getattr(samples[name], what) for name in order]).reshape(shape) for what in ("mean", "std")
    )
    baseline = NATURAL_BASELINE if NATURAL_BASELINE in samples else next(iter(samples))
    return Analysis(
        title, metric, protocol, tuple(samples), tuple(range(n)), tuple(sample.mean for sample in samples.values()),
        anova=anova_of_printed(means, deviations, n, factors),
        best=max(samples, key=lambda name: samples[name].mean), like_best=(),
        baseline=baseline, differences=_printed_differences(samples, baseline),
        queries=None, notes=(), noun=noun, paired=False,
    )  # fmt: skip


def _printed_differences(samples: Mapping[str, Sample], baseline: str) -> tuple[BaselineDifference, ...]:
    base, tests = samples[baseline], list[BaselineDifference]()
    for name, sample in samples.items():
        if name != baseline:
            (interval, p), std = welch(sample, base), math.hypot(sample.std, base.std)
            tests.append(BaselineDifference(name, sample.mean - base.mean, std, interval, p, p, None))
    return _adjusted(tests)
