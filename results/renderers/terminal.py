"""A table for the terminal, by Rich."""

from dataclasses import replace

from rich.box import HORIZONTALS
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from results.tables.table import Block, Label, Row, Table


def render(table: Table) -> RenderableType:
    """One Rich table a block, the caption below; a matrix with few cells as a list."""
    table = as_list(table) if mostly_empty(table) else table
    return Stack(*(_block(table, block) for block in table.blocks), Text(table.caption, style="italic"))


def mostly_empty(table: Table) -> bool:
    """Whether it is a matrix of weights, without means, and the grid has fewer than half of its cells."""
    entries = [entry for block in table.blocks for row in block.rows for entry in row.entries]
    weights = all(column.text.startswith("T^") for group in table.groups for column in group.columns)
    return table.name == "goal" and weights and 2 * sum(entry is not None for entry in entries) < len(entries)


def as_list(table: Table) -> Table:
    """A matrix with a row for each cell that the grid has, and a column for each group."""
    columns = table.groups[0].columns
    rows = [
        [
            Row(Label(f"{row.label.text} {column.text}"), row.entries[place :: len(columns)])
            for row in block.rows
            for place, column in enumerate(columns)
            if any(row.entries[place :: len(columns)])
        ]
        for block in table.blocks
    ]
    blocks = tuple(replace(block, rows=tuple(kept)) for block, kept in zip(table.blocks, rows, strict=True))
    return replace(table, groups=tuple(replace(group, columns=(Label(""),)) for group in table.groups), blocks=blocks)


def _block(table: Table, block: Block) -> RichTable:
    drawn = RichTable(title=block.title, title_justify="left", title_style="bold", box=HORIZONTALS, pad_edge=False)
    drawn.add_column(table.corner.text, no_wrap=True)
    for group in table.groups:
        for place, column in enumerate(group.columns):
            title = group.title.text if place == 0 else ""
            drawn.add_column(f"{title}\n{column.text}".rstrip("\n"), justify="right", no_wrap=True)
    for label, entries in table.lines(block):
        drawn.add_row(label.text, *(Text(text, style="bold" if bold else "") for text, bold in entries))
    return drawn
