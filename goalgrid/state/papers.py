"""The papers' tables by name: the grids that fill them, and the numbers filled by the trials of a runs folder."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from goalgrid.grid import catalog, trusted_code
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, Shared, expand
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.messages import Step, leave_out
from goalgrid.grid.store.files import readable_text
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.saved_grid import read_grid
from goalgrid.results.records.provenance import Now
from goalgrid.state.data_at_hand import DataAtHand
from goalgrid.state.grid_state import GridState

if TYPE_CHECKING:
    from goalgrid.results.reference.filled import Filled


@cache
def shipped() -> list[tuple[Grid, list[Cell]]]:
    """Return all shipped grids with their cells."""
    return [(grid, expand(grid)) for grid in map(load, catalog.names("presets"))]


def grid_of_paper(name: str) -> str:
    """Return the shipped grid that fills a paper's table.

    Raises UserError if there is no such table, or none of its rows can be trained.
    """
    from goalgrid.results.reference.reading import Paper

    Paper.read(name)
    for grid, _ in shipped():
        if name in grid.tables:
            return grid.name
    printed = Step.of("table", name, reference=True)
    raise UserError(f"no row of {name} can be trained here. To show the published table: {{step}}", printed)


def usual_protocol(grid: Grid) -> str | None:
    """Return the protocol the grid sets, otherwise that of the first of its `tables`; None: each trial's own.

    This matters only for data sets with several protocols. If the grid sweeps the protocol, return None.

    >>> from goalgrid.grid.gridfile import load
    >>> usual_protocol(load("selhn-table8")), usual_protocol(load("selhn-table9")), usual_protocol(load("demo"))
    ('coco-5x1k', 'coco-5k', None)
    """
    if "dataset.protocol" in grid.settings:
        protocol = grid.set.get("dataset.protocol")
        return protocol if isinstance(protocol, str) else None
    if not grid.tables:
        return None
    from goalgrid.results.reference.reading import paper_table, table_names

    parts = (part for name in grid.tables if name in table_names() for part in paper_table(name).parts)
    several = [name for name in grid.datasets if len(catalog.protocols(name)) > 1]
    return next((part.protocol for part in parts if part.dataset in several), None)


def sources(grids: Sequence[str], paper: str | None, home: Home) -> list[str]:
    """Return the names of the grids given on the command line, directly or by a paper's table.

    Raises UserError if neither or both are given, or as `grid_of_paper`.
    """
    if paper is None:
        if not grids:
            raise no_grid(home)
        return list(grids)
    if grids:
        raise UserError(f"--paper {paper} already selects the grids; leave {' '.join(grids)} out.")
    return [grid_of_paper(paper)]


def no_grid(home: Home) -> UserError:
    """Return the error for a missing grid; it lists the grids that have run and the grid files in this folder."""
    files = {path.name: readable_text(path) for path in sorted(Path().glob("*.toml"))}
    grids = [name for name, text in files.items() if re.search("^(name|datasets|objectives)", text, re.MULTILINE)]
    known = ", ".join(dict.fromkeys([*home.grids(), *grids, "demo"]))
    return UserError(
        f"no grid given. Known grids: {known}; goalgrid grids lists all that are shipped. Or --paper NAME."
    )


def source(grid: str | None, paper: str | None, home: Home) -> str:
    """Return the one grid given on the command line, directly or by a paper's table; raises as `sources`."""
    return sources([grid] if grid else [], paper, home)[0]


def filled_line(name: str, home: Home) -> str:
    """Report how many numbers of a paper's table are filled by finished trials."""
    table = filled(name, home)
    scores = table.measured
    return (
        f"{name}: finished trials fill {sum(bool(score.n) for score in scores):,} of the {len(scores):,} numbers that "
        f"can be trained here; {len(table.values) - len(scores):,} are quoted"
    )


def filled(name: str, home: Home) -> "Filled":
    """Fill a paper's table with the scores of finished trials of shipped grids and of all grids in the runs folder.

    Raises UserError as `grid_of_paper` and `fill`.
    """
    from goalgrid.results.reference.filled import fill
    from goalgrid.runners.training.fingerprint import code_fingerprint

    grid_of_paper(name)
    saved = list(_saved(home))
    every = [DataAtHand(grid, home) for grid, _ in [*saved, *shipped()]]

    def data(shared: Shared) -> str:
        """Return the data fingerprint from the first grid that knows the folder of the data set."""
        return next(filter(None, (at_hand.fingerprint(shared) for at_hand in every)), "")

    return fill(name, shipped(), saved, home, Now(code_fingerprint, data), leave_out)


def _saved(home: Home) -> Iterator[tuple[Grid, Sequence[Cell]]]:
    """Yield the grids of a runs folder with their cells; grids that cannot be read are skipped and reported."""
    for name in home.grids():
        try:
            grid = read_grid(name, home)
            yield grid, GridState.of(grid, home).cells
        except UserError as error:
            why = "it uses code that you have not approved" if isinstance(error, trusted_code.Untrusted) else str(error)
            leave_out(f"grid {name!r}: {why}".partition("\n")[0])
