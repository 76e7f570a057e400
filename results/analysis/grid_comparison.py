"""Compares two grids, code versions or runs folders, and writes the output of `goalgrid compare`."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from goalgrid.grid.errors import UserError, counted
from goalgrid.grid.expansion import Cell
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.groups import grouped, nested
from goalgrid.grid.store.home import Home
from goalgrid.grid.syntax import differing, flat
from goalgrid.results.analysis.documents import TEXT, Document, DocumentSection, Sheet, finite, interval_text
from goalgrid.results.analysis.effects_text import metric_title
from goalgrid.results.layouts.captions import noun_of
from goalgrid.results.records import provenance, record_cache
from goalgrid.results.records.rounding import NONE, number_text, p_text
from goalgrid.results.records.scores import Score, Scores
from goalgrid.results.renderers import csv
from goalgrid.results.statistics.significance import LEVEL, Interval, Sample, holm, paired_t, t_interval, welch

OF_A_TRIAL = ("schema_version", "seed", "starts_from", "ensemble")
"""Settings that vary between trials of a cell, or that refer to other trials; cells are not compared by them."""
HELD = ("device", "device_type", "threads", "python")
"""Fields of a record's environment to compare, in addition to versions and commit."""
FORMATS = (*TEXT, "csv")
SHOWN = 48
"""Maximum number of characters shown of a value; JSON has the full value."""


@dataclass(frozen=True)
class SideCell:
    """A cell on one side of a comparison: its axes, settings by dotted name, and scores by metric."""

    axes: Mapping[str, str]
    settings: Mapping[str, str]
    scores: Mapping[str, Score]
    trained: frozenset[tuple[str, Any]] = frozenset()
    """Ids of its finished trials, each with its completion time."""

    @property
    def name(self) -> str:
        """The cell's name, e.g. `shapes, cnn-bow, con_nca, objective.tau = 10`."""
        bare = ("dataset", "recipe")
        return ", ".join(value if axis in bare else _place(axis, value, value) for axis, value in self.axes.items())


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a grid in a runs folder."""

    name: str
    cells: tuple[SideCell, ...]
    sources: Mapping[str, str]
    """Code, data, library versions and device of the finished trials, each as text."""
    noun: str = "image"
    search: Mapping[str, str] = field(default_factory=dict)
    """The grid's [select] settings by dotted name; empty if nothing is chosen by validation."""

    @classmethod
    def of(
        cls, grid: Grid, cells: Sequence[Cell], scores: Scores, home: Home, metrics: Sequence[str], now: provenance.Now
    ) -> "Side":
        """Build a side from the grid's finished trials, including stale ones (older code or data)."""
        rows = record_cache.rows(home, scores.rows, provenance.COLUMNS)
        ends = {trial_id: (trial_id, row["finished_at"]) for trial_id, row in rows.items()}
        compared = tuple(
            SideCell(
                {axis: _text(value) for axis, value in cell.axes.items()},
                _settings_of(cell),
                {metric: scores.of(cell, metric) for metric in metrics},
                frozenset(ends[trial.id] for trial in cell.trials if trial.id in ends),
            )
            for cell in cells
        )
        code = provenance.of_trials(cells, scores.rows, now.code)
        return cls(grid.name, compared, _sources(rows, code), noun_of(cells), _search_of(grid))


@dataclass(frozen=True)
class CellDifference:
    """A cell of B minus the corresponding cell of A, in one metric.

    Args:
        name: values of the axes on which the compared cells differ from each other.
        metric: the metric.
        a, b: means over the compared seeds; NaN without a finished trial.
        n_a, n_b: numbers of compared seeds.
        pairs: number of common seeds if the cells are compared seed by seed; else 0.
        how: the test used, or why there is none.
        mean: B minus A.
        interval, p: interval and p value of the difference.
        holm: p value adjusted (Holm) for all cells in this metric.
    """

    name: str
    metric: str
    a: float
    b: float
    n_a: int
    n_b: int
    pairs: int
    how: str
    mean: float
    interval: Interval
    p: float
    holm: float = math.nan


@dataclass(frozen=True)
class Differing:
    """A setting, or other condition of training, that differs between A and B; `cells`: in how many compared cells."""

    name: str
    a: str
    b: str
    cells: int


