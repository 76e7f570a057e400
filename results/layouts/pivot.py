"""Tables with user-chosen axes as rows, columns and blocks; axes that the user does not name become blocks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, check_known
from goalgrid.grid.expansion import Cell
from goalgrid.grid.groups import grouped
from goalgrid.grid.objectives.goal_matrix import CELLS, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.results.layouts.captions import COLUMN_NAMES, CUTS, TOTALS, caption, directions, entry, noun_of
from goalgrid.results.layouts.goal import symbol
from goalgrid.results.records.scores import Scores
from goalgrid.results.tables import Block, Group, Label, Row, Table, TableEntry
from goalgrid.results.tables.notation import escape

PARTS = ("pair", "triplet")
"""The two axes of GOAL's matrix, which together form the objective."""
_ADDED = (*PARTS, "seed", "metric")
"""Axes in addition to those of a cell."""

_TITLES = {"dataset": "data set", "pair": "pair weight", "triplet": "triplet weight"}
_SPEAKING = ("dataset", "recipe", "objective", "protocol")
"""Axes whose values need no axis name in titles."""

_ORDER = {"pair": PAIR_WEIGHTS, "triplet": TRIPLET_WEIGHTS}

AxisValues = tuple[str, ...]
PlacedEntry = tuple[dict[str, str], TableEntry]


@dataclass(frozen=True)
class Axes:
    """Names of the axes in rows, columns and blocks."""

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        return (*self.rows, *self.columns, *self.blocks)

    def completed(self, cells: Sequence[Cell]) -> "Axes":
        """Return the axes, completed: all axes not named become blocks.

        Default rows: the objective; default columns: the metric.

        Raises:
            UserError: an axis is unknown, named twice or outside GOAL's matrix, or rows or columns have no axis.
        """
        known = ["dataset", "recipe", "objective", *PARTS, *dict(cells[0].swept), "seed", "metric", "protocol"]
        self._check(known, cells)
        divided = set(PARTS) & set(self.named)
        rows = self.rows or (() if divided or "objective" in self.named else ("objective",))
        columns = self.columns or (() if "metric" in self.named else ("metric",))
        for what, names in (("rows", rows), ("columns", columns)):
            if not names:
                raise UserError(f"no axis given for the {what}. Give --{what}. Axes: {', '.join(known)}.")
        redundant = {"seed", "protocol", *(("objective",) if divided else PARTS)}
        rest = [name for name in known if name not in {*rows, *columns, *self.blocks, *redundant}]
        return Axes(rows, columns, (*self.blocks, *rest))

    def _check(self, known: list[str], cells: Sequence[Cell]) -> None:
        places = {"--rows": self.rows, "--columns": self.columns, "--blocks": self.blocks}
        for option, names in places.items():
            for name in names:
                check_known("axis", name, known, where=f"in {option}")
        twice = sorted({name for name in self.named if self.named.count(name) > 1})
        if twice:
            where = " and ".join(option for option, names in places.items() if twice[0] in names)
            raise UserError(f"the axis {twice[0]!r} is named more than once in {where}; name it once.")
        divided = [name for name in PARTS if name in self.named]
        if divided and "objective" in self.named:
            raise UserError(f"{divided[0]!r} is a part of 'objective'; name only one of the two.")
        strangers = sorted({cell.objective for cell in cells} - set(CELLS))
        if divided and strangers:
            raise UserError(
                f"{strangers[0]!r} is outside GOAL's matrix, so it has no {divided[0]} weight; use the axis objective."
            )


def _on(axes: Sequence[str], values: Mapping[str, str]) -> AxisValues:
    return tuple(values[name] for name in axes)


def layout(cells: Sequence[Cell], scores: Scores, metrics: Sequence[str], axes: Axes) -> Table:
    """Lay out metrics of every cell; with `seed` among the axes, of every trial.

    The best value is marked per block, metric, data set and protocol.

    Args:
        metrics: names in `COLUMN_NAMES`; each is shown in both directions if it has a direction.

    Raises:
        UserError: the grid lacks an axis, or an axis is named twice.
    """
    axes, views = axes.completed(cells), [scores]
    if "seed" in axes.named:
        cells = [replace(cell, trials=(trial,)) for cell in cells for trial in cell.trials]
    if "protocol" in axes.named and not scores.protocol:
        protocols = dict.fromkeys(name for cell in cells for name in catalog.protocols(cell.dataset))
        views = [replace(scores, protocol=name) for name in protocols]
    places = PlacedEntries(_metric_labels(metrics, directions(noun_of(cells))), cells, views)
    what = " and ".join(name for key, name in COLUMN_NAMES.items() if key in metrics)
    blocks = tuple(
        Block(places.title(axes.blocks, key) or what, places.rows(axes, key)) for key in places.keys(axes.blocks)
    )
    corner = Label(", ".join(_TITLES.get(name, name) for name in axes.rows))
    return Table("pivot", corner, places.groups(axes.columns, what), blocks, caption(cells, scores, what, views))


