"""A table as comma-separated values: the tidy rows, numbers unrounded, trials separated by spaces."""

import csv
import io

from results.renderers.parquet import tidy
from results.renderers.text_format import TextFormat
from results.tables.table import Table


def render(table: Table) -> str:
    """A header line and one line a cell and metric."""
    data = tidy(table)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=data.column_names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: " ".join(value) if isinstance(value, list) else value for name, value in row.items()}
        for row in data.to_pylist()
    )
    return text.getvalue()


TEXT_FORMAT = TextFormat("csv", render)
