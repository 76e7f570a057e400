"""Seeds until resolved: determine which seeds a grid with a budget needs so far, from its finished trials.

The only state is the records on the disk: all decisions are replayed from them, so that every command sees the same
trials, and running `run` again continues where it stopped.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from goalgrid.grid.expansion import Cell
from goalgrid.grid.resources import Budget
from goalgrid.grid.store.home import Home, State
from goalgrid.results.analysis.factors import GridPart, parts_of
from goalgrid.results.layouts.captions import by_direction
from goalgrid.results.records import record_cache
from goalgrid.results.statistics.resolving import FIRST, Resolution, resolve


def so_far(budget: Budget, cells: Sequence[Cell], home: Home) -> tuple[list[Cell], dict[str, Resolution]]:
    """Return the cells with the trials they need so far, and per block the state of the contest for the best cell.

    Parents of these trials are included. `cells`: cells with all trials that the budget allows.
    """
    numbers, contests = {cell.trials[-1].id: FIRST for cell in cells}, _contests(budget, cells, home)
    for part, resolution in contests:
        for name, number in resolution.seeds.items():
            cell_id = part.cells[name].trials[-1].id
            numbers[cell_id] = max(numbers[cell_id], number)
    holder = {trial.id: cell.trials[-1].id for cell in cells for trial in cell.trials}
    for cell in reversed(cells):  # parents come before
        number = numbers[cell.trials[-1].id]
        for parent in cell.trials[number - 1].parents:
            numbers[holder[parent]] = max(numbers[holder[parent]], number)
    by_now = [replace(cell, trials=cell.trials[: numbers[cell.trials[-1].id]]) for cell in cells]
    return by_now, {part.title: resolution for part, resolution in contests}


def _contests(budget: Budget, cells: Sequence[Cell], home: Home) -> list[tuple[GridPart, Resolution]]:
    """Return the contest of each block; a cell with a failed trial is excluded until that trial is done."""
    states = home.states(trial.id for cell in cells for trial in cell.trials)
    done = [trial_id for trial_id, state in states.items() if state is State.DONE]
    columns = [f"test_{name}" for name in by_direction(budget.metric)]  # of a recall, the mean of both directions
    rows = record_cache.rows(home, done, columns, {})
    values = {trial_id: sum(row[name] for name in columns) / len(columns) for trial_id, row in rows.items()}
    contests = []
    for part in parts_of(cells):
        known = {
            name: [values[trial.id] for trial in takewhile(lambda trial: trial.id in values, cell.trials)]
            for name, cell in part.cells.items()
        }
        playing = {
            name: seeds
            for name, seeds in known.items()
            if len(seeds) == budget.seeds or states[part.cells[name].trials[len(seeds)].id] is not State.FAILED
        }
        resolution = resolve(playing, budget=budget.seeds, difference=budget.difference)
        failed = {name: max(len(known[name]) + 1, FIRST) for name in known if name not in playing}
        contests.append((part, replace(resolution, seeds={**resolution.seeds, **failed}, failed=tuple(failed))))
    return contests
