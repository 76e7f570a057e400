"""The shared folder, as each node sees it: known by a mark that a launch leaves there, waited for where it is late."""

import time
import uuid
from pathlib import Path

from grid.errors import UserError
from grid.store.files import cannot_write, create_text
from grid.store.home import Home


def mark(home: Home) -> str:
    """The mark of this runs folder, left there by the first launch: of several that begin at once, by one.

    Raises:
        UserError: the folder cannot be written.
    """
    if not home.mark.exists():
        try:
            home.path.mkdir(parents=True, exist_ok=True)
            create_text(home.mark, uuid.uuid4().hex + "\n")
        except OSError as error:
            raise cannot_write(home.mark, error) from error
    return home.mark.read_text(encoding="ascii").strip()


def wait_for(home: Home, wanted: str, seconds: float) -> None:
    """Wait until the runs folder with this mark is seen here: an empty mount point would take everything unseen.

    Raises:
        UserError: it was not for so long.
    """
    until = time.monotonic() + seconds
    while _seen(home) != wanted:
        if time.monotonic() >= until:
            raise UserError(
                f"this node does not see the runs folder {home.path} that the launch writes to. "
                "Every node needs the same shared folder under the same path: mount it, or choose another with --runs."
            )
        time.sleep(0.2)


def missing(paths: list[str]) -> list[str]:
    """Those that are not seen here."""
    return [path for path in paths if not Path(path).exists()]


def _seen(home: Home) -> str:
    try:
        return home.mark.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
