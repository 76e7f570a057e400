"""The papers' tables as printed: the TOML files of this folder, typed, and a table as a source of values."""

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
"""Names of the papers; the name of a table begins with its paper's."""

_FOLDER = "goalgrid.results.reference"


@dataclass(frozen=True)
class Printed(TableValue):
    """A value as a paper prints it: `63.1±0.2`, `97.6`, `9.6×`, a word, or `-` for no value.

    >>> Printed("63.1±0.2", n=3).text, Printed("63.1±0.2", n=3).std, Printed("-").text
    ('63.1 ± 0.2', 0.2, '--')
    """

    printed: str
    n: int | None = None
    """Number of runs that the mean is over; None: the paper does not say."""
    doubt: str = ""
    """Why the number is not what it claims to be; empty: nothing is known against it."""

    @cached_property
    def _numbers(self) -> tuple[float, ...]:
        return tuple(map(float, re.findall(r"\d+\.\d+", self.printed)))

    @property
    def mean(self) -> float:
        """NaN if the paper has no number."""
        return self._numbers[0] if self._numbers else math.nan

    @property
    def std(self) -> float:
        """NaN if the paper has no standard deviation."""
        return self._numbers[1] if len(self._numbers) > 1 else math.nan

    @property
    def quoted(self) -> bool:
        return not math.isnan(self.mean)

    @property
    def shown(self) -> float:
        """The number as printed: papers have rounded it already."""
        return self.mean

    @property
    def text(self) -> str:
        """The printed digits, with spaces around ± as in our tables."""
        return "--" if self.printed == "-" else self.printed.replace("±", " ± ")

    def tidy(self) -> dict[str, object]:
        """Return runs, mean and standard deviation, as far as the paper gives them."""
        return {"n": self.n, "mean": self.mean, "std": self.std, "text": self.text}


@dataclass(frozen=True)
class Result:
    """A printed number, with the row and column in the paper, and the recipe and objective that it belongs to here."""

    name: str
    """Name of the table: `goal-table3-coco`."""
    block: str
    """The title above its rows; empty without a title."""
    model: str
    loss: str
    """The loss as the paper prints it; empty if the model's name includes it."""
    dataset: str
    protocol: str
    metric: str
    recipe: str | None
    objective: str | None
    """Ours, where we have them."""
    value: Printed
    line: "Line"
    """The row of the number."""

    @property
    def doubt(self) -> str:
        return self.value.doubt

    @property
    def label(self) -> str:
        """The row's name: `VSE (FC), L_Triplet`, `BFAN* + L_Unified`."""
        joint = "" if not self.loss else " " if self.loss.startswith("+") else ", "
        return f"{self.model}{joint}{self.loss}"

    @property
    def name_in_row(self) -> str:
        """The row's name where model and loss are one column: `BFAN* + L_Unified`."""
        return f"{self.model} {self.loss}".strip()


class PrintedColumns(Settings):
    """Neighbouring columns of a data set, in the printed order; in GOAL's matrices a column is METRIC:TRIPLET."""

    title: str = ""
    """Text above them; empty: none."""
    dataset: str
    protocol: str
    columns: str


class Remark(Settings):
    """Remark on some numbers of a table; rows, data set and metric are patterns as in file names."""

    text: str
    rows: str = "*"
    """Pattern of the block's title, the model and the loss."""
    dataset: str = "*"
    metric: str = "*"


class Line(Settings):
    """A row as printed; `pair` is the row of a GOAL matrix."""

    model: str | None = None
    loss: str = ""
    pair: str | None = None
    words: tuple[str, ...] = ()
    """Its texts in the columns of words, an empty one for its model and loss; none: these everywhere."""
    recipe: str | dict[str, str] | None = None
    """Ours; a table where the data sets, by which it names the recipes, have one each."""
    objective: str | None = None
    quoted: str = ""
    """Source of the paper's numbers, in its words; empty: it trained them itself."""
    not_possible: str = ""
    """Why no grid here trains the row, said wherever it bears a name that something shipped has."""
    runs: int | None = None
    values: str | tuple[str, ...]
    """Values separated by spaces, or a list of values if they contain spaces."""

    @property
    def cells(self) -> list[str]:
        return self.values.split() if isinstance(self.values, str) else list(self.values)


class Lines(Settings):
    """Rows under a title."""

    title: str = ""
    model: str = ""
    recipe: str | None = None
    dataset: str | None = None
    protocol: str | None = None
    """The data set and the protocol of these rows, if they are not the columns'."""
    rows: tuple[Line, ...]


