"""Where a launch shows what changes all the time: by itself nowhere; a front end, as the command line, has a view."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import RenderableType


class View:
    """Shows nothing. What is worth a line is reported as a note in any case."""

    live = False
    """Whether the matrix shows finished trials, so that they need no lines."""

    @contextmanager
    def matrix(self, render: Callable[[int], RenderableType]) -> Iterator[None]:
        """Show what `render` gives for so many lines, redrawn in place, while the block runs."""
        yield

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar while the block runs; it is given a function that adds to what is done."""
        yield lambda more: None

    def restore(self) -> None:
        """Leave the terminal usable just before the process ends."""
