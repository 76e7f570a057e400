"""Layouts: how the papers arrange scores. One file each; the folder is the list."""

from collections import Counter
from collections.abc import Sequence

from grid import catalog
from grid.errors import UserError
from grid.expansion import Cell
from grid.listed import members
from grid.objectives.goal_matrix import CELLS
from results.layouts import against as beside
from results.layouts import pivot
from results.layouts.captions import TableSource
from results.layouts.columns import of_videos
from results.layouts.layout import Layout
from results.layouts.pivot import Axes
from results.records.scores import Scores
from results.tables.table import Table

LAYOUTS = members(__name__, "LAYOUT", Layout)


def natural(cells: Sequence[Cell]) -> str:
    """GOAL's matrix where all objectives have a place in it; else a block a recipe, with a row an objective.

    Where some recipe of several would have a block of one row, all stand in one block, as in the other papers.
    """
    if {cell.objective for cell in cells} <= set(CELLS):
        return "goal"
    rows = Counter((cell.dataset, cell.recipe) for cell in cells)
    several = len({cell.recipe for cell in cells}) > 1
    return "losses" if several and min(rows.values()) == 1 else "listing"


def arrange(
    cells: Sequence[Cell],
    scores: TableSource,
    *,
    layout: str | None = None,
    metric: str = "r1",
    against: str | None = None,
    axes: Axes | None = None,
) -> Table:
    """The table of a grid, or of a paper.

    Args:
        layout: a name of `LAYOUTS`; None: the natural one.
        metric: r1, r5, r10, medr or rsum, for the layouts that show one; with `axes` several, joined by commas.
        against: "paper": ours beside what papers report, in a layout of its own.
        axes: what stands in rows, columns and blocks, instead of a layout.

    Raises:
        UserError: an objective has no place in the layout, or no paper reports any of these cells.
    """
    table = _arranged(cells, scores, layout, metric, against, axes)
    return of_videos(table) if all(map(_of_videos, cells)) else table


def _of_videos(cell: Cell) -> bool:
    return catalog.described(cell.dataset).videos or any(trial.shared.model.image.reads for trial in cell.trials)


def _arranged(
    cells: Sequence[Cell],
    scores: TableSource,
    layout: str | None,
    metric: str,
    against: str | None,
    axes: Axes | None,
) -> Table:
    if axes and isinstance(scores, Scores):
        if layout or against:
            chosen = f"--layout {layout}" if layout else f"--against {against}"
            raise UserError(f"--rows, --columns and --blocks make a layout of their own; leave {chosen} out.")
        return pivot.layout(cells, scores, metric.split(","), axes)
    if against and isinstance(scores, Scores):
        if layout:
            raise UserError(f"--against {against} has a layout of its own; leave --layout {layout} out.")
        return beside.layout(cells, scores, metric)
    chosen = layout or natural(cells)
    strangers = sorted({cell.objective for cell in cells} - set(CELLS))
    if LAYOUTS[chosen].of_the_matrix and strangers:
        what = ", ".join(strangers) if any(strangers) else "rows without an objective"
        raise UserError(f"the layout {chosen!r} has no place for {what}; use --layout listing.")
    return LAYOUTS[chosen].table(cells, scores, metric)
