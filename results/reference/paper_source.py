"""A paper's table as a source of values for the layouts, which otherwise take them from a grid's records."""

from dataclasses import dataclass

from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.expansion import Cell
from goalgrid.results.records.scores import TableValue
from goalgrid.results.reference.reading import PaperTable, Result, paper_table, results_of, table_names


@dataclass(frozen=True)
class Paper:
    """A table of a paper. Its rows are cells without trials, named as the paper names them."""

    name: str
    rows: dict[Cell, dict[str, Result]]
    """Numbers by cell, then by metric."""

    @staticmethod
    def read(name: str) -> "Paper":
        """A table by name; a UserError if none has this name."""
        if name not in table_names():
            hint = "GOAL's Flickr30K tables stand in its appendix, which is not here." if "f30k" in name else ""
            raise UserError(unknown("table of a paper", name, table_names(), hint=hint))
        rows: dict[Cell, dict[str, Result]] = {}
        for result in results_of(name):
            rows.setdefault(cell_of(result), {})[result.metric] = result
        return Paper(name, rows)

    @property
    def cells(self) -> list[Cell]:
        return list(self.rows)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the table reports, in its order."""
        return tuple(dict.fromkeys(metric for row in self.rows.values() for metric in row))

    @property
    def content(self) -> PaperTable:
        return paper_table(self.name)

    @property
    def caption(self) -> str:
        """The table's place and title in the paper, and what its numbers are."""
        content = self.content
        parts = [
            "as printed",
            f"± is the standard deviation over {content.runs} runs" if content.runs else "",
            content.note,
            "best in bold" if content.layout != "known" else "",
        ]
        return f"{content.heading}; {'; '.join(filter(None, parts))}."

    def of(self, cell: Cell, metric: str) -> TableValue:
        return self.rows[cell][metric].value

    def protocol_of(self, cell: Cell) -> str:
        return self._any(cell).protocol

    def section(self, cell: Cell) -> str:
        """What the rows of a block share: the protocol, and the title above them."""
        return ", ".join(word for word in (self.protocol_of(cell), self._any(cell).block) if word)

    def label(self, cell: Cell) -> str:
        return self._any(cell).label

    def axes(self, cell: Cell) -> dict[str, str]:
        """What a row belongs to by the paper's words, and its recipe and objective here."""
        result = self._any(cell)
        place = {"paper": self.content.paper, "table": self.content.table, "block": result.block}
        names = {"dataset": result.dataset, "protocol": result.protocol, "model": result.model, "loss": result.loss}
        return {**place, **names, "recipe": result.recipe or "", "objective": result.objective or ""}

    def _any(self, cell: Cell) -> Result:
        return next(iter(self.rows[cell].values()))


def cell_of(result: Result) -> Cell:
    """The cell without trials that stands for the row of a number on its data set."""
    marks = tuple(mark for mark in (("block", result.block), ("note", result.note)) if mark[1])
    return Cell(result.dataset, result.model, result.loss, marks, trials=())


def listing(paper: str | None = None) -> dict[str, str]:
    """What a paper's tables show, by name; without a paper, the tables of all papers."""
    return {name: paper_table(name).heading for name in table_names() if paper is None or name.startswith(f"{paper}-")}
