"""Read the state of a grid from the disk: its cells and trials, their states and their records."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goalgrid.grid.errors import Incomplete, UserError, counted
from goalgrid.grid.evaluations import moved
from goalgrid.grid.expansion import Cell, Trial, chains, expand, select, trials_of
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.select import Halving
from goalgrid.grid.store.home import ENDED, SETTLED, Home, State, TrialFolder
from goalgrid.grid.store.imported import imported_cells
from goalgrid.results.records import provenance
from goalgrid.results.records.provenance import Stale
from goalgrid.state.data_at_hand import DataAtHand

if TYPE_CHECKING:
    from goalgrid.results.statistics.resolving import Resolution
    from goalgrid.state.choices import Search


ORDER = (*SETTLED, State.RUNNING, State.FAILED, State.INTERRUPTED, State.PLANNED, State.UNREADABLE)
COLUMNS = (*provenance.COLUMNS, "steps", "epochs", "train_seconds", "parameters", "val_rsum")
"""Columns that are read from the records of finished trials."""
WORDS = 40
"""Maximum number of values of an axis that are listed."""


class NothingDone(Incomplete):
    """Raised if no trial of the grid is done, so that there is nothing to show."""


def overall(states: Collection[State]) -> State:
    """Combine the states of all trials: done if all are settled, running if other processes train all unfinished ones.

    Failed if any has failed; otherwise interrupted.
    """
    unfinished = set(states) - {*SETTLED}
    if not unfinished:
        return State.DONE
    if State.FAILED in unfinished:
        return State.FAILED
    return State.RUNNING if unfinished == {State.RUNNING} else State.INTERRUPTED


@dataclass(frozen=True)
class GridState:
    """A grid with the trials it has so far (imported ones last), and their states, read on first use."""

    grid: Grid
    home: Home
    cells: list[Cell]
    """The cells shown in tables; with [select], those whose search is done."""
    points: list[Cell]
    """The cells of all trials; with [select], one for each point that a cell's search tries."""
    searches: "Sequence[Search]" = ()
    halvings: Mapping[str, Halving] = field(default_factory=dict)
    """Maps the id of each trial that may be stopped early to the rule that may stop it."""
    contests: "Mapping[str, Resolution]" = field(default_factory=dict)
    """The state of the contest for the best cell, by block; empty for a grid with fixed seeds."""
    only: str = ""
    """The filter that selected the trials; empty: all trials of the grid."""

    @classmethod
    def of(cls, grid: Grid, home: Home, only: str = "") -> "GridState":
        """Read the grid with the trials it has so far, or those that match a filter.

        If seeds are added until resolved, these are only some of all its possible trials; with [select], they are the
        search trials and the trials with the selected values.
        """
        imported = imported_cells(grid, home)
        if grid.select is None:
            cells, contests = _in_budget(grid, expand(grid), home)
            cells += imported
            grid_state = cls(grid, home, cells, cells, contests=contests)
        else:
            from goalgrid.state import choices

            searches = choices.searches(grid, home)
            finals, contests = _in_budget(grid, choices.cells_of(searches), home)
            points = [*choices.with_trials(searches, finals), *imported]
            halvings = choices.halvings(grid, searches)
            grid_state = cls(grid, home, [*finals, *imported], points, searches, halvings, contests)
        if not only:
            return grid_state
        ids = {trial.id for trial in grid_state.selected(only)}

        def within(cells: list[Cell]) -> list[Cell]:
            parts = [replace(cell, trials=tuple(t for t in cell.trials if t.id in ids)) for cell in cells]
            return [cell for cell in parts if cell.trials]

        return replace(grid_state, cells=within(grid_state.cells), points=within(grid_state.points), only=only)

    @cached_property
    def trials(self) -> list[Trial]:
        return trials_of(self.points)

    @cached_property
    def states(self) -> dict[str, State]:
        """The state of each trial by id; only folders of trials that were started are read."""
        states = self.home.states((trial.id for trial in self.trials), self.halvings)
        searched = (item for search in self.searches for item in search.states.items())
        return states | {name: state for name, state in searched if state is State.DIVERGED}

    @property
    def stops_none(self) -> str:
        """A warning if the early-stopping rule can never stop a search trial; otherwise empty."""
        epochs = max((trial.epochs for trial in self.trials if trial.id in self.halvings), default=None)
        select = self.grid.select
        if select is None or epochs is None or epochs > select.grace:
            return ""
        return f'select.stop = "asha" stops none of the search trials: select.grace = {select.grace}, epochs = {epochs}'

    def folder(self, trial: Trial) -> TrialFolder:
        return self.home.trial(trial.id)

    @cached_property
    def counts(self) -> Counter[State]:
        return Counter(self.states.values())

    def having(self, state: State) -> list[Trial]:
        return [trial for trial in self.trials if self.states[trial.id] is state]

    def unfinished(self) -> list[Trial]:
        """Return the trials that still have to be trained, or whose folder cannot be read."""
        return [trial for trial in self.trials if self.states[trial.id] not in SETTLED]

    def selected(self, only: str) -> list[Trial]:
        """Return the trials that match a filter on the grid's axes, `state` or `failure`; raise UserError if none does.

        If a match waits for a search, the trials of that search are included.
        """
        if not only:
            return self.trials
        named = self._named(only)
        for search in self.searches:
            if search.waiting and not named.isdisjoint(search.finals):
                named.update(search.trials)
        if chosen := [trial for trial in self.trials if trial.id in named]:
            return chosen
        raise UserError(f"--only {only!r} matches none of the grid's trials: other values were selected on validation.")

    def pending(self, only: str = "") -> list[Trial]:
        """Return stand-ins, at a first point, for the trials that match a filter and wait for a search to end."""
        named = self._named(only) if only else None
        return [trial for search in self.searches for trial in search.pending(named)]

    def _named(self, only: str) -> set[str]:
        """Return the ids of the trials that match a filter, including those with values that may still be selected."""
        failures = {trial.id: self.folder(trial).failure() for trial in self.having(State.FAILED)}
        classes = {trial_id: failure.value for trial_id, failure in failures.items() if failure}
        states = {trial_id: state.value for trial_id, state in self.states.items()}
        candidates = [cell for search in self.searches for cell in search.points]
        named = select([*candidates, *self.points], only, {"state": states, "failure": classes})
        return {trial.id for trial in named}

    @cached_property
    def imported(self) -> list[Trial]:
        """The records of published checkpoints, which are not trained here."""
        return [trial for trial in self.trials if trial.shared.published]

    @property
    def candidates(self) -> list[Cell]:
        """The cells of all trials that the grid may eventually have: for every possible selection, with all seeds."""
        if self.searches:
            return [cell for search in self.searches for cell in search.points]
        return expand(self.grid)

    @property
    def most(self) -> int:
        """The number of trials once all seeds have been added."""
        if self.searches:
            return sum(search.most for search in self.searches)
        return len(trials_of(expand(self.grid)))

    def headline(self) -> str:
        """Return `45 trials: 40 done, 1 running, 1 failed, 3 planned`."""
        counts = ", ".join(f"{self.counts[state]:,} {state}" for state in ORDER if self.counts[state])
        together = len(chains(self.trials))
        chained = f" in {counted(together, 'chain')}" if together < len(self.trials) else ""
        chosen = f" of {self.only}" if self.only else ""
        return f"{counted(len(self.trials), 'trial')}{chosen}{chained}: {counts}"

    def sums(self) -> dict[str, int]:
        """Count all trials, and those that are done, failed or stopped by a rule."""
        return {"trials": len(self.trials), **{state.value: self.counts[state] for state in ENDED}}

    @cached_property
    def records(self) -> dict[str, dict[str, Any]]:
        """The `COLUMNS` of each finished trial with a readable record, by id."""
        return self._records[0]

    @property
    def unreadable(self) -> dict[str, str]:
        """The reason why a finished trial's record cannot be read, by trial id."""
        return self._records[1]

    @cached_property
    def _records(self) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        done = self.having(State.DONE)
        if not done:
            return {}, {}
        from goalgrid.results.records import record_cache

        unreadable = dict[Path, str]()
        rows = record_cache.rows(self.home, [trial.id for trial in done], COLUMNS, unreadable)
        return rows, {path.parent.name: why for path, why in unreadable.items()}

    @cached_property
    def elsewhere(self) -> set[str]:
        """The ids of trials in the runs folder that do not belong to the grid."""
        return self.home.standing() - self.states.keys()

    def records_of(self, ids: Iterable[str]) -> list[dict[str, Any]]:
        """Return the `COLUMNS` of these finished trials of other grids; unreadable records are skipped."""
        if not (others := list(ids)):
            return []
        from goalgrid.results.records import record_cache

        return list(record_cache.rows(self.home, others, COLUMNS, unreadable={}).values())

    def reached(self, trial: Trial, left: Collection[str] = ()) -> State:
        """Return a trial's state for exit codes: it is not done if its data changed or evaluations are missing.

        Args:
            left: ids of trials that their launch has abandoned, from `left_by`.
        """
        if trial.id in self.unreadable or trial.id in self.of_other_data:
            return State.INTERRUPTED
        state = self.states[trial.id]
        if state is State.DONE and trial.id in self.lacking:
            return State.INTERRUPTED
        if trial.id in left:
            return State.INTERRUPTED if state is State.RUNNING else state
        return State.RUNNING if state not in ENDED and trial.id in self._held else state

    @cached_property
    def _held(self) -> set[str]:
        """The ids of the trials that a process is training, and of the trials that depend on them."""
        return self.with_children(trial.id for trial in self.having(State.RUNNING))

    def left_by(self, launches: Collection[str]) -> set[str]:
        """Return the ids of trials whose leases these ended launches still hold, and of trials that depend on them."""
        latest = ((trial.id, self.folder(trial).latest()) for trial in self.having(State.RUNNING))
        return self.with_children(trial_id for trial_id, it in latest if it and it.launch() in launches)

    def with_children(self, ids: Iterable[str]) -> set[str]:
        """Return these ids and those of all trials that depend on them."""
        family = set(ids)
        for trial in self.trials if family else ():  # parents first
            if not family.isdisjoint(trial.parents):
                family.add(trial.id)
        return family

    @cached_property
    def stale(self) -> dict[str, list[Stale]]:
        """The finished trials that a rerun might not reproduce, by id, with the reasons."""
        if not self.counts[State.DONE]:
            return {}
        stale = provenance.stale(self._trained_here, self.points, self.data.now)
        return stale | {key: [Stale("record", why)] for key, why in self.unreadable.items()}

    @property
    def patched(self) -> dict[str, str]:
        """The library versions that have changed without effect on results, by id of the finished trial."""
        return provenance.patched(self._trained_here) if self.records else {}

    @property
    def _trained_here(self) -> dict[str, dict[str, Any]]:
        """The records of finished trials, except imported published checkpoints."""
        imported = {trial.id for trial in self.imported}
        return {trial_id: row for trial_id, row in self.records.items() if trial_id not in imported}

    @cached_property
    def data(self) -> DataAtHand:
        return DataAtHand(self.grid, self.home)

    @cached_property
    def of_other_data(self) -> set[str]:
        """The ids of finished trials whose data has changed since; tables do not show them."""
        return provenance.of_other_data(self.records, self.points, self.data.fingerprint)

    @property
    def trained_on_other_data(self) -> set[str]:
        """The ids in `of_other_data` that can be retrained, i.e. all but imported published checkpoints."""
        return self.of_other_data - {trial.id for trial in self.imported}

    @cached_property
    def lacking(self) -> dict[str, list[str]]:
        """The protocols of [evaluate] that are still missing for the current data, by trial id."""
        if not self.grid.evaluate.names:
            return {}
        from goalgrid.results.records.models import FurtherEvaluation

        lacking = dict[str, list[str]]()
        for cell in (cell for cell in self.cells if cell.trials and not cell.published):
            settings = cell.trials[0].settings
            by_dataset = self.grid.evaluate.of(settings).items()
            data = {name: self.data.fingerprint(moved(settings, on)) for on, names in by_dataset for name in names}
            for trial in cell.trials:
                done, path = self.states[trial.id] is State.DONE, self.folder(trial).evaluation
                if names := [name for name in data if not (done and FurtherEvaluation.of_now(path(name), data[name]))]:
                    lacking[trial.id] = names
        return lacking

    def evaluation_lines(self) -> list[str]:
        """Return `missing evaluations: 12 by eccv, 12 by f30k-1k`; empty if none is missing."""
        counts = Counter(name for names in self.lacking.values() for name in names)
        parts = ", ".join(f"{count:,} by {name}" for name, count in counts.items())
        return [f"missing evaluations: {parts}"] if parts else []

    def to_dict(self) -> dict[str, Any]:
        return {
            "grid": self.grid.name,
            "trials": len(self.trials),
            "states": {state.value: self.counts[state] for state in State},
            "missing_evaluations": self.lacking,
        }


def _in_budget(grid: Grid, cells: list[Cell], home: Home) -> "tuple[list[Cell], dict[str, Resolution]]":
    """Return the cells with the seeds they need so far, and the contests that decide this."""
    if grid.budget is None or not cells:
        return cells, {}
    from goalgrid.state import seeds

    return seeds.so_far(grid.budget, cells, home)


def ranges(values: Iterable[object]) -> list[str]:
    """Format values as words: four or more consecutive integers become a range, and a long list is shortened.

    >>> ranges([0, 1, 2]), ranges([0, 1, 2, 3, 7, 0.1, "con_con"])
    (['0', '1', '2'], ['0-3', '7', '0.1', 'con_con'])
    """
    runs: list[list[object]] = []
    for value in values:
        last = runs[-1][-1] if runs else None
        if type(value) is int and type(last) is int and value == last + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    short = [[f"{run[0]}-{run[-1]}"] if len(run) > 3 else list(map(str, run)) for run in runs]
    words = [word for run in short for word in run]
    return words if len(words) <= WORDS else [*words[:WORDS], f"and {len(words) - WORDS:,} more"]
