"""The files of this folder, typed: one a table of a paper, each number as it was printed.

A file holds its table's rows as the paper shows them, so that an eye can compare the two; read, each number is a row of
its own, a `Result`.
"""

import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

from grid.fields import Settings

PAPERS = ("goal", "selhn", "unified", "2ad")
"""Names of the papers, as table names begin with them."""


@dataclass(frozen=True)
class Printed:
    """A value as a paper prints it: `63.1±0.2`, `97.6`, `9.6×`, a word, or `-` for none.

    >>> Printed("63.1±0.2", n=3).text, Printed("63.1±0.2", n=3).std, Printed("-").text
    ('63.1 ± 0.2', 0.2, '--')
    """

    printed: str
    n: int | None = None
    """Over how many runs it is a mean; None: the paper does not say."""

    @cached_property
    def _numbers(self) -> tuple[float, ...]:
        return tuple(map(float, re.findall(r"\d+\.\d+", self.printed)))

    @property
    def mean(self) -> float:
        """NaN where the paper has no number."""
        return self._numbers[0] if self._numbers else math.nan

    @property
    def std(self) -> float:
        """NaN where the paper has none."""
        return self._numbers[1] if len(self._numbers) > 1 else math.nan

    @property
    def shown(self) -> float:
        """Papers round, we do not."""
        return self.mean

    @property
    def text(self) -> str:
        """The same digits, spelled as in all tables."""
        return "--" if self.printed == "-" else self.printed.replace("±", " ± ")

    def tidy(self) -> dict[str, object]:
        """What the paper says of it."""
        mean, std = (None if math.isnan(value) else value for value in (self.mean, self.std))
        return {"n": self.n, "mean": mean, "std": std, "text": self.text}


@dataclass(frozen=True)
class Result:
    """One printed number, with what the paper says it is of and what it is here."""

    name: str
    """Of the table: `goal-table3-coco`."""
    block: str
    """The title above its rows, where there is one."""
    model: str
    loss: str
    """As the paper prints it; empty where the model's name says all."""
    note: str
    dataset: str
    protocol: str
    metric: str
    recipe: str | None
    """Ours, where we have it."""
    objective: str | None
    """Ours, where we have it."""
    value: Printed


class Part(Settings):
    """Neighbouring columns of one data set; in GOAL's matrices a column is METRIC:TRIPLET."""

    dataset: str
    protocol: str
    columns: str


class Line(Settings):
    """A row as printed; `pair` is the row of a GOAL matrix."""

    model: str | None = None
    loss: str = ""
    pair: str | None = None
    note: str = ""
    recipe: str | None = None
    objective: str | None = None
    runs: int | None = None
    values: str | tuple[str, ...]
    """Separated by spaces, or a list where they hold some."""

    @property
    def cells(self) -> list[str]:
        """The values one by one."""
        return self.values.split() if isinstance(self.values, str) else list(self.values)


class Lines(Settings):
    """Rows under one title."""

    title: str = ""
    model: str = ""
    recipe: str | None = None
    protocol: str | None = None
    """Where it is not the columns' one."""
    rows: tuple[Line, ...]


class PaperTable(Settings):
    """One file."""

    paper: str
    table: str
    title: str
    note: str = ""
    """What a reader must know beside it."""
    layout: str
    """Which of our layouts is the paper's."""
    runs: int | None = None
    """Over how many runs its means with ± are."""
    parts: tuple[Part, ...]
    blocks: tuple[Lines, ...]

    def results(self, name: str) -> Iterator[Result]:
        """Every number, row by row."""
        for block in self.blocks:
            for row in block.rows:
                cells = iter(row.cells)
                for part in self.parts:
                    for column in part.columns.split():
                        yield self._result(name, block, row, part, column, next(cells))

    def _result(self, name: str, block: Lines, row: Line, part: Part, column: str, printed: str) -> Result:
        metric, _, triplet = column.partition(":")
        cell = f"{row.pair}_{triplet}" if row.pair else None
        return Result(
            name=name,
            block=block.title,
            model=row.model or block.model,
            loss=cell or row.loss,
            note=row.note,
            dataset=part.dataset,
            protocol=block.protocol or part.protocol,
            metric=metric,
            recipe=row.recipe or block.recipe,
            objective=cell or row.objective,
            value=Printed(printed, row.runs or (self.runs if "±" in printed else None)),
        )


@cache
def names() -> tuple[str, ...]:
    """All tables, paper by paper, in the papers' order."""
    folder = resources.files("results").joinpath("reference")
    stems = [item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml")]
    return tuple(sorted(stems, key=_place))


@cache
def read(name: str) -> PaperTable:
    """One file, as it stands."""
    text = resources.files("results").joinpath("reference", f"{name}.toml").read_text(encoding="utf-8")
    return PaperTable.model_validate(tomllib.loads(text))


@cache
def results(name: str) -> tuple[Result, ...]:
    """Every number of one table."""
    return tuple(read(name).results(name))


@cache
def everything() -> tuple[Result, ...]:
    """Every number of every table."""
    return tuple(result for name in names() for result in results(name))


def _place(name: str) -> tuple[int, bool, int, str]:
    paper, _, rest = name.partition("-table")
    number = re.match(r"\d+", rest)
    return PAPERS.index(paper), number is None, int(number[0]) if number else 0, rest
