"""Check nodes: each must see the shared runs folder, identified by a mark, and have the same code and data."""

import re
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from goalgrid.grid.catalog import Catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.plugins import uses_of
from goalgrid.grid.store.files import cannot_write, create_text, readable_text
from goalgrid.grid.store.home import Home
from goalgrid.results.records import provenance


def mark(home: Home) -> str:
    """Return the mark of this runs folder, created if needed; raise UserError if damaged or not writable."""
    try:
        if not home.mark.exists():
            home.path.mkdir(parents=True, exist_ok=True)
            create_text(home.mark, f"{uuid.uuid4().hex}\n", durable=True)
    except OSError as error:
        raise cannot_write(home.mark, error) from error
    word = _seen(home)
    if not word:
        raise UserError(f"the mark {home.mark} is damaged. Delete it; the next launch writes a new one.")
    return word


def wait_for(home: Home, expected: str, seconds: float) -> None:
    """Wait until this node sees the runs folder with this mark; raise UserError after `seconds`.

    Without the check, results written to an empty mount point would be lost.
    """
    until = time.monotonic() + seconds
    while _seen(home) != expected:
        if time.monotonic() >= until:
            raise UserError(
                f"this node does not see the runs folder {home.path} that the launch writes to. "
                "Every node needs the same shared folder under the same path: mount it, or choose another with --runs."
            )
        time.sleep(0.2)


def problem_here(
    home: str, mark: str, paths: Sequence[str], patience: float, code: str, uses: Sequence[tuple[str, str]]
) -> str:
    """Check this node: the driver's folders, its code and its plugins; return the problem, or an empty string.

    Args:
        mark: mark of the runs folder, for which the node waits `patience` seconds.
        paths: paths of data and weights.
        code: code fingerprint of the driver.
        uses: path and source of the plugins.
    """
    try:
        wait_for(Home(Path(home)), mark, patience)
        if lacking := [path for path in paths if _is_missing(Path(path))]:
            return f"this node does not see {', '.join(lacking)}. Data must be under the same path on every node."
        if provenance.program_fingerprint() != code:
            return "a different version of goalgrid is installed there. Install the same version on every node."
        Catalog.of(uses_of(uses))
    except UserError as error:
        return str(error)
    return ""


def _is_missing(path: Path) -> bool:
    """Return whether the path does not exist or is an empty folder, e.g. an unmounted mount point."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _seen(home: Home) -> str:
    """Return the content of the mark; empty if the mark is missing or damaged."""
    word = readable_text(home.mark).strip()
    return word if re.fullmatch("[0-9a-z ]+", word) else ""
