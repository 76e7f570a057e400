"""The analysis of a paper's table: from printed means and deviations, what `goalgrid effects` says of a grid."""

import math
from collections.abc import Sequence

import numpy as np

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.results.analysis.block_analysis import NATURAL_BASELINE, Analysis, BaselineDifference
from goalgrid.results.analysis.claims import Entry, as_entry
from goalgrid.results.analysis.factors import factors_of
from goalgrid.results.reference.paper_source import Paper
from goalgrid.results.reference.reading import Result
from goalgrid.results.statistics.anova import anova_of_printed
from goalgrid.results.statistics.significance import holm, welch_of


def printed_analyses(table: str) -> list[Analysis]:
    """An analysis for every block and metric of the table whose numbers have standard deviations.

    Raises:
        UserError: no table has this name, or it prints no standard deviations.
    """
    blocks: dict[tuple[str, str, str, str], list[Result]] = {}
    for row in Paper.read(table).rows.values():
        for result in row.values():
            if result.objective and not math.isnan(result.value.std) and result.value.n:
                key = (result.model, result.dataset, result.protocol, result.metric)
                blocks.setdefault(key, []).append(result)
    analyses = [
        _analysis(f"{model} on {dataset}", protocol, metric, list(map(as_entry, results)), catalog.noun(dataset))
        for (model, dataset, protocol, metric), results in blocks.items()
        if len(results) > 1
    ]
    if not analyses:
        raise UserError(
            f"table {table!r} prints no standard deviations of several objectives, so that nothing can be tested. "
            "GOAL's Tables 3 to 5 do: goal-table3-coco, goal-table4-coco, goal-table5-coco."
        )
    return analyses


def _analysis(title: str, protocol: str, metric: str, entries: Sequence[Entry], noun: str) -> Analysis:
    by_name = {entry.objective: entry for entry in entries}
    factors, order = factors_of({name: (name,) for name in by_name})
    shape, n = tuple(map(len, factors.values())), by_name[order[0]].sample.n or 0
    means, deviations = (
        np.array([getattr(by_name[name].sample, what) for name in order]).reshape(shape) for what in ("mean", "std")
    )
    baseline = NATURAL_BASELINE if NATURAL_BASELINE in by_name else entries[0].objective
    return Analysis(
        title,
        metric,
        protocol,
        tuple(by_name),
        tuple(range(n)),
        tuple(entry.sample.mean for entry in entries),
        anova=anova_of_printed(means, deviations, n, factors),
        best=max(entries, key=lambda entry: entry.sample.mean).objective,
        like_best=(),
        baseline=baseline,
        differences=_differences(by_name, baseline),
        queries=None,
        notes=(),
        noun=noun,
    )


def _differences(entries: dict[str, Entry], baseline: str) -> tuple[BaselineDifference, ...]:
    base = entries[baseline].sample
    others = {name: entry.sample for name, entry in entries.items() if name != baseline}
    tests = [welch_of(sample, base) for sample in others.values()]
    adjusted = holm([p for _, p in tests])
    return tuple(
        BaselineDifference(
            name, sample.mean - base.mean, math.hypot(sample.std, base.std), interval,
            p_t=p, p_flip=math.nan, holm_t=float(corrected), holm_flip=math.nan, seeds_needed=None,
        )
        for (name, sample), (interval, p), corrected in zip(others.items(), tests, adjusted, strict=True)
    )  # fmt: skip
