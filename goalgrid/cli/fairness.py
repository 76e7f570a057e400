"""[fair] require: faults of a comparison are said, and commands exit as if a trial had failed."""

from collections.abc import Sequence

from goalgrid.cli.console import say
from goalgrid.cli.exits import EXIT
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store.home import Home, State


def exit_code(grids: Sequence[Grid], home: Home, state: State = State.DONE) -> int:
    """Say which required rules these grids break; return the exit code of a command that reached this state."""
    if not any(grid.fair.require for grid in grids):
        return EXIT[state]
    from goalgrid.reports.fairness import unfair

    lines = unfair(grids, home)
    for line in lines:
        say(f"unfair: {line}")
    if lines:
        say("Rules of [fair] require in the grid file; the whole sheet: goalgrid fair GRID")
    return EXIT[State.FAILED if lines else state]
