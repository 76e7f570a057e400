"""A table as an HTML page of its own; its columns sort where the browser runs scripts."""

from html.parser import HTMLParser

from goalgrid.results.pages import page
from goalgrid.results.tables.table import Table, TextFormat


def render(table: Table) -> str:
    """One file that needs no network."""
    return page("table.html", table=table)


def fragment(table: Table) -> str:
    """The table as a part of a page: what a notebook shows."""
    return page("fragment.html", table=table)


def lines(text: str) -> list[tuple[str, ...]]:
    """The rows and the caption of a page, as a reader sees them: the block's title, then the texts of the cells."""
    reader = _Reader()
    reader.feed(text)
    return reader.lines


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, ...]] = []
        self._title, self._cells = "", list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("tr", "figcaption"):
            self._cells = []
        if tag in ("th", "td", "figcaption"):
            self._cells.append("")

    def handle_data(self, data: str) -> None:
        if self._cells:
            self._cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("tr", "figcaption"):
            cells = [cell.strip() for cell in self._cells]
            if len(cells) == 1 and tag == "tr":
                self._title = cells[0]
            else:
                self.lines.append((self._title, *cells))


TEXT_FORMAT = TextFormat("html", render, "<!-- {} -->\n")
