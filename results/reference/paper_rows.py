"""The rows of the papers' tables: trained by a grid here, quoted by the paper from elsewhere, or not possible yet."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grid.expansion import Cell
from grid.gridfile import Grid
from results.records import record
from results.reference.coverage import gap
from results.reference.reading import Line, Result, paper_table

ORIGINS = TRAINED, QUOTED, NOT_POSSIBLE = "trained here", "quoted", "not possible"


@dataclass(frozen=True)
class PaperRow:
    """A row of a paper's table.

    Args:
        block: the title above the row; empty without a title.
        grids: the grids whose cells together fill all numbers of the row; none if a number stays empty.
        recipe: ours, if the table's file names it, or ours of each data set; so are the objectives.
        quoted: where the paper has the numbers from; empty: it trained them itself.
        why: why no grid fills the row.
    """

    table: str
    block: str
    label: str
    grids: tuple[str, ...]
    recipe: str | None
    objectives: tuple[str, ...]
    quoted: str
    why: str

    @property
    def origin(self) -> str:
        """A row that a grid trains counts as trained, even if the paper quotes it."""
        return TRAINED if self.grids else QUOTED if self.quoted else NOT_POSSIBLE


def paper_rows(name: str, grids: Sequence[tuple[Grid, Sequence[Cell]]]) -> Iterator[PaperRow]:
    """The rows of a table in its order, held against the cells of these grids.

    A grid counts if it names the table; the papers' settings for this table are its own. Any other grid counts if it
    leaves the recipes and objectives as they are: first a grid of the table's paper, last a grid of no paper.
    """
    paper = name.partition("-")[0]
    naming = [(grid, cells) for grid, cells in grids if name in grid.tables]
    plain = [(grid, cells) for grid, cells in grids if name not in grid.tables and _plain(grid)]
    plain.sort(key=lambda pair: (not pair[0].name.startswith(f"{paper}-"), not pair[0].tables))
    for line, results in paper_table(name).rows(name):
        first, recipes = results[0], dict.fromkeys(result.recipe for result in results if result.recipe)
        grids_of_row = _filling(results, naming + plain)
        yield PaperRow(
            table=name,
            block=first.block,
            label=_label(line, first),
            grids=grids_of_row,
            recipe=", ".join(recipes) or None,
            objectives=tuple(dict.fromkeys(result.objective for result in results if result.objective)),
            quoted=line.quoted,
            why="" if grids_of_row else line.not_possible,
        )


def _plain(grid: Grid) -> bool:
    return not grid.sweep and all(setting.startswith("dataset.") for setting in grid.set)


def _filling(results: Sequence[Result], grids: Sequence[tuple[Grid, Sequence[Cell]]]) -> tuple[str, ...]:
    """The first grids that together fill all numbers of a row which are measured here."""
    wanted = [result for result in results if not math.isnan(result.value.mean) and result.metric in record.METRICS]
    names = []
    for grid, cells in grids if wanted else ():
        left = [result for result in wanted if gap(result, cells)]
        if len(left) < len(wanted):
            names.append(grid.name)
        wanted = left
        if not wanted:
            return tuple(names)
    return ()


def _label(line: Line, result: Result) -> str:
    """The row's name; of a row of GOAL's matrix, the model and the pair weight.

    >>> from results.reference.reading import paper_table
    >>> [_label(line, row[0]) for line, row in paper_table("goal-table5-coco").rows("goal-table5-coco")][-1]
    'VSE∞ (WSL), sig-ms'
    """
    return f"{result.model}, {line.pair}" if line.pair else result.label
