"""A table as JSON: its caption, its layout, the command that prints it, and the tidy rows."""

import json

from goalgrid.results.renderers.parquet import tidy
from goalgrid.results.tables import Table, TextFormat


def render(table: Table) -> str:
    return json.dumps({**table.about("json"), "records": tidy(table).to_pylist()}, indent=1, ensure_ascii=False) + "\n"


TEXT_FORMAT = TextFormat("json", render)
