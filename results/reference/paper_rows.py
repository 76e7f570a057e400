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
        grids: the grids whose cells together fill all numbers of the row; none if a number stays empty.
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
    """The rows of a table in its order, held against the cells of these grids.

    A grid counts if it names the table; the papers' settings for this table are its own. Any other grid counts if it
    leaves the recipes and objectives as they are: first a grid of the table's paper, last a grid of no paper.
    """
    paper = name.partition("-")[0]
    naming = [(grid, cells) for grid, cells in grids if name in grid.tables]
    plain = [
        (grid, cells)
        for grid, cells in grids
        if name not in grid.tables and not grid.sweep and all(key.startswith("dataset.") for key in grid.settings)
    ]
    plain.sort(key=lambda pair: (not pair[0].name.startswith(f"{paper}-"), not pair[0].tables))
    for line, results in paper_table(name).rows(name):
        first, recipes = results[0], dict.fromkeys(result.recipe for result in results if result.recipe)
        filling = _filling(results, naming + plain)
        yield PaperRow(
            table=name,
            block=first.block,
            label=_label(line, first),
            grids=tuple(grid.name for grid, _ in filling),
            recipes=tuple(recipes),
            objectives=tuple(dict.fromkeys(result.objective for result in results if result.objective)),
            quoted=line.quoted,
            why="" if filling else line.not_possible,
            differs=tuple(differences(line, results, [cell for _, cells in filling for cell in cells]))
            if filling
            else (),
        )


def _filling(
    results: Sequence[Result], grids: Sequence[tuple[Grid, Sequence[Cell]]]
) -> list[tuple[Grid, Sequence[Cell]]]:
    """The first grids that together fill all numbers of a row which are measured here."""
    missing = [result for result in results if not math.isnan(result.value.mean) and result.metric in record.METRICS]
    filling = list[tuple[Grid, Sequence[Cell]]]()
    for grid, cells in grids if missing else ():
        rest = [result for result in missing if gap(result, cells)]
        if len(rest) < len(missing):
            filling.append((grid, cells))
        missing = rest
        if not missing:
            return filling
    return []


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
