"""Sentences about settings of single cells: those in which cells differ, and those chosen on validation."""

from collections.abc import Sequence
from typing import Any

from goalgrid.grid.chosen import EarlierSearches
from goalgrid.grid.expansion import Cell
from goalgrid.grid.groups import grouped, nested
from goalgrid.grid.syntax import setting_text
from goalgrid.grid.unequal import Values, unequal
from goalgrid.results.records.rounding import NONE

LONGEST = 400
"""Maximum characters of a sentence; a longer one is replaced by the range of each setting."""
NAMED = 6
"""Maximum number of cells or axis values that are listed by name; more are counted."""
BY_CELL = "; for the settings of each cell use --format csv, json or parquet-long"


def unequal_settings(cells: Sequence[Cell]) -> str:
    """State `Unequal settings (train.epochs, train.lr): infonce: 9, 0.003; all others: 3, 0.002.`; empty if none."""
    return _told("Unequal settings", cells, unequal(cells))


def chosen_values(cells: Sequence[Cell]) -> str:
    """State `Chosen (objective.tau, train.lr): con_con: --, 0.00042; con_nca: 10, 0.001.`; empty if none."""
    return _told("Chosen", cells, [chosen_of(cell) for cell in cells])


def earlier_searches(cells: Sequence[Cell]) -> str:
    """State how many test results were known when the search began; empty if none, or without a search."""
    earlier = max((choice.earlier for cell in cells for choice in cell.choices), default=EarlierSearches())
    return f"Test results of {earlier} were known when this search began." if earlier.trials else ""


def conditions_of(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return the sentences on chosen values, earlier searches and unequal settings that are not empty."""
    return tuple(filter(None, (chosen_values(cells), earlier_searches(cells), unequal_settings(cells))))


def chosen_of(cell: Cell) -> Values:
    """Return a cell's settings chosen on validation; if its searches differ, the values joined by `or`, as text."""
    values = nested((name, value, None) for choice in cell.choices for name, value in choice.best.point)
    return {
        name: next(iter(several)) if len(several) == 1 else " or ".join(map(setting_text, several))
        for name, several in values.items()
    }


def _told(what: str, cells: Sequence[Cell], values: Sequence[Values]) -> str:
    """Return one sentence per data set, or per group of data sets with equal values; ranges if too long."""
    pairs = [(cell, of_cell) for cell, of_cell in zip(cells, values, strict=True) if of_cell]
    of_data = grouped((cell.dataset, (cell, of_cell)) for cell, of_cell in pairs)
    sentences = grouped((_values(several), dataset) for dataset, several in of_data.items())
    every, parts = {cell.dataset for cell in cells}, list[str]()
    for sentence, datasets in sentences.items():
        where = f" on {', '.join(datasets)}" if len(datasets) < len(every) else ""
        parts.append(f"{what}{where} {sentence}.")
    text = " ".join(parts)
    if len(text) <= LONGEST:
        return text
    of_name = grouped(pair for of_cell in values for pair in of_cell.items())
    ranges = ", ".join(f"{name} {_range(several)}" for name, several in of_name.items())
    return f"{what}: {ranges}{BY_CELL}."


def _values(pairs: Sequence[tuple[Cell, Values]]) -> str:
    """List the values of a data set's cells, equal ones grouped: `(train.lr): infonce: 0.003; all others: 0.002`."""
    names = list(dict.fromkeys(name for _, values in pairs for name in values))
    texts = [[setting_text(values[name]) if name in values else NONE for name in names] for _, values in pairs]
    cells = [cell for cell, _ in pairs]
    groups = grouped((", ".join(text), cell) for text, cell in zip(texts, cells, strict=True))
    second, most = [1, 1, *sorted(map(len, groups.values()))][-2:]
    others = [key for key, group in groups.items() if len(group) == most > second and len(groups) > 1]
    parts = [f"{_group(group, cells)}: {key}" for key, group in groups.items() if key not in others]
    return f"({', '.join(names)}): {'; '.join([*parts, *(f'all others: {key}' for key in others)])}"


def _group(group: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """Name a group of cells: by axis values that only they have, by listing each cell, or by their number."""
    if len(group) == len(cells):
        return "all cells"
    varying = [name for name in cells[0].axes if len({cell.axes.get(name) for cell in cells}) > 1]
    for name in varying:
        values = dict.fromkeys(cell.axes.get(name) for cell in group)
        if len(values) <= NAMED and sum(cell.axes.get(name) in values for cell in cells) == len(group):
            return ", ".join(_value(name, value) for value in values)
    if len(group) > NAMED:
        return f"{len(group)} cells"
    return ", ".join(" ".join(_value(name, cell.axes.get(name)) for name in varying) for cell in group)


def _value(name: str, value: Any) -> str:
    return str(value) if name in ("recipe", "objective") else f"{name} = {setting_text(value)}"


def _range(values: Sequence[Any]) -> str:
    """Return the range of numbers, `0.0001 to 0.003`; for other values, list or count them."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return " to ".join(map(setting_text, sorted({min(values), max(values)})))
    texts = list(dict.fromkeys(map(setting_text, values)))
    return " or ".join(texts) if len(texts) <= NAMED else f"of {len(texts)} values"