@dataclass(frozen=True)
class GridComparison:
    a: str
    b: str
    cells: int
    settings: tuple[Differing, ...]
    sources: tuple[Differing, ...]
    differences: tuple[CellDifference, ...]
    """Differences, metric by metric, in the order of the cells."""
    alone: tuple[str, ...]
    noun: str = "image"


def compare(a: Side, b: Side, metrics: Sequence[str]) -> GridComparison:
    """Compare corresponding cells: those with equal values on every axis on which the two sides share a value."""
    matched = _matched(a, b)
    trials = [(one.scores[metrics[0]].trials, other.scores[metrics[0]].trials) for one, other in matched]
    # without a second pair of the same trials, which cells share if a swept value changes nothing
    first = {of if all(of) else place: place for place, of in reversed(list(enumerate(trials)))}
    pairs = [matched[place] for place in sorted(first.values())]
    names, differences = _names(pairs), list[CellDifference]()
    for metric in metrics:
        of_metric = [difference(name, metric, one, other) for name, (one, other) in zip(names, pairs, strict=True)]
        adjusted = holm([cell.p for cell in of_metric]).tolist()
        differences += [replace(cell, holm=p) for cell, p in zip(of_metric, adjusted, strict=True)]
    others = differing(a.sources, b.sources).items()
    sources = [Differing(name, of_a or NONE, of_b or NONE, len(pairs)) for name, (of_a, of_b) in others]
    alone = tuple(filter(None, [_alone(a, [one for one, _ in matched]), _alone(b, [other for _, other in matched])]))
    searches = (
        Differing(name, of_a or NONE, of_b or NONE, len(pairs))
        for name, (of_a, of_b) in differing(a.search, b.search).items()
    )
    settings = (*_settings(pairs), *searches)
    return GridComparison(a.name, b.name, len(pairs), settings, tuple(sources), tuple(differences), alone, a.noun)


def difference(name: str, metric: str, one: SideCell, other: SideCell) -> CellDifference:
    """Compute B minus A: paired by seed if at least two seeds are common and start alike, else with Welch's test."""
    a, b = one.scores[metric], other.scores[metric]
    of_a, of_b = dict(zip(a.seeds, a.values, strict=True)), dict(zip(b.seeds, b.values, strict=True))
    # what start weights and batches are drawn for, in addition to the seed
    drawn_alike = all(one.axes[name] == other.axes[name] for name in ("dataset", "recipe"))
    common = [seed for seed in of_a if seed in of_b] if drawn_alike else []
    if len(common) > 1 or (common and min(a.n, b.n) == 1):
        x, y = np.array([of_a[seed] for seed in common]), np.array([of_b[seed] for seed in common])
        d = y - x
        how = "seed by seed" if len(common) > 1 else "one seed in common: no test"
        if len(common) > 1 and not np.ptp(d).item():
            how = "equal in every seed: no test"
        if one.trained & other.trained and not d.any():
            how = "the same trials"
        n, test = len(common), (float(d.mean()), t_interval(d), paired_t(d))
        return CellDifference(name, metric, float(x.mean()), float(y.mean()), n, n, n, how, *test)
    one_sample, other_sample = Sample.of(a.values), Sample.of(b.values)
    how = "unpaired (Welch)"
    if few := [(side, n) for side, n in (("A", a.n), ("B", b.n)) if n == min(a.n, b.n, 1)]:
        sides = " and ".join(side for side, _ in few)
        how = f"one seed in {sides}: no test" if few[0][1] else f"no finished trial in {sides}"
    interval, p = welch(other_sample, one_sample)
    mean_a, mean_b = one_sample.mean, other_sample.mean
    return CellDifference(name, metric, mean_a, mean_b, a.n, b.n, 0, how, mean_b - mean_a, interval, p)


