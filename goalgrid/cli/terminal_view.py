"""Show a launch in the terminal: the live matrix and progress bars, drawn with Rich."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from goalgrid.cli.console import err, out
from goalgrid.runners.watching.view import View


class TerminalView(View):
    """Shows the matrix if stdout and stderr are terminals, and progress bars if stderr is one."""

    def __init__(self) -> None:
        self.live = out.is_terminal and err.is_terminal

    @contextmanager
    def matrix(self, render: Callable[[int], RenderableType]) -> Iterator[None]:
        """Redraw the matrix four times per second; erase it after an error."""
        if not self.live:
            yield
            return
        live = Live(get_renderable=lambda: render(err.height), console=err, refresh_per_second=4)
        live.start()
        try:
            yield
        except BaseException:
            live.transient = True
            raise
        finally:
            live.stop()

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Draw a progress bar that is erased at the end."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
            yield partial(bar.advance, bar.add_task(title, total=total))

    def restore(self) -> None:
        """Show the cursor again."""
        err.show_cursor()
