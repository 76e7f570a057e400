"""A table as comma-separated values: the tidy rows, numbers unrounded, trials separated by spaces."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from goalgrid.results.renderers.parquet import tidy
from goalgrid.results.tables import Table, TextFormat


def render(table: Table) -> str:
    data = tidy(table)
    rows = (
        [" ".join(value) if isinstance(value, list) else value for value in row.values()] for row in data.to_pylist()
    )
    return written(data.column_names, rows)


def written(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_quiet, row) for row in (names, *rows))
    return text.getvalue()


def _quiet(value: object) -> object:
    """The value, with an apostrophe before a text that a spreadsheet would run as a formula.

    >>> [_quiet(value) for value in ("=1+1", "@x", "-1+cmd|x", "+0.5 ± 0.1", "-1e-05", "--", -0.5)]
    ["'=1+1", "'@x", "'-1+cmd|x", '+0.5 ± 0.1', '-1e-05', '--', -0.5]
    """
    runs = isinstance(value, str) and re.match(r"[=@\t\r]|[-+].*[A-Za-df-z(=@|!]", value)
    return f"'{value}" if runs else value


TEXT_FORMAT = TextFormat("csv", render)
