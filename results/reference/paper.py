"""A paper's table as a source of values for the layouts, beside the records of a grid."""

from dataclasses import dataclass

from grid.errors import UserError, unknown
from grid.expansion import Cell
from results.reference.reading import PAPERS, Printed, Result, names, read, results


@dataclass(frozen=True)
class Paper:
    """One table of a paper: its rows are cells without trials, named as the paper names them."""

    name: str
    rows: dict[Cell, dict[str, Result]]
    """By cell, then by metric."""

    @classmethod
    def read(cls, name: str) -> "Paper":
        """A table by name.

        Raises:
            UserError: there is none of that name.
        """
        if name not in names():
            hint = "GOAL's Flickr30K tables stand in its appendix, which is not here." if "f30k" in name else ""
            raise UserError(unknown("table of a paper", name, names(), hint=hint))
        rows: dict[Cell, dict[str, Result]] = {}
        for result in results(name):
            rows.setdefault(_cell(result), {})[result.metric] = result
        return cls(name, rows)

    @property
    def cells(self) -> list[Cell]:
        """In the paper's order."""
        return list(self.rows)

    @property
    def metrics(self) -> tuple[str, ...]:
        """What the table reports of each row, in its order."""
        return tuple(dict.fromkeys(metric for row in self.rows.values() for metric in row))

    @property
    def layout(self) -> str:
        """Which of our layouts is the paper's."""
        return read(self.name).layout

    @property
    def caption(self) -> str:
        """Where the numbers stand and what they are."""
        content = read(self.name)
        parts = [
            "as printed",
            f"± is the standard deviation over {content.runs} runs" if content.runs else "",
            content.note,
            "best in bold" if content.layout != "known" else "",
        ]
        return f"{content.paper} Table {content.table}: {content.title}; {'; '.join(filter(None, parts))}."

    def of(self, cell: Cell, metric: str) -> Printed:
        """A number as printed."""
        return self.rows[cell][metric].value

    def protocol_of(self, cell: Cell) -> str:
        return self._any(cell).protocol

    def section(self, cell: Cell) -> str:
        """What all rows of a block have in common."""
        return ", ".join(word for word in (self.protocol_of(cell), self._any(cell).block) if word)

    def label(self, cell: Cell) -> str:
        """The row's name: `VSE (FC), L_Triplet`, `BFAN* + L_Unified`."""
        result = self._any(cell)
        joint = "" if not result.loss else " " if result.loss.startswith("+") else ", "
        return f"{result.model}{joint}{result.loss}{f' ({result.note})' if result.note else ''}"

    def axes(self, cell: Cell) -> dict[str, str]:
        """What the paper says that a row is of, and what it is here."""
        result, content = self._any(cell), read(self.name)
        said = {"paper": content.paper, "table": content.table, "block": result.block}
        names = {"dataset": result.dataset, "protocol": result.protocol, "model": result.model, "loss": result.loss}
        return {**said, **names, "recipe": result.recipe or "", "objective": result.objective or ""}

    def _any(self, cell: Cell) -> Result:
        return next(iter(self.rows[cell].values()))


def listing(paper: str | None = None) -> dict[str, str]:
    """The tables of one paper, or of all, by name: what each shows."""
    chosen = [name for name in names() if paper is None or name.startswith(f"{paper}-")]
    return {name: f"{read(name).paper} Table {read(name).table}: {read(name).title}" for name in chosen}


def is_paper(name: str | None) -> bool:
    """Whether it names no table but a whole paper, or nothing."""
    return name is None or name in PAPERS


def _cell(result: Result) -> Cell:
    marks = {"block": result.block, "note": result.note}
    swept = tuple((name, text) for name, text in marks.items() if text)
    return Cell(result.dataset, result.model, result.loss, swept, trials=())
