"""Which grids of a command train together in one launch, so that jobs of the next grid fill what one leaves idle."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from goalgrid.grid.gridfile import Grid

SHARED = ("uses", "recipe", "resources", "reliability", "evaluate")
"""Fields of a grid file in which grids of one launch are equal."""
PLACES = ("data", "weights", "checkpoints")
"""Fields that name places, which grids of one launch may not give for the same name in two ways."""


class Group(NamedTuple):
    """Grids that train together."""

    grids: tuple[Grid, ...]
    why: str = ""
    """Why they wait for the grids before them; empty for the first group."""

    @property
    def name(self) -> str:
        return ", ".join(grid.name for grid in self.grids)


def groups_of(grids: Sequence[Grid]) -> list[Group]:
    """Return the grids in order, with those that follow one another in a group where one launch can train them."""
    groups = list[Group]()
    for grid in grids:
        why = _apart(groups[-1].grids, grid) if groups else ""
        if groups and not why:
            groups[-1] = groups[-1]._replace(grids=(*groups[-1].grids, grid))
        else:
            groups.append(Group((grid,), why))
    return groups


def united(grids: Sequence[Grid]) -> Grid:
    """Merge data, recipes and places of grids that train together into the grid that makes a launch's jobs."""
    return reduce(_with, grids)


def _with(first: Grid, second: Grid) -> Grid:
    lists = {
        name: [*dict.fromkeys([*getattr(first, name), *getattr(second, name)])] for name in ("datasets", "recipes")
    }
    places = {name: getattr(first, name) | getattr(second, name) for name in PLACES}
    return first.model_copy(update=lists | places)


def _apart(grids: Sequence[Grid], grid: Grid) -> str:
    """Say why a grid does not train together with these; empty if it does."""
    for other in (grids[-1], grid):
        if other.select or other.budget:
            return f"{other.name} trains in rounds ({'[select]' if other.select else 'seeds until resolved'})"
    differing = [
        name if name == "uses" else f"[{name}]" for name in SHARED if getattr(grid, name) != getattr(grids[0], name)
    ]
    one = united(grids)
    differing += [f"[{name}]" for name in PLACES if _clash(getattr(one, name), getattr(grid, name))]
    return f"their {' and '.join(differing)} differ" if differing else ""


def _clash(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return any(one[name] != other[name] for name in one.keys() & other.keys())