def _matched(a: Side, b: Side) -> list[tuple[SideCell, SideCell]]:
    """Return the pairs of cells with equal values on every axis on which the two sides share a value."""
    shared = []
    for axis in (name for name in a.cells[0].axes if name in b.cells[0].axes):
        of_a, of_b = ({cell.axes[axis] for cell in side.cells} for side in (a, b))
        if of_a & of_b:
            shared.append(axis)
        elif axis == "dataset" or (len(of_a) > 1 and len(of_b) > 1):
            raise UserError(
                f"{a.name} and {b.name} have no {axis} in common, so no cells correspond: {a.name} has "
                f"{', '.join(sorted(of_a))}; {b.name} has {', '.join(sorted(of_b))}. Compare grids that share a {axis}."
            )
    groups = grouped((tuple(cell.axes[axis] for axis in shared), cell) for cell in b.cells)
    pairs = [(cell, other) for cell in a.cells for other in groups.get(tuple(cell.axes[axis] for axis in shared), [])]
    if not pairs:
        raise UserError(
            f"{a.name} and {b.name} cannot be compared: no two cells have the same {', '.join(shared)}. "
            "Compare grids that share cells."
        )
    return pairs


def _names(pairs: Sequence[tuple[SideCell, SideCell]]) -> list[str]:
    """Name the pairs by the axes on which they differ from each other, e.g. `con_con, recipe = fc-bow | fc-gru`."""
    axes = dict.fromkeys(axis for one, other in pairs for axis in (*one.axes, *other.axes))
    values = {axis: [(_value(one, axis), _value(other, axis)) for one, other in pairs] for axis in axes}
    varying = [axis for axis in axes if len(set(values[axis])) > 1] or ["objective"]
    order = sorted(varying, key=lambda axis: axis != "objective")
    rows = zip(*(values[axis] for axis in order), strict=True)
    return [", ".join(_place(axis, *pair) for axis, pair in zip(order, row, strict=True) if any(pair)) for row in rows]


def _value(cell: SideCell, axis: str) -> str:
    """Return the cell's value of an axis, possibly of the other side only; empty if its objective lacks the setting."""
    if axis.startswith("objective.") and axis not in cell.settings:
        return ""
    return cell.axes.get(axis) or cell.settings.get(axis, "")


def _place(axis: str, one: str, other: str) -> str:
    value = one if one == other else f"{one or NONE} | {other or NONE}"
    return value if axis == "objective" else f"{axis} = {value}"


def _settings(pairs: Sequence[tuple[SideCell, SideCell]]) -> Iterator[Differing]:
    values = grouped(pair for one, other in pairs for pair in differing(one.settings, other.settings).items())
    for name, of_cells in values.items():
        of_a, of_b = (
            ", ".join(dict.fromkeys(NONE if text is None else text for text in texts))
            for texts in zip(*of_cells, strict=True)
        )
        yield Differing(name, of_a, of_b, len(of_cells))


def _alone(side: Side, matched: Sequence[SideCell]) -> str:
    partners = {id(cell) for cell in matched}
    names = dict.fromkeys(cell.name for cell in side.cells if id(cell) not in partners)
    return f"Only {side.name} has {counted(len(names), 'cell')}: {'; '.join(names)}." if names else ""


def _sources(rows: provenance.Rows, code: Mapping[str, str]) -> dict[str, str]:
    """Return code state, commit, data, device and versions of the finished trials; several values are joined."""
    other = [trial_id for trial_id, row in rows.items() if row["code_fingerprint"] != code[trial_id]]

    def noted(row: Mapping[str, Any]) -> dict[str, str]:
        environment = json.loads(row["environment"])
        source = environment.get("source") or {}
        return {
            "commit": source.get("commit", "")[:12] + (" and changes" if source.get("dirty") else ""),
            f"data of {row['dataset']}, {row['recipe']}": row["data_fingerprint"],
            **{name: str(environment[name]) for name in HELD if name in environment},
            **environment.get("versions", {}),
        }

    values = nested((name, value, None) for row in rows.values() for name, value in noted(row).items())
    of_code = f"changed since for {len(other)} of {len(rows)} trials" if other else "as now"
    return {"code": of_code} | {name: ", ".join(sorted(map(str, texts))) for name, texts in values.items()}


def _settings_of(cell: Cell) -> dict[str, str]:
    """Return the cell's settings, named as in a grid file, e.g. `objective.tau`."""
    values = flat(cell.trials[0].settings.model_dump(mode="json", exclude=set(OF_A_TRIAL)))
    return {name.replace("objective.parameters.", "objective."): _text(value) for name, value in values.items()}


