"""The interface through which a launch shows live output; front ends such as the command line implement it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import RenderableType


class View:
    """A view that shows nothing; notes are printed regardless."""

    live = False
    """Whether the view has a matrix that shows finished trials, so that they need no separate lines."""

    @contextmanager
    def matrix(self, render: Callable[[int], RenderableType]) -> Iterator[None]:
        """Show the output of `render`, a function of the height in lines, redrawn in place while the block runs."""
        yield

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar while the block runs; yields a function that advances it."""
        yield lambda more: None

    def restore(self) -> None:
        """Restore the terminal just before the process ends."""
