"""A request to `goalgrid table`: its options, and the command line, which written tables carry."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NoReturn

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell
from goalgrid.results.layouts import arrange
from goalgrid.results.layouts.captions import TableSource
from goalgrid.results.layouts.pivot import Axes
from goalgrid.results.tables.averages import averaged
from goalgrid.results.tables.table import Table

PROGRAM = "goalgrid table"


@dataclass(frozen=True)
class TableRequest:
    """The options that decide what a table shows, named as on the command line."""

    grid: str
    """A grid's name or file; with `reference`, the name of a paper's table."""
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
    set_: tuple[str, ...] = ()
    """What `--set` changes of the grid, KEY=VALUE each."""

    @property
    def axes(self) -> Axes | None:
        """The axes that stand in rows, columns and blocks; None if the request names no axis."""
        return Axes.parse(self.rows, self.columns, self.blocks)

    @property
    def command(self) -> str:
        """The command line, without a format.

        >>> TableRequest("goal-table3-coco", metric="r5", marks=True).command
        'goalgrid table goal-table3-coco --metric r5 --marks'
        """
        words = [PROGRAM, shlex.quote(self.grid)]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            values = value if isinstance(value, tuple) else (value,) if value != field.default else ()
            words += [word for each in values for word in _words(field.name, each)]
        return " ".join(words)

    @classmethod
    def parse(cls, command: str) -> tuple["TableRequest", str]:
        """The request and the format that a command line names.

        >>> request, kind = TableRequest.parse("goalgrid table demo --metric r5 --format latex")
        >>> request == TableRequest("demo", metric="r5"), kind
        (True, 'latex')

        Raises:
            UserError: this version does not understand the command line.
        """
        parser = _Parser(add_help=False, allow_abbrev=False)
        parser.add_argument("grid")
        parser.add_argument("--format", required=True)
        for field in fields(cls)[1:]:
            option = _option(field.name)
            if field.type is bool:
                parser.add_argument(option, action="store_true", dest=field.name)
            elif isinstance(field.default, tuple):
                parser.add_argument(option, action="append", default=[], dest=field.name)
            else:
                parser.add_argument(option, default=field.default)
        try:
            options = vars(parser.parse_args(shlex.split(command.removeprefix(PROGRAM))))
        except ValueError as error:
            raise UserError(f"the command {command!r} cannot be read: {error}.") from error
        kind = options.pop("format")
        return cls(**options | {"set_": tuple(options["set_"])}), kind

    def draw(self, cells: Sequence[Cell], source: TableSource) -> Table:
        """The table of these cells.

        Raises:
            UserError: the options do not fit together, or do not fit the cells.
        """
        table = arrange(cells, source, layout=self.layout, metric=self.metric, against=self.against, axes=self.axes)
        if self.marks:
            from goalgrid.results.analysis.table_marks import marked  # imports scipy, which few tables need

            table = marked(table)
        if self.allow_partial and not self.averages:
            raise UserError("--allow-partial says which --averages are shown; give that too.")
        if self.averages:
            table = averaged(table, partial=self.allow_partial)
        return replace(table, command=self.command)


def _option(name: str) -> str:
    return f"--{name.strip('_').replace('_', '-')}"


def _words(name: str, value: str | bool) -> list[str]:
    return [_option(name)] if isinstance(value, bool) else [_option(name), shlex.quote(value)]


class _Parser(argparse.ArgumentParser):
    """A parser that raises an error instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)
