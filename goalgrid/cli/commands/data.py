"""`goalgrid data`: locate, check and convert data sets, and precompute features."""

from pathlib import Path
from typing import Any

import typer
from rich.progress import Progress as Bar

from goalgrid.cli import completion, options
from goalgrid.cli.console import err, say, show, show_for
from goalgrid.cli.options import argument, flag
from goalgrid.grid import catalog, expansion, resources
from goalgrid.grid.columns import from_command_line
from goalgrid.grid.errors import UserError, check_known, user_path
from goalgrid.grid.settings import base, components
from goalgrid.grid.store.home import Home
from goalgrid.listings import lists
from goalgrid.state.named_grids import grid_to_train

verbs = typer.Typer(
    cls=options.Verbs,
    help="Locate, check and convert data sets; precompute features.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@verbs.command()
def where(
    name: str | None = argument(
        None, "NAME", "A data set listed by `goalgrid datasets`; without it: your own data.", completion.datasets
    ),
) -> None:
    """Show where to get a data set, and how its folder must look.

    It needs no network. Without NAME, show the accepted layouts for your own data.
    """
    if name is None:
        show("\n".join(lists.own_guide()))
        return
    hint = "Your own data may have any other name; accepted layouts: goalgrid data where."
    check_known("data set", name, catalog.names("datasets"), hint=hint)
    show("\n".join(lists.guide(name, catalog.dataset(name))))


@verbs.command()
def check(
    name: str = argument(..., "NAME", "A data set listed by `goalgrid datasets`, or your own.", completion.datasets),
    root: Path | None = flag(None, "--root", "Folder of your copy.", "DIR"),
    columns: list[str] = options.COLUMNS,
    home: Home = options.RUNS,
    workers: int | None = flag(None, "--workers", "Number of threads that decode images; default: one per CPU.", min=1),
    as_json: bool = options.JSON,
) -> None:
    """Find all problems of your copy of a data set, each with its fix.

    The exit code is 2 if there is any problem. If NAME is not a known data set, it is checked as your own data: for
    consistency, but not against official sizes.
    """
    base.check_named("data set", name)
    if root is not None:
        catalog.has_folder(name, f"--root {root}")
    if catalog.described(name).embedded:
        say(f"{name} is a generated data set: there is no copy to check.")
        return
    if root is None:
        known = f" {name}" if name in catalog.names("datasets") else ""
        raise UserError(
            f"missing option --root DIR: the folder of {name!r}. Its expected layout: goalgrid data where{known}"
        )
    from goalgrid.retrieval.data.check import check as look

    with Bar(console=err, transient=True, disable=not err.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=of)
            bar.update(tasks[what], completed=done)

        tables: dict[str, Any] = {"columns": from_command_line(columns), "copies": home.data}
        report = look(name, user_path(root), workers=workers or resources.cpus_here(), progress=progress, **tables)
    show_for(as_json, report.to_dict, report.lines)
    raise typer.Exit(2 if report.problems else 0)


@verbs.command()
def convert(
    sources: list[str] = argument(
        ...,
        "SOURCE",
        "EXPERT=PATH of a CE pickle or of a folder with one .npy or .npz per video; or a folder of MMT's .h5.",
    ),
    to: Path = flag(..., "--to", "Folder of the data set; arrays are written to its experts/.", "DIR"),
) -> None:
    """Convert video features to one array per expert.

    No code in a pickle is executed. Converting an expert again replaces its array.
    """
    if "video" not in components.registered():
        raise UserError(components.missing("video"))
    from goalgrid.retrieval.components.video.convert import convert as write

    for name, videos in write(sources, user_path(to), lambda source: say(f"reading {source}")).items():
        show(f"{to / 'experts' / name}  {videos:,} videos")


@verbs.command()
def features(
    grid: str = options.GRID,
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    root: list[str] = options.ROOT,
    weights: list[str] = options.WEIGHTS,
) -> None:
    """Precompute the features of a grid's frozen networks.

    This is optional: goalgrid run computes missing features itself.
    """
    from goalgrid.cli.terminal_view import TerminalView
    from goalgrid.runners.launch.feature_extraction import compute_features, feature_jobs, feature_sources

    loaded = grid_to_train(grid, home, set_, roots=root, weights=weights)
    jobs = feature_jobs(loaded, expansion.expand(loaded), home)
    if not (sources := feature_sources(jobs)):
        say(f"{loaded.name}: nothing to precompute, as no recipe has a frozen network or resized images to cache")
        return
    compute_features(jobs, TerminalView())
    for folder, (source, _) in sources.items():
        size = sum(file.stat().st_size for file in folder.glob("*.npy")) / 1e6
        show(f"{folder}  {source.title}: {source.views():,} {source.what}, {size:,.1f} MB")


@verbs.command()
def backbone(
    source: Path = argument(..., "FILE", "VSE-infinity's original_updown_backbone.pth."),
    folder: Path = argument(..., "DIR", "Folder to write the weights to."),
) -> None:
    """Convert the ResNet-101 backbone of bottom-up attention (BUTD).

    Recipes then read the converted folder: --weights NAME=DIR.
    """
    from goalgrid.retrieval.published.backbones import BUTD, convert

    count = convert(user_path(source), user_path(folder))
    show(f"{folder}: {count:,} tensors. Train with them: --weights {BUTD}={folder}")
