"""Layouts with one row per objective or method; columns are the recalls in both directions and their sum."""

from collections.abc import Sequence

from goalgrid.grid.expansion import Cell, once
from goalgrid.grid.groups import grouped, nested
from goalgrid.results.layouts.captions import Layout, TableSource, beside, blocks_of, caption, entry, recalls
from goalgrid.results.tables import Block, Label, Row, Table

WHAT = "Recall (%) and rsum, the sum of the six recalls,"


def listing(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    """Lay out one row per objective, and one block per recipe and data set."""
    groups, metrics = recalls(scores.metrics, asked)
    blocks = blocks_of(cells, lambda block: (_row(cell, cell.objective, scores, metrics) for cell in block.values()))
    text = caption(cells, scores, beside(WHAT, asked, scores))
    return Table("listing", Label("objective"), groups, blocks, text)


def losses(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    """Lay out tables as in SelHN, the Unified loss and VSE+2AD: one row per model and loss.

    Each block has one data set and protocol, so that all its rows are comparable.
    """
    groups, metrics = recalls(scores.metrics, asked)
    sections = grouped(((cell.dataset, scores.section(cell)), cell) for cell in once(cells))
    recipe, several = one_recipe(cells), len(sections) > 1
    blocks = tuple(
        Block(
            f"{recipe + ' on ' if recipe else ''}{dataset}, {section}",
            tuple(_row(cell, scores.label(cell), scores, metrics, recipe) for cell in members),
            ", ".join(filter(None, [recipe, section if several else ""])),
        )
        for (dataset, section), members in sections.items()
    )
    text = caption(cells, scores, beside(WHAT, asked, scores))
    return Table("losses", Label("loss" if recipe else "model, loss"), groups, blocks, text)


def methods(cells: Sequence[Cell], scores: TableSource, asked: Sequence[str]) -> Table:
    """Lay out a table as GOAL's Table 6: one row per method, data sets side by side."""
    cells = once(cells)
    of_method = nested(((cell.recipe, cell.objective, cell.swept), scores.protocol_of(cell), cell) for cell in cells)
    groups = {place: recalls(scores.metrics, asked, place) for place in dict.fromkeys(map(scores.protocol_of, cells))}
    shown = [(place, name) for place, (_, names) in groups.items() for name in names]
    recipe = one_recipe(cells)
    rows = tuple(
        Row(
            Label(_without(recipe, scores.label(next(iter(method.values()))))),
            tuple(entry(method[place], scores, name) if place in method else None for place, name in shown),
            group=next(iter(method.values())).recipe,
        )
        for method in of_method.values()
    )
    title = " and ".join(groups)
    columns = tuple(group for parts, _ in groups.values() for group in parts)
    text = caption(cells, scores, beside("Recall (%)", asked, scores))
    return Table(
        "methods", Label("method"), columns, (Block(f"{recipe} on {title}" if recipe else title, rows, recipe),), text
    )


def one_recipe(cells: Sequence[Cell]) -> str:
    """Return the recipe that all cells share, for the title above their rows; empty if there are several."""
    recipes = {cell.recipe for cell in cells}
    return recipes.pop() if len(recipes) == 1 else ""


def _row(cell: Cell, name: str, scores: TableSource, metrics: list[str], recipe: str = "") -> Row:
    """Build a cell's row; its label omits the recipe if the title names it."""
    entries = tuple(entry(cell, scores, metric) for metric in metrics)
    return Row(Label(_without(recipe, name)), entries, group=cell.recipe)


def _without(recipe: str, label: str) -> str:
    return label.removeprefix(f"{recipe}, ") if recipe else label


LAYOUTS = {"listing": Layout(listing), "losses": Layout(losses), "methods": Layout(methods)}
