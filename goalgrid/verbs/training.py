"""Training: plan, run, resume, status, prune, selftest."""

import sys
from functools import partial
from typing import Annotated

import typer

from goalgrid.planning import plan as planning
from goalgrid.planning import prune as pruning
from goalgrid.planning.costs import cost_of, unmeasured
from goalgrid.planning.decisions import Choice, decide, starting, to_replace, to_train
from goalgrid.planning.overview import Overview, many, named_tables_exist, recall, wanted
from goalgrid.showing import status as standing
from goalgrid.showing.tables import scores_of, start
from goalgrid.terminal import EXIT, exit_state, options
from goalgrid.terminal.options import runs_option
from goalgrid.terminal.views import err, out, say, show_for, show_table, show_verdicts
from grid.errors import UserError
from grid.gridfile import Grid
from grid.store import speed_probes
from grid.store.home import Home, State
from grid.store.saved_grid import save_grid

verbs = typer.Typer()


@verbs.command()
def plan(
    grid: options.GridName,
    home: options.Runs = options.RUNS,
    set_: options.Override = [],
    root: options.Root = [],
    weights: options.WeightPlaces = [],
    only: options.Only = "",
    force: options.Force = False,
    stale: options.OnlyStale = False,
    jobs: options.Jobs = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Train a few steps of each recipe first, to know what they cost.")
    ] = False,
    trials: Annotated[bool, typer.Option("--trials", help="A line a trial: why it would be trained, or not.")] = False,
    as_json: options.Json = False,
) -> None:
    """Count trials, say why each would be trained, and the cost.

    It trains nothing, but a few steps with --probe.
    """
    overview = _overview(wanted(grid, home, set_, roots=root, weights=weights), home)
    choice = Choice(only, force=force, stale=stale)
    if probe:
        _probe(overview, choice)
    _plan(overview, choice, jobs=jobs, each=trials, as_json=as_json)


@verbs.command()
def run(
    grid: options.GridName,
    home: options.Runs = options.RUNS,
    set_: options.Override = [],
    root: options.Root = [],
    weights: options.WeightPlaces = [],
    only: options.Only = "",
    force: options.Force = False,
    stale: options.OnlyStale = False,
    here: options.InProcess = False,
    address: options.Address = None,
    jobs: options.Jobs = None,
    mlflow_uri: options.MlflowUri = None,
    allow_leak: options.AllowLeak = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be trained.")] = False,
) -> None:
    """Train what is not done, then print the table.

    The same command again goes on where it was cut off.
    """
    overrides = [*set_, *([f"resources.concurrency={jobs}"] if jobs else [])]
    overview = _overview(wanted(grid, home, overrides, roots=root, weights=weights), home)
    choice = Choice(only, force=force, stale=stale)
    if dry_run:
        _plan(overview, choice, jobs=jobs)
    else:
        _train(overview, choice, here=here, address=address, mlflow_uri=mlflow_uri, allow_leak=allow_leak)


@verbs.command()
def resume(
    grid: options.GridName,
    home: options.Runs = options.RUNS,
    set_: options.Override = [],
    only: options.Only = "",
    failed: Annotated[bool, typer.Option("--failed", help="Only the trials that failed.")] = False,
    stale: options.OnlyStale = False,
    here: options.InProcess = False,
    address: options.Address = None,
    mlflow_uri: options.MlflowUri = None,
    allow_leak: options.AllowLeak = False,
) -> None:
    """Run again what failed or was cut off.

    The grid is as it was last run.
    """
    found = recall(grid, home, set_)
    if not home.grid(found.name).grid.exists():
        raise UserError(f"grid {found.name!r} never ran under {home.path}. {start(grid, home, set_)}")
    choice = Choice(only, failed=failed, stale=stale)
    overview = Overview.of(found, home)
    _train(overview, choice, here=here, address=address, mlflow_uri=mlflow_uri, allow_leak=allow_leak)


@verbs.command()
def status(
    grid: options.GridName,
    home: options.Runs = options.RUNS,
    set_: options.Override = [],
    as_json: options.Json = False,
) -> None:
    """Say what is done, running, failed, planned or stale.

    Of failures it says why, and what helps.
    """
    overview = Overview.of(recall(grid, home, set_), home)
    show_for(as_json, lambda: standing.to_dict(overview), lambda: standing.lines(overview))
    raise typer.Exit(EXIT[exit_state([overview.reached(trial) for trial in overview.trials])])


