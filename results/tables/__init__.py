"""The table that a layout makes of scores and that every renderer reads, and what a format that is text is."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from goalgrid.grid.groups import nested
from goalgrid.results.records.scores import TableValue, best

LIKE_BEST = "†"

Place = tuple[int, int]
"""Row and column of an entry in its block, from 0."""

CONTEST = ("dataset", "protocol", "metric", "column")
"""Keys of an entry that decide which entries compete; `column` tells our value from a paper's."""


TABLES = ("settings", "chosen")
"""Columns of a tidy export whose values are settings by dotted name."""


@dataclass(frozen=True)
class Label:
    """A name as plain text, and as LaTeX where the papers write it in mathematics; empty elsewhere."""

    text: str
    latex: str = ""


@dataclass(frozen=True)
class TableEntry:
    """A value in its place in the table, with the axes and the metric that it belongs to."""

    score: TableValue
    keys: Mapping[str, str]
    """The values of the axes and the metric by name, for tidy exports."""
    like_best: bool | None = None
    """Whether the value cannot be told from the best of its contest; None: not tested."""
    mark: str = ""
    """Of the note in the caption that is about the value; empty: there is none."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The settings in which its cell differs from others of the data set, though no axis says so."""
    chosen: Mapping[str, object] = field(default_factory=dict)
    """The settings that validation chose for its cell."""
    verdict: str = ""
    """Whether it is `above`, `below` or `within` what noise allows around the paper's number; empty: not tested."""

    @property
    def lowest(self) -> bool:
        """Whether small is good, as of a median rank."""
        return self.keys.get("metric", "").endswith("medr")

    @property
    def text(self) -> str:
        """`63.1 ± 0.2`, with a dagger where it cannot be told from the best, and the mark of its note."""
        return self.score.text + (LIKE_BEST if self.like_best else "") + (f" {self.mark}" if self.mark else "")

    def tidy(self) -> dict[str, object]:
        """Its keys and settings, all that is known of its value, its mark and its text, by column of a tidy export."""
        tables = {name: dict(values) for name in TABLES if (values := getattr(self, name))}
        mark = {} if self.like_best is None else {"like_best": self.like_best}
        known = {name: None if value != value else value for name, value in self.score.tidy().items()}  # NaN
        return {**self.keys, **tables, **known, **mark, "text": self.text}


def shared_keys(entries: Iterable[TableEntry | None]) -> dict[str, str]:
    """Keys with the values on which all entries agree."""
    first, *others = [entry.keys for entry in entries if entry] or [dict[str, str]()]
    return {name: value for name, value in first.items() if all(keys.get(name) == value for keys in others)}


@dataclass(frozen=True)
class Row:
    """A row: an entry for every column; None where the grid has no such cell."""

    label: Label
    entries: tuple[TableEntry | None, ...]
    mark: str = ""
    """Of the notes in the caption that are about the row, `[a, b]`; empty: there is none."""

    @property
    def title(self) -> Label:
        mark = f" {self.mark}" * bool(self.mark)
        return Label(self.label.text + mark, self.label.latex and self.label.latex + mark)


@dataclass(frozen=True)
class Block:
    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Group:
    title: Label
    columns: tuple[Label, ...]


@dataclass(frozen=True)
class Table:
    name: str
    corner: Label
    groups: tuple[Group, ...]
    blocks: tuple[Block, ...]
    caption: str
    command: str = ""
    """The command that prints the table, without the format; empty: no command prints it."""
    label: str = ""
    siunitx: bool = False
    """Whether LaTeX aligns its numbers at their points, by the package siunitx."""

    def about(self, kind: str) -> dict[str, str]:
        """What a file in a format says of the whole table."""
        command = {"command": f"{self.command} --format {kind}"} if self.command else {}
        return {"layout": self.name, "caption": self.caption, **command}

    @property
    def columns(self) -> list[Label]:
        return [column for group in self.groups for column in group.columns]

    @property
    def heads(self) -> list[str]:
        """What stands above the columns: `Image → Text T^con`."""
        return [f"{group.title.text} {column.text}".strip() for group in self.groups for column in group.columns]

    def entries(self) -> Iterator[TableEntry]:
        return (entry for block in self.blocks for row in block.rows for entry in row.entries if entry)

    def lines(self, block: Block) -> Iterator[tuple[Label, list[tuple[str, bool]]]]:
        """The rows as they are shown: the label, and for each column the text and whether it is bold."""
        best = self.best_of(block)
        for number, row in enumerate(block.rows):
            texts = [entry.text if entry else "--" for entry in row.entries]
            yield row.title, [(text, (number, column) in best) for column, text in enumerate(texts)]

    def best_of(self, block: Block) -> set[Place]:
        bold: set[Place] = set()
        for contest in self.contests(block):
            entries = list(contest.values())
            winners = best([entry.score for entry in entries], lowest=entries[0].lowest)
            bold |= {list(contest)[winner] for winner in winners}
        return bold

    def contests(self, block: Block) -> list[dict[Place, TableEntry]]:
        """Entries that compete, contest by contest: same metric, data set and protocol, in the same block."""
        entries = [((i, j), entry) for i, row in enumerate(block.rows) for j, entry in enumerate(row.entries) if entry]
        contests = ((tuple(entry.keys.get(name, "") for name in CONTEST), place, entry) for place, entry in entries)
        return list(nested(contests).values())


@dataclass(frozen=True)
class TextFormat:
    """One way to write a table as text."""

    ending: str
    render: Callable[[Table], str]
    comment: str = ""
    """How the command that prints the table stands above it, `% {}`; empty in a format without comments."""
