"""[select]: the hyper-parameter searches of each cell, and the settings selected on validation so far.

The only state is on the disk: validation metrics are read again each time. No test metric is read here.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

from goalgrid.grid.chosen import Chosen, EarlierSearches, Tried
from goalgrid.grid.expansion import Cell, Trial, block_title, expand, trials_of
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.groups import grouped
from goalgrid.grid.resolution import value_of
from goalgrid.grid.select import Halving, Point, Select
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.earlier_searches import earlier_searches
from goalgrid.grid.store.home import ENDED, Home, State
from goalgrid.results.records import record_cache


@dataclass(frozen=True)
class Search:
    """One hyper-parameter search of a cell."""

    points: tuple[Cell, ...]
    """One cell per distinct point: its search trial, its confirmation trials, then its final trials."""
    swept: Point
    """The values the grid sweeps over, as shown in tables."""
    states: Mapping[str, State]
    """States by trial id: of the search trials (one per point), then of those that confirm the best points."""
    chosen: Chosen | None
    """The selected point; None if a search trial has not ended, or none is done."""
    seeds: range
    """The seed of its search trials, then the seeds of its confirmation trials."""
    number: str = ""
    """`search 2 of 3`; empty if the cell has only one search."""
    confirm: int = 0
    """Number of best points that are confirmed with further seeds."""

    @property
    def trials(self) -> list[str]:
        """The ids of the search trials, then of the confirmation trials of the best points."""
        return list(self.states)

    @cached_property
    def finals(self) -> set[str]:
        """The ids of the final trials of all points, any of which may be selected."""
        return {trial.id for point in self.points for trial in self._finals(point)}

    @property
    def waiting(self) -> int:
        """The number of search and confirmation trials that have not ended."""
        return sum(state not in ENDED for state in self.states.values())

    @property
    def title(self) -> str:
        """The cell in words, `con_con by fc-bow on flickr8k`."""
        first = self.points[0]
        title = f"{first.objective} by {block_title((first.dataset, first.recipe, self.swept))}"
        return f"{title}, {self.number}" if self.number else title

    @property
    def most(self) -> int:
        """The maximum number of trials it may have."""
        confirmed = min(self.confirm, len(self.points)) * (len(self.seeds) - 1)
        return len(self.points) + confirmed + len(self._finals(self.points[0]))

    def pending(self, named: Collection[str] | None = None) -> list[Trial]:
        """Return stand-ins, at its first points, for the trials that wait for its selection.

        `named`: only for these ids; default: for all.
        """
        if not self.waiting:
            return []
        finals = ([t for t in self._finals(p) if named is None or t.id in named] for p in self.points)
        chosen = next(filter(None, finals), [])
        confirmed = self.points[: self.confirm] if chosen and len(self.states) == len(self.points) else ()
        return [*(trial for point in confirmed for trial in point.trials[1 : len(self.seeds)]), *chosen]

    @property
    def final(self) -> tuple[Trial, ...]:
        """The trials with the selected values, as shown in tables."""
        assert self.chosen
        place = self.trials.index(self.chosen.best.trial)
        return self._finals(self.points[place])

    def _finals(self, point: Cell) -> tuple[Trial, ...]:
        return point.trials[len(self.seeds) :]

    def to_dict(self) -> dict[str, Any]:
        first = self.points[0]
        names = {"dataset": first.dataset, "recipe": first.recipe, **dict(self.swept), "objective": first.objective}
        waiting = {"chosen": None, "waiting": self.waiting} | ({"search": self.number} if self.number else {})
        return {**names, **(self.chosen.to_dict() if self.chosen else waiting)}


def searches(grid: Grid, home: Home) -> list[Search]:
    """Return the searches of a grid with [select], in the order of its cells."""
    select, groups = grid.select, dict[tuple[range, str, str, str, Point], list[Cell]]()
    assert select
    seeds = {of_search[0]: of_search for of_search in select.searches}
    for cell in expand(grid):
        swept = tuple(pair for pair in cell.swept if pair[0] not in select.over)
        key = seeds[cell.trials[0].seed], cell.dataset, cell.recipe, cell.objective, swept
        groups.setdefault(key, []).append(cell)
    every = [cell for cells in groups.values() for cell in cells]
    results = _Results.read(select, trials_of(_searching(select, every)), home)
    earlier = earlier_searches(grid, [cell.trials[0].id for cell in every], home)
    return [_search(select, key[0], cells, key[-1], results, earlier) for key, cells in groups.items()]


def cells_of(every: Iterable[Search]) -> list[Cell]:
    """Return the cells whose searches have all ended, with the trials of the selected values, for tables."""
    cells, places = list[Cell](), ((search.points[0], search) for search in every)
    for several in grouped(((p.dataset, p.recipe, p.objective, s.swept), s) for p, s in places).values():
        chosen = [search for search in several if search.chosen]
        if chosen and not any(search.waiting for search in several):
            trials = tuple(trial for search in chosen for trial in search.final)
            choices = tuple(search.chosen for search in chosen if search.chosen)
            cells.append(replace(chosen[0].points[0], swept=chosen[0].swept, trials=trials, choices=choices))
    return cells


class _Results(NamedTuple):
    """State and results of the search trials on the disk, by id."""

    states: Mapping[str, State]
    values: Mapping[str, float]
    """The selection metric of trials that are done, stopped or diverged (-inf)."""
    epochs: Mapping[str, int]
    failures: Mapping[str, Failure | None]
    """Failure classes of failed trials."""
    epochs_of: Mapping[str, int]
    """Planned epochs of each trial."""

    @classmethod
    def read(cls, select: Select, trials: Sequence[Trial], home: Home) -> Self:
        states = _states(select, trials, home)
        done = [trial_id for trial_id, state in states.items() if state is State.DONE]
        rows = record_cache.rows(home, done, [select.by, "epochs"], {})
        values = {trial_id: float(row[select.by]) for trial_id, row in rows.items()}
        epochs = {trial_id: row["epochs"] for trial_id, row in rows.items()}
        states |= {trial_id: State.UNREADABLE for trial_id in done if trial_id not in values}
        by_id = {trial.id: trial for trial in trials}
        for trial_id in [name for name, state in states.items() if state in (State.STOPPED, State.DIVERGED)]:
            trained = [row for row in home.trial(trial_id).rows() if row.keys() >= {select.by, "val_rsum"}]
            epochs[trial_id] = len(trained)
            if states[trial_id] is State.DIVERGED:
                values[trial_id] = -math.inf
            elif trained:
                values[trial_id] = max(trained, key=by_id[trial_id].shared.train.selection_rank)[select.by]
        failed = [trial_id for trial_id, state in states.items() if state is State.FAILED]
        failures = {trial_id: home.trial(trial_id).failure() for trial_id in failed}
        return cls(states, values, epochs, failures, {trial.id: trial.epochs for trial in trials})


def _search(
    select: Select, seeds: range, every: Sequence[Cell], swept: Point, results: _Results, earlier: EarlierSearches
) -> Search:
    """Build the search of a cell from the cells of all its points; points with equal search trials count once."""
    points = dict[str, Cell]()
    for cell in every:
        points.setdefault(cell.trials[0].id, cell)
    cells, offered = list(points.values()), len({cell.swept for cell in every})  # that of the default may be drawn, too
    read = {name for name in select.over if len({value_of(cell.trials[0].shared, name) for cell in cells}) > 1}
    tried = tuple(
        Tried(
            key,
            tuple(pair for pair in cell.swept if pair[0] in read),
            results.values[key],
            results.states[key] is State.DONE,
            results.epochs[key],
            results.epochs_of[key],
            default=select.include == "default" and cell is every[0],
            confirmed={t.id: results.values[t.id] for t in cell.trials[1 : len(seeds)] if t.id in results.values},
        )
        for key, cell in points.items()
        if key in results.values
    )
    states = {trial_id: results.states[trial_id] for trial_id in points}
    if not any(one.value > -math.inf for one in tried) and states.keys() == {one.trial for one in tried}:
        states = dict.fromkeys(states, State.FAILED)  # the cell has nothing to choose from
    failed = [trial_id for trial_id, state in states.items() if state is State.FAILED]
    impossible = sum(results.failures.get(trial_id) is Failure.USER for trial_id in failed)
    missing = {"unread": offered - len(cells), "failed": len(failed) - impossible, "impossible": impossible}
    draws = (select.draws or len(every)) - (len(every) - offered)
    missing["impossible"] += draws - offered
    number = f"search {select.searches.index(seeds) + 1} of {select.repeats}" if select.repeats > 1 else ""
    chosen = Chosen(select.by, draws, len(cells), tried, missing, earlier, select.confirm, len(seeds) - 1, number)
    if all(state in ENDED for state in states.values()) and chosen.possible:
        confirming = [t.id for one in chosen.candidates for t in points[one.trial].trials[1 : len(seeds)]]
        states |= {trial_id: results.states[trial_id] for trial_id in confirming}
    ended = all(state in ENDED for state in states.values()) and bool(chosen.possible)
    return Search(tuple(cells), swept, states, chosen if ended else None, seeds, number, select.confirm)


def with_trials(every: Iterable[Search], finals: Iterable[Cell]) -> list[Cell]:
    """Return the cells of all points with their search trials, the final trials in tables, and all parents of these."""
    needed, points = {trial.id for cell in finals for trial in cell.trials}, [cell for s in every for cell in s.points]
    needed.update(trial_id for search in every for trial_id in search.trials)
    for cell in reversed(points):  # parents come before
        needed.update(parent for trial in cell.trials if trial.id in needed for parent in trial.parents)
    return [replace(cell, trials=tuple(trial for trial in cell.trials if trial.id in needed)) for cell in points]


def halvings(grid: Grid, every: Iterable[Search]) -> dict[str, Halving]:
    """Map the id of each search trial that may be stopped early to its rule; trials with children are never stopped."""
    if grid.select is None:
        return {}
    titles = {cell.trials[0].id: search.title for search in every for cell in search.points}
    select, ruled = grid.select, _ruled(grid.select, [cell.trials[0] for search in every for cell in search.points])
    return {name: Halving(titles[name], select.by, select.grace, select.factor) for name in ruled}


def _searching(select: Select, cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells with only their search and confirmation trials."""
    number = len(select.searches[0])
    return [replace(cell, trials=cell.trials[:number]) for cell in cells]


def _ruled(select: Select, trials: Iterable[Trial]) -> list[str]:
    """Return the ids of the search trials that the early-stopping rule may stop."""
    if select.stop == "none":
        return []
    by_id = {trial.id: trial for trial in trials}
    parents = {parent for trial in by_id.values() for parent in trial.parents}
    return [name for name in by_id if name not in parents]


def _states(select: Select, trials: Sequence[Trial], home: Home) -> dict[str, State]:
    """Return the states of search trials, by id; a trial whose parent failed or diverged gets its parent's state."""
    first = {seeds[0] for seeds in select.searches}
    states = home.states(
        [trial.id for trial in trials], _ruled(select, [trial for trial in trials if trial.seed in first])
    )
    for trial in trials:  # parents come before
        if states[trial.id] is State.FAILED and home.trial(trial.id).failure() is Failure.NON_FINITE:
            states[trial.id] = State.DIVERGED
        elif states[trial.id] is State.PLANNED:
            before = {states.get(name) for name in trial.parents}
            states[trial.id] = next((s for s in (State.FAILED, State.DIVERGED) if s in before), State.PLANNED)
    return states
