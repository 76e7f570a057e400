"""Train the unfinished trials of grids: decide which ones, launch them, and report how each launch ended."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from goalgrid.grid import optional_dependencies
from goalgrid.grid.errors import UserError, counted, several
from goalgrid.grid.expansion import Cell, Trial, libraries_of
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.messages import Note, Step, tell, warn
from goalgrid.grid.store import files, saved_grid, speed_probes
from goalgrid.grid.store.home import ENDED, Home, State
from goalgrid.grid.store.kept_launch import KeptLaunch
from goalgrid.launching import kept as launches
from goalgrid.launching.together import Group, groups_of, united
from goalgrid.planning.costs import unmeasured
from goalgrid.planning.decisions import Choice, TrialDecision, decide, to_evaluate, to_replace, to_train
from goalgrid.reports.tables import keep_table, table_of_paper
from goalgrid.runners.launch import LaunchOptions
from goalgrid.runners.trial import lease
from goalgrid.runners.watching.notify import Notify
from goalgrid.runners.watching.view import View
from goalgrid.state import named_grids
from goalgrid.state.grid_state import GridState, overall

if TYPE_CHECKING:
    from goalgrid.results.tables import Table
    from goalgrid.runners.watching.mirror import Tracker


class LaunchResult(NamedTuple):
    """The decisions of a launch, the signal that interrupted it (0: none), and the names that leases record it by.

    How the trials ended is read from the disk.
    """

    decisions: list[TrialDecision]
    interrupted: int = 0
    launches: frozenset[str] = frozenset()
    other_code: dict[str, tuple[str, str]] = {}
    """Maps the id of each trial whose code differs from the saved launch's to the fingerprints (saved, current)."""


@dataclass(frozen=True)
class GridEnd:
    """How the launch of a grid ended, read from the disk.

    Args:
        table: the table of the grid, or the paper's table that it fills; None: no trial is done.
        written: whether table and records were written to the grid's folder.
        reached: the states reached by the trials that it was asked to train.
        untrained: why it could not train some of them; None if it could.
        again: the command that continues the launch; None if no trial is left to train.
    """

    grid_state: GridState
    table: "Table | None"
    written: bool
    reached: Sequence[State]
    untrained: Note | None = None
    again: Step | None = None


def train_all(
    grids: Sequence[Grid],
    home: Home,
    choice: Choice,
    options: LaunchOptions,
    paper: str | None = None,
    *,
    view: View,
    ended: Callable[[GridEnd], None],
) -> State:
    """Train the chosen trials, and return the combined state of all of them.

    Consecutive grids share a launch if one launch can train them; other grids wait for the grids before them.

    Args:
        paper: the paper's table that the grids fill.
        view: displays the launches while they run.
        ended: called with the result of each grid's launch.

    Raises UserError as `train_together`; groups of grids before the failing one have been trained.
    """
    grids, states = named_grids.of_filter(grids, home, choice.only), list[State]()
    groups = [Group((grid,)) for grid in grids] if options.here else groups_of(grids)
    for group in groups:
        if group.why:
            tell(f"{group.name}: trained after the previous grids, since {group.why}")
        notify = Notify(options.notify, group.name, warn)
        try:
            launched = train_together([GridState.of(grid, home) for grid in group.grids], choice, options, notify, view)
        except UserError as error:
            notify.ended("error", str(error), GridState.of(group.grids[0], home).sums())
            raise
        for grid, result in zip(group.grids, launched, strict=True):
            if not result.interrupted:  # else Slurm may leave us seconds
                _await_others(GridState.of(grid, home))
            notify.grid = grid.name
            end = _end(GridState.of(grid, home), result, options.launches.get(grid.name), paper)
            ended(end)
            _notify_of(end, notify)
            states += end.reached
        if launched[0].interrupted and group is not groups[-1]:
            rest = [other.name for later in groups[groups.index(group) + 1 :] for other in later.grids]
            tell(f"skipped: {', '.join(rest)}; run the same command again to continue")
            states.append(State.INTERRUPTED)
            break
    return overall(states)


def train(grid_state: GridState, choice: Choice, options: LaunchOptions) -> LaunchResult:
    """Train the chosen trials of one grid; raises as `train_together`."""
    (launched,) = train_together([grid_state], choice, options)
    return launched


