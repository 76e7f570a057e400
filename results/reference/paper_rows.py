"""The rows of the papers' tables: trained by a grid here, quoted by the paper from elsewhere, or not possible yet."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from goalgrid.grid import catalog
from goalgrid.grid.expansion import Cell
from goalgrid.grid.gridfile import Grid
from goalgrid.results.records import record
from goalgrid.results.reference.coverage import gap
from goalgrid.results.reference.reading import Line, Result, paper_table

ORIGINS = TRAINED, QUOTED, NOT_POSSIBLE = "trained here", "quoted", "not possible"


@dataclass(frozen=True)
class PaperRow:
    """A row of a paper's table.

    Args:
        block: the title above the row; empty without a title.
        grids: the grid of the table, if its cells fill all numbers of the row that are measured here.
        recipes: ours, if the table's file names it, or ours of each data set; so are the objectives.
        quoted: where the paper has the numbers from; empty: it trained them itself.
        why: why no grid fills the row.
        differs: how the training here differs from the source of the numbers, as far as we know.
    """

    table: str
    block: str
    label: str
    grids: tuple[str, ...]
    recipes: tuple[str, ...]
    objectives: tuple[str, ...]
    quoted: str
    why: str
    differs: tuple[str, ...]

    @property
    def origin(self) -> str:
        """A row that a grid trains counts as trained, even if the paper quotes it."""
        return TRAINED if self.grids else QUOTED if self.quoted else NOT_POSSIBLE


def paper_rows(name: str, grids: Sequence[tuple[Grid, Sequence[Cell]]]) -> Iterator[PaperRow]:
    """The rows of a table in its order, held against the grid of these that names the table: the paper's settings."""
    naming = [(grid.name, cells) for grid, cells in grids if name in grid.tables]
    for line, results in paper_table(name).rows(name):
        first, recipes = results[0], dict.fromkeys(result.recipe for result in results if result.recipe)
        filling = {grid: cells for grid, cells in naming if _fills(cells, results)}
        yield PaperRow(
            table=name,
            block=first.block,
            label=_label(line, first),
            grids=tuple(filling),
            recipes=tuple(recipes),
            objectives=tuple(dict.fromkeys(result.objective for result in results if result.objective)),
            quoted=line.quoted,
            why="" if filling else line.not_possible,
            differs=tuple(text for cells in filling.values() for text in differences(line, results, cells)),
        )


def _fills(cells: Sequence[Cell], results: Sequence[Result]) -> bool:
    """Whether there are cells for all numbers of a row that are measured here."""
    measured = [result for result in results if not math.isnan(result.value.mean) and result.metric in record.METRICS]
    return bool(measured) and not any(gap(result, cells) for result in measured)


def differences(line: Line, results: Sequence[Result], cells: Sequence[Cell]) -> Iterator[str]:
    """How cells that fill a row differ from its source: what the table's file says, the schedule, and our readings.

    The source of a quoted row has the recipe's schedule, the model's own, unless the table's file says more. The source
    of a row that the paper trained has the grid's schedule, which is the paper's.
    """
    recipes = dict.fromkeys(result.recipe for result in results if result.recipe)
    models = list(dict.fromkeys(model for recipe in recipes for model in catalog.lineage(recipe)))
    remarks = dict.fromkeys(result.differs for result in results if result.differs)
    yield from remarks
    if line.quoted and not remarks:
        objectives = {result.objective for result in results}
        row = [cell for cell in cells if cell.recipe in models and cell.objective in objectives]
        if settings := other_settings(row):
            yield f"another schedule than its source: {settings}"
    yield from filter(None, dict.fromkeys(catalog.recipe(model).reading for model in models))


def other_settings(cells: Sequence[Cell]) -> str:
    """The settings of training in which cells leave their recipes, `train.lr 0.0005 for 0.0002`; empty if in none."""
    ours, theirs = dict[str, dict[str, None]](), dict[str, dict[str, None]]()
    for cell in cells:
        published = catalog.recipe(cell.recipe).train.model_dump()
        for name, value in cell.trials[0].shared.train.model_dump().items():
            if value != published[name] and not cell.trials[0].shared.members:
                ours.setdefault(name, {})[f"{value:g}" if isinstance(value, float) else str(value)] = None
                theirs.setdefault(name, {})[f"{published[name]}"] = None
    return ", ".join(f"train.{name} {' and '.join(ours[name])} for {' and '.join(theirs[name])}" for name in ours)


def _label(line: Line, result: Result) -> str:
    """The row's name; of a row of GOAL's matrix, the model and the pair weight.

    >>> from goalgrid.results.reference.reading import paper_table
    >>> [_label(line, row[0]) for line, row in paper_table("goal-table5-coco").rows("goal-table5-coco")][-1]
    'VSE∞ (WSL), sig-ms'
    """
    return f"{result.model}, {line.pair}" if line.pair else result.label
