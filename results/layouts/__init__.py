"""Layouts: how the papers arrange scores. One file each; the dict is the list."""

from collections.abc import Callable, Sequence

from grid.errors import UserError
from grid.expansion import Cell
from grid.objectives import GOAL
from results.layouts import goal, listing
from results.scores import Scores
from results.table import Table

Layout = Callable[[Sequence[Cell], Scores, str], Table]

LAYOUTS: dict[str, Layout] = {"goal": goal.layout, "listing": listing.layout}


def natural(cells: Sequence[Cell]) -> str:
    """GOAL's matrix where all objectives have a place in it, else one row an objective."""
    return "goal" if {cell.objective for cell in cells} <= set(GOAL) else "listing"


def arrange(cells: Sequence[Cell], scores: Scores, *, layout: str | None = None, metric: str = "r1") -> Table:
    """The table of a grid.

    Args:
        layout: a name of `LAYOUTS`; None: the natural one.
        metric: r1, r5, r10, medr or rsum, for the layouts that show one.

    Raises:
        UserError: an objective has no place in the layout.
    """
    chosen = layout or natural(cells)
    strangers = sorted({cell.objective for cell in cells} - set(GOAL))
    if chosen == "goal" and strangers:
        raise UserError(f"the layout 'goal' has no place for {', '.join(strangers)}; use --layout listing.")
    return LAYOUTS[chosen](cells, scores, metric)
