"""A table for the terminal, by Rich."""

from rich.box import HORIZONTALS
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from results.tables.table import Block, Table


def render(table: Table) -> RenderableType:
    """One Rich table a block, the caption below."""
    return Stack(*(_block(table, block) for block in table.blocks), Text(table.caption, style="italic"))


def _block(table: Table, block: Block) -> RichTable:
    drawn = RichTable(title=block.title, title_justify="left", title_style="bold", box=HORIZONTALS, pad_edge=False)
    drawn.add_column(table.corner.text, no_wrap=True)
    for group in table.groups:
        for place, column in enumerate(group.columns):
            title = group.title.text if place == 0 else ""
            drawn.add_column(f"{title}\n{column.text}", justify="right", no_wrap=True)
    for label, entries in table.lines(block):
        drawn.add_row(label.text, *(Text(text, style="bold" if bold else "") for text, bold in entries))
    return drawn
