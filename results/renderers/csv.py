"""A table as CSV: tidy rows with unrounded numbers; trials and settings are separated by spaces."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from goalgrid.results.renderers.parquet import tidy
from goalgrid.results.tables import Table, TextFormat


def render(table: Table) -> str:
    data = tidy(table)
    return written(data.column_names, (map(_joined, row.values()) for row in data.to_pylist()))


def _joined(value: object) -> object:
    """Join trials, or settings as `train.epochs=9 train.lr=0.003`, by spaces; return other values unchanged."""
    if isinstance(value, dict):
        return " ".join(f"{name}={one}" for name, one in value.items() if one is not None)
    return " ".join(value) if isinstance(value, list) else value


def written(names: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_quiet, row) for row in (names, *rows))
    return text.getvalue()


def _quiet(value: object) -> object:
    """Prefix a text that a spreadsheet would run as a formula with an apostrophe; return other values unchanged.

    >>> [_quiet(value) for value in ("=1+1", "@x", "-1+cmd|x", "+0.5 ± 0.1", "-1e-05", "--", -0.5)]
    ["'=1+1", "'@x", "'-1+cmd|x", '+0.5 ± 0.1', '-1e-05', '--', -0.5]
    """
    runs = isinstance(value, str) and re.match(r"[=@\t\r]|[-+].*[A-Za-df-z(=@|!]", value)
    return f"'{value}" if runs else value


TEXT_FORMAT = TextFormat("csv", render)
