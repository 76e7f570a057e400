"""Layouts: how scores are arranged in tables. Each file registers its layouts in `LAYOUTS`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from goalgrid.grid.catalog import members
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell
from goalgrid.grid.objectives.goal_matrix import CELLS
from goalgrid.results.layouts import captions, pivot
from goalgrid.results.layouts.names import names_of
from goalgrid.results.records.scores import Scores
from goalgrid.results.tables import Table

if TYPE_CHECKING:  # a table of a grid reads no paper
    from goalgrid.results.reference.reading import Paper

LAYOUTS = {name: layout for layouts in members(__name__, "LAYOUTS", dict).values() for name, layout in layouts.items()}

DEFAULT_METRIC = "r1"
"""Default metric of layouts that show a single metric."""


def natural(cells: Sequence[Cell], scores: captions.TableSource) -> str:
    """Return the default layout: a paper's own; for a grid, `goal` if GOAL's matrix has all objectives, else by rows.

    With rows, the layout is `listing`, which has one block per recipe and data set. If there are several recipes and a
    block would have a single row, it is `losses`, with one block per data set. Metrics from human judgements (ECCV
    Caption, CxC) are always listed, never shown as a matrix.
    """
    if not isinstance(scores, Scores):
        return scores.content.layout
    if {cell.objective for cell in cells} <= set(CELLS) and not scores.judged:
        return "goal"
    rows = Counter((cell.dataset, cell.recipe) for cell in cells)
    several = len({cell.recipe for cell in cells}) > 1
    return "losses" if several and min(rows.values()) == 1 else "listing"


def arrange(
    cells: Sequence[Cell],
    scores: captions.TableSource,
    *,
    layout: str | None = None,
    metric: str = "r1",
    against: str | None = None,
    axes: pivot.Axes | None = None,
) -> Table:
    """Arrange the table of a grid or of a paper in one of the `LAYOUTS`, or by axes.

    Args:
        layout: name in `LAYOUTS`; default: `natural`.
        metric: names in `COLUMN_NAMES`, joined by commas; a layout of all recalls shows them after the recalls.
        against: "paper" compares our numbers with those that papers report: for a grid in a special layout, for a
            paper's table within its columns.
        axes: axes in rows, columns and blocks, instead of a layout.

    Raises:
        UserError: the options conflict, or the layout cannot show these cells or metrics.
    """
    asked = metric.split(",")
    if isinstance(scores, Scores):
        listed = scores.judged and not axes and LAYOUTS[layout or natural(cells, scores)].metrics is None
        captions.check_judged([] if listed and asked == [DEFAULT_METRIC] else asked, scores.protocol)
    if axes and isinstance(scores, Scores):
        if layout or against:
            chosen = f"--layout {layout}" if layout else f"--against {against}"
            raise UserError(
                f"--rows, --columns and --blocks define the layout, so they cannot be combined with {chosen}."
            )
        table = pivot.layout(cells, scores, asked, axes)
    elif against and isinstance(scores, Scores):
        if layout:
            raise UserError(f"--against {against} has a fixed layout, so it cannot be combined with --layout {layout}.")
        _check_metrics(f"--against {against}", asked, 1)
        from goalgrid.results.layouts.paper import comparison

        table = comparison.against(cells, scores, metric)
    else:
        draw = partial(_laid_out, cells, chosen=layout or natural(cells, scores), asked=asked)
        table = draw(scores) if isinstance(scores, Scores) else _of_paper(scores, draw, against=bool(against))
    table = captions.named(table, captions.noun_of(cells))
    names = _names(cells, table, against=bool(against)) if isinstance(scores, Scores) else {}
    return replace(table, names=names)


def _of_paper(paper: "Paper", draw: Callable[[captions.TableSource], Table], *, against: bool) -> Table:
    from goalgrid.results.layouts.paper import comparison

    return comparison.with_ours(paper, draw, against=against)


def _names(cells: Sequence[Cell], table: Table, *, against: bool) -> Mapping[str, str]:
    """Return the papers' names for all names in the table; with `against`, also those of the papers' tables."""
    protocols = (entry.keys["protocol"] for entry in table.entries() if "protocol" in entry.keys)
    names = names_of(cells, protocols)
    if against:
        from goalgrid.results.reference.reading import paper_table, table_names

        names |= {name: paper_table(name).source for name in table_names()}
    return names


def _laid_out(cells: Sequence[Cell], scores: captions.TableSource, chosen: str, asked: list[str]) -> Table:
    if not isinstance(scores, Scores) and chosen == scores.content.layout and asked == [DEFAULT_METRIC]:
        from goalgrid.results.layouts.paper.printed import printed

        return printed(scores)
    strangers = sorted({cell.objective for cell in cells} - set(CELLS))
    if LAYOUTS[chosen].of_the_matrix and strangers:
        what = ", ".join(strangers) if any(strangers) else "rows without an objective"
        raise UserError(f"the layout {chosen!r} cannot show {what}; use --layout listing.")
    _check_metrics(f"the layout {chosen!r}", asked, LAYOUTS[chosen].metrics)
    if asked != [DEFAULT_METRIC] and not isinstance(scores, Scores):
        for name in asked:
            if not captions.by_direction(name).keys() & set(scores.metrics):
                reported = ", ".join(scores.metrics)
                raise UserError(f"{captions.COLUMN_NAMES[name]} is not reported in this table; reported: {reported}.")
    return LAYOUTS[chosen].table(cells, scores, asked)


def _check_metrics(what: str, asked: Sequence[str], room: int | None) -> None:
    """Raise UserError if a layout cannot show as many metrics as requested."""
    if room == 0 and asked != [DEFAULT_METRIC]:
        raise UserError(f"{what} shows names of losses, not metrics; omit --metric.")
    if room == 1 and len(asked) > 1:
        other = "--layout listing, or --rows and --columns"
        raise UserError(f"{what} shows one metric, but --metric {','.join(asked)} names {len(asked)}. Use {other}.")