class PlacedEntries:
    """All entries with their values on every axis, in the order of the grid, and the labels of their metrics."""

    def __init__(self, metrics: Mapping[str, Label], cells: Iterable[Cell], views: Sequence[Scores]) -> None:
        self.metrics = metrics
        self.points = [point for cell in cells for point in _points(cell, views, metrics)]

    def keys(self, axes: Sequence[str], points: Sequence[PlacedEntry] | None = None) -> list[AxisValues]:
        """Return the combinations of values on these axes that have entries, in the grid's order."""
        points = self.points if points is None else points
        order = {name: list(_ORDER.get(name) or dict.fromkeys(values[name] for values, _ in points)) for name in axes}
        places = dict.fromkeys(_on(axes, values) for values, _ in points)
        return sorted(places, key=lambda key: [order[name].index(value) for name, value in zip(axes, key, strict=True)])

    def rows(self, axes: Axes, block: AxisValues) -> tuple[Row, ...]:
        points = [point for point in self.points if _on(axes.blocks, point[0]) == block]
        at = {(_on(axes.rows, values), _on(axes.columns, values)): entry for values, entry in points}
        heads = self.keys(axes.columns)
        return tuple(
            Row(
                self.label(axes.rows, key, bare=len(axes.rows) == 1),
                tuple(at.get((key, head)) for head in heads),
                keys={
                    name: value
                    for name, value in zip((*axes.blocks, *axes.rows), (*block, *key), strict=True)
                    if name in _ADDED
                },
            )
            for key in self.keys(axes.rows, points)
        )

    def groups(self, axes: Sequence[str], what: str) -> tuple[Group, ...]:
        """Group the last axis under the axes before it, or under its name if it is alone."""
        *before, last = axes
        keys = self.keys(axes)
        named = grouped((key[:-1], key) for key in keys)
        alone = Label(what if last == "metric" else _TITLES.get(last, last))
        return tuple(
            Group(
                self.label(before, first) if before else alone,
                tuple(self.label([last], key[-1:], bare=not before) for key in several),
                keys=tuple(dict(zip(axes, key, strict=True)) for key in several),
            )
            for first, several in named.items()
        )

    def title(self, axes: Sequence[str], key: AxisValues) -> str:
        """Return a block's title, `cnn-bow on shapes, objective.tau = 10`, with the metric if there are several."""
        values = dict(zip(axes, key, strict=True))
        setting = " on ".join(values.pop(name) for name in ("recipe", "dataset") if name in values)
        if len(self.metrics) == 1:
            values.pop("metric", None)
        return ", ".join(filter(None, [setting, self.label(list(values), tuple(values.values())).text]))

    def label(self, axes: Sequence[str], key: AxisValues, *, bare: bool = False) -> Label:
        """Return a label for values on some axes, in the papers' notation; `bare`: without the axis's name."""
        labels = [self._label(name, value, bare=bare) for name, value in zip(axes, key, strict=True)]
        formula = ", ".join(label.latex or escape(label.text) for label in labels)
        text = ", ".join(label.text for label in labels)
        return Label(text, formula if any(label.latex for label in labels) else "")

    def _label(self, axis: str, value: str, *, bare: bool) -> Label:
        if axis in PARTS:
            return symbol(axis[0].upper(), value)
        if axis == "metric":
            return self.metrics[value]
        if bare or axis in _SPEAKING:
            return Label(value)
        return Label(f"seed {value}" if axis == "seed" else f"{axis} = {value}")


def _points(cell: Cell, views: Sequence[Scores], metrics: Iterable[str]) -> Iterator[PlacedEntry]:
    pair, triplet = cell.objective.split("_") if cell.objective in CELLS else ("", "")
    seed = str(cell.trials[0].seed)
    further = {"pair_weight": pair, "triplet_weight": triplet} if pair else {}
    further |= {"seed": seed} if len(cell.trials) == 1 else {}
    by_protocol = {view.protocol_of(cell): view for view in views}
    for (protocol, view), metric in product(by_protocol.items(), metrics):
        values = {"pair": pair, "triplet": triplet, "seed": seed, "metric": metric, "protocol": protocol}
        yield {**view.axes(cell), **values}, entry(cell, view, metric, **further)


def _metric_labels(metrics: Sequence[str], titles: Mapping[str, Label]) -> dict[str, Label]:
    """Return the label of each metric and direction; only the direction if the caption names the metric."""
    labels = {
        f"{direction}_{name}": Label(f"{title.text} {CUTS[name]}", f"{title.latex} {CUTS[name]}")
        for direction, title in titles.items()
        for name in metrics
        if name in CUTS
    }
    if len(labels) == len(titles):
        labels = dict(zip(labels, titles.values(), strict=True))
    return labels | {name: Label(TOTALS[name]) for name in metrics if name in TOTALS}
