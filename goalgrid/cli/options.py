"""Command-line arguments and options shared by several verbs."""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from goalgrid.cli import completion
from goalgrid.cli.next_steps import RUNS_FOLDER
from goalgrid.grid import overrides, plugins
from goalgrid.grid.catalog import Catalog
from goalgrid.grid.errors import UserError, check_known, nearest, user_path
from goalgrid.grid.objectives import Objectives, check_objective
from goalgrid.grid.store.home import Home

HELP = {"help_option_names": ["-h", "--help"]}
"""Context settings of every verb: the options that show its help."""

MEANT = {
    "list": "grids", "ls": "grids", "train": "run", "start": "run", "init": "new", "continue": "resume",
    "results": "table", "show": "table", "plot": "figures", "diff": "compare", "eval": "evaluate", "clean": "prune",
}  # fmt: skip
"""Names that other programs use for these verbs, for hints."""


class Verbs(TyperGroup):
    """A group of verbs that suggests the closest name for an unknown verb."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb; raise UserError if no verb has this name."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            close = [name for name in (MEANT.get(args[0]), *nearest(args[0], self.commands)) if name in self.commands]
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UserError(f"unknown verb {args[0]!r}.{hint} All verbs: {ctx.command_path} --help.")
        return super().resolve_command(ctx, args)


def argument(
    default: Any, metavar: str, meaning: str, complete: Callable[..., list[str]] | None = None, **more: Any
) -> Any:
    """Declare an argument of a verb: its default (`...`: required), help text and shell completion."""
    return typer.Argument(default, metavar=metavar, help=meaning, autocompletion=complete, **more)


def flag(default: Any, names: str, meaning: str, metavar: str | None = None, **more: Any) -> Any:
    """Declare an option of a verb with its default; names are separated by spaces, e.g. `--output -o`."""
    return typer.Option(default, *names.split(), help=meaning, metavar=metavar, **more)


def _home(folder: str) -> Home:
    return Home(user_path(folder))


_ONE_GRID = "Name of a shipped grid or of a grid that has run, or path of a grid file."
GRID = argument(..., "GRID", _ONE_GRID, completion.grids)
OPTIONAL_GRID = argument(None, "GRID", _ONE_GRID, completion.grids)
_SEVERAL = "Shipped grids or grids that have run, by name or quoted pattern ('unified-*'); or paths of grid files."
GRIDS = argument(..., "GRID", _SEVERAL, completion.grids)
OPTIONAL_GRIDS = argument([], "GRID", _SEVERAL, completion.grids)
_PAPER = "Instead of GRID: the grids that fill this table of a paper, e.g. selhn-table5."
PAPER = flag(None, "--paper", _PAPER, "NAME", autocompletion=completion.paper_tables)
_RUNS = "Runs folder: holds trials, tables and reports."
RUNS = flag(RUNS_FOLDER, "--runs", _RUNS, "DIR", envvar="GOALGRID_RUNS", parser=_home)
OTHER_RUNS = flag(None, "--other-runs", "Runs folder of the second grid; default: --runs.", "DIR", parser=_home)
_SET = "Override a setting of the grid, e.g. train.epochs=2 or 'seeds=[0,1]'; goalgrid settings lists all settings."
SET = flag([], "--set", _SET, "KEY=VALUE", autocompletion=completion.overrides)
ROOT = flag([], "--root", "Folder of a data set on this machine.", "[DATASET=]DIR")
_COLUMNS = "Which column of your caption table holds the role image, captions or split; repeatable."
COLUMNS = flag([], "--columns", _COLUMNS, "ROLE=COLUMN")
WEIGHTS = flag([], "--weights", "Folder of pretrained weights on this machine.", "NAME=DIR")
_ONLY = "Only trials that match, e.g. 'objective=*_cir seed=0'; repeatable, a trial may match any of them."
ONLY = flag([], "--only", _ONLY, "FILTER", autocompletion=completion.conditions)
FORCE = flag(False, "--force", "Retrain from scratch, including dependent trials; old results move to DIR/replaced.")
STALE = flag(False, "--stale", "Also retrain finished trials whose code, library versions or data have changed.")
ALLOW_LEAK = flag(
    False,
    "--allow-leak",
    "Train even if test images leak into training or validation (recorded, and stated in table captions).",
)
_ADDRESS = "Address of the Ray cluster to train on; default: start Ray for this launch."
ADDRESS = flag(None, "--address", _ADDRESS, "HOST:PORT", envvar="RAY_ADDRESS")
JOBS = flag(None, "--jobs -j", "Number of trials to train concurrently; default: as many as fit.", min=1)
USES = flag([], "--uses", "Your Python file that defines objectives: docs/own.md.", "FILE")
METRIC = flag("r1", "--metric", "Metric: r1, r5, r10, medr or rsum; with --protocol eccv, e.g. eccv_map_at_r.")
_PROTOCOL = (
    "Protocol, e.g. coco-5x1k, or a data set listed in [evaluate]; default: the protocol of the grid's first table."
)
PROTOCOL = flag(None, "--protocol --on", _PROTOCOL)
DIRECTION = flag("both", "--direction", "Retrieval direction: i2t (image to text), t2i or both.")
ANALYSIS_FORMAT = flag("terminal", "--format", "Output format: terminal, markdown, latex or csv.")
PICTURE_FORMAT = flag("png", "--format", "File format: png, pdf, svg or pgf.")
OUTPUT = flag(None, "--output -o", "Write to this file; its suffix may choose the format.", "FILE", parser=user_path)
JSON = flag(False, "--json", "Print machine-readable JSON.")
COMPLETE = flag(
    False, "--complete", "Exit with 3 if trials are missing, 4 if any failed (for scripts, e.g. a Makefile)."
)


def either(filters: Iterable[str]) -> str:
    """Join the filters given by --only into one that matches if any of them does."""
    return " | ".join(filter(None, filters))


def catalog_of(files: Iterable[str]) -> Catalog:
    """Return the catalogue extended by what the user's files, or installed packages given by name, register."""
    return Catalog.of(plugins.read(file, Path(), "the folder that you are in") for file in files)


def objective_settings(words: list[str], names: Collection[str], objectives: Objectives) -> dict[str, Any]:
    """Parse parameters of objectives, and the variant, from KEY=VALUE; UserError if there is no such parameter.

    `names`: the objectives; if empty, all of them.
    """
    settings = dict(map(overrides.key_and_value, words))
    for name in names:
        check_objective(name, objectives)
    known = ["variant", *sorted({key for name in names or objectives for key in objectives[name].parameters})]
    for key, value in settings.items():
        check_known("parameter", key, known, where=f"in --set '{key}={value}'")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"--set '{key}={value}': the value must be finite.")
    return settings


def options_of(model: type, *, before: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add to a verb that takes `**options` one option per dataclass field that has a help text (decorator).

    `before`: the parameter of the verb before which these options are listed in its help.
    """
    added = [
        Parameter(part.name, Parameter.KEYWORD_ONLY, default=part.default, annotation=Annotated[part.type, declared])
        for part in fields(model)
        if part.metadata
        for declared in [typer.Option(f"--{part.name.replace('_', '-')}", **part.metadata)]
    ]

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        named = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in signature(verb).parameters.values()][:-1]
        place = [p.name for p in named].index(before)
        verb.__signature__ = Signature([*named[:place], *added, *named[place:]])  # type: ignore[attr-defined]
        return verb

    return decorate
