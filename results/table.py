"""The one Table object: what a layout makes of scores, and what every renderer reads."""

from collections.abc import Iterator
from dataclasses import dataclass

from results.scores import Value, best

LIKE_BEST = "†"


@dataclass(frozen=True)
class Label:
    """A name as plain text, and as LaTeX where the papers write it in mathematics."""

    text: str
    latex: str = ""


@dataclass(frozen=True)
class Entry:
    """A score, or another value, in its place, with what it is a score of."""

    score: Value
    keys: tuple[tuple[str, str], ...]
    """Names and values of the axes and the metric, for tidy exports."""
    like_best: bool | None = None
    """Whether it cannot be told from the best of its contest; None: not asked."""

    @property
    def text(self) -> str:
        """`63.1 ± 0.2`, with a dagger where it cannot be told from the best."""
        return self.score.text + (LIKE_BEST if self.like_best else "")

    def tidy(self) -> dict[str, object]:
        """Its place, all that is known of its value, its mark and its text, by column of a tidy export."""
        mark = {} if self.like_best is None else {"like_best": self.like_best}
        return {**dict(self.keys), **self.score.tidy(), **mark, "text": self.text}


@dataclass(frozen=True)
class Row:
    """One line: as many entries as the table has columns; None where the grid has no such cell."""

    label: Label
    entries: tuple[Entry | None, ...]


@dataclass(frozen=True)
class Block:
    """Rows under one title: a recipe on a data set."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Group:
    """Neighbouring columns under one title."""

    title: Label
    columns: tuple[Label, ...]
    comparable: bool = True
    """Whether the best of a block is the best of all these columns; else each column has its own."""
    lowest: bool = False
    """Whether small is good."""


@dataclass(frozen=True)
class Table:
    """Blocks of rows over groups of columns."""

    name: str
    corner: Label
    groups: tuple[Group, ...]
    blocks: tuple[Block, ...]
    caption: str

    def entries(self) -> Iterator[Entry]:
        """All entries, row by row."""
        for block in self.blocks:
            for row in block.rows:
                yield from (entry for entry in row.entries if entry)

    def best_of(self, block: Block) -> set[tuple[int, int]]:
        """(row, column) of the entries to be shown bold."""
        places: set[tuple[int, int]] = set()
        for columns, lowest in self.contests():
            field = [
                (row, column, entry.score)
                for row, line in enumerate(block.rows)
                for column in columns
                if (entry := line.entries[column]) is not None
            ]
            winners = best([score for _, _, score in field], lowest=lowest)
            places |= {(field[place][0], field[place][1]) for place in winners}
        return places

    def contests(self) -> Iterator[tuple[list[int], bool]]:
        """Columns that compete, and whether the lowest wins."""
        start = 0
        for group in self.groups:
            columns = list(range(start, start + len(group.columns)))
            start += len(group.columns)
            if group.comparable:
                yield columns, group.lowest
            else:
                yield from (([column], group.lowest) for column in columns)
