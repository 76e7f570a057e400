"""Training: plan, run, resume, status, prune, selftest."""

import sys
from functools import partial
from typing import Annotated

import typer

from goalgrid.planning import prune as pruning
from goalgrid.planning.costs import unmeasured
from goalgrid.planning.decisions import Choice, decide, to_train
from goalgrid.planning.overview import Overview, named_tables_exist, recall, wanted
from goalgrid.planning.plan import Plan
from goalgrid.planning.training import train
from goalgrid.showing import status as standing
from goalgrid.showing.tables import kept, start
from goalgrid.terminal import EXIT, exit_state, options
from goalgrid.terminal.options import runs_option
from goalgrid.terminal.views import err, say, show_for, show_table, show_verdicts
from grid.errors import UserError
from grid.gridfile import Grid
from grid.store import speed_probes
from grid.store.home import Home, State
from runners.watching.notify import Notify

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
    _show_plan(overview, choice, jobs, each=trials, program=as_json)


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
    notify: options.NotifyCommand = "",
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
        _show_plan(overview, choice, jobs)
    else:
        _train(
            overview, choice, here=here, address=address, mlflow_uri=mlflow_uri, notify=notify, allow_leak=allow_leak
        )


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
    notify: options.NotifyCommand = "",
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
    _train(overview, choice, here=here, address=address, mlflow_uri=mlflow_uri, notify=notify, allow_leak=allow_leak)


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


def _show_plan(
    overview: Overview, choice: Choice, jobs: int | None, *, each: bool = False, program: bool = False
) -> None:
    found = Plan.of(overview, choice, jobs=jobs)
    show_for(program, found.to_dict, partial(found.lines, each=each))


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
    overview: Overview,
    choice: Choice,
    *,
    here: bool,
    address: str | None,
    mlflow_uri: str | None,
    notify: str,
    allow_leak: bool,
) -> None:
    """Train what is chosen, print the table, exit with what was reached."""
    name, home = overview.grid.name, overview.home
    notified = Notify(notify, name, lambda message: say(f"warning: {message}"))
    try:
        decisions = train(
            overview, choice, here=here, address=address, mlflow_uri=mlflow_uri, notify=notified, allow_leak=allow_leak
        )
    except UserError as error:
        notified.ended("error", str(error), Overview.of(overview.grid, home).sums())
        raise
    after = Overview.of(overview.grid, home)
    if drawn := kept(after):
        show_table(drawn)
    say("\n".join(standing.ended(after)))
    if any(after.states[decision.trial.id] not in (State.DONE, State.FAILED) for decision in decisions):
        say(f"not complete; go on with: goalgrid resume {name}{runs_option(home)}")
    reached = exit_state([after.reached(decision.trial) for decision in decisions])
    word = "incomplete" if reached is State.INTERRUPTED else reached.value
    notified.ended(word, f"{name}: {after.headline()}", after.sums())
    raise typer.Exit(EXIT[reached])
