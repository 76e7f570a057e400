"""Shell completion of names of grids, recipes, objectives, data sets and settings, without importing heavy packages.

Bash splits words at "=". After `--only objective=` it asks to complete another GRID, with `objective` as the value of
the option: the names of objectives are completed then.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from goalgrid.grid import catalog, gridfile
from goalgrid.grid.cross_checks import dotted_names
from goalgrid.grid.objectives import OURS
from goalgrid.grid.overrides import NO_TRIALS
from goalgrid.grid.resources import Budget, Reliability, Resources
from goalgrid.grid.settings.base import Settings
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import State


def grids(context: typer.Context, incomplete: str) -> list[str]:
    """Complete shipped grids, grids that have run, and grid files and folders of the typed path; or values."""
    split = [word for name in ("only", "set_") for word in (context.params.get(name) or [])[-1:]]
    values = next((VALUES[name] for name in split if name in VALUES), None)
    if values is not None:
        return _begun(incomplete, values())
    ran = Path(os.environ.get("GOALGRID_RUNS", "runs")).expanduser() / "grids"
    names = [*catalog.names("presets"), *(sorted(path.name for path in ran.iterdir()) if ran.is_dir() else [])]
    folder, _, _ = incomplete.rpartition("/")
    place = Path(f"{folder}/" if incomplete.startswith("/") else folder or ".").expanduser()
    items = sorted(place.iterdir()) if place.is_dir() else []
    before = f"{folder}/" if "/" in incomplete else ""
    files = [f"{before}{item.name}" for item in items if item.suffix == ".toml" and item.is_file()]
    files += [f"{before}{item.name}/" for item in items if item.is_dir() and not item.name.startswith(".")]
    return _begun(incomplete, [*dict.fromkeys(names), *files])


def conditions(incomplete: str) -> list[str]:
    """Complete the last condition of --only: an axis, or its values."""
    before, space, last = incomplete.rpartition(" ")
    axes = [f"{axis}=" for axis in ("dataset", "recipe", "objective", "seed", "state", "failure")]
    return [f"{before}{space}{completion}" for completion in _with_values(last) or _begun(last, axes)]


def paper_tables(incomplete: str) -> list[str]:
    """Complete the names of papers and of their tables."""
    from goalgrid.results.reference.reading import PAPERS, table_names

    return _begun(incomplete, [*table_names(), *PAPERS])


def settings(incomplete: str) -> list[str]:
    """Complete the names that `goalgrid settings` explains."""
    tables: dict[str, type[Settings]] = {"resources": Resources, "reliability": Reliability, "budget": Budget}
    running = [f"{table}.{name}" for table, model in tables.items() for name in model.model_fields]
    return _begun(incomplete, [*dotted_names(), *running])


def overrides(incomplete: str) -> list[str]:
    """Complete --set: settings, fields of a grid file that are not tables, and values after "="."""
    if values := _with_values(incomplete):
        return values
    lists = [name for name in gridfile.Grid.model_fields if name not in (*NO_TRIALS, "set", "sweep")]
    return [f"{name}=" for name in [*settings(incomplete), *_begun(incomplete, [*lists, "name"])]]


VALUES: dict[str, Callable[[], Iterable[str]]] = {
    **dict.fromkeys(("objective", "objectives"), lambda: OURS),
    **dict.fromkeys(("recipe", "recipes"), lambda: catalog.names("recipes")),
    **dict.fromkeys(("dataset", "datasets"), lambda: catalog.names("datasets")),
    "state": lambda: [state.value for state in State],
    "failure": lambda: [failure.value for failure in Failure],
}
"""Functions that list the values allowed after "=" in --only and --set, by the name before "="."""


def _names(kind: str) -> Callable[[str], list[str]]:
    return lambda incomplete: _begun(incomplete, VALUES[kind]())


recipes, objectives, datasets = map(_names, ("recipe", "objective", "dataset"))


def _with_values(incomplete: str) -> list[str]:
    """Return the completions of NAME=VALUE; empty if no values are known for the name."""
    name, separator, begun = incomplete.partition("=")
    return [f"{name}={value}" for value in _begun(begun, VALUES[name]())] if separator and name in VALUES else []


def _begun(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
