"""Asking running trials to end: at their next step they write a checkpoint, and the same command goes on from there."""

import threading
from contextlib import suppress
from pathlib import Path

from grid.errors import UserError
from grid.files import write_text

INCOMPLETE = 3
"""Exit code of a process that cannot but end itself."""


class Stop:
    """A request to end, made in this process (a signal) or by a file that all nodes see.

    Args:
        request: the file; None: only this process can ask.
    """

    def __init__(self, request: Path | None = None) -> None:
        self.request = request
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    def ask_everywhere(self) -> None:
        """Ask, and leave the file for all others."""
        self.ask()
        if self.request is not None:
            with suppress(UserError):
                write_text(self.request, "")

    def asked(self) -> bool:
        return self._asked.is_set()

    def asked_everywhere(self) -> bool:
        """Whether the file stands there: all are to end, not this process alone."""
        return self.request is not None and self.request.exists()

    def look(self) -> None:
        """See whether the file stands there."""
        if self.asked_everywhere():
            self.ask()
