"""Finds a grid's factors: axes that its cells cross completely, so that their effects can be separated."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goalgrid.grid.errors import check_known
from goalgrid.grid.expansion import BlockKey, Cell, block_title, with_values
from goalgrid.grid.objectives.goal_matrix import CELLS, PAIR_WEIGHTS, TRIPLET_WEIGHTS

Levels = tuple[str, ...]
"""A cell's levels (its objective, then its values on further factors), or all levels of one factor."""

PAIR, TRIPLET = "pair weight", "triplet weight"
_ORDER = {PAIR: tuple(PAIR_WEIGHTS), TRIPLET: tuple(TRIPLET_WEIGHTS)}


@dataclass(frozen=True)
class GridPart:
    """Cells that are analysed together: one block of the table, or several blocks that differ in a factor."""

    title: str
    cells: Mapping[str, Cell]
    """Cells by name, e.g. `sig_cir, objective.tau = 10`: the objective and its values on further factors."""
    places: Mapping[str, Levels]
    """Levels of the cells, by name."""
    across: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parts_of(cells: Sequence[Cell], across: Sequence[str] = ()) -> list[GridPart]:
    """Split the grid by data set, recipe and swept values, but not by the axes in `across`, which become factors."""
    known = [axis for axis in cells[0].axes if axis != "objective"]
    for axis in across:
        check_known("axis", axis, known, where="in --across")
    grouped: dict[BlockKey, dict[Levels, Cell]] = {}
    for cell in cells:
        values = {axis: str(value) for axis, value in cell.axes.items()}
        block = {axis: "all" if axis in across else values[axis] for axis in ("dataset", "recipe")}
        key = block["dataset"], block["recipe"], tuple(pair for pair in cell.swept if pair[0] not in across)
        grouped.setdefault(key, {})[cell.objective, *(values[axis] for axis in across)] = cell
    return [_part(block_title(key), by_place, tuple(across)) for key, by_place in grouped.items()]


def factors_of(places: Mapping[str, Levels], across: Sequence[str] = ()) -> tuple[dict[str, Levels], list[str]]:
    """Return the factors that these cells cross completely, and the cells' names in the order of the factors' array.

    The objective counts as two factors (pair and triplet weight) if the objectives form a complete submatrix of GOAL's
    matrix. An axis with a single level is not a factor. If the cells do not cross all axes completely, there is one
    factor, with each cell as a level.
    """
    ways: list[tuple[Levels, dict[Levels, str]]] = [(("objective",), {place: name for name, place in places.items()})]
    if all(place[0] in CELLS for place in places.values()):
        weights = {(*place[0].split("_"), *place[1:]): name for name, place in places.items()}
        ways.insert(0, ((PAIR, TRIPLET), weights))
    for titles, named in ways:
        every = [*titles, *across]
        levels = {title: _levels(title, [place[axis] for place in named]) for axis, title in enumerate(every)}
        if math.prod(map(len, levels.values())) == len(named):
            order = sorted(named, key=lambda p: [levels[t].index(v) for t, v in zip(every, p, strict=True)])
            return {title: names for title, names in levels.items() if len(names) > 1}, [named[p] for p in order]
    return {"cell": tuple(places)}, list(places)


def _part(title: str, by_place: dict[Levels, Cell], across: tuple[str, ...]) -> GridPart:
    """Build a part, without objectives that ignore the axes: the same trial would count as several observations."""
    uses = Counter(cell.trials[0].id for cell in by_place.values())
    twice = dict.fromkeys(place[0] for place, cell in by_place.items() if uses[cell.trials[0].id] > 1)
    notes = (f"{', '.join(twice)}: left out because {' and '.join(across)} has no effect there",) if twice else ()
    others = [place for place in by_place if place[0] not in twice]
    places = {with_values(place[0], zip(across, place[1:], strict=True)): place for place in others}
    return GridPart(title, {name: by_place[place] for name, place in places.items()}, places, across, notes)


def _levels(title: str, values: Sequence[str]) -> Levels:
    """Return the levels of a factor: GOAL's weights in GOAL's order, others in the grid's order."""
    return tuple(name for name in _ORDER.get(title, tuple(dict.fromkeys(values))) if name in values)
