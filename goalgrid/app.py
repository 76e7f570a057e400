"""The command line: verbs, no logic. stdout carries the product, stderr the talk.

Exit codes: 0 all done, 2 wrong usage, 3 incomplete, 4 trials failed. Heavy packages are imported where a verb needs
them, so that `--help`, `status`, `table` and `export` answer at once.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goalgrid import plan as planning
from goalgrid import prune as pruning
from goalgrid import status as standing
from goalgrid.costs import cost_of, unmeasured
from goalgrid.data_verbs import data
from goalgrid.options import (
    RUNS,
    Address,
    Force,
    GridName,
    Here,
    Jobs,
    Json,
    MlflowUri,
    Only,
    Override,
    Root,
    Runs,
    Stale,
    Weights,
    objective_settings,
)
from goalgrid.overview import Overview, home_at, recall
from goalgrid.reasons import Choice, decide, to_replace, to_train
from goalgrid.views import (
    err,
    exit_state,
    explain_objective,
    list_objectives,
    out,
    say,
    show,
    show_findings,
    show_json,
    show_list,
    show_table,
    show_verdicts,
)
from grid import catalog, probes
from grid.errors import UserError, unknown
from grid.expansion import Cell, expand
from grid.gridfile import Grid, load
from grid.home import Home, State
from grid.saved import save_grid

if TYPE_CHECKING:
    from results.scores import Scores
    from results.table import Table

app = typer.Typer(
    help="Ablation grids for image-text retrieval objectives: from one command to the paper's table.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(data, name="data")

WRONG_USAGE, INCOMPLETE = 2, 3
PICTURES = ("png", "pdf", "svg")
EXIT = {State.DONE: 0, State.INTERRUPTED: INCOMPLETE, State.FAILED: 4}


def main() -> None:
    """Run the command line; a user's mistake is one message, without a traceback."""
    try:
        app()
    except UserError as error:
        say(f"error: {error}")
        sys.exit(WRONG_USAGE)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


@app.command()
def grids() -> None:
    """What grids are shipped."""
    lines = {}
    for name in catalog.names("presets"):
        grid = load(name)
        sizes = " x ".join(f"{len(values)} {axis}{'s' * (len(values) != 1)}" for axis, values in grid.axes().items())
        lines[name] = f"{sizes}: {', '.join(grid.recipes)} on {', '.join(grid.datasets)}"
    show_list(lines)


@app.command()
def recipes() -> None:
    """What recipes are shipped: backbones with their training settings."""
    show_list({name: catalog.recipe(name).description for name in catalog.names("recipes")})


@app.command()
def datasets() -> None:
    """What data sets are known by name, and what they look like on disk."""
    for name in catalog.names("datasets"):
        dataset = catalog.dataset(name)
        where = f"\n{'':12} {dataset.where} (goalgrid data where {name})" if dataset.where else ""
        show(f"{name:12} {dataset.description} [{', '.join(dataset.protocols)}]{where}")


@app.command()
def objectives(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Explain this one.")] = None,
) -> None:
    """What objectives there are: family, parameters, known name, source; or all about one."""
    if name is None:
        list_objectives()
    else:
        explain_objective(name)


@app.command()
def diagrams(
    cells: Annotated[
        list[str], typer.Argument(metavar="[CELL]...", help="Draw how triplets move under these, e.g. sig-ms_cir.")
    ] = [],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the pictures.")] = Path(),
    format_: Annotated[str, typer.Option("--format", help="png, pdf or svg.")] = "png",
    set_: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="A parameter or the variant, e.g. tau=5.")
    ] = [],
) -> None:
    """Draw GOAL Figures 2 and 3 and the 15 update fields, or the update field of some cells, for any parameters."""
    if format_ not in PICTURES:
        raise UserError(unknown("format", format_, PICTURES))
    settings = objective_settings(set_)
    from objectives import diagrams as draw

    output.mkdir(parents=True, exist_ok=True)
    paths = {name: output / f"{name}.{format_}" for name in cells or ("triplet-weights", "pair-weights", "cells")}
    if cells:
        for cell in cells:
            draw.update_field(paths[cell], cell, **settings)
    else:
        draw.triplet_weights(paths["triplet-weights"], **settings)
        draw.pair_weights(paths["pair-weights"], **settings)
        draw.cells(paths["cells"], **settings)
    say("\n".join(f"written: {path}" for path in paths.values()))


@app.command()
def plan(
    grid: GridName,
    runs: Runs = RUNS,
    set_: Override = [],
    root: Root = [],
    weights: Weights = [],
    only: Only = "",
    force: Force = False,
    stale: Stale = False,
    jobs: Jobs = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Train a few steps of each recipe first, to know what they cost.")
    ] = False,
    trials: Annotated[bool, typer.Option("--trials", help="A line a trial: why it would be trained, or not.")] = False,
    as_json: Json = False,
) -> None:
    """How many trials a grid has, why each would be trained or not, what that will cost. Trains nothing."""
    overview = Overview.of(load(grid, set_, roots=root, weights=weights), home_at(runs))
    choice = Choice(only, force=force, stale=stale)
    if probe:
        _probe(overview, choice)
    _plan(overview, choice, jobs=jobs, each=trials, as_json=as_json)


