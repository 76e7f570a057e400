"""The `goalgrid` command: all verbs, global options and error handling. Results go to stdout, messages to stderr."""

import gc
import sys
from importlib.metadata import version
from typing import Any

import typer

from goalgrid.cli import options
from goalgrid.cli.commands import data, evaluating, listings, results, training
from goalgrid.cli.console import outlive_readers, printing_notes, say, show
from goalgrid.cli.exits import INCOMPLETE, WRONG_USAGE, code_of
from goalgrid.cli.next_steps import worded
from goalgrid.grid.errors import UserError
from goalgrid.grid.trusted_code import trust_everything
from goalgrid.results.records.provenance import source

TRUST_CODE = "--trust-code"
"""May be given before or after the verb."""

MISUSED: Any = typer.BadParameter.__mro__[2]
"""Click's UsageError, taken from the Click that this version of Typer bundles or imports."""

COLLECT = (100_000, 50, 1_000)
"""Thresholds of the garbage collector. Python's defaults would scan a million trial objects, all alive, repeatedly."""

GROUPS = {
    "Begin": "new grids recipes datasets objectives settings tables data check diagrams",
    "Run": "plan run status resume slurm selftest",
    "Look": "table report site figures evaluate gradients",
    "Compare": "effects compare fair claims",
    "Keep": "export merge prune",
}
BEGIN = """\
Ablation grids for image-text retrieval objectives: from one command to the paper's table.

  goalgrid run demo               15 objectives x 3 seeds on synthetic scenes: a table in a minute or two
  goalgrid new NAME --root DIR    write a grid file for your own images or features
  goalgrid plan NAME.toml         show what it would train, and what that would cost
  goalgrid run NAME.toml          train all unfinished trials, then print the table

All verbs: goalgrid --help. Help for one verb: goalgrid VERB --help."""


class VerbGroups(options.Verbs):
    """The verbs, listed in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        room = formatter.width - 6 - max(map(len, self.commands))
        for title, names in GROUPS.items():
            with formatter.section(title):
                verbs = {name: self.commands[name] for name in names.split()}
                formatter.write_dl([(f"{name:10}", verb.get_short_help_str(room)) for name, verb in verbs.items()])


app = typer.Typer(
    cls=VerbGroups, context_settings=options.HELP, invoke_without_command=True, pretty_exceptions_enable=False,
    rich_markup_mode=None,
)  # fmt: skip
for verbs in (listings.verbs, training.verbs, results.verbs, evaluating.verbs):
    app.add_typer(verbs)
app.add_typer(data.verbs, name="data")


def _version(asked: bool) -> None:
    if asked:
        commit = (source() or {}).get("commit", "")
        show(f"goalgrid {version('goalgrid')}{f' (commit {commit[:12]})' if commit else ''}")
        raise typer.Exit


@app.callback()
def begin(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
    trust_code: bool = typer.Option(
        False, TRUST_CODE, help="Run the Python code of grids from elsewhere: docs/own.md."
    ),
) -> None:
    """Ablation grids for image-text retrieval objectives: from one command to the paper's table."""
    context.with_resource(printing_notes())
    trust_everything(trust_code)
    if context.invoked_subcommand is None:
        show(BEGIN)


def main() -> None:
    """Run the command line; report a user's mistake as one message without a traceback."""
    gc.set_threshold(*COLLECT)
    outlive_readers()
    arguments = sys.argv[1:]
    try:
        words = sorted(arguments, key=lambda word: word != TRUST_CODE)
        sys.exit(app(words, prog_name="goalgrid", standalone_mode=False) or 0)
    except MISUSED as error:
        mistake, context = error.format_message().rstrip("."), getattr(error, "ctx", None)
        of = context.command_path if context else "goalgrid"
        help_of_group = mistake.startswith("Usage:")  # which was called without a verb
        say(mistake if help_of_group else f"error: {mistake[:1].lower()}{mistake[1:]}. Usage: {of} --help")
        sys.exit(WRONG_USAGE)
    except typer.Abort:  # Ctrl-C, or no answer
        say("aborted")
        sys.exit(1)
    except UserError as error:
        say(f"error: {worded(error)}")
        sys.exit(code_of(error))
    except OSError as error:  # no part of the command can go on without that file
        where = f": {error.filename}" if error.filename else ""
        go_on = "Fix the disk problem, then run the same command again to continue."
        say(f"error: {error.strerror or error}{where}. {go_on}")
        sys.exit(INCOMPLETE)
