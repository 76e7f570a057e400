"""Training what is not done of grids: decides which trials, launches them, and shows how each launch ended."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from goalgrid.grid import extras
from goalgrid.grid.errors import UserError, counted, several
from goalgrid.grid.expansion import Trial, libraries_of
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store import files, saved_grid, speed_probes
from goalgrid.grid.store.home import ENDED, Home, State
from goalgrid.grid.store.kept_launch import KeptLaunch
from goalgrid.launching import kept as launches
from goalgrid.plan.costs import unmeasured
from goalgrid.plan.decisions import Choice, TrialDecision, decide, to_evaluate, to_replace, to_train
from goalgrid.reading import named_grids, status
from goalgrid.reading.overview import Overview
from goalgrid.runners.launch import LaunchOptions
from goalgrid.runners.trial import holding
from goalgrid.runners.watching.notify import Notify
from goalgrid.showing.tables import keep_table, table_of_paper
from goalgrid.terminal import exit_state
from goalgrid.terminal.options import runs_option
from goalgrid.terminal.views import err, out, say, show_table

if TYPE_CHECKING:
    from goalgrid.runners.watching.mirror import Tracker


class LaunchResult(NamedTuple):
    """What launches were to train, the signal that interrupted them, or 0, and their names in leases.

    The disk tells how the trials ended.
    """

    decisions: list[TrialDecision]
    interrupted: int = 0
    launches: frozenset[str] = frozenset()
    other_code: dict[str, tuple[str, str]] = {}
    """The trials that other code would train than the launch keeps, by id: that of then, and of now."""


def train_all(
    grids: Sequence[Grid], home: Home, choice: Choice, options: LaunchOptions, paper: str | None = None
) -> State:
    """Train what is chosen, grid after grid, and show their tables, or the paper's; the state that all trials reached.

    UserError: as `train`; grids before this one are trained.
    """
    grids, states = named_grids.of_filter(grids, home, choice.only), list[State]()
    for grid in grids:
        notify = Notify(options.notify, grid.name, _warn)
        try:
            launched = train(Overview.of(grid, home), choice, options, notify)
        except UserError as error:
            notify.ended("error", str(error), Overview.of(grid, home).sums())
            raise
        if not launched.interrupted:  # else Slurm may leave us seconds
            _await_others(Overview.of(grid, home))
        states += _show_end(Overview.of(grid, home), launched, notify, options.launches.get(grid.name), paper)
        if launched.interrupted and grid is not grids[-1]:
            rest = [other.name for other in grids[grids.index(grid) + 1 :]]
            say(f"skipped: {', '.join(rest)}; run the same command again to continue")
            states.append(State.INTERRUPTED)
            break
    return exit_state(states)


def train(overview: Overview, choice: Choice, options: LaunchOptions, notify: Notify | None = None) -> LaunchResult:
    """Train the chosen trials, and save the grid as it is run.

    Where seeds are added until resolved, or validation chooses settings, the trials that these decide on are trained
    too, round by round; seeds are added as long as every trial of a round ends.

    UserError: the filter names no trial, or data, runs folder or cluster cannot be used; nothing was trained.
    """
    from goalgrid.runners.watching.trackers import trackers_of

    if overview.grid.name not in options.launches:
        now = launches.of(overview) if options.address else None
        for line in launches.differing(overview, now):
            _warn(line)
        options = replace(options, launches={overview.grid.name: now} if now else {})
    trackers = trackers_of(overview.grid, overview.home, options.mlflow_uri)
    launched = partial(_round, options=options, trackers=trackers, notify=notify)
    trained, known = launched(overview, choice), set(overview.states)
    in_rounds = overview.grid.budget or overview.searches
    while in_rounds and not choice.failed and not trained.interrupted:
        overview = Overview.of(overview.grid, overview.home)
        to_do = {trial.id for trial in overview.unfinished() if overview.states[trial.id] is not State.FAILED}
        if (known & to_do and not overview.searches) or overview.states.keys() <= known:
            break
        before, known = known, known | set(overview.states)
        further = launched(overview, Choice(choice.only, before=frozenset(before)))
        decisions, names = [*trained.decisions, *further.decisions], trained.launches | further.launches
        other_code = trained.other_code | further.other_code
        trained = LaunchResult(decisions, further.interrupted, names, other_code)
    return trained


def measure(overview: Overview, choice: Choice) -> None:
    """Measure what no finished trial tells, and what trials need of a GPU; keep it for later plans and runs."""
    from goalgrid.runners.launch.speed_probe import probe, probe_memory

    chosen = to_train(decide(overview, choice))
    probe_memory(overview.grid, chosen, overview.home, err)
    if trials := unmeasured(overview, chosen):
        say(f"probing: {', '.join(trial.id for trial in trials)}")
        speeds = probe(overview.grid, trials, overview.home, err)
        speed_probes.remember(overview.home.grid(overview.grid.plain_name), speeds)


def _round(
    overview: Overview, choice: Choice, *, options: LaunchOptions, trackers: "Sequence[Tracker]", notify: Notify | None
) -> LaunchResult:
    """A launch of the chosen trials, if any is left to train."""
    selected = overview.selected(choice.only)
    extras.require(f"grid {overview.grid.name!r}", *libraries_of(selected))
    overview.data.check(selected)
    decisions = decide(overview, choice)
    todo, anew = to_train(decisions), to_replace(decisions)
    evaluated = [] if choice.failed else to_evaluate(decisions, overview)
    content, other_code = options.launches.get(overview.grid.name), dict[str, tuple[str, str]]()
    if content and todo:
        other_code = launches.of_other_code(content, overview, todo)
        lost = overview.with_children(other_code)
        todo, evaluated = ([trial for trial in trials if trial.id not in lost] for trials in (todo, evaluated))
        anew = [trial_id for trial_id in anew if trial_id not in lost]
    if missing := overview.data.missing([*todo, *evaluated]).values():
        raise several(f"grid {overview.grid.name!r}", missing)
    for line in overview.data.check_starts(todo):
        _warn(line)

    def save() -> None:
        """Save the grid as it is run, and beside it, for a reader, what validation chose."""
        saved_grid.save_grid(overview.grid, overview.trials, overview.home, content.grid if content else "")
        if content:
            content.write(overview.home.grid(overview.grid.name).launch(content.id))
        if overview.searches:
            chosen = [search.to_dict() for search in overview.searches]
            files.write_json(overview.home.grid(overview.grid.name).choices, chosen)

    if not todo and not evaluated:
        save()
        _copy_late(overview, trackers)
        return LaunchResult(decisions, other_code=other_code)
    begun = f", {len(anew)} of them from scratch" if anew else ""
    further = f", evaluating {counted(len(evaluated), 'trial')} further" if evaluated else ""
    say(f"{overview.grid.name}: {overview.headline()}; training {len(todo)}{begun}{further}")
    if overview.stops_none:
        _warn(overview.stops_none)
    from goalgrid.runners.launch.launch import Launch  # takes seconds

    launch = Launch(overview.home, err, options, trackers, live=out.is_terminal and err.is_terminal, notify=notify)
    interrupted = launch.run(
        overview.grid,
        overview.points,
        todo,
        anew,
        evaluated=evaluated,
        checked=save,
        halvings=overview.halvings,
        known={trial.id: State.DIVERGED for trial in overview.having(State.DIVERGED)},
    )
    return LaunchResult(decisions, interrupted, frozenset([launch.name]), other_code)


def _await_others(after: Overview) -> None:
    """Wait until processes on other machines show that they live, if they hold all trials that are left."""
    if exit_state([after.reached(trial) for trial in after.trials]) is State.RUNNING:
        holding.await_beats(filter(None, (after.folder(trial).latest() for trial in after.having(State.RUNNING))))


def _show_end(
    after: Overview, launched: LaunchResult, notify: Notify, content: KeptLaunch | None, paper: str | None
) -> list[State]:
    """Show how a grid's launch ended, as the disk tells; returns the states that its trials reached."""
    if files := keep_table(after):
        show_table(table_of_paper(paper, after.home) or files.table)
    say("\n".join(status.ended(after)))
    trials = list({d.trial.id: d.trial for d in launched.decisions if d.trial.id in after.states}.values())
    left = after.left_by(launched.launches)
    lost = after.with_children(launched.other_code)
    reached = [_reached(after, trial, left, lost) for trial in trials]
    again = f"goalgrid resume {after.grid.name}{runs_option(after.home)}"
    if content:
        folder = after.home.grid(after.grid.name).launch(content.id).path
        again = f"goalgrid run --launch {folder}{runs_option(after.home)}"
        if launched.other_code:
            say(f"error: {launches.untrained_words(content, launched.other_code, again)}")
    if {after.states[trial.id] for trial in trials} - set(ENDED):
        say(f"not complete; go on with: {again}")
    state = exit_state(reached)
    if files and files.written:
        say("\n".join(status.next_lines(after) if state is State.DONE else [status.written(after)]))
    word = state.value if state in (State.DONE, State.FAILED) else "incomplete"
    notify.ended(word, f"{after.grid.name}: {after.headline()}", after.sums())
    return reached


def _reached(after: Overview, trial: Trial, abandoned: Collection[str], lost: Collection[str]) -> State:
    """The state that a launch's trial reached; a trial of those `lost` to it counts as failed: to go on is no use."""
    state = after.reached(trial, abandoned)
    return State.FAILED if trial.id in lost and state in (State.INTERRUPTED, State.PLANNED) else state


def _copy_late(overview: Overview, trackers: "Sequence[Tracker]") -> None:
    """Copy finished trials into the trackers that an earlier launch could not copy."""
    from goalgrid.runners.watching.mirror import Mirror

    trained = [trial for trial in overview.trials if not trial.shared.published]
    for tracker in trackers:
        if late := tracker.lacking(map(overview.folder, trained)):
            say(f"{overview.grid.name}: copying {counted(len(late), 'trial')} to {tracker.name}")
            mirror = Mirror(tracker, _warn)
            for folder in late:
                mirror.sync(folder)
            mirror.close()


def _warn(message: str) -> None:
    say(f"warning: {message}")
