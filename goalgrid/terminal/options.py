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
from goalgrid.grid.errors import UserError, check_known, user_path
from goalgrid.grid.objectives import CATALOGUE, check_objective
from goalgrid.grid.overrides import key_and_value
from goalgrid.grid.store.home import Home
from goalgrid.terminal import completion


def argument(metavar: str, meaning: str, complete: Callable[..., list[str]] | None = None, **more: Any) -> Any:
    """An argument of a verb, and what the shell completes."""
    return typer.Argument(metavar=metavar, help=meaning, autocompletion=complete, **more)


def flag(names: str, meaning: str, metavar: str | None = None, **more: Any) -> Any:
    """An option of a verb; names are separated by blanks, `--output -o`."""
    return typer.Option(*names.split(), help=meaning, metavar=metavar, **more)


_GRID = argument(
    "GRID", "The name of a shipped grid or of a grid that ran, or the path of a grid file.", completion.grids
)
GridName = Annotated[str, _GRID]
OptionalGrid = Annotated[str | None, _GRID]
GridNames = Annotated[
    list[str],
    argument(
        "GRID",
        "Shipped grids or grids that ran, by name or a pattern in quotes ('unified-*'); or paths of grid files.",
        completion.grids,
    ),
]
PaperName = Annotated[
    str | None,
    flag(
        "--paper",
        "Instead of GRID: the grids that fill this table of a paper, e.g. selhn-table5.",
        "NAME",
        autocompletion=completion.paper_tables,
    ),
]


def _home(folder: str) -> Home:
    return Home(user_path(folder))


Runs = Annotated[
    Home,
    flag(
        "--runs",
        "The runs folder, which holds trials, tables and reports.",
        "DIR",
        envvar="GOALGRID_RUNS",
        parser=_home,
    ),
]
RUNS: Any = "runs"
"""The default of --runs, which Typer parses, too."""

OtherRuns = Annotated[
    Home | None, flag("--other-runs", "The runs folder of the second grid; default: --runs.", "DIR", parser=_home)
]

Override = Annotated[
    list[str],
    flag(
        "--set",
        "Change a setting of the grid, e.g. train.epochs=2 or 'seeds=[0,1]'; goalgrid settings lists them.",
        "KEY=VALUE",
        autocompletion=completion.overrides,
    ),
]
Root = Annotated[list[str], flag("--root", "The folder of a data set on this machine.", "[DATASET=]DIR")]
WeightPlaces = Annotated[list[str], flag("--weights", "The folder of pretrained weights on this machine.", "NAME=DIR")]
Only = Annotated[
    str,
    flag(
        "--only",
        "Only trials that fit, e.g. 'objective=*_cir seed=0' or 'failure=out-of-memory'.",
        "FILTER",
        autocompletion=completion.conditions,
    ),
]
Force = Annotated[
    bool,
    flag("--force", "Train from the beginning, also what starts from these trials; old folders move to DIR/replaced."),
]
OnlyStale = Annotated[
    bool, flag("--stale", "Train from the beginning, but only the trials that other code, versions or data trained.")
]
AllowLeak = Annotated[
    bool, flag("--allow-leak", "Train even if test images stand in the training split; records say so.")
]
Address = Annotated[
    str | None,
    flag(
        "--address",
        "A Ray cluster to train on; default: Ray is started for this launch.",
        "HOST:PORT",
        envvar="RAY_ADDRESS",
    ),
]
Jobs = Annotated[int | None, flag("--jobs -j", "How many trials train at a time; default: as many as fit.", min=1)]
Uses = Annotated[list[str], flag("--uses", "A file of your own that defines objectives: docs/own.md.", "FILE")]
Metric = Annotated[str, typer.Option(help="r1, r5, r10, medr or rsum; with --protocol eccv, e.g. eccv_map_at_r.")]
OtherProtocol = Annotated[
    str | None,
    flag(
        "--protocol",
        "A protocol of the data set, e.g. coco-5x1k; or eccv. Else that of the first table that the grid names.",
    ),
]
On = Annotated[
    str | None,
    flag("--on", "A data set that [evaluate] of the grid names: the same models on its test split.", "DATASET"),
]
Direction = Annotated[str, flag("--direction", "i2t, t2i or both.")]
AnalysisFormat = Annotated[str, flag("--format", "terminal, markdown, latex or csv.")]
PictureFormat = Annotated[str, flag("--format", "png, pdf, svg or pgf.")]
OutputFile = Annotated[Path | None, flag("--output -o", "A file instead of the screen; its ending may say the format.")]
Json = Annotated[bool, flag("--json", "Print JSON, for programs.")]


def runs_option(home: Home) -> str:
    """The option that names the runs folder; empty for the default folder."""
    default = Path(os.environ.get("GOALGRID_RUNS", RUNS))
    return "" if home.path == user_path(default) else f" --runs {shlex.quote(str(home.path))}"


def use(files: Iterable[str]) -> None:
    """Make known what these files of the user's own define, and installed packages by name."""
    uses.register([uses.read(file, Path(), "the folder that you are in") for file in files])


def objective_settings(words: list[str], names: Collection[str]) -> dict[str, Any]:
    """Parameters of objectives, and the variant, from KEY=VALUE, as in a grid file; UserError: no such parameter.

    Args:
        names: the objectives; none: all.
    """
    settings = dict(map(key_and_value, words))
    for name in names:
        check_objective(name)
    known = ["variant", *sorted({key for name in names or CATALOGUE for key in CATALOGUE[name].parameters})]
    for key, value in settings.items():
        check_known("parameter", key, known, where=f"in --set '{key}={value}'")
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"--set '{key}={value}': it should be finite.")
    return settings


def options_of(model: type, *, before: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: a verb that takes `**options` gets an option for each field of a dataclass that says its help.

    Args:
        before: the parameter of the verb before which they stand in its help.
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