def _search_of(grid: Grid) -> dict[str, str]:
    """Return [select], named as in a grid file, e.g. `select.seed`; without stopping parameters if `stop` is none."""
    if grid.select is None:
        return {}
    unread = {"grace", "factor"} if grid.select.stop == "none" else set()
    select = grid.select.model_dump(mode="json", exclude={"over"} | unread)
    ranges = {f"select.over.{name}": str(values) for name, values in grid.select.over.items()}
    return {f"select.{name}": _text(value) for name, value in select.items()} | ranges


def _text(value: object) -> str:
    """Format a value so that 10 and 10.0 are the same."""
    return "none" if value is None else str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def document(comparison: GridComparison) -> Document:
    """Build a document: first the settings and conditions that differ, then one section per metric."""
    by_metric = grouped((difference.metric, difference) for difference in comparison.differences)
    title = f"{comparison.a} (A) and {comparison.b} (B): {counted(comparison.cells, 'cell')} compared"
    sections = [DocumentSection(title, tuple(_what(comparison)))]
    for metric, differences in by_metric.items():
        sections.append(DocumentSection(metric_title(metric, comparison.noun), tuple(_metric(differences))))
    return Document(tuple(sections), tuple(_footer(comparison)))


def write_out(comparison: GridComparison, kind: str) -> str:
    if kind == "csv":
        rows = finite(comparison.differences)
        for row in rows:
            interval = row.pop("interval")
            row |= {"interval_low": interval["low"], "interval_high": interval["high"]}
        return csv.written(list(rows[0]), [list(row.values()) for row in rows])
    return TEXT[kind](document(comparison))


def _what(comparison: GridComparison) -> Iterator[str | Sheet]:
    settings, sources = (tuple(map(_differing, part)) for part in (comparison.settings, comparison.sources))
    head = ("setting", "A", "B", "cells")
    yield Sheet("Settings that differ", head, settings) if settings else "All settings are the same."
    if sources:
        yield Sheet("Other differences", ("of the finished trials", "A", "B"), tuple(row[:3] for row in sources))
    yield from comparison.alone


def _differing(setting: Differing) -> tuple[str, str, str, str]:
    a, b = (text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…" for text in (setting.a, setting.b))
    return setting.name, a, b, str(setting.cells)


def _metric(differences: list[CellDifference]) -> Iterator[str | Sheet]:
    tested = [cell for cell in differences if math.isfinite(cell.holm)]
    real = [cell for cell in tested if cell.holm < LEVEL]
    higher, untested = sum(cell.mean > 0 for cell in real), len(differences) - len(tested)
    if tested:
        words = (
            f"B differs from A in {len(real)} of {counted(len(tested), 'cell')} tested at {100 * LEVEL:.0f} % (Holm): "
            f"higher in {higher}, lower in {len(real) - higher}."
        )
        yield f"{words} {counted(untested, 'cell')} without a test." if untested else words
    else:
        yield f"No cell is tested: {'; '.join(dict.fromkeys(cell.how for cell in differences))}."
    rows = tuple(
        (d.name, number_text(d.a), number_text(d.b), str(d.pairs or f"{d.n_a} | {d.n_b}"),
         number_text(d.mean, sign="+"), interval_text(d.interval, "+"), p_text(d.p), p_text(d.holm), d.how)
        for d in differences
    )  # fmt: skip
    head = ("cell", "A", "B", "seeds", "B - A", "95 % interval", "p", "Holm", "compared")
    yield Sheet.telling("", head, rows)


def _footer(comparison: GridComparison) -> Iterator[str]:
    how = {difference.how for difference in comparison.differences}
    yield "A, B: means over the compared seeds. Holm: p adjusted for all cells of a metric."
    if "seed by seed" in how:
        yield (
            "Seed by seed: t interval and paired t test over common seeds, which give both sides the same initial "
            "weights and batches. Other seeds are left out."
        )
    if "unpaired (Welch)" in how:
        yield (
            "Unpaired (Welch): fewer than two common seeds, or different recipes or data sets, for which the same seed "
            "gives different weights and batches. All seeds are used; unequal variances are allowed."
        )
    if any("one seed" in words for words in how):
        yield "With one seed there is no interval and no test: a difference may be due to chance. Add seeds."
