"""Seeds until resolved: the trials that a grid with a budget has by now, as its finished trials decide.

The disk is the state: every look is replayed from the records, so that each command sees the same trials, and `run`,
given again, goes on where it was.
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
    """Return the cells with the trials that they should have by now, and the contests for the best, by block.

    Trials that others come from are among them. `cells`: with all trials that the budget allows.
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
    """Return the contests of the blocks; a cell with a trial that failed for good takes no part until that is done."""
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
