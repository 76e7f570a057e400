"""The numbers of a paper's table that a grid will measure too, known before any training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from goalgrid.grid import catalog
from goalgrid.grid.errors import several, unknown
from goalgrid.grid.expansion import Cell
from goalgrid.grid.gridfile import Grid
from goalgrid.results.records import record
from goalgrid.results.reference.matching import changes
from goalgrid.results.reference.reading import Result, results_of, table_names


@dataclass(frozen=True)
class Gap:
    """Why a grid will not measure a number of a table."""

    why: str
    name: str = ""
    """Name of the missing data set, protocol, metric, recipe or objective; empty if it has no name here."""

    @property
    def text(self) -> str:
        return f"{self.why} {self.name}".rstrip()


@dataclass(frozen=True)
class Coverage:
    """A table of a paper: the numbers that a grid fills, and the numbers that it lacks."""

    name: str
    filled: tuple[Result, ...]
    lacking: tuple[tuple[Result, Gap], ...]
    changed: tuple[str, ...]
    """Settings of cells that fill the table, where they differ from their recipe or their objective's defaults."""


def check_names(grid: Grid) -> None:
    """Check that the tables that a grid names exist.

    Raises:
        UserError: a table does not exist; the error names every such table.
    """
    hint = "All with what they show: goalgrid table --reference."
    problems = [
        unknown("table", name, table_names(), where=f"in tables[{place}]", hint=hint)
        for place, name in enumerate(grid.tables)
        if name not in table_names()
    ]
    if problems:
        raise several(f"grid {grid.name!r}", problems)


def coverage(name: str, cells: Sequence[Cell]) -> Coverage:
    """The numbers of a table that these cells will fill once they are trained, by any protocol of their data sets.

    A cell fills a number if it has the data set, recipe and objective that the table's file gives for the row.
    """
    printed = [result for result in results_of(name) if not math.isnan(result.value.mean)]
    gaps = [gap(result, cells) for result in printed]
    filled = [result for result, missing in zip(printed, gaps, strict=True) if missing is None]
    used = {(result.dataset, result.recipe, result.objective) for result in filled}
    changed = changes([cell for cell in cells if (cell.dataset, cell.recipe, cell.objective) in used])
    lacking = tuple((result, missing) for result, missing in zip(printed, gaps, strict=True) if missing is not None)
    return Coverage(name, tuple(filled), lacking, tuple(changed))


def gap(result: Result, cells: Sequence[Cell]) -> Gap | None:
    """Why no cell will have this number; None if a cell will have it."""
    if result.not_possible:
        return Gap(result.not_possible)
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
    if not any(all(getattr(cell, what) == name for what, name in place.items()) for cell in cells):
        return Gap("the grid leaves out", f"{result.recipe} by {result.objective} on {result.dataset}")
    known = catalog.protocols(result.dataset)
    return None if result.protocol in known else Gap(f"{result.dataset} has no protocol", result.protocol)
