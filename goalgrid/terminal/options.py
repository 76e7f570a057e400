"""The arguments and options that verbs share, each said once."""

import math
import os
import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from goalgrid.grid import uses
from goalgrid.grid.errors import UserError, unknown, user_path
from goalgrid.grid.objectives import CATALOGUE, known_parameters, unknown_objective
from goalgrid.grid.overrides import key_and_value
from goalgrid.grid.store.home import Home
from goalgrid.terminal import completion

_GRID: Any = typer.Argument(
    metavar="GRID",
    help="The name of a shipped grid or of a grid that ran, or the path of a grid file.",
    autocompletion=completion.grids,
)
GridName = Annotated[str, _GRID]
OptionalGrid = Annotated[str | None, _GRID]
GridNames = Annotated[
    list[str],
    typer.Argument(
        metavar="GRID",
        help="Shipped grids or grids that ran, by name or a pattern in quotes ('unified-*'); or paths of grid files.",
        autocompletion=completion.grids,
    ),
]
PaperName = Annotated[
    str | None,
    typer.Option(
        "--paper",
        metavar="NAME",
        help="Instead of GRID: the grids that fill this table of a paper, e.g. selhn-table5.",
        autocompletion=completion.paper_tables,
    ),
]


def _home(folder: str) -> Home:
    return Home(user_path(folder))


Runs = Annotated[
    Home,
    typer.Option(
        "--runs",
        metavar="DIR",
        envvar="GOALGRID_RUNS",
        parser=_home,
        help="The runs folder, which holds trials, tables and reports.",
    ),
]
RUNS: Any = "runs"
"""The default of --runs, which Typer parses, too."""

OtherRuns = Annotated[
    Home | None,
    typer.Option(
        "--other-runs", metavar="DIR", parser=_home, help="The runs folder of the second grid; default: --runs."
    ),
]

Override = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting of the grid, e.g. train.epochs=2 or 'seeds=[0,1]'; goalgrid settings lists them.",
        autocompletion=completion.overrides,
    ),
]
Root = Annotated[
    list[str], typer.Option("--root", metavar="[DATASET=]DIR", help="The folder of a data set on this machine.")
]
WeightPlaces = Annotated[
    list[str],
    typer.Option("--weights", metavar="NAME=DIR", help="The folder of pretrained weights on this machine."),
]
Only = Annotated[
    str,
    typer.Option(
        "--only",
        metavar="FILTER",
        help="Only trials that fit, e.g. 'objective=*_cir seed=0' or 'failure=out-of-memory'.",
        autocompletion=completion.conditions,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Train from the beginning, also what starts from these trials; old folders move to DIR/replaced.",
    ),
]
OnlyStale = Annotated[
    bool,
    typer.Option(
        "--stale", help="Train from the beginning, but only the trials that other code, versions or data trained."
    ),
]
AllowLeak = Annotated[
    bool, typer.Option("--allow-leak", help="Train even if test images stand in the training split; records say so.")
]
InProcess = Annotated[bool, typer.Option("--here", help="Train in this process, without Ray.")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        envvar="RAY_ADDRESS",
        help="A Ray cluster to train on; default: Ray is started for this launch.",
    ),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="How many trials train at a time; default: as many as fit.")
]
MlflowUri = Annotated[
    str | None,
    typer.Option(
        "--mlflow-uri", metavar="URI", help="The MLflow that trials are copied to; default: DIR/mlflow.db; '' for none."
    ),
]
NotifyCommand = Annotated[
    str,
    typer.Option(
        "--notify",
        metavar="COMMAND",
        help="A shell command to run at the first failure and at the end; variables GOALGRID_* say what happened.",
    ),
]
Uses = Annotated[
    list[str], typer.Option("--uses", metavar="FILE", help="A file of your own that defines objectives: docs/own.md.")
]
Metric = Annotated[str, typer.Option(help="r1, r5, r10, medr or rsum; with --protocol eccv, e.g. eccv_map_at_r.")]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="DATASET",
        help="A data set that [evaluate] of the grid names: the same models on its test split.",
    ),
]
Direction = Annotated[str, typer.Option(help="i2t, t2i or both.")]
AnalysisFormat = Annotated[str, typer.Option("--format", help="terminal, markdown, latex or csv.")]
PictureFormat = Annotated[str, typer.Option("--format", help="png, pdf, svg or pgf.")]
OutputFile = Annotated[
    Path | None, typer.Option("--output", "-o", help="A file instead of the screen; its ending may say the format.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def runs_option(home: Home) -> str:
    """The option that names the runs folder; empty for the default folder."""
    default = Path(os.environ.get("GOALGRID_RUNS", RUNS))
    return "" if home.path == user_path(default) else f" --runs {shlex.quote(str(home.path))}"


def use(files: Iterable[str]) -> None:
    """Make known what these files of the user's own define, and installed packages by name."""
    uses.register([uses.read(file, Path(), "the folder that you are in") for file in files])


def all_known(*choices: tuple[str, str, Collection[str]]) -> None:
    """Check what a user chose: the kind of thing, its name and the known names; UserError: a name is unknown."""
    for what, name, known in choices:
        if name not in known:
            raise UserError(unknown(what, name, list(known)))


def objective_settings(words: list[str], names: Collection[str]) -> dict[str, Any]:
    """Parameters of objectives, and the variant, from KEY=VALUE, as in a grid file; UserError: no such parameter.

    Args:
        names: the objectives; none: all.
    """
    settings = dict(map(key_and_value, words))
    if strange := [name for name in names if name not in CATALOGUE]:
        raise UserError(unknown_objective(strange[0], option=True))
    names_of_parameters = {key for name in names for key in CATALOGUE[name].parameters}
    known = ["variant", *sorted(names_of_parameters or known_parameters())]
    for key, value in settings.items():
        where = f"in --set '{key}={value}'"
        if key not in known:
            of = f"of {', '.join(names)} " if names else ""
            raise UserError(unknown("parameter", key, known, where=of + where))
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"--set '{key}={value}': it should be finite.")
    return settings


def options_of(model: type, *, before: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: a verb that takes `**options` gets an option for each field of a dataclass that says its help.

    Args:
        before: the parameter of the verb before which they stand in its help.
    """
    added = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[field.type, option])
        for field in fields(model)
        if field.metadata
        for option in [typer.Option(f"--{field.name.replace('_', '-')}", **field.metadata)]
    ]

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        named = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in signature(verb).parameters.values()][:-1]
        place = [p.name for p in named].index(before)
        verb.__signature__ = Signature([*named[:place], *added, *named[place:]])  # type: ignore[attr-defined]
        return verb

    return decorate
