"""A table for the terminal, by Rich."""

from rich.box import HORIZONTALS
from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from results.tables.table import Block, Table, TableEntry


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
    bold = table.best_of(block)
    for number, row in enumerate(block.rows):
        entries = (_text(entry, (number, column) in bold) for column, entry in enumerate(row.entries))
        drawn.add_row(row.label.text, *entries)
    return drawn


def _text(entry: TableEntry | None, bold: bool) -> Text:
    return Text(entry.text if entry else "--", style="bold" if bold else "")
