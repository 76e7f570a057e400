"""What `goalgrid report` writes: a grid as one page, once or again and again while it runs."""

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from goalgrid import status
from goalgrid.overview import ORDER, Overview
from grid.failures import POLICY
from grid.files import write_text
from grid.home import State
from results.report import Measured, Report, Standing, Trouble


def write(overview: Overview, path: Path, *, refresh: int = 0, measured: Measured | None = None) -> Measured:
    """Write the page; what its tables and figures came from, for the next time.

    Args:
        refresh: seconds after which the page loads itself again while trials are left.
        measured: what to show instead of reading the records anew.

    Raises:
        UserError: records cannot be read, or the page cannot be written.
    """
    measured = measured or Measured.read(overview.cells, overview.home)
    name, runs = overview.grid.name, status.runs_option(overview.home)
    report = Report(
        name,
        overview.grid.axes(),
        overview.grid.to_toml(),
        {
            "go on": f"goalgrid resume {name}{runs}",
            "state": f"goalgrid status {name}{runs}",
            "LaTeX": f"goalgrid table {name}{runs} --format latex",
        },
        measured,
        _standing(overview),
        datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z"),
        refresh if _unfinished(overview) else 0,
    )
    write_text(path, report.render())
    return measured


def watch(overview: Overview, path: Path, seconds: int) -> Iterator[Overview]:
    """Write the page every so many seconds until every trial is done or failed; what it shows, each time."""
    measured = write(overview, path, refresh=seconds)
    yield overview
    while _unfinished(overview):
        time.sleep(seconds)
        before, overview = overview, Overview.of(overview.grid, overview.home)
        same = before.having(State.DONE) == overview.having(State.DONE)
        measured = write(overview, path, refresh=seconds, measured=measured if same else None)
        yield overview


def _unfinished(overview: Overview) -> bool:
    return any(state not in (State.DONE, State.FAILED) for state in overview.states.values())


def _standing(overview: Overview) -> Standing:
    return Standing(
        overview.headline(),
        {state.value: overview.count(state) for state in ORDER},
        {trial_id: state.value for trial_id, state in overview.states.items()},
        status.running_lines(overview),
        [
            Trouble(
                alike.failure.value,
                alike.message,
                len(alike.trials),
                status.sentence(POLICY[alike.failure].advice),
                str(alike.log),
                alike.alone,
            )
            for alike in status.failures(overview)
        ],
        status.note_lines(overview),
    )
