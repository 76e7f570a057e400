"""Group the grids of a command into launches, so that jobs of the next grid fill resources left idle."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

from goalgrid.grid.gridfile import Grid

SHARED = ("uses", "recipe", "resources", "reliability", "evaluate")
"""Fields of a grid file that must be equal for all grids of one launch."""
PLACES = ("data", "weights", "checkpoints")
"""Fields that map names to folders; grids of one launch must agree on names they share."""


class Group(NamedTuple):
    """Grids that train together."""

    grids: tuple[Grid, ...]
    why: str = ""
    """The reason why they wait for the previous grids; empty for the first group."""

    @property
    def name(self) -> str:
        return ", ".join(grid.name for grid in self.grids)


def groups_of(grids: Sequence[Grid]) -> list[Group]:
    """Group consecutive grids that one launch can train, keeping their order."""
    groups = list[Group]()
    for grid in grids:
        why = _apart(groups[-1].grids, grid) if groups else ""
        if groups and not why:
            groups[-1] = groups[-1]._replace(grids=(*groups[-1].grids, grid))
        else:
            groups.append(Group((grid,), why))
    return groups


def united(grids: Sequence[Grid]) -> Grid:
    """Merge data sets, recipes and folders of grids that train together into one grid, from which jobs are made."""
    return reduce(_with, grids)


def _with(first: Grid, second: Grid) -> Grid:
    lists = {
        name: [*dict.fromkeys([*getattr(first, name), *getattr(second, name)])] for name in ("datasets", "recipes")
    }
    places = {name: getattr(first, name) | getattr(second, name) for name in PLACES}
    return first.model_copy(update=lists | places)


def _apart(grids: Sequence[Grid], grid: Grid) -> str:
    """Say why a grid cannot train together with these; empty if it can."""
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
