"""Factors: which axes of a grid its cells cross completely, so that each can be told apart from the others."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grid.errors import UserError, unknown
from grid.expansion import Cell
from grid.objectives import GOAL, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from results.layouts.captions import BlockKey, block_title

Place = tuple[str, ...]
"""An objective, then the values of the axes that are factors beside it."""

PAIR, TRIPLET = "pair weight", "triplet weight"
_ORDER = {PAIR: tuple(PAIR_WEIGHTS), TRIPLET: tuple(TRIPLET_WEIGHTS)}


@dataclass(frozen=True)
class Part:
    """Cells that are analysed together: a block of the table, or several that differ in a factor."""

    title: str
    cells: Mapping[str, Cell]
    """By name: the objective, and the values of the axes that are factors beside it."""
    places: Mapping[str, Place]
    across: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parts_of(cells: Sequence[Cell], across: Sequence[str] = ()) -> list[Part]:
    """The cells of every (data set, recipe, swept values), except for the axes that are factors.

    Args:
        across: axes that are factors beside the objective: `dataset`, `recipe` or swept settings.

    Raises:
        UserError: the grid has no such axis.
    """
    known = [axis for axis in cells[0].axes if axis != "objective"]
    for axis in across:
        if axis not in known:
            raise UserError(unknown("axis", axis, known, where="in --across"))
    grouped: dict[BlockKey, dict[Place, Cell]] = {}
    for cell in cells:
        values = {axis: str(value) for axis, value in cell.axes.items()}
        own = {axis: "all" if axis in across else values[axis] for axis in ("dataset", "recipe")}
        key = own["dataset"], own["recipe"], tuple(pair for pair in cell.swept if pair[0] not in across)
        grouped.setdefault(key, {})[cell.objective, *(values[axis] for axis in across)] = cell
    return [_part(block_title(key), by_place, tuple(across)) for key, by_place in grouped.items()]


def factors_of(places: Mapping[str, Place], across: Sequence[str] = ()) -> tuple[dict[str, Place], list[str]]:
    """The factors that these cells cross completely, and the cells' names in the order of the factors' array.

    Pair and triplet weight where the objectives are a complete part of GOAL's matrix, else the objective; other axes
    where they are crossed with it, else every cell is a level of one factor. An axis of one level is no factor.
    """
    splits = [_split(places)] if all(place[0] in GOAL for place in places.values()) else []
    for titles, named in [*splits, (("objective",), {place: name for name, place in places.items()})]:
        every = [*titles, *across]
        levels = {title: _levels(title, [place[axis] for place in named]) for axis, title in enumerate(every)}
        if math.prod(map(len, levels.values())) == len(named):
            order = sorted(named, key=lambda p: [levels[t].index(v) for t, v in zip(every, p, strict=True)])
            return {title: names for title, names in levels.items() if len(names) > 1}, [named[p] for p in order]
    return {"cell": tuple(places)}, list(places)


def _part(title: str, by_place: dict[Place, Cell], across: tuple[str, ...]) -> Part:
    """Without objectives that have no such setting: one trial counted twice would pass for two observations."""
    uses = Counter(cell.trials[0].id for cell in by_place.values())
    twice = dict.fromkeys(place[0] for place, cell in by_place.items() if uses[cell.trials[0].id] > 1)
    notes = (f"{', '.join(twice)}: left out, for {' and '.join(across)} changes nothing there",) if twice else ()
    places = {_name(place, across): place for place in by_place if place[0] not in twice}
    return Part(title, {name: by_place[place] for name, place in places.items()}, places, across, notes)


def _name(place: Place, across: tuple[str, ...]) -> str:
    """`sig_cir, objective.tau = 10`."""
    return ", ".join([place[0], *(f"{axis} = {value}" for axis, value in zip(across, place[1:], strict=True))])


def _split(places: Mapping[str, Place]) -> tuple[tuple[str, ...], dict[Place, str]]:
    return (PAIR, TRIPLET), {(*place[0].split("_"), *place[1:]): name for name, place in places.items()}


def _levels(title: str, values: Sequence[str]) -> Place:
    """GOAL's order for its weights, else the grid's."""
    return tuple(name for name in _ORDER.get(title, tuple(dict.fromkeys(values))) if name in values)
