"""Save and read a grid in the runs folder: the grid as last run, and the ids of its trials."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from goalgrid.grid import plugins
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.document import GridDocument, Text, content_of, parse
from goalgrid.grid.errors import UserError, regular_bytes
from goalgrid.grid.expansion import Trial
from goalgrid.grid.gridfile import Grid, check
from goalgrid.grid.overrides import changed
from goalgrid.grid.plugins import Use
from goalgrid.grid.resources import Reliability, Resources
from goalgrid.grid.store.earlier_searches import note_earlier_searches
from goalgrid.grid.store.files import write_text
from goalgrid.grid.store.home import Home
from goalgrid.grid.trusted_code import Untrusted


def save_grid(grid: Grid, trials: Sequence[Trial], home: Home, text: str = "") -> None:
    """Write the resolved grid and the ids of its trials; raise a UserError if the runs folder is not writable.

    Args:
        text: the grid file of a saved launch, to write instead of `grid`, which may contain paths of a single job.
    """
    folder, ids = home.grid(grid.name), [trial.id for trial in trials]
    note_earlier_searches(grid, ids, home)
    _keep(folder.grid, text or grid.to_toml())
    _keep(folder.trials, "".join(f"{trial_id}\n" for trial_id in ids))


def read_grid(
    name: str, home: Home, overrides: Sequence[str] = (), *, roots: Iterable[str] = (), weights: Iterable[str] = ()
) -> Grid:
    """Read a grid as it was last run, and apply command-line overrides.

    Unknown keys in [resources] and [reliability] from other versions are ignored, since they do not change trials.

    Raises:
        UserError: the grid is unreadable.
        Untrusted: it uses code that this user has not approved.
    """
    again = f"Run the grid {name!r} again, by its file or its shipped name, to rewrite this copy."
    try:
        content = _content(home.grid(name).grid, plugins.again, again)  # a file may have been edited since
    except Untrusted as error:
        tables = home.grid(name).tables
        raise Untrusted(f"{error} Its tables of the last run: {tables}." if tables.is_dir() else str(error)) from None
    return _changed(content, overrides, roots=roots, weights=weights, again=again)


def read_kept(
    path: Path, overrides: Sequence[str] = (), *, roots: Iterable[str] = (), weights: Iterable[str] = ()
) -> Grid:
    """Read the grid of a saved launch, with the saved texts of its plug-ins; raise the errors of `read_grid`."""
    again = "Launch the grid again: goalgrid slurm."
    return _changed(_content(path, plugins.of_launch, again), overrides, roots=roots, weights=weights, again=again)


def _content(path: Path, used: Callable[[Use, str], Use], again: str) -> GridDocument:
    """The content of a saved grid, with each plug-in passed through `used`; raises a UserError if it is unreadable."""
    where = f"grid {str(path)!r}"
    known = {"resources": Resources.model_fields, "reliability": Reliability.model_fields}
    try:
        table = parse(path)
        for field in known:
            if isinstance(table.get(field), dict):
                table[field] = {key: value for key, value in table[field].items() if key in known[field]}
        saved = [Use.model_validate(entry) for entry in table.get("uses", [])]
    except (UserError, ValidationError, TypeError) as error:
        raise UserError(f"{error}\n{again}") from error
    now = [used(use, where) for use in saved]
    Catalog.of(now)  # whether they can be imported: another copy of the grid would not help
    try:
        return content_of(Text(where, {**table, "uses": now}))
    except UserError as error:
        raise UserError(f"{error}\n{again}") from error


def _changed(
    content: GridDocument, overrides: Sequence[str], *, roots: Iterable[str], weights: Iterable[str], again: str
) -> Grid:
    """Apply command-line overrides; errors of the saved grid itself end with `again`, how to rewrite it."""
    try:
        grid = check(content)
    except UserError as error:
        raise UserError(f"{error}\n{again}") from error
    changes = changed(content, overrides, roots=roots, weights=weights)
    return grid if changes is content else check(changes)


def _keep(path: Path, text: str) -> None:
    """Write the text unless the file already contains it, so an unchanged grid needs no writable disk."""
    try:
        same = regular_bytes(path) == text.encode()
    except OSError:
        same = False
    if not same:
        write_text(path, text)