class PaperTable(Settings):
    """The content of a file."""

    paper: str
    table: str
    title: str
    legend: str = ""
    """Meaning of its signs and words, whoever's numbers it shows."""
    note: str = ""
    """Note for readers of the printed numbers."""
    layout: str
    """The layout here that is nearest to the paper's."""
    words: tuple[str, ...] = ("Method",)
    """The titles of the columns of words: `Model` and `Loss` hold the row's, any other both."""
    words_title: str = ""
    """Text above these titles; empty: none."""
    i2t: str = "Image-to-Text"
    t2i: str = "Text-to-Image"
    """The paper's names of the directions."""
    bests: str = ""
    """The column of words by whose texts the best are told apart; empty: each column has one best."""
    runs: int | None = None
    """Number of runs that the means with ± are over."""
    doubts: tuple[Remark, ...] = ()
    """Known faults of printed numbers."""
    parts: tuple[PrintedColumns, ...]
    blocks: tuple[Lines, ...]

    @property
    def heading(self) -> str:
        """`GOAL Table 3: ...`."""
        return f"{self.source}: {self.title}"

    @property
    def source(self) -> str:
        """`GOAL Table 3`."""
        return f"{self.paper} Table {self.table}"

    @property
    def marks(self) -> str:
        """Meaning of bold; empty: nothing is bold."""
        of = f" of each {self.bests}" if self.bests else ""
        return f"best{of} in bold" if self.layout != "known" else ""

    @property
    def columns(self) -> list[tuple[PrintedColumns, str]]:
        """Every column of numbers, with those that it belongs to."""
        return [(part, column) for part in self.parts for column in part.columns.split()]

    def rows(self, name: str) -> Iterator[tuple[Result, ...]]:
        """Yield the numbers of every row."""
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
    """List the tables paper by paper, in the papers' order."""
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
    """A table of a paper. Its rows are cells without trials, named as the paper names them."""

    name: str
    rows: dict[Cell, dict[str, Result]]
    """Numbers by cell, then by metric."""

    @staticmethod
    def read(name: str) -> "Paper":
        """Read a table by name; UserError: none has this name."""
        hint = "GOAL's Flickr30K tables are in its appendix, which is not shipped." if "f30k" in name else ""
        check_known("table of a paper", name, table_names(), hint=hint)
        return Paper(name, nested((cell_of(result), result.metric, result) for result in results_of(name)))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the table reports, in its order."""
        return tuple(dict.fromkeys(metric for row in self.rows.values() for metric in row))

    @property
    def content(self) -> PaperTable:
        return paper_table(self.name)

    @property
    def caption(self) -> Legend:
        """The table's place and title in the paper, and what its numbers are."""
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
        """Return what the rows of a block share: the protocol, and the title above them."""
        return ", ".join(word for word in (self.protocol_of(cell), self._any(cell).block) if word)

    def label(self, cell: Cell) -> str:
        return self._any(cell).label

    def axes(self, cell: Cell) -> dict[str, str]:
        """Return what a row belongs to by the paper's words, and its recipe and objective here."""
        result = self._any(cell)
        place = {"paper": self.content.paper, "table": self.content.table, "block": result.block}
        names = {"dataset": result.dataset, "protocol": result.protocol, "model": result.model, "loss": result.loss}
        return {**place, **names, "recipe": result.recipe or "", "objective": result.objective or ""}

    def _any(self, cell: Cell) -> Result:
        return next(iter(self.rows[cell].values()))


def cell_of(result: Result) -> Cell:
    """Build the cell without trials that represents the row of a number on its data set."""
    marks = (("block", result.block),) if result.block else ()
    return Cell(result.dataset, result.model, result.loss, marks, trials=())


def listing(paper: str | None = None) -> dict[str, str]:
    """Return what a paper's tables show, by name; without a paper, the tables of all papers."""
    return {name: paper_table(name).heading for name in table_names() if paper is None or name.startswith(f"{paper}-")}


def _remarks(remarks: Iterable[Remark], *number: str) -> str:
    """Those about the number of this row, data set and metric."""
    patterns = [(remark.text, (remark.rows, remark.dataset, remark.metric)) for remark in remarks]
    return "; ".join(text for text, of in patterns if all(map(fnmatchcase, number, of)))


def _place(name: str) -> tuple[int, bool, int, str]:
    paper, _, rest = name.partition("-table")
    number = re.match(r"\d+", rest)
    return PAPERS.index(paper), number is None, int(number[0]) if number else 0, rest
