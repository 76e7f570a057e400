"""The shared runs folder on each node, which recognises it by a mark and waits for the mark."""

import re
import time
import uuid
from collections.abc import Callable

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.files import cannot_write, create_text, readable_text, write_text
from goalgrid.grid.store.home import Home, TrialFolder


def mark(home: Home, warn: Callable[[str], None] = lambda message: None) -> str:
    """The mark of this runs folder; a launch creates it if it is missing, or if it is empty beside trials.

    An empty mark without trials is refused: it would look the same on every empty mount point.

    Raises:
        UserError: the folder cannot be written, or the mark is another text than a launch writes.
    """
    word = f"{uuid.uuid4().hex}\n"
    try:
        if not home.mark.exists():
            home.path.mkdir(parents=True, exist_ok=True)
            create_text(home.mark, word, durable=True)
        elif home.mark.is_file() and not home.mark.stat().st_size and home.standing():
            write_text(home.mark, word)
            warn(f"the mark {home.mark} was empty, as a power cut leaves it; it is written anew")
    except OSError as error:
        raise cannot_write(home.mark, error) from error
    word = _seen(home)
    if not word:
        raise UserError(f"the mark {home.mark} is damaged. Remove it: the next launch writes another.")
    return word


def wait_for(home: Home, expected: str, seconds: float) -> None:
    """Wait until this node sees the runs folder with this mark: writing to an empty mount point would lose everything.

    Raises:
        UserError: this node did not see it in time.
    """
    until = time.monotonic() + seconds
    while _seen(home) != expected:
        if time.monotonic() >= until:
            raise UserError(
                f"this node does not see the runs folder {home.path} that the launch writes to. "
                "Every node needs the same shared folder under the same path: mount it, or choose another with --runs."
            )
        time.sleep(0.2)


def unreadable(folder: TrialFolder, seconds: float) -> str:
    """Why this node could not list a trial's folder for these seconds; empty as soon as it can."""
    until = time.monotonic() + seconds
    while (why := folder.unreadable()) and time.monotonic() < until:
        time.sleep(0.2)
    return why


def _seen(home: Home) -> str:
    """The mark's word; empty if the mark is missing or damaged."""
    word = readable_text(home.mark).strip()
    return word if re.fullmatch("[0-9a-z ]+", word) else ""
