"""Select cells by the patterns of `exclude` and [[where]] in a grid file."""

import fnmatch
from collections.abc import Mapping, Sequence

from goalgrid.grid.errors import unknown
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.syntax import Scalar

Place = Mapping[str, Scalar]
"""A cell's value on each axis except the seed: `dataset`, `recipe`, `objective` and each swept setting."""
Pattern = Scalar | list[Scalar]
"""A value, a text pattern, or a list of them, any of which may match."""


class CellPatterns:
    """Entries with values or patterns by axis; a cell matches an entry if it matches all of them.

    An entry that matches no cell is a problem, unless its field is listed in the grid's `idle`.
    """

    def __init__(
        self, grid: Grid, field: str, entries: Sequence[Mapping[str, Pattern]], axes: Mapping[str, Sequence[Scalar]]
    ) -> None:
        self._field, self._entries, self._axes, self._idle = field, entries, axes, field in grid.idle
        self._met = set[int]()

    def fitting(self, cell: Place) -> list[int]:
        """Return the numbers of the entries that match the cell, and mark them as matched."""
        numbers = [
            number
            for number, entry in enumerate(self._entries)
            if all(axis in cell and fits(cell[axis], pattern) for axis, pattern in entry.items())
        ]
        self._met.update(numbers)
        return numbers

    def problems(self) -> list[str]:
        """Return a message for each entry that matches no cell; call it after `fitting` of all cells."""
        problems = list[str]()
        for number, entry in enumerate(self._entries):
            if number in self._met or self._idle:
                continue
            where, causes = f"{self._field}[{number}]", list[str]()
            for axis, pattern in entry.items():
                if axis not in self._axes:
                    hint = "It names cells with all their seeds." if axis == "seed" else ""
                    causes.append(unknown("axis", axis, list(self._axes), where=f"in {where}", hint=hint))
                elif not any(fits(value, pattern) for value in self._axes[axis]):
                    known, hint = list(map(str, self._axes[axis])), f"To have no entry: --set '{self._field}=[]'."
                    first = pattern[0] if isinstance(pattern, list) else pattern
                    causes.append(unknown(axis, first, known, where=f"in {where}, which matches no cell", hint=hint))
            problems += causes or [
                f"{where} matches no cell of the grid: each value exists, but no cell has all of them"
            ]
        return problems


class Overrides:
    """The settings that a grid gives for a cell: those of [set], overridden by [[where]], then by swept values."""

    def __init__(self, grid: Grid, axes: Mapping[str, Sequence[Scalar]]) -> None:
        self._set, self._where = grid.set, [entry.set for entry in grid.where]
        self._patterns = CellPatterns(grid, "where", [entry.cells for entry in grid.where], axes)
        self._clashes = dict[str, None]()

    def of(self, cell: Place) -> dict[str, Scalar]:
        """Return the cell's values by dotted name, including those of its matching [[where]] entries."""
        given, numbers = dict(self._set), self._patterns.fitting(cell)
        source = dict[str, int]()
        for number in numbers:
            for name, value in self._where[number].items():
                first = source.setdefault(name, number)
                if self._where[first][name] != value:
                    known = f"{self._where[first][name]!r} and {value!r}"
                    which = f"{cell['recipe']} by {cell['objective']} on {cell['dataset']}"
                    self._clashes[f"where[{first}] and where[{number}] set {name} to {known} for {which}"] = None
                given[name] = value
        return given | {name: value for name, value in cell.items() if "." in name}

    def problems(self) -> list[str]:
        """Return messages about entries that match no cell, and about entries that give a setting different values."""
        return [*self._patterns.problems(), *self._clashes]


def fits(value: Scalar, pattern: Pattern) -> bool:
    """Return whether a value equals a number or boolean, or matches the pattern, or any pattern of the list."""
    if isinstance(pattern, list):
        return any(fits(value, one) for one in pattern)
    if isinstance(pattern, str):
        return fnmatch.fnmatchcase(str(value), pattern)
    return value == pattern and isinstance(value, bool) == isinstance(pattern, bool)
