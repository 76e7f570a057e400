"""`goalgrid data`: where to get a data set and how it must look, and what is wrong with one's own copy."""

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
        None, "NAME", "A data set, see `goalgrid datasets`; none: data of your own.", completion.datasets
    ),
) -> None:
    """Show where to get a data set and how its folder may look.

    It needs no network. Without a name: how a folder with data of your own may look.
    """
    if name is None:
        show("\n".join(lists.own_guide()))
        return
    hint = "Data of your own may have any other name; how they may look: goalgrid data where."
    check_known("data set", name, catalog.names("datasets"), hint=hint)
    show("\n".join(lists.guide(name, catalog.dataset(name))))


@verbs.command()
def check(
    name: str = argument(..., "NAME", "A data set's name, see `goalgrid datasets`.", completion.datasets),
    root: Path | None = flag(None, "--root", "The folder of your copy.", "DIR"),
    columns: list[str] = options.COLUMNS,
    home: Home = options.RUNS,
    workers: int | None = flag(None, "--workers", "Threads that decode images; default: one per CPU.", min=1),
    as_json: bool = options.JSON,
) -> None:
    """Find all faults of a copy, each with its fix.

    The exit code is 2 if there is any. A NAME that is not shipped is checked as your own data: against itself, not
    against official sizes.
    """
    base.check_named("data set", name)
    if root is not None:
        catalog.has_folder(name, f"--root {root}")
    if catalog.described(name).embedded:
        say(f"{name} is generated: there is no copy to check.")
        return
    if root is None:
        known = f" {name}" if name in catalog.names("datasets") else ""
        raise UserError(f"where is {name!r}? Give --root DIR. How it must look: goalgrid data where{known}")
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
        ..., "SOURCE", "EXPERT=PATH: CE's pickle, or a folder with a .npy or .npz a video; or a folder with MMT's .h5."
    ),
    to: Path = flag(..., "--to", "The folder of the data set; gets experts/.", "DIR"),
) -> None:
    """Convert features of videos: one array for each expert.

    No code in a pickle is run. Converting an expert again replaces it.
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

    If you skip it, the run of the grid does it.
    """
    from goalgrid.cli.terminal_view import TerminalView
    from goalgrid.runners.launch.feature_extraction import compute_features, feature_jobs, feature_sources

    loaded = grid_to_train(grid, home, set_, roots=root, weights=weights)
    jobs = feature_jobs(loaded, expansion.expand(loaded), home)
    if not (sources := feature_sources(jobs)):
        say(f"{loaded.name}: no recipe has a frozen network, or shrunk pictures, that could be kept")
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
    """Convert BUTD's ResNet-101.

    Recipes then read the folder: --weights NAME=DIR.
    """
    from goalgrid.retrieval.published.backbones import BUTD, convert

    count = convert(user_path(source), user_path(folder))
    show(f"{folder}: {count:,} tensors. Train with them: --weights {BUTD}={folder}")
