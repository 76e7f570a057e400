"""Finds, before any training, which numbers and rows of the papers' tables grids fill, and how the training differs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from goalgrid.grid import catalog
from goalgrid.grid.errors import several, unknown
from goalgrid.grid.expansion import Cell
from goalgrid.grid.gridfile import Grid
from goalgrid.results.records import record
from goalgrid.results.reference.differences import differences
from goalgrid.results.reference.matching import changes
from goalgrid.results.reference.reading import Result, paper_table, results_of, table_names

ORIGINS = TRAINED, QUOTED, NOT_POSSIBLE = "trainable here", "quoted", "not possible"
Place = tuple[str, str | None, str | None]
"""Data set, recipe and objective."""


class Gap(NamedTuple):
    """Why a grid does not measure a number of a table, and the name of the missing setting or metric, if any."""

    why: str
    name: str = ""


@dataclass(frozen=True)
class Coverage:
    """Coverage of a paper's table by a grid: the numbers that the grid fills, and those that it lacks."""

    name: str
    filled: tuple[Result, ...]
    lacking: tuple[tuple[Result, Gap], ...]
    changed: tuple[str, ...]
    """Settings of the cells used in which they differ from the published ones (see `changes`)."""


@dataclass(frozen=True)
class PaperRow:
    """A row of a paper's table, with the matching recipes and objectives here if the table's file names them."""

    table: str
    block: str
    label: str
    grids: tuple[str, ...]
    """Grids whose cells fill all numbers of the row that can be measured here."""
    recipes: tuple[str, ...]
    objectives: tuple[str, ...]
    quoted: str
    """Source that the paper quotes the numbers from; empty: the paper's own experiments."""
    why: str
    """Why no grid fills the row."""
    differs: tuple[str, ...]
    """Known differences between the training here and that of the numbers' source."""
    origin: str
    """One of `ORIGINS`; a row that a grid trains is trainable even if the paper quotes it."""


def check_names(grid: Grid) -> None:
    """Raise a UserError if the grid names tables that do not exist; it lists all of them."""
    hint = "All with what they show: goalgrid table --reference."
    problems = [
        unknown("table", name, table_names(), where=f"in tables[{place}]", hint=hint)
        for place, name in enumerate(grid.tables)
        if name not in table_names()
    ]
    if problems:
        raise several(f"grid {grid.name!r}", problems)


def coverage(name: str, cells: Sequence[Cell]) -> Coverage:
    """Return which numbers of a table these cells will fill once trained, for any protocol of their data sets.

    A cell fills a number if it has the data set, recipe and objective given in the table's file.
    """
    printed = [result for result in results_of(name) if not math.isnan(result.value.mean)]
    gaps = [(result, gap(result, cells)) for result in printed]
    filled = [result for result, missing in gaps if missing is None]
    used = set(map(place_of, filled))
    changed = changes([cell for cell in cells if place_of(cell) in used])
    lacking = tuple((result, missing) for result, missing in gaps if missing is not None)
    return Coverage(name, tuple(filled), lacking, tuple(changed))


def place_of(where: Cell | Result) -> Place:
    return where.dataset, where.recipe, where.objective


def gap(result: Result, cells: Sequence[Cell]) -> Gap | None:
    """Return why none of the cells measures this number; None if one does."""
    if result.line.not_possible:
        return Gap(result.line.not_possible)
    if result.recipe is None:
        return Gap("no recipe here is this model")
    if result.objective is None:
        return Gap("no objective here is this loss")
    if result.metric not in record.METRICS:
        return Gap("not measured here:", result.metric)
    place = {"dataset": result.dataset, "recipe": result.recipe, "objective": result.objective}
    for what, name in place.items():
        if not any(getattr(cell, what) == name for cell in cells):
            return Gap(f"the grid has no {what}", name)
    if place_of(result) not in map(place_of, cells):
        return Gap("the grid leaves out", f"{result.recipe} by {result.objective} on {result.dataset}")
    known = catalog.protocols(result.dataset)
    return None if result.protocol in known else Gap(f"{result.dataset} has no protocol", result.protocol)


def paper_rows(name: str, grids: Sequence[tuple[Grid, Sequence[Cell]]]) -> Iterator[PaperRow]:
    """Yield the rows of a table in order, matched with the grids that list the table in `tables`."""
    naming = [(grid.name, cells) for grid, cells in grids if name in grid.tables]
    for results in paper_table(name).rows(name):
        first, line = results[0], results[0].line
        measured = [r for r in results if not math.isnan(r.value.mean) and r.metric in record.METRICS]
        filling = {grid: cells for grid, cells in naming if measured and not any(gap(r, cells) for r in measured)}
        yield PaperRow(
            table=name,
            block=first.block,
            label=f"{first.model}, {line.pair}" if line.pair else first.label,
            grids=tuple(filling),
            recipes=tuple(dict.fromkeys(result.recipe for result in results if result.recipe)),
            objectives=tuple(dict.fromkeys(result.objective for result in results if result.objective)),
            quoted=line.quoted,
            why="" if filling else line.not_possible,
            differs=tuple(dict.fromkeys(text for cells in filling.values() for text in differences(results, cells))),
            origin=TRAINED if filling else QUOTED if line.quoted else NOT_POSSIBLE,
        )
