"""What the shell completes: names of grids, recipes, objectives, data sets and settings. It loads no heavy package."""

import os
from collections.abc import Iterable
from pathlib import Path

from grid import catalog
from grid.gridfile import Grid, dotted_names
from grid.objectives import OBJECTIVES
from grid.overrides import NO_TRIALS
from grid.resources import Budget, Reliability, Resources


def grids(incomplete: str) -> list[str]:
    """Shipped grids, grids that ran, and grid files and folders in the folder of the word."""
    ran = Path(os.environ.get("GOALGRID_RUNS", "runs")).expanduser() / "grids"
    names = [*catalog.names("presets"), *(sorted(path.name for path in ran.iterdir()) if ran.is_dir() else [])]
    folder, _, _ = incomplete.rpartition("/")
    place = Path(f"{folder}/" if incomplete.startswith("/") else folder or ".").expanduser()
    items = sorted(place.iterdir()) if place.is_dir() else []
    before = f"{folder}/" if "/" in incomplete else ""
    files = [f"{before}{item.name}" for item in items if item.suffix == ".toml" and item.is_file()]
    files += [f"{before}{item.name}/" for item in items if item.is_dir() and not item.name.startswith(".")]
    return _begun(incomplete, [*dict.fromkeys(names), *files])


def recipes(incomplete: str) -> list[str]:
    return _begun(incomplete, catalog.names("recipes"))


def objectives(incomplete: str) -> list[str]:
    return _begun(incomplete, OBJECTIVES)


def datasets(incomplete: str) -> list[str]:
    return _begun(incomplete, catalog.names("datasets"))


def paper_tables(incomplete: str) -> list[str]:
    """Tables of the papers, and the papers."""
    from results.reference.reading import PAPERS, names

    return _begun(incomplete, [*names(), *PAPERS])


def settings(incomplete: str) -> list[str]:
    """Names that `goalgrid settings` explains."""
    running = [f"resources.{name}" for name in Resources.model_fields]
    running += [f"reliability.{name}" for name in Reliability.model_fields]
    running += [f"budget.{name}" for name in Budget.model_fields]
    return _begun(incomplete, [*dotted_names(), *running])


def overrides(incomplete: str) -> list[str]:
    """The names before = in --set: settings, and the fields of a grid file that hold no table."""
    lists = [name for name in Grid.model_fields if name not in (*NO_TRIALS, "set", "sweep")]
    return [f"{name}=" for name in [*settings(incomplete), *_begun(incomplete, [*lists, "name"])]]


def _begun(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
