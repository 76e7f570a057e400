"""The terminal: options that verbs share, what is printed where; and exit codes.

Commands exit with 0 all done, 2 wrong usage, 3 incomplete, 4 trials failed, 5 a checked table differs.
"""

from grid.store.home import State

WRONG_USAGE, INCOMPLETE, DIFFERENT = 2, 3, 5
EXIT = {State.DONE: 0, State.INTERRUPTED: INCOMPLETE, State.FAILED: 4}


def exit_state(states: list[State]) -> State:
    """The state that decides how a command exits: done only if all are."""
    if all(state is State.DONE for state in states):
        return State.DONE
    return State.FAILED if State.FAILED in states else State.INTERRUPTED
