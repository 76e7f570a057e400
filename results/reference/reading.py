"""Reads the papers' tables as printed from this folder's TOML files, and provides them as table values."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property

from goalgrid.grid.catalog import toml, toml_names
from goalgrid.grid.errors import check_known
from goalgrid.grid.expansion import Cell
from goalgrid.grid.groups import nested
from goalgrid.grid.settings.base import Settings
from goalgrid.results.records.scores import TableValue
from goalgrid.results.tables.legend import Legend, Sentence

PAPERS = ("goal", "selhn", "unified", "2ad")
"""Names of the papers; table names begin with the paper's name."""

_FOLDER = "goalgrid.results.reference"


@dataclass(frozen=True)
class Printed(TableValue):
    """A value as a paper prints it: `63.1±0.2`, `97.6`, `9.6×`, a word, or `-` for no value.

    >>> Printed("63.1±0.2", n=3).text, Printed("63.1±0.2", n=3).std, Printed("-").text
    ('63.1 ± 0.2', 0.2, '--')
    """

    printed: str
    n: int | None = None
    """Number of runs that the mean is over; None if the paper does not say."""
    doubt: str = ""
    """Why the number is doubtful; empty if there is no known fault."""

    @cached_property
    def _numbers(self) -> tuple[float, ...]:
        return tuple(map(float, re.findall(r"\d+\.\d+", self.printed)))

    @property
    def mean(self) -> float:
        """The printed mean; NaN if the paper has no number."""
        return self._numbers[0] if self._numbers else math.nan

    @property
    def std(self) -> float:
        """The printed standard deviation; NaN if the paper has none."""
        return self._numbers[1] if len(self._numbers) > 1 else math.nan

    @property
    def quoted(self) -> bool:
        return not math.isnan(self.mean)

    @property
    def shown(self) -> float:
        """The number as printed (already rounded by the paper)."""
        return self.mean

    @property
    def text(self) -> str:
        """The printed text, with spaces around ± as in our tables; `--` for no value."""
        return "--" if self.printed == "-" else self.printed.replace("±", " ± ")

    def tidy(self) -> dict[str, object]:
        """Return number of runs, mean and standard deviation; NaN or None if the paper does not give them."""
        return {"n": self.n, "mean": self.mean, "std": self.std, "text": self.text}


@dataclass(frozen=True)
class Result:
    """A printed number with its row and column in the paper, and the matching recipe and objective here."""

    name: str
    """Name of the table, e.g. `goal-table3-coco`."""
    block: str
    """Title above the block of rows; empty if there is none."""
    model: str
    loss: str
    """The loss as printed; empty if the model's name includes it."""
    dataset: str
    protocol: str
    metric: str
    recipe: str | None
    objective: str | None
    """Recipe and objective here; None if there is no match."""
    value: Printed
    line: "Line"
    """The row of the number."""

    @property
    def doubt(self) -> str:
        return self.value.doubt

    @property
    def label(self) -> str:
        """Label of the row, e.g. `VSE (FC), L_Triplet` or `BFAN* + L_Unified`."""
        joint = "" if not self.loss else " " if self.loss.startswith("+") else ", "
        return f"{self.model}{joint}{self.loss}"

    @property
    def name_in_row(self) -> str:
        """Label of the row if model and loss share one column, e.g. `BFAN* + L_Unified`."""
        return f"{self.model} {self.loss}".strip()


class PrintedColumns(Settings):
    """Adjacent columns of one data set, in printed order; in GOAL's matrices a column is METRIC:TRIPLET."""

    title: str = ""
    """Heading above the columns; empty if there is none."""
    dataset: str
    protocol: str
    columns: str


class Remark(Settings):
    """A remark on numbers of a table, selected by wildcard patterns for row, data set and metric."""

    text: str
    rows: str = "*"
    """Pattern for the block title, model and loss, joined by spaces."""
    dataset: str = "*"
    metric: str = "*"


