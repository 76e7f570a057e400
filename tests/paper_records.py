"""Records of trials that were never trained, made of the numbers that a paper prints."""

import json
import math
from typing import Any

import pyarrow as pa

from goalgrid.grid.expansion import Cell, Trial
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from goalgrid.results.reference.coverage import paper_rows
from goalgrid.results.reference.reading import Result, paper_table
from goalgrid.runners.training.fingerprint import code_fingerprint
from goalgrid.state.papers import shipped

ENVIRONMENT = json.dumps({"versions": {}, "python": "3", "device": "cpu", "platform": "none", "threads": 1})
EMPTY = {pa.string(): "", pa.float64(): 0.0, pa.int32(): 0, pa.int64(): 0}

Numbers = dict[tuple[str, str], tuple[float, float]]
"""Mean and standard deviation by protocol and metric."""


def write_trial(home: Home, trial: Trial, values: dict[tuple[str, str], float], **columns: Any) -> None:
    """Write a finished trial with these values by protocol and metric; all others are 0."""
    shared, usual = trial.shared, trial.shared.dataset.protocol
    row = {field.name: None if field.nullable else EMPTY.get(field.type, []) for field in record.SCHEMA}
    row |= {"trial_id": trial.id, "dataset": shared.dataset.name, "protocol": usual, "recipe": shared.recipe}
    row |= {"objective": shared.objective.name, "seed": trial.seed, "code_fingerprint": code_fingerprint(shared)}
    row |= {"data_fingerprint": "2:data", "environment": ENVIRONMENT, "settings": "{}", "steps": 1, "epochs": 1}
    row |= {"train_seconds": 1.0, "test_i2t_ranks": [0, 1], "test_t2i_ranks": [0, 1], "test_image_of_text": [0, 1]}
    row |= {f"test_{metric}": value for (protocol, metric), value in values.items() if protocol == usual}
    row["other_metrics"] = [(f"{p}/{metric}", value) for (p, metric), value in values.items() if p != usual]
    folder = home.trial(trial.id)
    folder.path.mkdir(parents=True)
    record.write(folder.record, {**row, **columns})
    folder.done.write_text("")


def write_table(home: Home, name: str, *, but: str = "") -> dict[str, Cell]:
    """Write trials whose means and deviations are those of a table, and return their cells by the table's rows.

    Args:
        but: the name of a row that gets no records.
    """
    cells = {grid.name: grid_cells for grid, grid_cells in shipped()}
    numbers, written = dict[str, tuple[Cell, Numbers]](), dict[str, Cell]()
    for row, results in zip(paper_rows(name, shipped()), paper_table(name).rows(name), strict=True):
        for result in results if row.grids and row.label != but else ():
            cell = next(cell for grid in row.grids for cell in cells[grid] if _fits(cell, result))
            of_cell = numbers.setdefault(cell.trials[0].id, (cell, {}))[1]
            mean, std = (0.0 if math.isnan(value) else value for value in (result.value.mean, result.value.std))
            if not math.isnan(result.value.mean) and result.metric in record.METRICS:
                assert of_cell.setdefault((result.protocol, result.metric), (mean, std)) == (mean, std), result
            written[row.label] = cell
    for cell, of_cell in numbers.values():
        number = len(cell.trials)
        spread = math.sqrt((number**2 + number) / 12)  # of 1 to n
        for place, trial in enumerate(cell.trials):
            shift = (place - (number - 1) / 2) / spread
            write_trial(home, trial, {key: mean + shift * std for key, (mean, std) in of_cell.items()})
    return written


def _fits(cell: Cell, result: Result) -> bool:
    return (cell.dataset, cell.recipe, cell.objective) == (result.dataset, result.recipe, result.objective)
