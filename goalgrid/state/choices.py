"""[select]: the search of each cell, and what validation chose, as the finished search trials say.

The disk is the state: every look reads the validation metrics anew. No test metric is read here.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from goalgrid.grid.expansion import Cell, Shared, Trial, block_title, expand
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.select import Chosen, Halving, Point, Select, Tried
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.earlier_searches import earlier_searches
from goalgrid.grid.store.home import ENDED, Home, State
from goalgrid.results.records import record_cache


@dataclass(frozen=True)
class Search:
    """The search of a cell."""

    points: tuple[Cell, ...]
    """A cell for each point that differs for this cell: its search trial, then the trials that it gets if chosen."""
    swept: Point
    """What the grid sweeps, which tables show."""
    states: Mapping[str, State]
    """Of its search trials, by id."""
    chosen: Chosen | None
    """None: a search trial has not ended, or none is done."""

    @property
    def trials(self) -> list[str]:
        """Ids of the search trials."""
        return list(self.states)

    @cached_property
    def finals(self) -> set[str]:
        """Ids of all trials that may be chosen."""
        return {trial.id for point in self.points for trial in point.trials[1:]}

    @property
    def waiting(self) -> int:
        """Search trials that have not ended."""
        return sum(state not in ENDED for state in self.states.values())

    @property
    def title(self) -> str:
        """`con_con by fc-bow on flickr8k`."""
        first = self.points[0]
        return f"{first.objective} by {block_title((first.dataset, first.recipe, self.swept))}"

    @property
    def cell(self) -> Cell:
        """The cell of tables, with the trials of the chosen values."""
        assert self.chosen
        place = self.trials.index(self.chosen.best.trial)
        return replace(self.points[place], swept=self.swept, trials=self.points[place].trials[1:], chosen=self.chosen)

    def to_dict(self) -> dict[str, Any]:
        first = self.points[0]
        names = {"dataset": first.dataset, "recipe": first.recipe, **dict(self.swept), "objective": first.objective}
        return {**names, **(self.chosen.to_dict() if self.chosen else {"chosen": None, "waiting": self.waiting})}


def searches(grid: Grid, home: Home) -> list[Search]:
    """The searches of a grid with [select], in the order of its cells."""
    select, groups = grid.select, dict[tuple[str, str, str, Point], dict[str, Cell]]()
    assert select
    for cell in expand(grid):
        swept = tuple(pair for pair in cell.swept if pair[0] not in select.over)
        groups.setdefault((cell.dataset, cell.recipe, cell.objective, swept), {}).setdefault(cell.trials[0].id, cell)
    trials = {cell.trials[0].id: cell.trials[0] for points in groups.values() for cell in points.values()}
    states = _states(select, list(trials.values()), home)
    done = [trial_id for trial_id, state in states.items() if state is State.DONE]
    rows = record_cache.rows(home, done, [select.by, "epochs"], {})
    values = {trial_id: row[select.by] for trial_id, row in rows.items()}
    epochs = {trial_id: row["epochs"] for trial_id, row in rows.items()}
    states |= {trial_id: State.UNREADABLE for trial_id in done if trial_id not in values}
    for trial_id in [trial_id for trial_id, state in states.items() if state in (State.STOPPED, State.DIVERGED)]:
        trained = [row for row in home.trial(trial_id).rows() if row.keys() >= {select.by, "val_rsum"}]
        epochs[trial_id] = len(trained)
        if states[trial_id] is State.DIVERGED:
            values[trial_id] = -math.inf
        elif trained:
            values[trial_id] = max(trained, key=trials[trial_id].shared.train.selection_rank)[select.by]
    offered, every = len(select.points()), list[Search]()
    earlier = earlier_searches(grid, states, home)
    draws = select.draws or offered
    for (*_, swept), points in groups.items():  # each of these by its id, so that equal trials are one point
        cells, of_cell = tuple(points.values()), {trial_id: states[trial_id] for trial_id in points}
        read = {name for name in select.over if len({_value(cell.trials[0].shared, name) for cell in cells}) > 1}
        settings = {key: tuple(pair for pair in cell.swept if pair[0] in read) for key, cell in points.items()}
        tried = tuple(
            Tried(key, settings[key], values[key], states[key] is State.DONE, epochs[key], trials[key].epochs)
            for key in points
            if key in values
        )
        if not any(one.value > -math.inf for one in tried) and of_cell.keys() == {one.trial for one in tried}:
            of_cell = dict.fromkeys(of_cell, State.FAILED)  # the cell has nothing to choose from
        failed = [trial_id for trial_id, state in of_cell.items() if state is State.FAILED]
        impossible = sum(home.trial(trial_id).failure() is Failure.USER for trial_id in failed)
        missing = {"unread": offered - len(cells), "failed": len(failed) - impossible, "impossible": impossible}
        missing["impossible"] += draws - offered
        ended = all(state in ENDED for state in of_cell.values())
        chosen = Chosen(select.by, draws, len(cells), tried, missing, earlier) if ended else None
        every.append(Search(cells, swept, of_cell, chosen if chosen and chosen.possible else None))
    return every


def with_trials(every: Iterable[Search], finals: Iterable[Cell]) -> list[Cell]:
    """The cells of all points: search trials, and with them the trials of tables and what these start from."""
    needed, points = {trial.id for cell in finals for trial in cell.trials}, [cell for s in every for cell in s.points]
    for cell in reversed(points):  # parents come before
        needed.update(parent for trial in cell.trials if trial.id in needed for parent in trial.parents)
    return [
        replace(cell, trials=(cell.trials[0], *(trial for trial in cell.trials[1:] if trial.id in needed)))
        for cell in points
    ]


def halvings(grid: Grid, every: Iterable[Search]) -> dict[str, Halving]:
    """How search trials may be stopped, by id; one from which another trial starts is never stopped."""
    if grid.select is None:
        return {}
    titles = {cell.trials[0].id: search.title for search in every for cell in search.points}
    select, ruled = grid.select, _ruled(grid.select, [cell.trials[0] for search in every for cell in search.points])
    return {name: Halving(titles[name], select.by, select.grace, select.factor) for name in ruled}


def _ruled(select: Select, trials: Iterable[Trial]) -> list[str]:
    """Ids of the search trials that the rule may stop."""
    if select.stop == "none":
        return []
    by_id = {trial.id: trial for trial in trials}
    parents = {parent for trial in by_id.values() for parent in trial.parents}
    return [name for name in by_id if name not in parents]


def _states(select: Select, trials: Sequence[Trial], home: Home) -> dict[str, State]:
    """The states of search trials, by id; one that waits for a trial that failed or diverged has done so, too."""
    states = home.states([trial.id for trial in trials], _ruled(select, trials))
    for trial in trials:  # parents come before
        if states[trial.id] is State.FAILED and home.trial(trial.id).failure() is Failure.NON_FINITE:
            states[trial.id] = State.DIVERGED
        elif states[trial.id] is State.PLANNED:
            before = {states.get(name) for name in trial.parents}
            states[trial.id] = next((s for s in (State.FAILED, State.DIVERGED) if s in before), State.PLANNED)
    return states


def _value(shared: Shared, name: str) -> Any:
    """A setting by its dotted name; None where the trial does not have it."""
    section, *rest = name.split(".")
    value: Any = getattr(shared, section)
    for part in ["parameters", *rest] if section == "objective" and rest != ["variant"] else rest:
        value = value.get(part) if isinstance(value, dict) else getattr(value, part, None)
    return value