class Line(Settings):
    """A row as printed; `pair` is the pair weight of a row in GOAL's matrix."""

    model: str | None = None
    loss: str = ""
    pair: str | None = None
    words: tuple[str, ...] = ()
    """Texts in the text columns, an empty one stands for model and loss; default: model and loss in all of them."""
    recipe: str | dict[str, str] | None = None
    """The matching recipe here, or one per data set, by the data set's name."""
    objective: str | None = None
    """The matching objective here."""
    quoted: str = ""
    """Source that the paper quotes the numbers from, as worded there; empty: the paper's own experiments."""
    not_possible: str = ""
    """Why no grid here trains the row; given if the row's model or loss has the name of a shipped one."""
    runs: int | None = None
    """Number of runs of this row; default: the table's."""
    values: str | tuple[str, ...]
    """Values separated by spaces, or a list if values contain spaces."""

    @property
    def cells(self) -> list[str]:
        return self.values.split() if isinstance(self.values, str) else list(self.values)


class Lines(Settings):
    """A block of rows under a title."""

    title: str = ""
    model: str = ""
    recipe: str | None = None
    dataset: str | None = None
    protocol: str | None = None
    """Data set and protocol of these rows, if they differ from the columns'."""
    rows: tuple[Line, ...]


class PaperTable(Settings):
    """A paper's table: the content of one TOML file."""

    paper: str
    table: str
    title: str
    legend: str = ""
    """Meaning of the table's signs and terms, for printed numbers and for ours."""
    note: str = ""
    """Note on the printed numbers only."""
    layout: str
    """The layout here that is closest to the paper's."""
    words: tuple[str, ...] = ("Method",)
    """Titles of the text columns: `Model` and `Loss` show the row's model and loss, any other title shows both."""
    words_title: str = ""
    """Heading above these titles; empty if there is none."""
    i2t: str = "Image-to-Text"
    t2i: str = "Text-to-Image"
    """The paper's names for the two directions."""
    bests: str = ""
    """Text column whose values group the rows, with one best per group; empty: one best per column."""
    runs: int | None = None
    """Number of runs behind the means with ±."""
    doubts: tuple[Remark, ...] = ()
    """Known faults of the printed numbers."""
    parts: tuple[PrintedColumns, ...]
    blocks: tuple[Lines, ...]

    @property
    def heading(self) -> str:
        """Source and title, e.g. `GOAL Table 3: ...`."""
        return f"{self.source}: {self.title}"

    @property
    def source(self) -> str:
        """Paper and table number, e.g. `GOAL Table 3`."""
        return f"{self.paper} Table {self.table}"

    @property
    def marks(self) -> str:
        """Meaning of bold type; empty if nothing is bold."""
        of = f" of each {self.bests}" if self.bests else ""
        return f"best{of} in bold" if self.layout != "known" else ""

    @property
    def columns(self) -> list[tuple[PrintedColumns, str]]:
        """All columns of numbers, each preceded by its group of columns."""
        return [(part, column) for part in self.parts for column in part.columns.split()]

    def rows(self, name: str) -> Iterator[tuple[Result, ...]]:
        """Yield the numbers of each row."""
        columns = self.columns
        for block in self.blocks:
            for row in block.rows:
                cells = zip(columns, row.cells, strict=True)
                yield tuple(self._result(name, block, row, *column, printed) for column, printed in cells)

    def _result(self, name: str, block: Lines, row: Line, part: PrintedColumns, column: str, printed: str) -> Result:
        metric, _, triplet = column.partition(":")
        cell = f"{row.pair}_{triplet}" if row.pair else None
        named = f"{block.title} {row.model or block.model} {cell or row.loss}".strip()
        dataset = block.dataset or part.dataset
        recipe = row.recipe[dataset] if isinstance(row.recipe, dict) else row.recipe
        doubt = _remarks(self.doubts, named, part.dataset, metric)
        return Result(
            name=name, block=block.title, model=row.model or block.model, loss=cell or row.loss, line=row,
            dataset=dataset, protocol=block.protocol or part.protocol, metric=metric,
            recipe=recipe or block.recipe, objective=cell or row.objective,
            value=Printed(printed, row.runs or (self.runs if "±" in printed else None), doubt),
        )  # fmt: skip


@cache
def table_names() -> tuple[str, ...]:
    """Return the names of all tables, ordered by paper and table number."""
    return tuple(sorted((name for name in toml_names(_FOLDER) if "-table" in name), key=_place))


