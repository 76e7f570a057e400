"""Tables: what layouts make of scores and renderers read; and the interface of a text format."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from goalgrid.grid.groups import nested
from goalgrid.results.records.scores import TableValue, best
from goalgrid.results.tables.latex_style import LatexStyle
from goalgrid.results.tables.legend import Legend, Sentence

LIKE_BEST = "†"

Place = tuple[int, int]
"""Row and column of an entry in its block, from 0."""

CONTEST = ("dataset", "protocol", "metric", "column")
"""Keys of an entry that decide which entries compete; `column` tells our value from a paper's."""


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
    """Mark of the note in the caption about the value; empty: there is none."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """The settings in which its cell differs from others of the data set, though no axis says so."""
    chosen: Mapping[str, object] = field(default_factory=dict)
    """The settings that validation chose for its cell."""
    validation: Mapping[str, object] = field(default_factory=dict)
    """Validation of these settings: in the search, of the default, and on fresh seeds."""
    contest: str = ""
    """Which of several bests of the same numbers it competes for, as those of R and of RG features; empty: the one."""
    remarks: tuple[str, ...] = ()
    """What else a paper says of its cell, by a letter below the table."""
    verdict: str = ""
    """Whether it is `above`, `below` or `within` what noise allows around the paper's number; empty: not tested."""

    @property
    def lowest(self) -> bool:
        """Whether small is good, as of a median rank."""
        return self.keys.get("metric", "").endswith("medr")

    @property
    def text(self) -> str:
        """`63.1 ± 0.2`, with a dagger where it cannot be told from the best, and the mark of its note."""
        return self.shown + (f" {self.mark}" if self.mark else "")

    @property
    def shown(self) -> str:
        """The text without the mark."""
        return self.score.text + (LIKE_BEST if self.like_best else "")

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the remark that the mark refers to, and what else is said of its cell."""
        return (*([self.keys["note"]] if self.mark else []), *self.remarks)

    def tidy(self) -> dict[str, object]:
        """Return its keys, settings, value, mark and text, by column of a tidy export."""
        tables = {
            name: dict(values) for name in ("settings", "chosen", "validation") if (values := getattr(self, name))
        }
        mark = {} if self.like_best is None else {"like_best": self.like_best}
        known = {name: None if value != value else value for name, value in self.score.tidy().items()}  # NaN
        keys = {name: value or None for name, value in self.keys.items()}
        return {**keys, **tables, **known, "quoted": self.score.quoted, **mark, "text": self.text}


def shared_keys(entries: Iterable[TableEntry | None]) -> dict[str, str]:
    """Return the keys with the values on which all entries agree."""
    first, *others = [entry.keys for entry in entries if entry] or [dict[str, str]()]
    return {name: value for name, value in first.items() if all(keys.get(name) == value for keys in others)}


@dataclass(frozen=True)
class Row:
    """A row: an entry for every column; None where the grid has no such cell."""

    label: Label
    """Its name, whole."""
    entries: tuple[TableEntry | None, ...]
    mark: str = ""
    """Marks of the notes in the caption about the row, `[a, b]`; empty: there is none."""
    words: tuple[Label, ...] = ()
    """Its texts in the table's columns of words; empty: the label alone."""
    named: int = 0
    """The column of words that names the row, and bears the mark."""
    notes: tuple[str, ...] = ()
    """The remarks that the mark refers to."""
    group: str = ""
    """Rows of one group follow one another, as those of a model; a paper rules them off."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys from its layout, beyond those that all of its entries share: of a matrix the `pair` weight."""

    @property
    def title(self) -> Label:
        return self._marked(self.label)

    @property
    def titles(self) -> tuple[Label, ...]:
        """Return the texts in the columns of words, with the mark."""
        words = self.words or (self.label,)
        return tuple(self._marked(word) if place == self.named else word for place, word in enumerate(words))

    def _marked(self, label: Label) -> Label:
        mark = f" {self.mark}" * bool(self.mark)
        return Label(label.text + mark, label.latex and label.latex + mark)


@dataclass(frozen=True)
class Block:
    title: str
    """Empty: its rows have no title."""
    rows: tuple[Row, ...]
    printed: str | None = None
    """The title in a paper, whose caption and header say the rest; None: the same; empty: none."""


@dataclass(frozen=True)
class Group:
    """Neighbouring columns under a title; neighbouring groups may share a title above theirs, such as a data set."""

    title: Label
    columns: tuple[Label, ...]
    above: Label = Label("")
    keys: tuple[Mapping[str, str], ...] = ()
    """Keys of each column from the layout, whatever cells a grid has: `metric`, of a matrix `triplet`."""


