"""Training what is not done of a grid: decides which trials, and launches them."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from goalgrid.grid.errors.wording import counted
from goalgrid.grid.store.home import State
from goalgrid.grid.store.saved_grid import save_grid
from goalgrid.plan.decisions import Choice, TrialDecision, decide, to_replace, to_train
from goalgrid.reading.overview import Overview
from goalgrid.terminal.views import err, out, say

if TYPE_CHECKING:
    from goalgrid.runners.watching.mirror import Tracker
    from goalgrid.runners.watching.notify import Notify


class LaunchResult(NamedTuple):
    """What a launch was to train, and whether the user interrupted it. The disk tells how the trials ended."""

    decisions: list[TrialDecision]
    interrupted: bool


def train(
    overview: Overview,
    choice: Choice,
    *,
    here: bool = False,
    address: str | None = None,
    mlflow_uri: str | None = None,
    notify: "Notify | None" = None,
    allow_leak: bool = False,
) -> LaunchResult:
    """Train the chosen trials, and save the grid as it is run.

    Where seeds are added until resolved, the trials that these decide on are trained too, round by round, as long as
    every trial of a round ends.

    Args:
        here: train in this process, without Ray.
        address: of a Ray cluster; None: a Ray for this launch.
        mlflow_uri: another MLflow than the file in the runs folder; empty: no MLflow.
        notify: is told of the first trial that fails.
        allow_leak: train even if test images stand in the training split.

    Raises:
        UserError: the filter names no trial, or data, runs folder or cluster cannot be used; nothing was trained.
    """
    from goalgrid.runners.watching.trackers import trackers_of

    launched = partial(
        _round,
        here=here,
        address=address,
        trackers=trackers_of(overview.grid, overview.home, mlflow_uri),
        notify=notify,
        allow_leak=allow_leak,
    )
    trained, known = launched(overview, choice), set(overview.states)
    while overview.grid.budget and not choice.failed and not trained.interrupted:
        overview = Overview.of(overview.grid, overview.home)
        left = known & {trial.id for trial in overview.left() if overview.states[trial.id] is not State.FAILED}
        if left or overview.states.keys() <= known:
            break
        known |= set(overview.states)
        further = launched(overview, Choice(choice.only))
        trained = LaunchResult([*trained.decisions, *further.decisions], further.interrupted)
    wanted = [decision for decision in trained.decisions if decision.trial.id in overview.states]
    return LaunchResult(wanted, trained.interrupted)


def _round(
    overview: Overview,
    choice: Choice,
    *,
    here: bool,
    address: str | None,
    trackers: "Sequence[Tracker]",
    notify: "Notify | None",
    allow_leak: bool,
) -> LaunchResult:
    """A launch of the chosen trials, if any is left to train."""
    overview.data.check(overview.selected(choice.only))
    decisions = decide(overview, choice)
    todo, anew = to_train(decisions), to_replace(decisions)
    save = partial(save_grid, overview.grid, overview.trials, overview.home)
    if not todo:
        save()
        _copy_late(overview, trackers)
        return LaunchResult(decisions, interrupted=False)
    begun = f", {len(anew)} of them anew" if anew else ""
    say(f"{overview.grid.name}: {overview.headline()}; training {len(todo)}{begun}")
    from goalgrid.runners.launch.launch import Launch  # takes seconds

    live = out.is_terminal and err.is_terminal
    launch = Launch(overview.home, err, here, address, trackers, live, allow_leak, notify)
    return LaunchResult(decisions, launch.run(overview.grid, overview.cells, todo, anew, checked=save))


def _copy_late(overview: Overview, trackers: "Sequence[Tracker]") -> None:
    """Copy finished trials into the trackers that an earlier launch could not copy."""
    from goalgrid.runners.watching.mirror import Mirror

    trained = [trial for trial in overview.trials if not trial.shared.published]
    for tracker in trackers:
        if late := tracker.lacking(map(overview.folder, trained)):
            say(f"{overview.grid.name}: copying {counted(len(late), 'trial')} to {tracker.name}")
            mirror = Mirror(tracker, lambda message: say(f"warning: {message}"))
            for folder in late:
                mirror.sync(folder)
            mirror.close()