@cache
def paper_table(name: str) -> PaperTable:
    return PaperTable.model_validate(toml(_FOLDER, name))


@cache
def results_of(name: str) -> tuple[Result, ...]:
    """Return all numbers of a table.

    >>> [result] = [r for r in results_of("goal-table3-coco")
    ...             if (r.recipe, r.objective, r.metric) == ("vsepp-r152-ft", "sig-ms_cir", "i2t_r1")]
    >>> result.value.mean, result.value.std, result.value.n
    (43.8, 0.5, 3)
    """
    return tuple(result for row in paper_table(name).rows(name) for result in row)


@cache
def all_results() -> tuple[Result, ...]:
    return tuple(result for name in table_names() for result in results_of(name))


@dataclass(frozen=True)
class Paper:
    """A paper's table. Its rows are cells without trials, with the paper's names."""

    name: str
    rows: dict[Cell, dict[str, Result]]
    """Numbers by cell, then by metric."""

    @staticmethod
    def read(name: str) -> "Paper":
        """Read a table by name; raises UserError if no table has this name."""
        hint = "GOAL's Flickr30K tables are in its appendix, which is not shipped." if "f30k" in name else ""
        check_known("table of a paper", name, table_names(), hint=hint)
        return Paper(name, nested((cell_of(result), result.metric, result) for result in results_of(name)))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the table reports, in printed order."""
        return tuple(dict.fromkeys(metric for row in self.rows.values() for metric in row))

    @property
    def content(self) -> PaperTable:
        return paper_table(self.name)

    @property
    def caption(self) -> Legend:
        """The caption: the table's number and title in the paper, and the meaning of its numbers and signs."""
        content = self.content
        spread = f"± is the standard deviation over {content.runs} runs" if content.runs else ""
        parts = ["as printed", spread, content.legend, content.note, content.marks]
        printed = "; ".join(filter(None, [spread, content.legend, content.marks]))
        title = Sentence(f"{content.heading};", f"{content.title}; as printed in {content.source}")
        return Legend.of(title, [Sentence(f"{'; '.join(filter(None, parts))}.", printed)])

    def of(self, cell: Cell, metric: str) -> TableValue:
        return self.rows[cell][metric].value

    def protocol_of(self, cell: Cell) -> str:
        return self._any(cell).protocol

    def section(self, cell: Cell) -> str:
        """Return the heading of the cell's block of rows: protocol and printed title."""
        return ", ".join(word for word in (self.protocol_of(cell), self._any(cell).block) if word)

    def label(self, cell: Cell) -> str:
        return self._any(cell).label

    def axes(self, cell: Cell) -> dict[str, str]:
        """Return the row's labels as the paper words them, and the matching recipe and objective here."""
        result = self._any(cell)
        place = {"paper": self.content.paper, "table": self.content.table, "block": result.block}
        names = {"dataset": result.dataset, "protocol": result.protocol, "model": result.model, "loss": result.loss}
        return {**place, **names, "recipe": result.recipe or "", "objective": result.objective or ""}

    def _any(self, cell: Cell) -> Result:
        return next(iter(self.rows[cell].values()))


def cell_of(result: Result) -> Cell:
    """Return a cell without trials that represents the number's row on its data set."""
    marks = (("block", result.block),) if result.block else ()
    return Cell(result.dataset, result.model, result.loss, marks, trials=())


def listing(paper: str | None = None) -> dict[str, str]:
    """Return the headings of a paper's tables by table name; default: of all papers."""
    return {name: paper_table(name).heading for name in table_names() if paper is None or name.startswith(f"{paper}-")}


def _remarks(remarks: Iterable[Remark], *number: str) -> str:
    """Join the remarks that match a number's row, data set and metric."""
    patterns = [(remark.text, (remark.rows, remark.dataset, remark.metric)) for remark in remarks]
    return "; ".join(text for text, of in patterns if all(map(fnmatchcase, number, of)))


def _place(name: str) -> tuple[int, bool, int, str]:
    paper, _, rest = name.partition("-table")
    number = re.match(r"\d+", rest)
    return PAPERS.index(paper), number is None, int(number[0]) if number else 0, rest
