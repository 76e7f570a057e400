"""Enforce [fair] require: report violated rules, and exit as if a trial had failed."""

from collections.abc import Sequence

from goalgrid.cli.console import say
from goalgrid.cli.exits import EXIT
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store.home import Home, State


def exit_code(grids: Sequence[Grid], home: Home, state: State = State.DONE) -> int:
    """Report the required rules that these grids violate; return the exit code of a command that ended in `state`."""
    if not any(grid.fair.require for grid in grids):
        return EXIT[state]
    from goalgrid.reports.fairness import unfair

    lines = unfair(grids, home)
    for line in lines:
        say(f"unfair: {line}")
    if lines:
        say("These rules are set by [fair] require in the grid file; full report: goalgrid fair GRID")
    return EXIT[State.FAILED if lines else state]
