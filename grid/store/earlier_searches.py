"""Earlier searches of a grid whose test results are known, recorded in `searches.jsonl` in its folder."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from goalgrid.grid.chosen import EarlierSearches
from goalgrid.grid.document import parse
from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.select import Select
from goalgrid.grid.store.files import json_lines, write_json_lines
from goalgrid.grid.store.home import ENDED, GridFolder, Home, State


def earlier_searches(grid: Grid, ids: Collection[str], home: Home) -> EarlierSearches:
    """Count the searches in this runs folder that ended before the present one, and their trials not shared with it.

    These are searches of the grid before it was edited, and of the same grid with other overrides. A search counts if
    one of its final trials is done, because its test results are then known.

    Args:
        ids: ids of the grid's current trials.
    """
    noted, new = _rows(grid, ids, home)
    others = [trials for trials in (_ids(row) - {*ids} for row in [*noted, *new]) if trials]
    return EarlierSearches(len(others), len(set().union(*others)))


def note_earlier_searches(grid: Grid, ids: Collection[str], home: Home) -> None:
    """Record earlier searches before the saved grid is overwritten; raise a UserError if the folder is not writable."""
    noted, new = _rows(grid, ids, home)
    if new:
        write_json_lines(home.grid(grid.name).searches, [*noted, *new])


def take_earlier_searches(name: str, other: Home, home: Home) -> None:
    """Record the earlier searches of a grid in another runs folder as known here, too."""
    noted = list(json_lines(home.grid(name).searches))
    known = set[str]().union(*map(_ids, noted))
    if new := [row for row in json_lines(other.grid(name).searches) if _ids(row) - known]:
        write_json_lines(home.grid(name).searches, [*noted, *new])


def _rows(grid: Grid, ids: Collection[str], home: Home) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The recorded searches of this grid, and those not recorded yet."""
    folder = home.grid(grid.name)
    before, now = _searched(folder), _of_seeds(ids, _first_seeds(grid.select))
    names = [grid.name] if before - now else []
    if now - before:
        names += [name for name in home.grids() if name != grid.name and name.partition("@")[0] == grid.plain_name]
    noted, new = list(json_lines(folder.searches)), list[dict[str, Any]]()
    known = now.union(*map(_ids, noted))
    for row in (row for name in names for row in _searches(name, home)):
        if ended := _ids(row) - known:
            known |= ended
            new.append({**row, "trials": sorted(ended)})
    return noted, new


def _searches(name: str, home: Home) -> Iterator[dict[str, Any]]:
    """The recorded searches of a grid, then its saved search if the test results of that are known."""
    folder = home.grid(name)
    yield from json_lines(folder.searches)
    searched = _searched(folder)
    select = _select(folder)
    final = set(folder.ids()) - _of_seeds(folder.ids(), select.seeds if select else ()) - {*folder.imported_ids()}
    if searched and State.DONE in home.states(final).values():
        states = home.states(searched, searched)
        ended = [trial_id for trial_id in searched if states[trial_id] in ENDED]
        yield {"grid": name, "select": _table(folder), "trials": ended}


def _searched(folder: GridFolder) -> set[str]:
    """The ids of the search trials of the grid in this folder; empty without [select]."""
    return _of_seeds(folder.ids(), _first_seeds(_select(folder)))


def _select(folder: GridFolder) -> Select | None:
    """[select] of the grid in this folder; None if it is missing or damaged."""
    with suppress(ValidationError):
        return Select.model_validate(_table(folder)) if _table(folder) else None
    return None


def _table(folder: GridFolder) -> Mapping[str, Any]:
    """The unvalidated [select] table; empty if it is missing or the file is damaged."""
    try:
        select = parse(folder.grid).get("select") if folder.grid.exists() else None
    except UserError:
        return {}
    return select if isinstance(select, dict) else {}


def _first_seeds(select: Select | None) -> list[int]:
    """The seeds of search trials, without confirming seeds, whose points depend on the search trials."""
    return [seeds[0] for seeds in select.searches] if select else []


def _of_seeds(ids: Collection[str], seeds: Collection[int]) -> set[str]:
    ends = tuple(f"_s{seed}" for seed in seeds)
    return {trial_id for trial_id in ids if ends and trial_id.rpartition("-")[0].endswith(ends)}


def _ids(row: Mapping[str, Any]) -> set[str]:
    ids = row.get("trials")
    return {trial_id for trial_id in ids if isinstance(trial_id, str)} if isinstance(ids, list) else set()
