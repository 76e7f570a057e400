"""A table as an HTML page of its own; its columns sort where the browser runs scripts."""

from results.pages import page
from results.table import Table


def render(table: Table) -> str:
    """One file that needs no network."""
    return page("table.html", table=table)
