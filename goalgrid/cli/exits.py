"""The terminal: options that verbs share, what the shell completes, what is printed where, exit codes.

Commands exit with 0 all done, 2 wrong usage, 3 incomplete, 4 trials failed, 5 this host cannot train, 6 other
processes train all trials that are left.
"""

from goalgrid.grid.errors import Incomplete
from goalgrid.grid.store.home import SETTLED, State
from goalgrid.runners.trial.stopping import INCOMPLETE as INCOMPLETE

WRONG_USAGE = 2
HOST_FAULT = 5
EXIT = {State.DONE: 0, State.INTERRUPTED: INCOMPLETE, State.FAILED: 4, State.RUNNING: 6}


class NothingDone(Incomplete):
    """No trial of the grid is done, so that there is nothing to show."""


def exit_state(states: list[State]) -> State:
    """The state that decides how a command exits: done if all are settled, running if all that are left are."""
    unfinished = set(states) - {*SETTLED}
    if not unfinished:
        return State.DONE
    if State.FAILED in unfinished:
        return State.FAILED
    return State.RUNNING if unfinished == {State.RUNNING} else State.INTERRUPTED
