"""Cells of a grid for published checkpoints imported by `goalgrid evaluate --into`."""

from collections import Counter
from dataclasses import replace

from pydantic import ValidationError

from goalgrid.grid.errors import regular_bytes
from goalgrid.grid.expansion import Cell, Shared, Trial
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.identity import digest
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.files import read_json, write_text
from goalgrid.grid.store.home import Home, TrialFolder


def imported_cells(grid: Grid, home: Home) -> list[Cell]:
    """Build a cell for each imported record of the grid, in the order of import.

    Cells with equal names get the file name appended to their recipe, and the end of the id if that is equal, too.
    """
    cells = []
    for trial_id in home.grid(grid.name).imported_ids():
        folder = home.trial(trial_id)
        if folder.is_done() and (cell := _cell(folder, grid)):
            cells.append(cell)
    for part in range(2):
        counts = Counter((cell.block, cell.objective) for cell in cells)
        same = [cell for cell in cells if counts[cell.block, cell.objective] > 1]
        cells = [
            replace(cell, recipe=f"{cell.recipe}-{_names(cell)[part]}") if cell in same else cell for cell in cells
        ]
    return cells


def _names(cell: Cell) -> tuple[str, str]:
    """The file name of a cell's checkpoint, and the end of its id."""
    return cell.published.rpartition(", ")[2].partition(".")[0], cell.trials[0].id[-8:]


def _cell(folder: TrialFolder, grid: Grid) -> Cell | None:
    """The cell of an imported record; None if its folder is damaged."""
    origin = read_json(folder.imported)
    try:
        trial = grid.catalog.validated(TrialSettings, read_json(folder.settings))
    except ValidationError:
        return None
    if folder.trial_id != id_of(str(origin.get("sha256", "")), trial):
        return None
    published = f"{origin.get('description', 'a published checkpoint')}, {origin.get('file', 'unknown file')}"
    shared = Shared(trial.dataset, trial.recipe, trial.model, trial.train, trial.objective, published=published)
    swept = tuple((name, "published") for name in grid.sweep)
    trials = (Trial(folder.trial_id, shared, trial.seed),)
    return Cell(trial.dataset.name, trial.recipe, trial.objective.name, swept, trials)


def id_of(file: str, settings: TrialSettings) -> str:
    """Return the id of an imported record, e.g. `flickr30k_scan-published_triplet-hn-3fa94c21`.

    It is determined by the file (its SHA-256), data set, recipe and objective.
    """
    names = [settings.dataset.name, settings.recipe, settings.objective.name]
    return f"{'_'.join(names)}-{digest([file, *names])[:8]}"


def add(grid: Grid, home: Home, trial_id: str) -> None:
    """Add an imported record to the grid's cells."""
    folder = home.grid(grid.name)
    before = regular_bytes(folder.imported).decode(errors="replace") if folder.imported.exists() else ""
    ids = list(dict.fromkeys([*before.splitlines(), trial_id]))  # an unreadable list must not count as empty
    write_text(folder.imported, "".join(f"{name}\n" for name in ids))
