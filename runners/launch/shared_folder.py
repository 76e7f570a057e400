"""The shared runs folder on each node, which recognises it by a mark and waits for it; and the check of a node."""

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
    """Return the mark of this runs folder, creating it if needed; UserError: it is damaged, or cannot be written."""
    try:
        if not home.mark.exists():
            home.path.mkdir(parents=True, exist_ok=True)
            create_text(home.mark, f"{uuid.uuid4().hex}\n", durable=True)
    except OSError as error:
        raise cannot_write(home.mark, error) from error
    word = _seen(home)
    if not word:
        raise UserError(f"the mark {home.mark} is damaged. Remove it: the next launch writes another.")
    return word


def wait_for(home: Home, expected: str, seconds: float) -> None:
    """Wait until this node sees the runs folder with this mark, else UserError: an empty mount point would lose all."""
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
        mark: of the runs folder, for which the node waits `patience` seconds.
        paths: of data and weights.
        code: fingerprint of the driver's program.
        uses: path and text of the plug-ins.
    """
    try:
        wait_for(Home(Path(home)), mark, patience)
        if lacking := [path for path in paths if _is_missing(Path(path))]:
            return f"this node does not see {', '.join(lacking)}. Data must lie under the same path on every node."
        if provenance.program_fingerprint() != code:
            return "another version of goalgrid is installed there. Install the same one on every node."
        Catalog.of(uses_of(uses))
    except UserError as error:
        return str(error)
    return ""


def _is_missing(path: Path) -> bool:
    """Return whether nothing is there, or a folder without content: a mount point that nothing is mounted on."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _seen(home: Home) -> str:
    """The mark's word; empty if the mark is missing or damaged."""
    word = readable_text(home.mark).strip()
    return word if re.fullmatch("[0-9a-z ]+", word) else ""
