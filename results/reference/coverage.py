"""Which numbers of a paper's table a grid will have one of its own for, known before any training."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from grid import catalog
from grid.errors import several, unknown
from grid.expansion import Cell
from grid.gridfile import Grid
from results import record
from results.reference.matching import changes
from results.reference.reading import Result, names, results


@dataclass(frozen=True)
class Gap:
    """Why a grid has no number of a table."""

    why: str
    name: str = ""
    """What is lacking, where that has a name here."""

    @property
    def text(self) -> str:
        return f"{self.why} {self.name}".rstrip()


@dataclass(frozen=True)
class Coverage:
    """One table of a paper, held against a grid."""

    name: str
    filled: tuple[Result, ...]
    lacking: tuple[tuple[Result, Gap], ...]
    changed: tuple[str, ...]
    """Settings in which cells that fill the table leave their recipe or their objective's defaults."""


def check_names(grid: Grid) -> None:
    """Hold the tables that a grid names against those that there are.

    Raises:
        UserError: with every unknown name.
    """
    known, hint = names(), "All with what they show: goalgrid table --reference."
    problems = [
        unknown("table", name, known, where=f"in tables[{place}]", hint=hint)
        for place, name in enumerate(grid.tables)
        if name not in known
    ]
    if problems:
        raise several(f"grid {grid.name!r}", problems)


def coverage(name: str, cells: Sequence[Cell]) -> Coverage:
    """Which of a table's numbers these cells will fill once they are trained, by any protocol of their data sets.

    A number is filled where data set, protocol, recipe and objective are those that the table's row is here.
    """
    printed = [result for result in results(name) if not math.isnan(result.value.mean)]
    gaps = [_gap(result, cells) for result in printed]
    filled = [result for result, gap in zip(printed, gaps, strict=True) if gap is None]
    used = {(result.dataset, result.recipe, result.objective) for result in filled}
    changed = changes([cell for cell in cells if (cell.dataset, cell.recipe, cell.objective) in used])
    lacking = tuple((result, gap) for result, gap in zip(printed, gaps, strict=True) if gap is not None)
    return Coverage(name, tuple(filled), lacking, tuple(changed))


def _gap(result: Result, cells: Sequence[Cell]) -> Gap | None:
    """Why no cell has this number; None where one has."""
    if result.recipe is None:
        return Gap("no recipe here is this model")
    if result.objective is None:
        return Gap("no objective here is this loss")
    if result.metric not in record.METRICS:
        return Gap("not measured here:", result.metric)
    left: Sequence[Cell] = cells
    for what, wanted in (("dataset", result.dataset), ("recipe", result.recipe), ("objective", result.objective)):
        left = [cell for cell in left if getattr(cell, what) == wanted]
        if not left:
            return Gap(f"the grid has no {what}", wanted)
    known = catalog.protocols(result.dataset)
    return None if result.protocol in known else Gap(f"{result.dataset} has no protocol", result.protocol)
