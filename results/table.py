"""The one Table object: what a layout makes of scores, and what every renderer reads."""

from collections.abc import Iterator
from dataclasses import dataclass

from results.scores import Value, best

LIKE_BEST = "†"

Place = tuple[int, int]
"""Row and column of an entry in its block, from 0."""

CONTEST = ("dataset", "protocol", "metric", "column")
"""Keys in which values agree that compete; `column` tells ours from a paper's."""


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
    def contest(self) -> tuple[str, ...]:
        """What it competes in."""
        keys = dict(self.keys)
        return tuple(keys.get(name, "") for name in CONTEST)

    @property
    def lowest(self) -> bool:
        """Whether small is good, as of a median rank."""
        return dict(self.keys).get("metric", "").endswith("medr")

    @property
    def trials(self) -> tuple[str, ...]:
        """Ids of those behind its value; none of what is not measured."""
        ids = self.score.tidy().get("trials")
        return tuple(ids) if isinstance(ids, list) else ()

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


@dataclass(frozen=True)
class Table:
    """Blocks of rows over groups of columns."""

    name: str
    corner: Label
    groups: tuple[Group, ...]
    blocks: tuple[Block, ...]
    caption: str
    command: str = ""
    """What prints it, but for the format; empty: no command does."""

    def entries(self) -> Iterator[Entry]:
        """All entries, row by row."""
        for block in self.blocks:
            for row in block.rows:
                yield from (entry for entry in row.entries if entry)

    def best_of(self, block: Block) -> set[Place]:
        """Places of the entries to be shown bold."""
        bold: set[Place] = set()
        for field in self.contests(block):
            places, entries = list(field), list(field.values())
            winners = best([entry.score for entry in entries], lowest=entries[0].lowest)
            bold |= {places[winner] for winner in winners}
        return bold

    def contests(self, block: Block) -> list[dict[Place, Entry]]:
        """Entries that compete: all values of one metric on one data set by one protocol that stand in the block."""
        fields: dict[tuple[str, ...], dict[Place, Entry]] = {}
        for row, line in enumerate(block.rows):
            for column, entry in enumerate(line.entries):
                if entry is not None:
                    fields.setdefault(entry.contest, {})[row, column] = entry
        return list(fields.values())
