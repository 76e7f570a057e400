"""Training, and what it leaves: plan, run, resume, slurm, status, merge, prune, selftest."""

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.filesize import decimal as size

from goalgrid.cli import options
from goalgrid.cli.console import outlive_disks, say, say_left_out, show, show_for, show_json, show_lines
from goalgrid.cli.exits import EXIT, INCOMPLETE, exit_state
from goalgrid.cli.options import argument, either, flag, runs_option
from goalgrid.grid.errors import UserError, user_path
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.store.home import Home, State
from goalgrid.grid.store.kept_launch import KeptLaunch
from goalgrid.grid.store.output_files import write_output
from goalgrid.grid.trusted_code import Untrusted
from goalgrid.launching import kept as kept_launches
from goalgrid.launching.host_needs import HostNeeds, at_work, most, needs_of_host
from goalgrid.launching.slurm import SlurmOptions, check_places, command_words, gpus_asked, script, tasks_asked
from goalgrid.launching.snapshot import taken
from goalgrid.launching.together import groups_of
from goalgrid.planning.decisions import Choice
from goalgrid.planning.estimate import GpuMachine
from goalgrid.planning.plan import Plan
from goalgrid.runners.gpu.cards import card
from goalgrid.runners.launch import LaunchOptions
from goalgrid.state import merge as merging
from goalgrid.state import named_grids, slurm_jobs
from goalgrid.state import prune as pruning
from goalgrid.state import status as standing
from goalgrid.state.grid_state import GridState
from goalgrid.state.named_grids import start
from goalgrid.state.papers import filled_line, sources

verbs = typer.Typer()


@verbs.command()
def plan(
    grids: list[str] = options.OPTIONAL_GRIDS,
    paper: str | None = options.PAPER,
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    root: list[str] = options.ROOT,
    weights: list[str] = options.WEIGHTS,
    only: list[str] = options.ONLY,
    force: bool = options.FORCE,
    stale: bool = options.STALE,
    jobs: int | None = options.JOBS,
    allow_leak: bool = options.ALLOW_LEAK,
    probe: bool = flag(False, "--probe", "Train a few steps of each recipe first, to measure its cost."),
    device: str = flag("", "--device", "Estimate memory and hours on a GPU you do not have, e.g. h100, 24GB.", "GPU"),
    hourly: float | None = flag(
        None, "--hourly", "Price of one GPU-hour; adds the cost of the grid.", "PRICE", min=0.0
    ),
    cores: int | None = flag(
        None, "--cores", "CPU cores of the machine with that GPU, for decoding images.", "N", min=1
    ),
    gpus: int | None = flag(
        None,
        "--gpus",
        "Number of GPUs in that machine; adds how many will be busy, and a wall-clock estimate.",
        "N",
        min=1,
    ),
    nodes: int | None = flag(None, "--nodes", "Number of such machines.", "N", min=1),
    trials: bool = flag(False, "--trials", "Print a line for each trial: why it would be trained, or not."),
    as_json: bool = options.JSON,
) -> None:
    """Show what a run would train, why, and what it would cost.

    It trains nothing, except a few steps with --probe.
    """
    if not device and (hourly is not None or cores or gpus or nodes):
        raise UserError(
            "--hourly, --cores, --gpus and --nodes are of a machine with a GPU: say which, e.g. --device h100."
        )
    rented = (
        GpuMachine(card(device), hourly, gpus or (1 if cores or nodes else 0), cores, nodes or 1) if device else None
    )
    chosen = named_grids.grids_to_train(sources(grids, paper, home), home, set_, roots=root, weights=weights)
    filtered = either(only)
    choice = Choice(filtered, force=force, stale=stale)
    if probe:
        from goalgrid.launching.training import measure

        for grid in chosen:
            measure(GridState.of(grid, home), choice)
    of = partial(Plan.of, choice=choice, jobs=jobs, rented=rented, allow_leak=allow_leak)
    chosen = named_grids.of_filter(chosen, home, filtered)
    _show_each(chosen, home, lambda seen: of(seen).to_dict(), lambda seen: of(seen).lines(per_trial=trials), as_json)
    if paper and not as_json:
        show(filled_line(paper, home))


