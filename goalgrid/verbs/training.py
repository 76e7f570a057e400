"""Training: plan, run, resume, slurm, status, prune, selftest."""

import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store import speed_probes
from goalgrid.grid.store.files import write_text
from goalgrid.grid.store.home import Home, State
from goalgrid.grid.trusted_code import Untrusted
from goalgrid.housekeeping import prune as pruning
from goalgrid.launching.slurm import BatchJob, option_words
from goalgrid.launching.training import LaunchResult, train
from goalgrid.plan.costs import unmeasured
from goalgrid.plan.decisions import Choice, decide, to_train
from goalgrid.plan.plan import Plan
from goalgrid.reading import named_grids
from goalgrid.reading import status as standing
from goalgrid.reading.named_grids import named_tables_exist, start, wanted
from goalgrid.reading.overview import Overview
from goalgrid.runners.gpu.cards import card
from goalgrid.runners.watching.notify import Notify
from goalgrid.showing.tables import kept
from goalgrid.terminal import EXIT, exit_state, options
from goalgrid.terminal.options import runs_option
from goalgrid.terminal.streams import outlive_disks
from goalgrid.terminal.views import err, say, show, show_for, show_json, show_lines, show_table, show_verdicts

verbs = typer.Typer()


@verbs.command()
def plan(
    grids: options.GridNames,
    home: options.Runs = options.RUNS,
    set_: options.Override = [],
    root: options.Root = [],
    weights: options.WeightPlaces = [],
    only: options.Only = "",
    force: options.Force = False,
    stale: options.OnlyStale = False,
    jobs: options.Jobs = None,
    allow_leak: options.AllowLeak = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Train a few steps of each recipe first, to measure what they cost.")
    ] = False,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="GPU",
            help="Memory and hours on a GPU that need not be here, e.g. h100, a100-40, 24GB.",
        ),
    ] = "",
    hourly: Annotated[
        float | None,
        typer.Option(
            "--hourly",
            metavar="PRICE",
            min=0.0,
            help="The price of an hour on that GPU; the plan then says what the grid costs.",
        ),
    ] = None,
    trials: Annotated[
        bool, typer.Option("--trials", help="Print a line for each trial: why it would be trained, or not.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Count trials, say why each would be trained, and the cost.

    It trains nothing, except with --probe a few steps.
    """
    if hourly is not None and not device:
        raise UserError("--hourly is the price of an hour on a GPU: say which, e.g. --device h100.")
    asked = card(device) if device else None
    found = named_grids.to_train(grids, home, set_, roots=root, weights=weights)
    choice = Choice(only, force=force, stale=stale)
    for grid in found if probe else ():
        _probe(Overview.of(grid, home), choice)
    of = partial(Plan.of, choice=choice, jobs=jobs, card=asked, hourly=hourly, allow_leak=allow_leak)
    found = named_grids.of_filter(found, home, only)
    _show_plans(found, home, of, each=trials, program=as_json)


@verbs.command()
def run(
    grids: options.GridNames,
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

    The same command again goes on where it was cut off. Several grids are trained one after the other.
    """
    overrides = [*set_, *([f"resources.concurrency={jobs}"] if jobs else [])]
    found = named_grids.to_train(grids, home, overrides, roots=root, weights=weights)
    choice = Choice(only, force=force, stale=stale)
    if dry_run:
        found = named_grids.of_filter(found, home, only)
        _show_plans(found, home, partial(Plan.of, choice=choice, jobs=jobs, allow_leak=allow_leak))
    else:
        _train(
            found, home, choice, here=here, address=address, mlflow_uri=mlflow_uri, notify=notify, allow_leak=allow_leak
        )


@verbs.command()
def resume(
    grids: options.GridNames,
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

    The grid stays as it was last run; --set names the overrides that it ran with.
    """
    found = named_grids.as_last_run(grids, home, set_, ran=True)
    for grid in found:
        if not home.grid(grid.name).grid.exists():
            source = grids[0] if len(found) == 1 else grid.plain_name
            raise UserError(f"grid {grid.name!r} never ran under {home.path}. {start(source, home, set_)}")
    choice = Choice(only, failed=failed, stale=stale)
    _train(found, home, choice, here=here, address=address, mlflow_uri=mlflow_uri, notify=notify, allow_leak=allow_leak)


@verbs.command()
def slurm(
    grid: options.GridName,
    home: options.Runs = options.RUNS,
    set_: options.Override = [],
    root: options.Root = [],
    weights: options.WeightPlaces = [],
    only: options.Only = "",
    time: Annotated[
        str, typer.Option("--time", metavar="H:M:S", help="Time limit of a job; after it, the job queues again.")
    ] = ("24:00:00"),
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Hosts that train together, connected by Ray.")] = 1,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=0, help="GPUs of each host; 0: a cluster without. Default: of one job.")
    ] = None,
    sbatch: Annotated[
        list[str], typer.Option("--sbatch", metavar="NAME=VALUE", help="An option of sbatch, e.g. partition=gpu.")
    ] = [],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of the screen.")] = None,
) -> None:
    """Write a batch script for Slurm that trains a grid.

    The job queues itself again until the grid is done.
    """
    found = wanted(grid, home, set_, roots=root, weights=weights)
    named_tables_exist(found)
    source = str(Path(grid).absolute()) if grid.endswith(".toml") else grid
    runs = str(home.path.absolute())
    words = [source, "--runs", runs, *option_words({"--set": set_, "--root": root, "--weights": weights})]
    words += ["--only", only] if only else []
    if found.uses and not grid.endswith(".toml"):
        words.append("--trust-code")  # where the job runs, this user may have another home
    script = BatchJob(found, words, Path.cwd(), time, nodes, gpus, sbatch).script()
    if output is None:
        show(script.rstrip("\n"))
    else:
        write_text(output, script)
        say(f"written: {output}. Submit it: sbatch {shlex.quote(str(output))}")


@verbs.command()
def status(
    grids: options.GridNames,
    home: options.Runs = options.RUNS,
    set_: options.Override = [],
    as_json: options.Json = False,
) -> None:
    """Say what is done, running, failed, planned or stale.

    Of failures it says why, and what helps.
    """
    contents, states, overviews = dict[str, Any](), list[State](), list[Overview]()
    try:
        found = named_grids.as_last_run(grids, home, set_)
    except Untrusted:
        show_lines([] if as_json else standing.by_ids(grids, home))
        raise
    for grid in found:
        overview = Overview.of(grid, home)
        if as_json:
            contents[grid.name] = standing.to_dict(overview)
        else:
            show_lines(standing.lines(overview))
        states += [overview.reached(trial) for trial in overview.trials]
        overviews.append(overview)
    _end(contents, overviews)
    raise typer.Exit(EXIT[exit_state(states)])


@verbs.command()
def prune(
    home: options.Runs = options.RUNS,
    done: Annotated[bool, typer.Option("--done", help="Move finished trials that no grid names, too.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Delete for good what lies in the trash.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")] = False,
    as_json: options.Json = False,
) -> None:
    """Move trials that no grid names to the trash, after asking.

    The trash is DIR/trash. Half-written files of broken runs are deleted. --json only shows what would go.
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
    from goalgrid.runners.selftest.story import selftest as put_to_the_test

    say(f"takes about two minutes, in a folder of its own below {home.path}")
    if not show_verdicts(put_to_the_test(home.path, address), home.path):
        raise typer.Exit(EXIT[State.FAILED])


def _show_plans(
    grids: Sequence[Grid], home: Home, of: Callable[[Overview], Plan], *, each: bool = False, program: bool = False
) -> None:
    """Show the plan of each grid, one after the other: the grids may use files of the user's own with equal names."""
    contents, overviews = dict[str, Any](), list[Overview]()
    for grid in grids:
        overview = Overview.of(grid, home)
        found = of(overview)
        if program:
            contents[grid.name] = found.to_dict()
        else:
            show_lines(found.lines(each=each))
        overviews.append(overview)
    _end(contents, overviews)


def _end(contents: dict[str, Any], overviews: Sequence[Overview]) -> None:
    """Print the JSON of a single grid, or of several by name; or, for a reader, a line about several grids together."""
    if contents:
        show_json(next(iter(contents.values())) if len(contents) == 1 else contents)
    else:
        show_lines(named_grids.together(overviews))


def _probe(overview: Overview, choice: Choice) -> None:
    """Measure what no finished trial tells, and what trials need of a GPU; keep it for later plans and runs."""
    from goalgrid.runners.launch.speed_probe import probe, probe_memory

    wanted = to_train(decide(overview, choice))
    probe_memory(overview.grid, wanted, overview.home, err)
    trials = unmeasured(overview, wanted)
    if trials:
        say(f"probing: {', '.join(trial.id for trial in trials)}")
        found = probe(overview.grid, trials, overview.home, err)
        speed_probes.remember(overview.home.grid(overview.grid.plain_name), found)


def _train(
    grids: Sequence[Grid],
    home: Home,
    choice: Choice,
    *,
    here: bool,
    address: str | None,
    mlflow_uri: str | None,
    notify: str,
    allow_leak: bool,
) -> None:
    """Train what is chosen, grid after grid, print their tables, and exit with what was reached."""
    outlive_disks()
    grids = named_grids.of_filter(grids, home, choice.only)
    states = list[State]()
    for grid in grids:
        notified = Notify(notify, grid.name, lambda message: say(f"warning: {message}"))
        try:
            launched = train(
                Overview.of(grid, home),
                choice,
                here=here,
                address=address,
                mlflow_uri=mlflow_uri,
                notify=notified,
                allow_leak=allow_leak,
            )
        except UserError as error:
            notified.ended("error", str(error), Overview.of(grid, home).sums())
            raise
        states += _ended(Overview.of(grid, home), launched, notified)
        if launched.interrupted and grid is not grids[-1]:
            rest = [other.name for other in grids[grids.index(grid) + 1 :]]
            say(f"not begun: {', '.join(rest)}; the same command again goes on")
            states.append(State.INTERRUPTED)
            break
    raise typer.Exit(EXIT[exit_state(states)])


def _ended(after: Overview, launched: LaunchResult, notified: Notify) -> list[State]:
    """Show how a grid's launch ended, as the disk tells; returns the states that its trials reached."""
    if drawn := kept(after):
        show_table(drawn)
    say("\n".join(standing.ended(after)))
    trials = [decision.trial for decision in launched.decisions]
    if any(after.states[trial.id] not in (State.DONE, State.FAILED) for trial in trials):
        say(f"not complete; go on with: goalgrid resume {after.grid.name}{runs_option(after.home)}")
    reached = [after.reached(trial) for trial in trials]
    word = exit_state(reached)
    told = word.value if word in (State.DONE, State.FAILED) else "incomplete"
    notified.ended(told, f"{after.grid.name}: {after.headline()}", after.sums())
    return reached
