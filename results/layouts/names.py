"""Names that papers use for the data sets, protocols, recipes and losses of a grid."""

from collections import Counter
from collections.abc import Iterable, Sequence

from goalgrid.grid import catalog
from goalgrid.grid.expansion import Cell
from goalgrid.grid.objectives import OURS
from goalgrid.grid.objectives.goal_matrix import CELLS
from goalgrid.grid.objectives.parameters import ObjectiveEntry
from goalgrid.grid.protocols import protocol


def paper_name(of_protocol: str) -> str:
    """Return a data set and test split as papers print it; for a user's data set, its name.

    >>> paper_name("coco-5x1k"), paper_name("birds-test")
    ('MS-COCO 5-fold 1K', 'birds')
    """
    return protocol(of_protocol).known_as or of_protocol.removesuffix("-test")


def names_of(cells: Sequence[Cell], protocols: Iterable[str]) -> dict[str, str]:
    """Map the cells' data sets, protocols, recipes and losses to their names in papers, if they have one.

    Recipes on one data set that would get the same name keep their own name.
    """
    names = {name: paper_name(name) for name in protocols}
    names |= {cell.dataset: catalog.described(cell.dataset).known_as for cell in cells}
    names |= {cell.objective: _loss_of(cell) for cell in cells if cell.objective not in CELLS}
    trained = [cell for cell in cells if not cell.published]  # of another's checkpoint, `recipe` is the file's name
    recipes = {(cell.dataset, cell.recipe): cell.origin.known_as for cell in trained}
    shared = Counter((dataset, known_as) for (dataset, _), known_as in recipes.items())
    names |= {recipe: known_as for (dataset, recipe), known_as in recipes.items() if shared[dataset, known_as] == 1}
    return {name: known_as for name, known_as in names.items() if known_as not in ("", name)}


def loss_name(objective: str) -> str:
    """Return the first of the names under which a loss is known; empty for an unknown loss.

    >>> loss_name("triplet-hn"), loss_name("infonce")
    ('Triplet-HN', 'InfoNCE')
    """
    entry = OURS.get(objective)
    return _first_name(entry) if entry else ""


def _loss_of(cell: Cell) -> str:
    """Return the first name of a cell's loss, which may be user-defined."""
    return _first_name(cell.trials[0].shared.objective.entry) if cell.trials else loss_name(cell.objective)


def _first_name(entry: ObjectiveEntry) -> str:
    return entry.known_as.partition(",")[0]