@verbs.command()
@options.options_of(LaunchOptions, before="jobs")
def run(
    grids: list[str] = options.OPTIONAL_GRIDS,
    paper: str | None = options.PAPER,
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    root: list[str] = options.ROOT,
    weights: list[str] = options.WEIGHTS,
    only: list[str] = options.ONLY,
    force: bool = options.FORCE,
    stale: bool = options.STALE,
    launch_folders: list[Path] = flag(
        [], "--launch", "Train the grid that this launch keeps, instead of GRID: docs/clusters.md.", "DIR"
    ),
    jobs: int | None = options.JOBS,
    dry_run: bool = flag(False, "--dry-run", "Dry run: same as goalgrid plan."),
    **options: Any,
) -> None:
    """Train all unfinished trials, then print the table.

    Run it again to continue where it was cut off. Several grids train together where they agree.
    """
    overrides, launches = [*set_, *([f"resources.concurrency={jobs}"] if jobs else [])], dict[str, KeptLaunch]()
    if launch_folders:
        if given := [*grids, *([paper] if paper else []), *set_]:
            raise UserError(f"--launch has its grid and its settings; leave out {given[0]!r}.")
        chosen, launches = kept_launches.read(map(user_path, launch_folders), overrides, roots=root, weights=weights)
    else:
        chosen = named_grids.grids_to_train(sources(grids, paper, home), home, overrides, roots=root, weights=weights)
    filtered = either(only)
    choice, launch = Choice(filtered, force=force, stale=stale), LaunchOptions(**options, launches=launches)
    if dry_run:
        of = partial(Plan.of, choice=choice, jobs=jobs, allow_leak=launch.allow_leak)
        _show_each(
            named_grids.of_filter(chosen, home, filtered), home, GridState.to_dict, lambda seen: of(seen).lines()
        )
    else:
        _train(chosen, home, choice, launch, paper)


@verbs.command()
@options.options_of(LaunchOptions, before="stale")
def resume(
    grids: list[str] = options.GRIDS,
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    only: list[str] = options.ONLY,
    failed: bool = flag(False, "--failed", "Only the trials that failed."),
    stale: bool = options.STALE,
    **options: Any,
) -> None:
    """Train what failed, was cut off or never ran.

    The grid stays as it was last run; --set names the overrides that it ran with.
    """
    chosen = named_grids.as_last_run(grids, home, set_, ran=True)
    for grid in chosen:
        if not home.grid(grid.name).grid.exists():
            source = grids[0] if len(chosen) == 1 else grid.plain_name
            anew = start(source, home, set_, verb="resume")
            raise UserError(f"grid {grid.name!r} never ran under {home.path}. {anew}")
    _train(chosen, home, Choice(either(only), failed=failed, stale=stale), LaunchOptions(**options))