@verbs.command()
def prune(
    home: options.Runs = options.RUNS,
    done: Annotated[bool, typer.Option("--done", help="Take finished trials that no grid names, too.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Delete what lies in the trash.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    as_json: options.Json = False,
) -> None:
    """Move trials that no grid names to the trash, after asking.

    The trash is DIR/trash. What broken runs left is deleted. --json only shows.
    """
    if done and empty:
        raise UserError(
            "--done says what goes to the trash, --empty deletes what is there; give them one after the other."
        )
    found = pruning.trash(home) if empty else pruning.rubbish(home, done=done)
    show_for(as_json, found.to_dict, lambda: found.lines(home))
    if not found.items or (as_json and not yes):
        return
    if not yes and not sys.stdin.isatty():
        which = f"{' --done' * done}{' --empty' * empty}"
        raise UserError(f"nobody to ask. Look at it, then: goalgrid prune{which} --yes{runs_option(home)}")
    if yes or typer.confirm("Delete all this for good?" if empty else "Remove all this?", err=True):
        removed = pruning.remove(found, home)
        say(f"removed: {len(removed.items)} of {len(found.items)}, {pruning.size(removed.bytes)}")
        if home.trash.exists():
            say(f"trials are kept in {home.trash}; to free the disk: goalgrid prune --empty{runs_option(home)}")


@verbs.command()
def selftest(home: options.Runs = options.RUNS, address: options.Address = None) -> None:
    """Prove on this machine that kills lose nothing.

    It kills, damages and doubles a tiny grid in a folder of its own below DIR.
    """
    from runners.selftest.story import selftest as put_to_the_test

    say(f"takes about two minutes, in a folder of its own below {home.path}")
    if not show_verdicts(put_to_the_test(home.path, address), home.path):
        raise typer.Exit(EXIT[State.FAILED])


def _overview(grid: Grid, home: Home) -> Overview:
    """A grid as it stands on the disk, after a check of the tables that it names."""
    named_tables_exist(grid)
    return Overview.of(grid, home)


def _plan(overview: Overview, choice: Choice, *, jobs: int | None, each: bool = False, as_json: bool = False) -> None:
    overview.data.check(overview.selected(choice.only))
    verdicts = decide(overview, choice)
    cost = cost_of(overview, starting(verdicts), to_replace(verdicts), jobs=jobs)
    lines = partial(planning.lines, overview, verdicts, cost, each=each)
    show_for(as_json, lambda: planning.to_dict(overview, verdicts, cost), lines)


def _probe(overview: Overview, choice: Choice) -> None:
    """Measure what no finished trial tells, and what trials need of a GPU; keep it for later plans and runs."""
    from runners.launch.speed_probe import probe, probe_memory

    wanted = to_train(decide(overview, choice))
    probe_memory(overview.grid, wanted, overview.home, err)
    trials = unmeasured(overview, wanted)
    if trials:
        say(f"probing: {', '.join(trial.id for trial in trials)}")
        found = probe(overview.grid, trials, overview.home, err)
        speed_probes.remember(overview.home.grid(overview.grid.plain_name), found)


def _train(
    overview: Overview, choice: Choice, *, here: bool, address: str | None, mlflow_uri: str | None, allow_leak: bool
) -> None:
    """Train what is chosen, print the table, exit with what was reached."""
    overview.data.check(overview.selected(choice.only))
    verdicts = decide(overview, choice)
    todo, anew = to_train(verdicts), to_replace(verdicts)
    save = partial(save_grid, overview.grid, overview.trials, overview.home)
    uri = f"sqlite:///{overview.home.mlflow.absolute()}" if mlflow_uri is None else mlflow_uri
    if not todo:
        save()
        _mirror(overview, uri)
    else:
        from runners.launch.launch import Launch

        begun = f", {len(anew)} of them anew" if anew else ""
        say(f"{overview.grid.name}: {overview.headline()}; training {len(todo)}{begun}")
        live = out.is_terminal and err.is_terminal
        launch = Launch(overview.home, err, here, address, uri or None, live, allow_leak)
        launch.run(overview.grid, overview.cells, todo, anew, checked=save)
    after = Overview.of(overview.grid, overview.home)
    _finish(after)
    reached = exit_state([after.reached(verdict.trial) for verdict in verdicts])
    if any(after.states[verdict.trial.id] not in (State.DONE, State.FAILED) for verdict in verdicts):
        say(f"not complete; go on with: goalgrid resume {overview.grid.name}{runs_option(overview.home)}")
    raise typer.Exit(EXIT[reached])


def _mirror(overview: Overview, uri: str) -> None:
    """Copy finished trials into MLflow that an earlier launch could not copy."""
    from runners.watching.mlflow_mirror import Mirror, unmirrored

    home, held = overview.home, overview.home.grid(overview.grid.name).mirrored
    late = unmirrored((home.trial(trial.id) for trial in overview.trials), uri, held) if uri else []
    if late:
        say(f"{overview.grid.name}: copying {many(len(late), 'trial')} to MLflow")
        mirror = Mirror(uri, overview.grid.name, lambda message: say(f"warning: {message}"), held)
        for folder in late:
            mirror.sync(folder)
        mirror.close()


def _finish(overview: Overview) -> None:
    """Print what there is, and write the grid's results and tables; a disk that takes none costs a warning."""
    from results.export.export_folder import results
    from results.export.table_request import TableRequest
    from results.renderers import write_all

    scores = None
    if overview.counts[State.DONE]:
        scores = scores_of(overview.grid, overview.cells, overview.home)
    if scores and scores.rows:
        drawn = TableRequest(overview.grid.name).draw(overview.cells, scores)
        show_table(drawn)
        folder = overview.home.grid(overview.grid.name)
        try:
            results(scores.rows, overview.home, folder.results)
            write_all(drawn, folder.tables)
        except UserError as error:
            say(f"warning: the table is not kept: {error}")
    told = [*standing.failure_lines(overview), *standing.other_data_lines(overview)]
    say("\n".join([f"{overview.grid.name}: {overview.headline()}", *told]))
