"""`goalgrid site`: a folder for a web space: an index of grids, the page of each, and comparisons between them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.files import readable_text, stands, write_text
from goalgrid.grid.store.home import Home, State
from goalgrid.reading.named_grids import recall
from goalgrid.reading.overview import Overview
from goalgrid.results.analysis.documents import Document
from goalgrid.results.pages import page
from goalgrid.showing import report
from goalgrid.showing.analyses import section
from goalgrid.terminal.options import runs_option

INDEX, PAGES = "index.html", "grids"
GENERATOR = 'name="generator" content="goalgrid"'
"""What each page that goalgrid writes says of itself."""


def write(folder: Path, names: Sequence[str], home: Home, comparisons: Sequence[str]) -> Iterator[Path]:
    """Write the pages of these grids, or of all that ran, then the index; yields each path.

    Args:
        comparisons: `A,B` each.

    UserError: nothing ran here, a grid is unknown or has nothing to compare, or `folder` has an index of another's.
    """
    index = folder / INDEX
    if stands(index) and GENERATOR not in readable_text(index):
        raise UserError(f"{index} is not of goalgrid; give a folder of its own, e.g. {folder / 'grids'}.")
    grids = {grid.name: grid for grid in (recall(name, home) for name in names or _names(home))}
    compared = dict(_compared(words, home) for words in comparisons)
    entries = []
    for grid in grids.values():
        overview = Overview.of(grid, home)
        measured = report.read(overview)
        path = folder / PAGES / f"{grid.name}.html"
        write_text(path, report.render(overview, measured=measured, index=f"../{INDEX}"))
        yield path
        finished = [home.trial(trial.id).done.stat().st_mtime for trial in overview.having(State.DONE)]
        date = f"{datetime.fromtimestamp(max(finished)):%Y-%m-%d}" if finished else ""
        entry = {"name": grid.name, "title": grid.notes.title or grid.name, "findings": measured.findings}
        entries.append({**entry, "headline": overview.headline(), "date": date})
    write_text(index, page("site.html", entries=entries, compared=compared))
    yield index


def _compared(words: str, home: Home) -> tuple[str, Document | None]:
    a, _, b = map(str.strip, words.partition(","))
    if not (a and b) or "," in b:
        raise UserError(f"--compare {words!r}: name two grids, e.g. --compare {a or 'mine'},demo")
    return f"{a} minus {b}", section(b, a, home, None)


def _names(home: Home) -> list[str]:
    if names := [folder.path.name for folder in home.grids()]:
        return names
    raise UserError(f"no grid ran under {home.path}. Start one: goalgrid run demo{runs_option(home)}")
