"""Columns that layouts share: the recalls of both directions and their sum."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from goalgrid.grid.expansion import Cell
from goalgrid.results.tables.table import Group, Label, Table

DIRECTIONS = {
    "i2t": Label("Image → Text", r"Image $\rightarrow$ Text"),
    "t2i": Label("Text → Image", r"Text $\rightarrow$ Image"),
}
CUTS = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "medr": "MedR"}
"""Columns of metrics that have a direction."""
RECALLS = ("r1", "r5", "r10")
TOTALS = {"rsum": "RSUM", "oips": "#OIPs", "parameters": "weights (M)", "kpps": "kpps"}
"""Columns of metrics without a direction; VSE+2AD calls operating items per second #OIPs."""


def by_direction(metric: str) -> dict[str, Label]:
    """A metric in both directions, `i2t_r1` and `t2i_r1`, with the directions' titles; a total has no direction."""
    if metric in TOTALS:
        return {metric: Label(TOTALS[metric])}
    return {f"{direction}_{metric}": title for direction, title in DIRECTIONS.items()}


def recalls(metrics: Sequence[str], asked: Sequence[str], prefix: str = "") -> tuple[list[Group], list[str]]:
    """A group a direction with the recalls in `metrics`, then what else is asked for; and all columns' metrics."""
    groups, shown = [], []
    cuts = dict.fromkeys([*RECALLS, *(name for name in asked if name in CUTS)])
    for direction, title in DIRECTIONS.items():
        present = [name for name in cuts if f"{direction}_{name}" in metrics]
        if present:
            label = Label(f"{prefix} {direction[0].upper()}→{direction[2].upper()}") if prefix else title
            groups.append(Group(label, tuple(Label(CUTS[name]) for name in present)))
            shown += [f"{direction}_{name}" for name in present]
    totals = [name for name in asked if name in TOTALS]
    return groups + [Group(Label(prefix), (Label(TOTALS[name]),)) for name in totals], shown + totals


def recalls_and_totals(metrics: Sequence[str], asked: Sequence[str]) -> tuple[list[Group], list[str]]:
    """The same with the totals that the source has, asked for or not."""
    return recalls(metrics, list(dict.fromkeys([*(name for name in TOTALS if name in metrics), *asked])))


def noun_of(cells: Iterable[Cell]) -> str:
    """What the captions of all these cells describe; of cells that differ: `image`."""
    nouns = {cell.noun for cell in cells}
    return nouns.pop() if len(nouns) == 1 else "image"


def directions(noun: str) -> dict[str, Label]:
    """The titles of both directions: `Image → Text`, or by another noun.

    >>> [title.text for title in directions("clip").values()]
    ['Clip → Text', 'Text → Clip']
    """
    return {direction: _named(title, noun) for direction, title in DIRECTIONS.items()}


def named(table: Table, noun: str) -> Table:
    """The same table with the noun in the titles of its columns."""
    return replace(table, groups=tuple(replace(group, title=_named(group.title, noun)) for group in table.groups))


def _named(title: Label, noun: str) -> Label:
    word, letter = noun.capitalize(), noun[0].upper()
    text = title.text.replace("Image", word).replace("I→T", f"{letter}→T").replace("T→I", f"T→{letter}")
    return Label(text, title.latex.replace("Image", word))
