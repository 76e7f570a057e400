"""What came out: table, effects, figures, report, export."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goalgrid.exits import INCOMPLETE
from goalgrid.options import (
    RUNS,
    GridName,
    Json,
    Runs,
    all_known,
)
from goalgrid.overview import Overview, home_at, recall
from goalgrid.views import (
    say,
    show,
    show_findings,
    show_list,
    show_table,
)
from grid import catalog
from grid.errors import UserError, unknown
from grid.expansion import Cell, expand
from grid.gridfile import Grid
from grid.home import Home

if TYPE_CHECKING:
    from results.scores import Scores
    from results.table import Table

verbs = typer.Typer()


@verbs.command()
def table(
    grid: Annotated[
        str | None, typer.Argument(metavar="[GRID]", help="A grid, or with --reference a table or a paper.")
    ] = None,
    runs: Runs = RUNS,
    layout: Annotated[
        str | None, typer.Option(help="goal, known, listing, losses or methods; default: what suits the grid.")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(metavar="AXIS,...", help="Any axes as rows, e.g. objective or pair; seed: no mean.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="AXIS,...", help="Any axes as columns, e.g. dataset,metric.")
    ] = None,
    blocks: Annotated[
        str | None, typer.Option(metavar="AXIS,...", help="Any axes as blocks; all that is named nowhere is one too.")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="r1, r5, r10, medr or rsum; with --rows or --columns several: r1,r5.")
    ] = "r1",
    protocol: Annotated[
        str | None, typer.Option(help="Another protocol of the data set, e.g. coco-5x1k; nothing is trained anew.")
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="A paper's own table, as printed; without a name: which there are.")
    ] = False,
    against: Annotated[str | None, typer.Option(help="paper: ours, theirs and the difference.")] = None,
    marks: Annotated[
        bool, typer.Option("--marks", help="Mark what cannot be told from the best; the caption says by which test.")
    ] = False,
    interval: Annotated[
        bool, typer.Option("--interval", help="± is half the 95 % t interval of the mean, not the standard deviation.")
    ] = False,
    format_: Annotated[
        str, typer.Option("--format", help="terminal, latex, markdown, csv, html or parquet.")
    ] = "terminal",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of the screen.")] = None,
) -> None:
    """The paper's table of what is done so far, beside the paper's numbers, or as the paper printed it."""
    from results import renderers
    from results.layouts import LAYOUTS, arrange
    from results.layouts.captions import METRIC_NAMES
    from results.layouts.pivot import Axes

    axes = Axes.parse(rows, columns, blocks)
    all_known(
        ("layout", layout or "goal", LAYOUTS),
        *(("metric", name, METRIC_NAMES) for name in (metric.split(",") if axes else [metric])),
        ("format", format_, renderers.FORMATS),
        ("comparison", against or "paper", ["paper"]),
    )
    home = home_at(runs)
    if reference and (against or protocol):
        raise UserError("--reference shows a table as the paper printed it; leave --against and --protocol out.")
    if reference and axes:
        raise UserError("--reference shows a table as the paper printed it; leave --rows, --columns and --blocks out.")
    if reference:
        _print_reference(grid, layout, metric, format_, output, home)
        return
    if grid is None:
        raise UserError(f"which grid? Known: {', '.join(catalog.names('presets'))}; or the path of a grid file.")
    found = recall(grid, home)
    cells = expand(found)
    scores = _scores(found, cells, home, protocol, interval=interval)
    _stop_without(scores.rows, home, grid)
    drawn = arrange(cells, scores, layout=layout, metric=metric, against=against, axes=axes)
    if marks:
        from results.marks import marked

        drawn = marked(drawn)
    _deliver(drawn, format_, output, home.grid(found.name).tables / f"{drawn.name}.parquet")


@verbs.command()
def effects(
    grid: GridName,
    runs: Runs = RUNS,
    metric: Annotated[str, typer.Option(help="r1, r5, r10, medr or rsum.")] = "r1",
    direction: Annotated[str, typer.Option(help="i2t, t2i or both.")] = "both",
    baseline: Annotated[
        str | None, typer.Option(metavar="OBJECTIVE", help="Compare with this; default: con_con, else the first.")
    ] = None,
    across: Annotated[
        list[str], typer.Option("--across", metavar="AXIS", help="Make this axis a factor too, e.g. objective.tau.")
    ] = [],
    format_: Annotated[str, typer.Option("--format", help="terminal, markdown, latex or csv.")] = "terminal",
    as_json: Json = False,
) -> None:
    """Which axis matters: main effects and interaction, what differs from a baseline, and how sure that is."""
    from results import findings
    from results.analysis import DIRECTION_NAMES, analyse, metrics_of
    from results.layouts.captions import METRIC_NAMES
    from results.queries import Ranks

    all_known(
        ("metric", metric, METRIC_NAMES),
        ("direction", direction, DIRECTION_NAMES),
        ("format", format_, findings.FORMATS),
    )
    home = home_at(runs)
    cells, scores = _measured(grid, home)
    metrics = metrics_of(metric, direction)
    found = analyse(cells, scores, Ranks.read(cells, home), metrics, baseline=baseline, across=across)
    show_findings(found, cells, None if as_json else format_)


@verbs.command()
def figures(
    grid: GridName,
    kinds: Annotated[
        list[str], typer.Argument(metavar="[KIND]...", help="matrix, effects, curves, diagnostics; default: all.")
    ] = [],
    runs: Runs = RUNS,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the pictures.")] = Path(),
    format_: Annotated[str, typer.Option("--format", help="png, pdf or svg.")] = "png",
) -> None:
    """Draw the matrix, effects, learning curves and diagnostics of what is done so far."""
    from results import figures as draw

    all_known(("format", format_, draw.FORMATS), *(("figure", kind, draw.FIGURES) for kind in kinds))
    home = home_at(runs)
    cells, scores = _measured(grid, home)
    studies = draw.Study.read(cells, scores, home)
    for path in draw.write(studies, output, kinds=kinds, formats=[format_]):
        say(f"written: {path}")


@verbs.command()
def report(
    grid: GridName,
    runs: Runs = RUNS,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: DIR/grids/NAME/report.html.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Write it again and again until no trial is left; the page follows.")
    ] = False,
    every: Annotated[int, typer.Option(metavar="SECONDS", min=1, help="How often, with --watch.")] = 10,
) -> None:
    """The whole grid as one HTML page that needs no network: tables, effects, figures, failures, provenance."""
    from goalgrid import report as page

    home = home_at(runs)
    overview = Overview.of(recall(grid, home), home)
    path = output or home.grid(overview.grid.name).report
    if not watch:
        page.write(overview, path)
        say(f"written: {path}")
        return
    try:
        for seen in page.watch(overview, path, every):
            say(f"written: {path} ({seen.headline()})")
    except KeyboardInterrupt:
        raise typer.Exit(INCOMPLETE) from None


@verbs.command()
def export(
    grid: GridName,
    target: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    runs: Runs = RUNS,
) -> None:
    """Everything a paper needs into one folder: tables, figures, effects, records, settings, checksums."""
    from results.export import export as write

    home = home_at(runs)
    found = recall(grid, home)
    if target.exists() and any(target.iterdir()):
        raise UserError(f"{target} is not empty; give a new folder.")
    write(found, expand(found), home, target)
    say(f"written: {target}")


def _print_reference(
    name: str | None, layout: str | None, metric: str, format_: str, output: Path | None, home: Home
) -> None:
    """A paper's own table; of a paper's name, or of none, which tables there are."""
    from results.layouts import arrange
    from results.reference import Paper, is_paper, listing

    if is_paper(name):
        show_list(listing(name))
        return
    paper = Paper.read(str(name))
    drawn = arrange(paper.cells, paper, layout=layout or paper.layout, metric=metric)
    _deliver(drawn, format_, output, home.path / "reference" / f"{name}.parquet")


def _measured(grid: str, home: Home) -> "tuple[list[Cell], Scores]":
    """The cells of a grid and what its finished trials measured; without any, the command ends here."""
    from results.scores import Scores

    cells = expand(recall(grid, home))
    scores = Scores.read(cells, home)
    _stop_without(scores.rows, home, grid)
    return cells, scores


def _stop_without(rows: Mapping[str, object], home: Home, grid: str) -> None:
    """Say that no trial is done, and how to start."""
    if not rows:
        say(f"no trial of grid {grid!r} is done under {home.path}. Start it: goalgrid run {grid}")
        raise typer.Exit(INCOMPLETE)


def _scores(found: Grid, cells: list[Cell], home: Home, protocol: str | None, *, interval: bool = False) -> "Scores":
    """What the finished trials of a grid measured, by this protocol if one is asked for."""
    from results.scores import Scores

    protocols = [name for dataset in found.datasets for name in catalog.protocols(dataset)]
    if protocol is not None and protocol not in protocols:
        raise UserError(unknown("protocol", protocol, protocols, where=f"of grid {found.name!r}"))
    return Scores.read(cells, home, protocol=protocol, interval=interval)


def _deliver(drawn: "Table", format_: str, output: Path | None, default: Path) -> None:
    """Print a table, or write it where it is asked for, or, as Parquet, where such tables are kept."""
    from results import renderers

    if format_ == "terminal" and output is None:
        show_table(drawn)
    elif format_ == "terminal":
        raise UserError(f"--output {output} needs a --format: latex, markdown, csv, html or parquet.")
    elif output or format_ == "parquet":
        path = output or default
        renderers.write(drawn, format_, path)
        say(f"written: {path}")
    else:
        show(renderers.TEXT[format_](drawn).rstrip("\n"))
