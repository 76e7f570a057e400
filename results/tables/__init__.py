"""Tables, which layouts build from scores and renderers read; and the interface of text formats."""

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
"""Entries compete for the best value if they agree on these keys; `column` separates our values from a paper's."""


@dataclass(frozen=True)
class Label:
    """A name as plain text; `latex` is its mathematical notation in papers, empty if it has none."""

    text: str
    latex: str = ""


@dataclass(frozen=True)
class TableEntry:
    """A value in the table, with its axes and metric."""

    score: TableValue
    keys: Mapping[str, str]
    """The values of its axes, and its metric, by name, for tidy exports."""
    like_best: bool | None = None
    """Whether the value is not significantly different from the best it competes with; None if not tested."""
    mark: str = ""
    """Mark of its note in the caption; empty if it has none."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings, other than axes, in which its cell differs from other cells of the data set."""
    chosen: Mapping[str, object] = field(default_factory=dict)
    """Settings of its cell that were chosen on the validation split."""
    validation: Mapping[str, object] = field(default_factory=dict)
    """The selection metric of the chosen settings, in the search and on fresh seeds, and of the default."""
    contest: str = ""
    """Group within which it competes, if a paper marks several bests, e.g. for R and RG features; else empty."""
    remarks: tuple[str, ...] = ()
    """Further remarks of a paper on its cell, given by letters below the table."""
    verdict: str = ""
    """`above` or `below` the paper's number, or `within` its noise; empty if not tested."""

    @property
    def lowest(self) -> bool:
        """Whether lower values are better, as for a median rank."""
        return self.keys.get("metric", "").endswith("medr")

    @property
    def text(self) -> str:
        """`63.1 ± 0.2`, with a dagger if not distinguishable from the best, and the mark of its note."""
        return self.shown + (f" {self.mark}" if self.mark else "")

    @property
    def shown(self) -> str:
        """The text without the mark."""
        return self.score.text + (LIKE_BEST if self.like_best else "")

    @property
    def notes(self) -> tuple[str, ...]:
        """The remark that its mark refers to, and further remarks on its cell."""
        return (*([self.keys["note"]] if self.mark else []), *self.remarks)

    def tidy(self) -> dict[str, object]:
        """Return the entry as a row of a tidy export: keys, settings, value, mark and text."""
        tables = {
            name: dict(values) for name in ("settings", "chosen", "validation") if (values := getattr(self, name))
        }
        mark = {} if self.like_best is None else {"like_best": self.like_best}
        known = {name: None if value != value else value for name, value in self.score.tidy().items()}  # NaN
        keys = {name: value or None for name, value in self.keys.items()}
        return {**keys, **tables, **known, "quoted": self.score.quoted, **mark, "text": self.text}


def shared_keys(entries: Iterable[TableEntry | None]) -> dict[str, str]:
    """Return the keys whose values are the same for all entries."""
    first, *others = [entry.keys for entry in entries if entry] or [dict[str, str]()]
    return {name: value for name, value in first.items() if all(keys.get(name) == value for keys in others)}


@dataclass(frozen=True)
class Row:
    """A row with one entry per column; None if the grid has no such cell."""

    label: Label
    """Its full name."""
    entries: tuple[TableEntry | None, ...]
    mark: str = ""
    """Marks of its notes in the caption, `[a, b]`; empty if it has none."""
    words: tuple[Label, ...] = ()
    """Its texts in the table's text columns; empty if there is only the label."""
    named: int = 0
    """Index of the text column that names the row and carries the mark."""
    notes: tuple[str, ...] = ()
    """The remarks that its marks refer to."""
    group: str = ""
    """Name of its group, e.g. a model; rows of a group are adjacent and separated from others by rules in LaTeX."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys set by its layout, in addition to those that all its entries share; in a matrix, the `pair` weight."""

    @property
    def title(self) -> Label:
        return self._marked(self.label)

    @property
    def titles(self) -> tuple[Label, ...]:
        """The texts in the text columns, with the mark."""
        words = self.words or (self.label,)
        return tuple(self._marked(word) if place == self.named else word for place, word in enumerate(words))

    def _marked(self, label: Label) -> Label:
        mark = f" {self.mark}" * bool(self.mark)
        return Label(label.text + mark, label.latex and label.latex + mark)


@dataclass(frozen=True)
class Block:
    title: str
    """The title above its rows; empty if there is none."""
    rows: tuple[Row, ...]
    printed: str | None = None
    """The shorter title for a paper; None if it equals `title`, empty for no title."""


@dataclass(frozen=True)
class Group:
    """Adjacent columns under a title; adjacent groups may share a title above, such as a data set."""

    title: Label
    columns: tuple[Label, ...]
    above: Label = Label("")
    keys: tuple[Mapping[str, str], ...] = ()
    """Keys of each column, set by the layout independent of the grid's cells: `metric`; in a matrix, `triplet`."""


@dataclass(frozen=True)
class Head:
    """A header cell that spans `width` columns."""

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
    """The command that prints the table, without `--format`; empty if there is none."""
    latex: LatexStyle = field(default_factory=LatexStyle)
    names: Mapping[str, str] = field(default_factory=dict)
    """Names used in papers for the grid's names in the table: `{"vse-fc": "VSE (FC)"}`."""
    words: tuple[Group, ...] = ()
    """The text columns before the numbers; empty if there is only one, titled `corner`."""

    @property
    def caption(self) -> str:
        """The full caption, as one paragraph."""
        return self.legend.text

    def saying(self, *sentences: Sentence | str) -> "Table":
        """Return the table with further sentences in its caption."""
        return replace(self, legend=self.legend.saying(*sentences))

    def about(self, kind: str) -> dict[str, str]:
        """Return the metadata of the table for a file in this format: layout, caption, command."""
        command = {"command": f"{self.command} --format {kind}"} if self.command else {}
        return {"layout": self.name, "caption": self.caption, **command}

    @property
    def columns(self) -> list[Label]:
        return [column for group in self.groups for column in group.columns]

    @property
    def keys(self) -> list[Mapping[str, str]]:
        """Keys of the number columns."""
        return [keys for group in self.groups for keys in group.keys or [{}] * len(group.columns)]

    @property
    def heads(self) -> list[str]:
        """The text above each column, in one line: `Image → Text T^con`."""
        return [_joined(group, column) for group in self.groups for column in group.columns]

    @property
    def stub(self) -> tuple[Group, ...]:
        """The text columns before the numbers."""
        return self.words or (Group(Label(""), (self.corner,)),)

    @property
    def stub_heads(self) -> list[str]:
        return [column.text for group in self.stub for column in group.columns]

    @property
    def header(self) -> list[list[Head]]:
        """The header lines from top to bottom; each covers all columns. Empty lines are omitted, except the last."""
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
        """Yield each row as shown: its text columns, then each number's text and whether it is bold."""
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
        """Group a block's entries that compete: those with equal metric, data set and protocol."""
        entries = [((i, j), entry) for i, row in enumerate(block.rows) for j, entry in enumerate(row.entries) if entry]

        def contest(entry: TableEntry) -> tuple[str, ...]:
            return (entry.contest, *(entry.keys.get(name, "") for name in CONTEST))

        return list(nested((contest(entry), place, entry) for place, entry in entries).values())


def _joined(group: Group, column: Label) -> str:
    return " ".join(label.text for label in (group.above, group.title, column) if label.text)


@dataclass(frozen=True)
class TextFormat:
    """A format that writes a table as text."""

    ending: str
    render: Callable[[Table], str]
    comment: str = ""
    """Template of the comment with the command above the table, `% {}`; empty if the format has no comments."""
