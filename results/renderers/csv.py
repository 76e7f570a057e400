"""A table as comma-separated values: the tidy rows, numbers unrounded, trials separated by spaces."""

import csv
import io
from collections.abc import Iterable, Sequence

from results.renderers.parquet import tidy
from results.renderers.text_format import TextFormat
from results.tables.table import Table


def render(table: Table) -> str:
    """A header line and one line a cell and metric."""
    data = tidy(table)
    rows = (
        [" ".join(value) if isinstance(value, list) else value for value in row.values()] for row in data.to_pylist()
    )
    return written(data.column_names, rows)


def written(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Comma-separated values: a line with the columns' names, and a line a row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([names, *rows])
    return text.getvalue()


TEXT_FORMAT = TextFormat("csv", render)
