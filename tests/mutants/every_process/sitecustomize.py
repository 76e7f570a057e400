"""What every process of a traced test run imports first: its lines are written under the name of what started it."""

import atexit
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from coverage import Coverage

FOLDER = "MUTANTS_TRACE"
"""Environment: the folder that the lines are written to."""
CONTEXT = "MUTANTS_CONTEXT"
"""Environment: the test, or `fixture NAME`, that starts a process."""

TRACE = Coverage(
    data_file=str(Path(os.environ[FOLDER]) / "lines"),
    data_suffix=True,
    include=[str(Path(__file__).parents[3] / "*")],
    omit=[str(Path(__file__).parents[2] / "*")],
    context=os.environ.get(CONTEXT),
    config_file=False,
    messages=False,
)
TRACE.set_option("run:disable_warnings", ["no-data-collected", "already-imported", "module-not-imported"])
TRACE.start()


@atexit.register
def finish() -> None:
    """Write the lines."""
    TRACE.stop()
    TRACE.save()


def _exit(code: int, end: Callable[[int], NoReturn] = os._exit) -> NoReturn:
    """The end of a process that leaves out Python's own, as a replica does."""
    finish()
    end(code)


os._exit = _exit
