"""What `goalgrid table` is asked for, and the command that asks for it, as written tables carry it."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NoReturn

from grid.errors import UserError
from grid.expansion import Cell
from results.averages import averaged
from results.layouts import arrange
from results.layouts.captions import Source
from results.layouts.pivot import Axes
from results.table import Table

PROGRAM = "goalgrid table"


@dataclass(frozen=True)
class Request:
    """Everything that decides what a table shows, by the names of the command's options."""

    grid: str
    """A grid's name or file, or with `reference` a table of a paper."""
    reference: bool = False
    layout: str | None = None
    rows: str | None = None
    columns: str | None = None
    blocks: str | None = None
    metric: str = "r1"
    protocol: str | None = None
    against: str | None = None
    marks: bool = False
    interval: bool = False
    averages: bool = False
    allow_partial: bool = False

    @property
    def axes(self) -> Axes | None:
        """What stands in rows, columns and blocks, where that is asked for."""
        return Axes.parse(self.rows, self.columns, self.blocks)

    @property
    def command(self) -> str:
        """The command line, without a format.

        >>> Request("goal-table3-coco", metric="r5", marks=True).command
        'goalgrid table goal-table3-coco --metric r5 --marks'
        """
        words = [PROGRAM, shlex.quote(self.grid)]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            option = f"--{field.name.replace('_', '-')}"
            if value != field.default:
                words += [option] if value is True else [option, shlex.quote(value)]
        return " ".join(words)

    @classmethod
    def parse(cls, command: str) -> tuple["Request", str]:
        """Read a command line back, and the format that it names.

        >>> Request.parse("goalgrid table demo --metric r5 --format latex") == (Request("demo", metric="r5"), "latex")
        True

        Raises:
            UserError: this version does not understand it.
        """
        parser = _Parser(add_help=False, allow_abbrev=False)
        parser.add_argument("grid")
        parser.add_argument("--format", required=True)
        for field in fields(cls)[1:]:
            option = f"--{field.name.replace('_', '-')}"
            if field.type is bool:
                parser.add_argument(option, action="store_true")
            else:
                parser.add_argument(option, default=field.default)
        try:
            found = vars(parser.parse_args(shlex.split(command.removeprefix(PROGRAM))))
        except ValueError as error:
            raise UserError(f"the command {command!r} cannot be read: {error}.") from error
        kind = found.pop("format")
        return cls(**found), kind

    def draw(self, cells: Sequence[Cell], source: Source) -> Table:
        """The table of these cells.

        Raises:
            UserError: options that do not fit together, or that do not fit the cells.
        """
        table = arrange(cells, source, layout=self.layout, metric=self.metric, against=self.against, axes=self.axes)
        if self.marks:
            from results.marks import marked  # brings scipy, which few tables need

            table = marked(table)
        if self.allow_partial and not self.averages:
            raise UserError("--allow-partial says which --averages are shown; give that too.")
        if self.averages:
            table = averaged(table, partial=self.allow_partial)
        return replace(table, command=self.command)


class _Parser(argparse.ArgumentParser):
    """One that raises instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)
