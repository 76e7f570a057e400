"""A table as an HTML page of its own; its columns sort where the browser runs scripts."""

from goalgrid.results.pages import page
from goalgrid.results.tables import Table, TextFormat


def render(table: Table) -> str:
    return page("table.html", table=table)


TEXT_FORMAT = TextFormat("html", render, "<!-- {} -->\n")