def train_together(
    grid_states: Sequence[GridState],
    choice: Choice,
    options: LaunchOptions,
    notify: Notify | None = None,
    view: View = View(),  # noqa: B008
) -> list[LaunchResult]:
    """Train the chosen trials of these grids in one launch, and save the grids as they are run.

    With seeds until resolved, or [select], the trials that follow from the results are trained too, round by round, as
    long as all trials of a round end. Such a grid trains alone.

    Raises UserError, before any training, if the filter matches no trial, or data, runs folder or cluster cannot be
    used.
    """
    options = replace(options, launches=_kept(grid_states, options))
    launched = partial(_round, options=options, notify=notify, view=view)
    results = launched(grid_states, choice)
    (grid_state, *others), (trained, *_) = grid_states, results
    known = set(grid_state.states)
    in_rounds = not others and (grid_state.grid.budget or grid_state.searches)
    while in_rounds and not choice.failed and not trained.interrupted:
        grid_state = GridState.of(grid_state.grid, grid_state.home)
        to_do = {trial.id for trial in grid_state.unfinished() if grid_state.states[trial.id] is not State.FAILED}
        if (known & to_do and not grid_state.searches) or grid_state.states.keys() <= known:
            break
        before, known = known, known | set(grid_state.states)
        (further,) = launched([grid_state], Choice(choice.only, before=frozenset(before)))
        decisions, names = [*trained.decisions, *further.decisions], trained.launches | further.launches
        other_code = trained.other_code | further.other_code
        trained = LaunchResult(decisions, further.interrupted, names, other_code)
        results = [trained]
    return results


def _kept(grid_states: Sequence[GridState], options: LaunchOptions) -> dict[str, KeptLaunch]:
    """Return the saved launch of each grid, by name: the given one or, on a cluster, one of its current state."""
    contents = dict[str, KeptLaunch]()
    for grid_state in grid_states:
        name = grid_state.grid.name
        now = options.launches.get(name)
        if not now:
            now = launches.of(grid_state) if options.address else None
            for note in launches.differing(grid_state, now):
                warn(note.text, note.step)
        contents |= {name: now} if now else {}
    return contents


def measure(grid_state: GridState, choice: Choice, view: View) -> None:
    """Measure the speed of recipes without finished trials, and the GPU memory of trials, and save both for later."""
    from goalgrid.runners.launch.speed_probe import probe, probe_memory

    chosen = to_train(decide(grid_state, choice))
    probe_memory(grid_state.grid, chosen, grid_state.home, view)
    if trials := unmeasured(grid_state, chosen):
        tell(f"probing: {', '.join(trial.id for trial in trials)}")
        speeds = probe(grid_state.grid, trials, grid_state.home, view)
        speed_probes.remember(grid_state.home.grid(grid_state.grid.plain_name), speeds)


@dataclass(frozen=True)
class _Work:
    """The work of one round on one grid."""

    grid_state: GridState
    decisions: list[TrialDecision]
    content: KeptLaunch | None
    todo: Sequence[Trial]
    anew: Sequence[str]
    evaluated: Sequence[Trial]
    other_code: dict[str, tuple[str, str]]

    def save(self) -> None:
        """Save the grid as it is run, and next to it, for readers, the settings selected on validation."""
        grid_state = self.grid_state
        saved_grid.save_grid(
            grid_state.grid, grid_state.trials, grid_state.home, self.content.grid if self.content else ""
        )
        if self.content:
            self.content.write(grid_state.home.grid(grid_state.grid.name).launch(self.content.id))
        if grid_state.searches:
            chosen = [search.to_dict() for search in grid_state.searches]
            files.write_json(grid_state.home.grid(grid_state.grid.name).choices, chosen)


def _work(grid_state: GridState, choice: Choice, options: LaunchOptions) -> _Work:
    """Check a grid's libraries, data and weights, and return the work to do."""
    selected = grid_state.selected(choice.only)
    optional_dependencies.require(f"grid {grid_state.grid.name!r}", *libraries_of(selected))
    grid_state.data.check(selected)
    decisions = decide(grid_state, choice)
    todo, anew = to_train(decisions), to_replace(decisions)
    evaluated = [] if choice.failed else to_evaluate(decisions, grid_state)
    content, other_code = options.launches.get(grid_state.grid.name), dict[str, tuple[str, str]]()
    if content and todo:
        other_code = launches.of_other_code(content, grid_state, todo)
        lost = grid_state.with_children(other_code)
        todo, evaluated = ([trial for trial in trials if trial.id not in lost] for trials in (todo, evaluated))
        anew = [trial_id for trial_id in anew if trial_id not in lost]
    if missing := grid_state.data.missing([*todo, *evaluated]).values():
        raise several(f"grid {grid_state.grid.name!r}", missing)
    for line in grid_state.data.check_starts(todo):
        warn(line)
    return _Work(grid_state, decisions, content, todo, anew, evaluated, other_code)


def _round(
    grid_states: Sequence[GridState], choice: Choice, *, options: LaunchOptions, notify: Notify | None, view: View
) -> list[LaunchResult]:
    """Launch the chosen trials of the grids, if any is left to train."""
    from goalgrid.runners.watching.trackers import trackers_of

    works = [_work(grid_state, choice, options) for grid_state in grid_states]
    trackers = [trackers_of(work.grid_state.grid, work.grid_state.home, options.mlflow_uri) for work in works]
    for work, of_grid in zip(works, trackers, strict=True):
        if not work.todo and not work.evaluated:
            work.save()
            _copy_late(work.grid_state, of_grid)
    begun = [(work, of_grid) for work, of_grid in zip(works, trackers, strict=True) if work.todo or work.evaluated]
    interrupted, names = _launch(begun, options, notify, view) if begun else (0, frozenset[str]())
    return [LaunchResult(work.decisions, interrupted, names, work.other_code) for work in works]