@verbs.command()
@options.options_of(SlurmOptions, before="sbatch")
def slurm(
    grids: list[str] = options.OPTIONAL_GRIDS,
    paper: str | None = options.PAPER,
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    root: list[str] = options.ROOT,
    weights: list[str] = options.WEIGHTS,
    only: list[str] = options.ONLY,
    force: bool = options.FORCE,
    stale: bool = options.STALE,
    jobs: int | None = options.JOBS,
    sbatch: list[str] = flag([], "--sbatch", "An option of sbatch, e.g. partition=gpu.", "NAME=VALUE"),
    output: Path | None = flag(None, "--output -o", "Write to this file.", "FILE", parser=user_path),
    submit: bool = flag(False, "--submit", "Submit the script; `goalgrid status` then shows its jobs."),
    snapshot: bool | None = flag(
        None, "--snapshot/--no-snapshot", "Keep the code of this checkout for the jobs (default with --submit)."
    ),
    **options: Any,
) -> None:
    """Write a batch script for Slurm that trains grids.

    The job queues itself again until the grids are done.
    """
    grids, limit = sources(grids, paper, home), [f"resources.concurrency={jobs}"] if jobs else []
    load = partial(named_grids.grids_to_train, grids, home, roots=root, weights=weights)
    filtered = either(only)
    chosen = named_grids.of_filter(load([*set_, *limit]), home, filtered)
    for grid in chosen:
        grid_state = GridState.of(grid, home)  # else the job would be the first to tell
        for reason in check_places(grid_state, grid_state.selected(filtered)):
            say(f"note: {reason}")
    asked = SlurmOptions(**options)
    if asked.hourly is not None and not asked.device:
        raise UserError("--hourly is of a GPU: say which, e.g. --device h100.")
    gpus, tasks = gpus_asked(chosen, asked, sbatch), tasks_asked(asked, sbatch)
    choice = Choice(filtered, force=force, stale=stale)
    hosts = asked.nodes * tasks

    def needs_of(grids: Iterable[Grid]) -> list[HostNeeds]:
        needs, before = list[HostNeeds](), set[str]()
        for grid_state in (GridState.of(grid, home) for grid in grids):
            needs.append(needs_of_host(grid_state, choice, asked.device, gpus, hosts, asked.hourly, without=before))
            before |= grid_state.states.keys()
        return needs

    needs = needs_of(chosen)
    if any(most(needs).cpus > grid.resources.cpus for grid in chosen):
        set_ = [*set_, f"resources.cpu={most(needs).cpus}"]
        chosen = named_grids.of_filter(load([*set_, *limit]), home, filtered)
        needs = needs_of(chosen) if asked.device else needs  # the time is that with these CPUs
    for note in dict.fromkeys(need.note for need in needs if need.note):
        say(f"note: {note}")
    of_grids = dict(zip((grid.name for grid in chosen), needs, strict=True))
    for group in groups_of(chosen):
        for line in at_work([of_grids[grid.name] for grid in group.grids], tasks):
            say(f"{group.name}: {line}")
    archive = taken(asked=bool(snapshot)) if snapshot or (submit and snapshot is None) else b""
    folders = [home.grid(grid.name) for grid in chosen]
    launches = [kept_launches.of(GridState.of(grid, home), archive) for grid in chosen]
    places = [folder.launch(launch.id) for folder, launch in zip(folders, launches, strict=True)]
    words = command_words(places, chosen, home, filtered, ["--stale"] * stale)
    snapped = (places[0].snapshot.absolute(), launches[0].snapshot) if archive else None
    text = script(chosen, words, asked, gpus, most(needs), sbatch, force=force, snapshot=snapped)
    for place, launch in zip(places, launches, strict=True):
        launch.write(place, archive)
    if submit:
        output = output or folders[0].path / "job.sh"
    if output is None:
        show(text.rstrip("\n"))
        return
    write_output(output, text.encode())
    if submit:
        say(f"submitted as job {slurm_jobs.submit(output, folders)}: {output}")
        for grid, launch in zip(chosen, launches, strict=True):
            kept_launches.save_new(GridState.of(grid, home), launch)
    else:
        say(f"written: {output}. Submit it: sbatch {shlex.quote(str(output))}")


@verbs.command()
def status(
    grids: list[str] = options.OPTIONAL_GRIDS,
    paper: str | None = options.PAPER,
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    as_json: bool = options.JSON,
) -> None:
    """Show the state of every trial, and how to fix failures.

    Without GRID, list the grids that ran.
    """
    if not grids and paper is None:
        show_for(as_json, lambda: standing.states_of(home), lambda: standing.grid_lines(home))
        return
    grids = sources(grids, paper, home)
    try:
        chosen = named_grids.as_last_run(grids, home, set_)
    except Untrusted:
        show_lines([] if as_json else standing.by_ids(grids, home))
        raise
    grid_states = _show_each(chosen, home, standing.to_dict, standing.lines, as_json)
    states = [grid_state.reached(trial) for grid_state in grid_states for trial in grid_state.trials]
    raise typer.Exit(EXIT[exit_state(states)])


