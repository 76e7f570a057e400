"""The fairness sheet of a grid, for `goalgrid fair`, and the check of `[fair] require` in `run` and `table`."""

from collections.abc import Sequence

from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store.home import Home, State
from goalgrid.reports.tables import scores_of, some_scores
from goalgrid.results.analysis.fairness import FairRow, broken, fair_rows
from goalgrid.state.grid_state import GridState


def sheet(grid_state: GridState, source: str = "", overrides: Sequence[str] = ()) -> list[FairRow]:
    """Return one row per cell that has selected its settings; raise NothingDone if no trial is done.

    Args:
        source: the grid as the user named it.
        overrides: the overrides it was given.
    """
    scores = some_scores(grid_state, None, source or grid_state.grid.name, overrides, "fair")
    return fair_rows(grid_state.cells, scores, grid_state.home)


def unfair(grids: Sequence[Grid], home: Home) -> list[str]:
    """Return the violations of each grid's required rules by its finished trials, one line each."""
    lines = list[str]()
    for grid in grids:
        if grid.fair.require:
            grid_state = GridState.of(grid, home)
            done = grid_state.counts[State.DONE] > 0 and bool(grid_state.cells)
            rows = fair_rows(grid_state.cells, scores_of(grid_state), home) if done else []
            lines += [f"{grid.name}: {line}" for line in broken(rows, grid.fair.require)]
    return lines