def _launch(
    works: "Sequence[tuple[_Work, Sequence[Tracker]]]", options: LaunchOptions, notify: Notify | None, view: View
) -> tuple[int, frozenset[str]]:
    """Launch the work on grids, each with its trackers; return the interrupting signal, and the name in leases."""
    for work, _ in works:
        anew = f", {len(work.anew)} of them from scratch" if work.anew else ""
        further = f", running further evaluations of {counted(len(work.evaluated), 'trial')}" if work.evaluated else ""
        grid_state = work.grid_state
        tell(f"{grid_state.grid.name}: {grid_state.headline()}; training {len(work.todo)}{anew}{further}")
        if grid_state.stops_none:
            warn(grid_state.stops_none)
    if len(works) > 1:
        names = ", ".join(work.grid_state.grid.name for work, _ in works[1:])
        tell(f"one launch: jobs of {works[0][0].grid_state.grid.name} start first, those of {names} as slots are free")
    from goalgrid.runners.launch.launch import Launch, Share  # takes seconds

    first, _ = works[0]
    shares = [
        Share(
            frozenset(trial.id for trial in work.grid_state.trials), work.content.id if work.content else "", trackers
        )
        for work, trackers in works
    ]
    launch = Launch(first.grid_state.home, options, shares, view=view, notify=notify)

    def save() -> None:
        for work, _ in works:
            work.save()

    interrupted = launch.run(
        united([work.grid_state.grid for work, _ in works]),
        _cells([work.grid_state for work, _ in works]),
        _once(trial for work, _ in works for trial in work.todo),
        list(dict.fromkeys(trial_id for work, _ in works for trial_id in work.anew)),
        evaluated=_once(trial for work, _ in works for trial in work.evaluated),
        checked=save,
        halvings=first.grid_state.halvings,
        known={trial.id: State.DIVERGED for trial in first.grid_state.having(State.DIVERGED)},
    )
    return interrupted, frozenset([launch.name])


def _cells(grid_states: Sequence[GridState]) -> list[Cell]:
    """Return the cells of the grids; with several grids, the grid's name is added as a swept value."""
    if len(grid_states) == 1:
        return list(grid_states[0].points)
    return [
        replace(cell, swept=(*cell.swept, ("grid", grid_state.grid.name)))
        for grid_state in grid_states
        for cell in grid_state.points
    ]


def _once(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials in order, without duplicates."""
    return list({trial.id: trial for trial in trials}.values())


def _await_others(after: GridState) -> None:
    """If processes on other machines hold all unfinished trials, wait until they show that they are alive."""
    if overall([after.reached(trial) for trial in after.trials]) is State.RUNNING:
        lease.await_beats(filter(None, (after.folder(trial).latest() for trial in after.having(State.RUNNING))))


def _end(after: GridState, launched: LaunchResult, content: KeptLaunch | None, paper: str | None) -> GridEnd:
    """Write a grid's table, and return how its launch ended."""
    files = keep_table(after)
    table = (table_of_paper(paper, after.home) or files.table) if files else None
    trials = list({d.trial.id: d.trial for d in launched.decisions if d.trial.id in after.states}.values())
    abandoned = after.left_by(launched.launches)
    lost = after.with_children(launched.other_code)
    reached = [_reached(after, trial, abandoned, lost) for trial in trials]
    again, untrained = Step.of("resume", after.grid.name, runs=after.home.path), None
    if content:
        folder = after.home.grid(after.grid.name).launch(content.id).path
        again = Step.of("run", launch=str(folder), runs=after.home.path)
        if launched.other_code:
            untrained = launches.untrained_note(content, launched.other_code, again)
    rest = {after.states[trial.id] for trial in trials} - set(ENDED)
    return GridEnd(after, table, bool(files and files.written), reached, untrained, again if rest else None)


def _notify_of(end: GridEnd, notify: Notify) -> None:
    state, after = overall(end.reached), end.grid_state
    word = state.value if state in (State.DONE, State.FAILED) else "incomplete"
    notify.ended(word, f"{after.grid.name}: {after.headline()}", after.sums())


def _reached(after: GridState, trial: Trial, abandoned: Collection[str], lost: Collection[str]) -> State:
    """Return the state that a trial reached; failed if it is `lost`, i.e. its launch can never train it."""
    state = after.reached(trial, abandoned)
    return State.FAILED if trial.id in lost and state in (State.INTERRUPTED, State.PLANNED) else state


def _copy_late(grid_state: GridState, trackers: "Sequence[Tracker]") -> None:
    """Copy to the trackers the finished trials that an earlier launch could not copy."""
    from goalgrid.runners.watching.mirror import Mirror

    trained = [trial for trial in grid_state.trials if not trial.shared.published]
    for tracker in trackers:
        if late := tracker.lacking(map(grid_state.folder, trained)):
            tell(f"{grid_state.grid.name}: copying {counted(len(late), 'trial')} to {tracker.name}")
            mirror = Mirror(tracker, warn)
            for folder in late:
                mirror.sync(folder)
            mirror.close()
