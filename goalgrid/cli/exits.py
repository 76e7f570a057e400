"""Exit codes of the command line.

0: all done; 2: wrong usage; 3: incomplete; 4: trials failed; 5: this host cannot train; 6: other processes are training
all remaining trials.
"""

from goalgrid.grid.errors import HostFault, Incomplete, UserError
from goalgrid.grid.store.home import State
from goalgrid.runners.trial.stopping import INCOMPLETE as INCOMPLETE

WRONG_USAGE = 2
HOST_FAULT = 5
EXIT = {State.DONE: 0, State.INTERRUPTED: INCOMPLETE, State.FAILED: 4, State.RUNNING: 6}


def code_of(error: UserError) -> int:
    """Return the exit code of a command that ends with this error."""
    codes = {Incomplete: INCOMPLETE, HostFault: HOST_FAULT}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), WRONG_USAGE)
