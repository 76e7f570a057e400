"""A table for the terminal, rendered by Rich for a console or as plain text."""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.box import HORIZONTALS
from rich.console import Console, ConsoleOptions, RenderableType
from rich.console import Group as Stack
from rich.table import Table as RichTable
from rich.text import Text

from goalgrid.results.tables import Block, Label, Row, Table


def render(table: Table, spell: Callable[[str], str] = str, *, bold: bool = True) -> RenderableType:
    """Render one Rich table per block, with the caption below; a matrix with few cells becomes a list.

    Args:
        spell: replaces characters that the terminal cannot show.
        bold: whether bold type is available; if not, as in a file, the best entries are marked with * or ^.
    """
    table = as_list(table) if mostly_empty(table) else table
    star = "" if bold else _star(table)
    caption = table.caption if bold else table.caption.replace("in bold", f"marked {star}")
    return Stack(
        *(_FittedBlock(table, block, spell, star) for block in table.blocks),
        Text(spell(caption), style="italic"),
    )


def text(table: Table, width: int) -> str:
    """Return the table as plain text with lines of at most `width` characters, without terminal escape codes."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_jupyter=False, color_system=None)
    console.print(render(table, bold=False))
    return file.getvalue()


def _star(table: Table) -> str:
    """Return the mark of the best entries: *, or ^ if a row's name contains a star, as those of ensembles do."""
    names = "".join(row.label.text for block in table.blocks for row in block.rows)
    return "*" if "*" not in names else "^"


def mostly_empty(table: Table) -> bool:
    """Return whether the table is GOAL's matrix and the grid has fewer than half of its cells."""
    entries = [entry for block in table.blocks for row in block.rows for entry in row.entries]
    weights = all(column.text.startswith("T^") for column in table.columns)
    return table.name == "goal" and weights and 2 * sum(entry is not None for entry in entries) < len(entries)


def as_list(table: Table) -> Table:
    """Turn a matrix into a table with one row per cell of the grid, and one column per group."""
    columns = table.groups[0].columns
    rows = [
        [
            Row(Label(f"{row.label.text} {column.text}"), row.entries[place :: len(columns)], row.mark)
            for row in block.rows
            for place, column in enumerate(columns)
            if any(row.entries[place :: len(columns)])
        ]
        for block in table.blocks
    ]
    blocks = tuple(replace(block, rows=tuple(listed)) for block, listed in zip(table.blocks, rows, strict=True))
    return replace(table, groups=tuple(replace(group, columns=(Label(""),)) for group in table.groups), blocks=blocks)


@dataclass(frozen=True)
class _FittedBlock:
    """A block fitted to the terminal: if it is too wide, columns move closer, then groups are stacked."""

    table: Table
    block: Block
    spell: Callable[[str], str]
    star: str
    """Mark before the best entries; empty if they are bold."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        parts = self._parts(console, options)
        airy = all(self._fits(console, options, part, padding=1) for part in parts)
        for part in parts:
            yield self._drawn(part, padding=int(airy))

    def _fits(self, console: Console, options: ConsoleOptions, columns: Sequence[int], padding: int) -> bool:
        shown = self._drawn(columns, padding)
        return console.measure(shown, options=options.update(max_width=10_000)).maximum <= options.max_width

    def _parts(self, console: Console, options: ConsoleOptions) -> list[list[int]]:
        """Split the columns into parts: whole groups side by side if they fit, else as many columns as fit."""
        parts, first = list[list[int]](), 0
        for group in self.table.groups:
            columns = list(range(first, first + len(group.columns)))
            first += len(columns)
            whole = self._fits(console, options, columns, padding=0)
            for piece in [columns] if whole else [[column] for column in columns]:
                if parts and self._fits(console, options, [*parts[-1], *piece], padding=0):
                    parts[-1] += piece
                else:
                    parts.append(piece)
        return parts

    def _drawn(self, columns: Sequence[int], padding: int) -> RichTable:
        heading = (
            Text(self.spell(self.block.title)) if 0 in columns and self.block.title else None
        )  # in a str, [a] would be markup
        sheet = RichTable(title=heading, title_justify="left", title_style="bold", box=HORIZONTALS, pad_edge=False)
        sheet.padding = (0, padding)
        for word, head in enumerate(self._heads([*range(self._words), *(self._words + column for column in columns)])):
            sheet.add_column(self.spell(head), justify="left" if word < self._words else "right", overflow="fold")
        for words, entries in self.table.lines(self.block):
            shown = [entries[column] for column in columns]
            texts = (Text(self.star * best + self.spell(text), style="bold" if best else "") for text, best in shown)
            sheet.add_row(*(Text(self.spell(word.text)) for word in words), *texts)
        return sheet

    @property
    def _words(self) -> int:
        return len(self.table.stub_heads)

    def _heads(self, columns: Sequence[int]) -> list[str]:
        """Return the header lines above each of these columns; a spanning title is above its first column."""
        lines = list[list[str]]()
        for line in self.table.header:
            spans = [(place, head.label.text) for place, head in enumerate(line) for _ in range(head.width)]
            shown = [spans[column] for column in columns]
            before = [None, *(place for place, _ in shown)]
            lines.append([text * (place != last) for (place, text), last in zip(shown, before, strict=False)])
        filled = [line for line in lines if any(line)]
        return ["\n".join(texts) for texts in zip(*(filled or lines[-1:]), strict=True)]
