"""The entries of a grid file that name cells by patterns: `exclude`, and the overrides of [[where]]."""

import fnmatch
from collections.abc import Mapping, Sequence

from goalgrid.grid.errors import unknown
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.syntax import Scalar

Place = Mapping[str, Scalar]
"""A cell by its value on every axis but the seed: `dataset`, `recipe`, `objective` and each swept setting."""
Pattern = Scalar | list[Scalar]
"""A value, a pattern of texts, or a list of which one is to fit."""


class CellPatterns:
    """Entries that each name values or patterns of one axis or several; a cell fits an entry if all of them do.

    An entry of a field of the grid that fits no cell is a problem, unless the field is idle.
    """

    def __init__(
        self, grid: Grid, field: str, entries: Sequence[Mapping[str, Pattern]], axes: Mapping[str, Sequence[Scalar]]
    ) -> None:
        self._field, self._entries, self._axes, self._idle = field, entries, axes, field in grid.idle
        self._met = set[int]()

    def fitting(self, cell: Place) -> list[int]:
        """Return the numbers of the entries that match the cell, and remember that they matched one."""
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
    """The settings that a grid sets for a cell: those of all cells, then those of [[where]], then the swept values."""

    def __init__(self, grid: Grid, axes: Mapping[str, Sequence[Scalar]]) -> None:
        self._set, self._where = grid.set, [entry.set for entry in grid.where]
        self._patterns = CellPatterns(grid, "where", [entry.cells for entry in grid.where], axes)
        self._clashes = dict[str, None]()

    def of(self, cell: Place) -> dict[str, Scalar]:
        """Return the cell's values by dotted name, those of its matching [[where]] entries included."""
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
        """Return messages about entries that match no cell, and about entries that set one setting to two values."""
        return [*self._patterns.problems(), *self._clashes]


def fits(value: Scalar, pattern: Pattern) -> bool:
    """Return whether a value equals a number or boolean, or matches the pattern, or any pattern of the list."""
    if isinstance(pattern, list):
        return any(fits(value, one) for one in pattern)
    if isinstance(pattern, str):
        return fnmatch.fnmatchcase(str(value), pattern)
    return value == pattern and isinstance(value, bool) == isinstance(pattern, bool)