@dataclass(frozen=True)
class Head:
    """A cell of the header, over so many columns."""

    label: Label
    width: int


@dataclass(frozen=True)
class Table:
    name: str
    corner: Label
    groups: tuple[Group, ...]
    blocks: tuple[Block, ...]
    legend: Legend
    command: str = ""
    """The command that prints the table, without the format; empty: no command prints it."""
    latex: LatexStyle = field(default_factory=LatexStyle)
    names: Mapping[str, str] = field(default_factory=dict)
    """The papers' names of what the table names as grids do: `{"vse-fc": "VSE (FC)"}`."""
    words: tuple[Group, ...] = ()
    """The columns of words in front of the numbers; empty: one, under `corner`."""

    @property
    def caption(self) -> str:
        """All that there is to say of the table, in one paragraph."""
        return self.legend.text

    def saying(self, *sentences: Sentence | str) -> "Table":
        """Return the table with further sentences in its caption."""
        return replace(self, legend=self.legend.saying(*sentences))

    def about(self, kind: str) -> dict[str, str]:
        """Return what a file in a format says of the whole table."""
        command = {"command": f"{self.command} --format {kind}"} if self.command else {}
        return {"layout": self.name, "caption": self.caption, **command}

    @property
    def columns(self) -> list[Label]:
        return [column for group in self.groups for column in group.columns]

    @property
    def keys(self) -> list[Mapping[str, str]]:
        """Keys of the columns of numbers."""
        return [keys for group in self.groups for keys in group.keys or [{}] * len(group.columns)]

    @property
    def heads(self) -> list[str]:
        """Return the text above each column, in one line: `Image → Text T^con`."""
        return [_joined(group, column) for group in self.groups for column in group.columns]

    @property
    def stub(self) -> tuple[Group, ...]:
        """The columns of words."""
        return self.words or (Group(Label(""), (self.corner,)),)

    @property
    def stub_heads(self) -> list[str]:
        return [column.text for group in self.stub for column in group.columns]

    @property
    def header(self) -> list[list[Head]]:
        """The lines of the header, from the top; in each, cells over all columns. No line is empty but the last."""
        groups = (*self.stub, *self.groups)
        shared = [(above, list(members)) for above, members in groupby(groups, key=lambda group: group.above)]
        lines = [
            [Head(above, sum(len(group.columns) for group in members)) for above, members in shared],
            [Head(group.title, len(group.columns)) for group in groups],
        ]
        titled = [line for line in lines if any(head.label.text for head in line)]
        return [*titled, [Head(column, 1) for group in groups for column in group.columns]]

    def entries(self) -> Iterator[TableEntry]:
        return (entry for block in self.blocks for row in block.rows for entry in row.entries if entry)

    def lines(self, block: Block) -> Iterator[tuple[tuple[Label, ...], list[tuple[str, bool]]]]:
        """Yield the rows as they are shown: their words, then each number's text and whether it is bold."""
        best = self.best_of(block)
        for number, row in enumerate(block.rows):
            texts = [entry.text if entry else "--" for entry in row.entries]
            yield row.titles, [(text, (number, column) in best) for column, text in enumerate(texts)]

    def best_of(self, block: Block) -> set[Place]:
        bold: set[Place] = set()
        for contest in self.contests(block):
            entries = list(contest.values())
            winners = best([entry.score for entry in entries], lowest=entries[0].lowest)
            bold |= {list(contest)[winner] for winner in winners}
        return bold

    def contests(self, block: Block) -> list[dict[Place, TableEntry]]:
        """Group entries that compete: same metric, data set and protocol, in the same block."""
        entries = [((i, j), entry) for i, row in enumerate(block.rows) for j, entry in enumerate(row.entries) if entry]

        def contest(entry: TableEntry) -> tuple[str, ...]:
            return (entry.contest, *(entry.keys.get(name, "") for name in CONTEST))

        return list(nested((contest(entry), place, entry) for place, entry in entries).values())


def _joined(group: Group, column: Label) -> str:
    return " ".join(label.text for label in (group.above, group.title, column) if label.text)


@dataclass(frozen=True)
class TextFormat:
    """One way to write a table as text."""

    ending: str
    render: Callable[[Table], str]
    comment: str = ""
    """Form of the command above the table, `% {}`; empty in a format without comments."""