@app.command()
def run(
    grid: GridName,
    runs: Runs = RUNS,
    set_: Override = [],
    root: Root = [],
    weights: Weights = [],
    only: Only = "",
    force: Force = False,
    stale: Stale = False,
    here: Here = False,
    address: Address = None,
    jobs: Jobs = None,
    mlflow_uri: MlflowUri = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be trained.")] = False,
) -> None:
    """Train what is not done, then print the table. The same command again goes on where it was cut off."""
    overrides = [*set_, *([f"resources.concurrency={jobs}"] if jobs else [])]
    overview = Overview.of(load(grid, overrides, roots=root, weights=weights), home_at(runs))
    choice = Choice(only, force=force, stale=stale)
    if dry_run:
        _plan(overview, choice, jobs=jobs)
    else:
        _train(overview, choice, here=here, address=address, mlflow_uri=mlflow_uri)


@app.command()
def resume(
    grid: GridName,
    runs: Runs = RUNS,
    only: Only = "",
    failed: Annotated[bool, typer.Option("--failed", help="Only the trials that failed.")] = False,
    here: Here = False,
    address: Address = None,
    mlflow_uri: MlflowUri = None,
) -> None:
    """Run again what failed or was cut off, with the grid as it was last run."""
    home = home_at(runs)
    choice = Choice(only, frozenset({State.FAILED})) if failed else Choice(only)
    _train(Overview.of(recall(grid, home), home), choice, here=here, address=address, mlflow_uri=mlflow_uri)


@app.command()
def status(grid: GridName, runs: Runs = RUNS, as_json: Json = False) -> None:
    """What is done, running, failed or planned, why each failure failed, and what is stale."""
    home = home_at(runs)
    overview = Overview.of(recall(grid, home), home)
    if as_json:
        show_json(standing.to_dict(overview))
    else:
        show("\n".join(standing.lines(overview)))
    raise typer.Exit(EXIT[exit_state(list(overview.states.values()))])


