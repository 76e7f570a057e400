"""Training what is not done of a grid: decides which trials, and launches them."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from goalgrid.planning.decisions import Choice, TrialDecision, decide, to_replace, to_train
from goalgrid.planning.overview import Overview, many
from goalgrid.terminal.views import err, out, say
from grid.store.saved_grid import save_grid

if TYPE_CHECKING:
    from runners.watching.mirror import Tracker
    from runners.watching.notify import Notify


def train(
    overview: Overview,
    choice: Choice,
    *,
    here: bool = False,
    address: str | None = None,
    mlflow_uri: str | None = None,
    notify: "Notify | None" = None,
    allow_leak: bool = False,
) -> list[TrialDecision]:
    """Train the chosen trials, and save the grid as it is run; the decisions on them. The disk tells how they ended.

    Args:
        here: train in this process, without Ray.
        address: of a Ray cluster; None: a Ray for this launch.
        mlflow_uri: another MLflow than the file in the runs folder; empty: no MLflow.
        notify: is told of the first trial that fails.
        allow_leak: train even if test images stand in the training split.

    Raises:
        UserError: the filter names no trial, or data, runs folder or cluster cannot be used; nothing was trained.
    """
    from runners.watching.trackers import trackers_of

    overview.data.check(overview.selected(choice.only))
    decisions = decide(overview, choice)
    todo, anew = to_train(decisions), to_replace(decisions)
    save = partial(save_grid, overview.grid, overview.trials, overview.home)
    trackers = trackers_of(overview.grid, overview.home, mlflow_uri)
    if not todo:
        save()
        _copy_late(overview, trackers)
        return decisions
    begun = f", {len(anew)} of them anew" if anew else ""
    say(f"{overview.grid.name}: {overview.headline()}; training {len(todo)}{begun}")
    from runners.launch.launch import Launch  # takes seconds

    live = out.is_terminal and err.is_terminal
    launch = Launch(overview.home, err, here, address, trackers, live, allow_leak, notify)
    launch.run(overview.grid, overview.cells, todo, anew, checked=save)
    return decisions


def _copy_late(overview: Overview, trackers: "Iterable[Tracker]") -> None:
    """Copy finished trials into the trackers that an earlier launch could not copy."""
    from runners.watching.mirror import Mirror

    for tracker in trackers:
        if late := tracker.lacking(map(overview.folder, overview.trials)):
            say(f"{overview.grid.name}: copying {many(len(late), 'trial')} to {tracker.name}")
            mirror = Mirror(tracker, lambda message: say(f"warning: {message}"))
            for folder in late:
                mirror.sync(folder)
            mirror.close()
