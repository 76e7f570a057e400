"""Format suggested next steps as shell commands."""

import os
import shlex
from pathlib import Path

from goalgrid.grid.errors import UserError, user_path
from goalgrid.grid.messages import Note, Step, prefixed
from goalgrid.grid.store.home import Home

RUNS_FOLDER = "runs"


def runs_option(home: Home) -> str:
    """Return the option that names the runs folder; empty for the default folder."""
    default = Path(os.environ.get("GOALGRID_RUNS", RUNS_FOLDER))
    return "" if home.path == user_path(default) else f" --runs {shlex.quote(str(home.path))}"


def shell(step: Step) -> str:
    """Return the shell command, e.g. `goalgrid resume demo --stale --runs DIR`; --format and --output come last."""
    words = step.words()
    place = next((place for place, word in enumerate(words) if word in ("--format", "--output")), len(words))
    runs = runs_option(Home(step.runs)) if step.runs else ""
    return " ".join([shlex.join(words[:place]) + runs, *map(shlex.quote, words[place:])])


def worded(message: Note | UserError) -> str:
    """Return the text of a note (prefixed by its kind) or of an error, with its next step as a shell command."""
    if isinstance(message, UserError):
        return message.worded(shell)
    return prefixed(message.kind, message.worded(shell))