@app.command()
def prune(
    runs: Runs = RUNS,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what no grid names, and what broken runs left: shows it, then asks. With --json it only shows."""
    home = home_at(runs)
    found = pruning.rubbish(home)
    if as_json:
        show_json(found.to_dict())
    else:
        show("\n".join(found.lines(home)))
    if not found.items or (as_json and not yes):
        return
    if not yes and not sys.stdin.isatty():
        raise UserError("nobody to ask whether to remove this. Look at it, then: goalgrid prune --yes")
    if yes or typer.confirm("Remove all this?", err=True):
        removed = pruning.remove(found)
        say(f"removed: {len(removed.items)} of {len(found.items)}, {pruning.size(removed.bytes)}")


@app.command()
def table(
    grid: Annotated[
        str | None, typer.Argument(metavar="[GRID]", help="A grid, or with --reference a table or a paper.")
    ] = None,
    runs: Runs = RUNS,
    layout: Annotated[
        str | None, typer.Option(help="goal, known, listing, losses or methods; default: what suits the grid.")
    ] = None,
    metric: Annotated[str, typer.Option(help="r1, r5, r10, medr or rsum.")] = "r1",
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
    format_: Annotated[str, typer.Option("--format", help="terminal, latex, markdown, csv or parquet.")] = "terminal",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of the screen.")] = None,
) -> None:
    """The paper's table of what is done so far, beside the paper's numbers, or as the paper printed it."""
    from results import renderers
    from results.layouts import LAYOUTS, arrange
    from results.layouts.captions import METRIC_NAMES

    for what, name, known in (
        ("layout", layout or "goal", LAYOUTS),
        ("metric", metric, METRIC_NAMES),
        ("format", format_, renderers.FORMATS),
        ("comparison", against or "paper", ["paper"]),
    ):
        if name not in known:
            raise UserError(unknown(what, name, list(known)))
    home = home_at(runs)
    if reference and (against or protocol):
        raise UserError("--reference shows a table as the paper printed it; leave --against and --protocol out.")
    if reference:
        from results.reference import Paper, is_paper, listing

        if is_paper(grid):
            show_list(listing(grid))
        else:
            paper = Paper.read(str(grid))
            drawn = arrange(paper.cells, paper, layout=layout or paper.layout, metric=metric)
            _deliver(drawn, format_, output, home.path / "reference" / f"{grid}.parquet")
        return
    if grid is None:
        raise UserError(f"which grid? Known: {', '.join(catalog.names('presets'))}; or the path of a grid file.")
    found = recall(grid, home)
    cells = expand(found)
    scores = _scores(found, cells, home, protocol, interval=interval)
    _stop_without(scores.rows, home, grid)
    drawn = arrange(cells, scores, layout=layout, metric=metric, against=against)
    if marks:
        from results.marks import marked

        drawn = marked(drawn)
    _deliver(drawn, format_, output, home.grid(found.name).tables / f"{drawn.name}.parquet")


@app.command()
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
    from results.scores import Scores

    for what, name, known in (
        ("metric", metric, METRIC_NAMES),
        ("direction", direction, DIRECTION_NAMES),
        ("format", format_, findings.FORMATS),
    ):
        if name not in known:
            raise UserError(unknown(what, name, list(known)))
    home = home_at(runs)
    cells = expand(recall(grid, home))
    scores = Scores.read(cells, home)
    _stop_without(scores.rows, home, grid)
    metrics = metrics_of(metric, direction)
    found = analyse(cells, scores, Ranks.read(cells, home), metrics, baseline=baseline, across=across)
    show_findings(found, cells, None if as_json else format_)


@app.command()
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
    from results.scores import Scores

    for what, name, known in (("format", format_, draw.FORMATS), *(("figure", kind, draw.FIGURES) for kind in kinds)):
        if name not in known:
            raise UserError(unknown(what, name, list(known)))
    home = home_at(runs)
    cells = expand(recall(grid, home))
    scores = Scores.read(cells, home)
    _stop_without(scores.rows, home, grid)
    studies = draw.Study.read(cells, scores, home)
    for path in draw.write(studies, output, kinds=kinds, formats=[format_]):
        say(f"written: {path}")


@app.command()
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
        raise UserError(f"--output {output} needs a --format: latex, markdown, csv or parquet.")
    elif output or format_ == "parquet":
        path = output or default
        renderers.write(drawn, format_, path)
        say(f"written: {path}")
    else:
        show(renderers.TEXT[format_](drawn).rstrip("\n"))


@app.command()
def selftest(runs: Runs = RUNS, address: Address = None) -> None:
    """Prove that nothing is lost here: kills, damages and doubles a tiny grid in a folder of its own below DIR."""
    from runners.selftest import selftest as put_to_the_test

    runs = home_at(runs).path
    say(f"takes about two minutes, in a folder of its own below {runs}")
    if not show_verdicts(put_to_the_test(runs, address), runs):
        raise typer.Exit(EXIT[State.FAILED])


def _plan(overview: Overview, choice: Choice, *, jobs: int | None, each: bool = False, as_json: bool = False) -> None:
    verdicts = decide(overview, choice)
    starting = [verdict.trial for verdict in verdicts if verdict.starts]
    cost = cost_of(overview, starting, to_replace(verdicts), jobs=jobs)
    if as_json:
        show_json(planning.to_dict(overview, verdicts, cost))
    else:
        show("\n".join(planning.lines(overview, verdicts, cost, each=each)))


def _probe(overview: Overview, choice: Choice) -> None:
    """Measure what no finished trial tells, and keep it for later plans."""
    trials = unmeasured(overview, to_train(decide(overview, choice)))
    if trials:
        from runners.probe import probe

        say(f"probing: {', '.join(trial.id for trial in trials)}")
        found = probe(overview.grid, trials, overview.home, err)
        probes.remember(overview.home.grid(overview.grid.name), found)


def _train(overview: Overview, choice: Choice, *, here: bool, address: str | None, mlflow_uri: str | None) -> None:
    """Train what is chosen, print the table, exit with what was reached."""
    verdicts = decide(overview, choice)
    todo, anew = to_train(verdicts), to_replace(verdicts)
    save_grid(overview.grid, overview.trials, overview.home)
    if todo:
        from runners.launch import Launch

        begun = f", {len(anew)} of them anew" if anew else ""
        say(f"{overview.grid.name}: {overview.headline()}; training {len(todo)}{begun}")
        uri = f"sqlite:///{overview.home.mlflow.absolute()}" if mlflow_uri is None else mlflow_uri
        live = out.is_terminal and err.is_terminal
        launch = Launch(overview.home, err, here=here, address=address, mlflow_uri=uri or None, live=live)
        launch.run(overview.grid, overview.cells, todo, anew)
    after = Overview.of(overview.grid, overview.home)
    _finish(after)
    reached = exit_state([after.states[verdict.trial.id] for verdict in verdicts])
    if reached is State.INTERRUPTED:
        say(f"not complete; go on with: goalgrid resume {overview.grid.name}")
    raise typer.Exit(EXIT[reached])


def _finish(overview: Overview) -> None:
    """Print what there is, and write the grid's results and tables; a disk that takes none costs a warning."""
    from results.export import results
    from results.layouts import arrange
    from results.renderers import write_all
    from results.scores import Scores

    if overview.count(State.DONE):
        drawn = arrange(overview.cells, Scores.read(overview.cells, overview.home))
        show_table(drawn)
        folder = overview.home.grid(overview.grid.name)
        try:
            results(overview.cells, overview.home, folder.results)
            write_all(drawn, folder.tables)
        except UserError as error:
            say(f"warning: the table is not kept: {error}")
    say("\n".join([f"{overview.grid.name}: {overview.headline()}", *standing.failure_lines(overview)]))
