"""The command line: its verbs, one file a subject. stdout carries the product, stderr the talk."""

import gc
import sys

import typer

from goalgrid.terminal import WRONG_USAGE
from goalgrid.terminal.views import say
from goalgrid.verbs import data, results, shipped, training
from grid.errors import UserError

COLLECT = (100_000, 50, 1_000)
"""Trials live as long as the process: with Python's thresholds it looks through a million of them again and again."""

app = typer.Typer(
    help="Ablation grids for image-text retrieval objectives: from one command to the paper's table.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for verbs in (shipped.verbs, training.verbs, results.verbs):
    app.add_typer(verbs)
app.add_typer(data.verbs, name="data")


def main() -> None:
    """Run the command line; a user's mistake is one message, without a traceback."""
    gc.set_threshold(*COLLECT)
    try:
        app()
    except UserError as error:
        say(f"error: {error}")
        sys.exit(WRONG_USAGE)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