@verbs.command()
def merge(
    other: Path = argument(..., "OTHER_RUNS", "The runs folder to take trials from."),
    home: Home = options.RUNS,
    grid: str | None = flag(None, "--grid", "Only the trials of this grid; default: of all grids there.", "GRID"),
    root: list[str] = options.ROOT,
    stale: bool = flag(False, "--stale", "Take trials that other code trained, too; tables then say so."),
    dry_run: bool = flag(False, "--dry-run", "Dry run: show what would be taken."),
    as_json: bool = options.JSON,
) -> None:
    """Take finished trials from another runs folder.

    Each is verified; trials of other data or code are refused, and no trial that is done here is replaced. A grid with
    `uses` is a program: it is left out unless you named its files yourself, or --trust-code is given.
    """
    there, outcomes, lines, reasons = Home(user_path(other)), [], [], list[str]()
    for grid_there in merging.grids_of(there, home, grid, root, reasons.append):
        merged = merging.merge(grid_there, there, home, stale=stale, take=not dry_run)
        outcomes += merged
        lines += merging.lines(grid_there, merged, there, home, took=not dry_run)
    show_for(as_json, lambda: outcomes, lambda: lines)
    for reason in reasons:
        say_left_out(reason)
    if reasons or any(entry.outcome in ("refused", "kept") for entry in outcomes):
        raise typer.Exit(INCOMPLETE)


@verbs.command()
def prune(
    home: Home = options.RUNS,
    done: bool = flag(False, "--done", "Also move finished trials that belong to no grid."),
    empty: bool = flag(False, "--empty", "Delete the trash for good."),
    yes: bool = flag(False, "--yes -y", "Do not ask for confirmation."),
    as_json: bool = options.JSON,
) -> None:
    """Move trials that belong to no grid to the trash (asks first).

    The trash is DIR/trash. Half-written files of broken runs are deleted. --json only shows what would go.
    """
    if done and empty:
        raise UserError("--done fills the trash, --empty deletes what is there; give them one after the other.")
    rubbish = pruning.trash(home) if empty else pruning.rubbish(home, done=done)
    show_for(as_json, rubbish.to_dict, lambda: rubbish.lines(home))
    if not rubbish.items or (as_json and not yes):
        return
    if not yes and not sys.stdin.isatty():
        which = f"{' --done' * done}{' --empty' * empty}"
        confirm = f"goalgrid prune{which} --yes{runs_option(home)}"
        raise UserError(f"stdin is not a terminal, so prune cannot ask for confirmation. To confirm: {confirm}")
    if yes or typer.confirm("Delete all this for good?" if empty else "Remove all this?", err=True):
        removed = pruning.remove(rubbish, home)
        say(f"removed: {len(removed.items)} of {len(rubbish.items)}, {size(removed.bytes)}")
        if home.trash.exists():
            say(f"trials are kept in {home.trash}; to free the disk: goalgrid prune --empty{runs_option(home)}")


@verbs.command()
def selftest(home: Home = options.RUNS, address: str | None = options.ADDRESS) -> None:
    """Verify on this machine that killed trials resume without loss.

    It kills a worker of a tiny grid, in a folder of its own below DIR.
    """
    from goalgrid.runners.selftest import story

    say(f"takes a minute or two, in a folder of its own below {home.path}")
    try:
        for claim in story.selftest(home.path, address):
            show(f"ok      {claim}")
    except story.Unmet as unmet:
        show(f"FAILED  {unmet}")
        raise typer.Exit(EXIT[State.FAILED]) from None
    show(f"goalgrid can be trusted with {home.path}: nothing was lost, and nothing was trained twice")


def _show_each(
    grids: Sequence[Grid],
    home: Home,
    to_dict: Callable[[GridState], Any],
    lines: Callable[[GridState], Iterable[str]],
    as_json: bool = False,
) -> list[GridState]:
    """Show one grid after the other: the grids may use files of the user's own with equal names."""
    contents, grid_states = dict[str, Any](), list[GridState]()
    for grid in grids:
        grid_states.append(GridState.of(grid, home))
        if as_json:
            contents[grid.name] = to_dict(grid_states[-1])
        else:
            show_lines(lines(grid_states[-1]))
    if as_json:
        show_json(next(iter(contents.values())) if len(contents) == 1 else contents)
    else:
        show_lines(named_grids.together(grid_states))
    return grid_states


def _train(grids: Sequence[Grid], home: Home, choice: Choice, launch: LaunchOptions, paper: str | None = None) -> None:
    from goalgrid.launching.training import train_all

    outlive_disks()
    raise typer.Exit(EXIT[train_all(grids, home, choice, launch, paper)])
