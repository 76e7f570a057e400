"""Verbs that train trials or manage their folders: plan, run, resume, slurm, status, merge, prune, selftest."""

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.filesize import decimal as size

from goalgrid.cli import options
from goalgrid.cli.console import outlive_disks, say, show, show_for, show_json, show_lines, show_notes, show_table
from goalgrid.cli.exits import EXIT, INCOMPLETE
from goalgrid.cli.fairness import exit_code
from goalgrid.cli.next_steps import shell, worded
from goalgrid.cli.options import argument, either, flag
from goalgrid.grid.errors import UserError, user_path
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.messages import Note, Step, leave_out
from goalgrid.grid.store.home import Home, State
from goalgrid.grid.store.kept_launch import KeptLaunch
from goalgrid.grid.store.output_files import write_output
from goalgrid.grid.trusted_code import Untrusted
from goalgrid.launching import kept as kept_launches
from goalgrid.launching.slurm import SlurmOptions
from goalgrid.planning.decisions import Choice
from goalgrid.planning.machine_use import GpuMachine
from goalgrid.planning.plan import Plan
from goalgrid.runners.gpu.cards import card
from goalgrid.runners.launch import LaunchOptions
from goalgrid.state import merge as merging
from goalgrid.state import named_grids, status_lines
from goalgrid.state import prune as pruning
from goalgrid.state import status as standing
from goalgrid.state.grid_state import GridState, overall
from goalgrid.state.named_grids import start
from goalgrid.state.papers import filled_line, sources

if TYPE_CHECKING:
    from goalgrid.launching.training import GridEnd

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
    probe: bool = flag(False, "--probe", "Train each recipe for a few steps first, to measure its cost."),
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
        "Number of GPUs in that machine; adds a wall-clock estimate and how many GPUs will be busy.",
        "N",
        min=1,
    ),
    nodes: int | None = flag(None, "--nodes", "Number of such machines.", "N", min=1),
    trials: bool = flag(False, "--trials", "Print one line per trial: whether it would be trained, and why."),
    as_json: bool = options.JSON,
) -> None:
    """Show what a run would train, why, and what it would cost.

    It trains nothing, except a few steps with --probe.
    """
    if not device and (hourly is not None or cores or gpus or nodes):
        raise UserError(
            "--hourly, --cores, --gpus and --nodes describe a GPU machine: also name its GPU, e.g. --device h100."
        )
    rented = (
        GpuMachine(card(device), hourly, gpus or (1 if cores or nodes else 0), cores, nodes or 1) if device else None
    )
    chosen = named_grids.grids_to_train(sources(grids, paper, home), home, set_, roots=root, weights=weights)
    filtered = either(only)
    choice = Choice(filtered, force=force, stale=stale)
    if probe:
        from goalgrid.cli.terminal_view import TerminalView
        from goalgrid.launching.training import measure

        for grid in chosen:
            measure(GridState.of(grid, home), choice, TerminalView())
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
        [], "--launch", "Instead of GRID: train the grid saved in this launch folder (docs/clusters.md).", "DIR"
    ),
    jobs: int | None = options.JOBS,
    dry_run: bool = flag(False, "--dry-run", "Dry run: same as goalgrid plan."),
    **options: Any,
) -> None:
    """Train all unfinished trials, then print the table.

    If it is interrupted, run it again to continue. Several grids with compatible settings train together.
    """
    overrides, launches = [*set_, *_concurrency(jobs)], dict[str, KeptLaunch]()
    if launch_folders:
        if given := [*grids, *([paper] if paper else []), *set_]:
            raise UserError(f"--launch already determines the grid and its settings; leave out {given[0]!r}.")
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
    """Train all trials that failed, were interrupted or never ran.

    The grid is used as it was last run, even if its file has changed; --set selects the overrides it ran with.
    """
    chosen = named_grids.as_last_run(grids, home, set_, ran=True)
    for grid in chosen:
        if not home.grid(grid.name).grid.exists():
            source = grids[0] if len(chosen) == 1 else grid.plain_name
            helps = start(source, home, set_, verb="resume")
            raise UserError(f"grid {grid.name!r} has never run under {home.path}. {helps.text}", helps.step)
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
        None, "--snapshot/--no-snapshot", "Save a copy of this checkout's code for the jobs (default with --submit)."
    ),
    **options: Any,
) -> None:
    """Write a Slurm batch script that trains grids.

    The job requeues itself until the grids are done.
    """
    from goalgrid.launching.slurm_job import JobRequest, prepare

    overrides, choice = [*set_, *_concurrency(jobs)], Choice(either(only), force=force, stale=stale)
    named = sources(grids, paper, home)
    asked = JobRequest(named, overrides, root, weights, choice, SlurmOptions(**options), sbatch, submit, snapshot)
    job = prepare(asked, home)
    if submit:
        output = output or job.default_path
        say(f"submitted as job {job.submit(output)}: {output}")
    elif output is None:
        show(job.script.rstrip("\n"))
    else:
        write_output(output, job.script.encode())
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

    Without GRID, list all grids that have run.
    """
    if not grids and paper is None:
        show_for(as_json, lambda: standing.states_of(home), lambda: map(worded, status_lines.grid_lines(home)))
        return
    grids = sources(grids, paper, home)
    try:
        chosen = named_grids.as_last_run(grids, home, set_)
    except Untrusted:
        show_lines([] if as_json else status_lines.by_ids(grids, home))
        raise
    grid_states = _show_each(chosen, home, partial(standing.to_dict, wording=shell), status_lines.lines, as_json)
    states = [grid_state.reached(trial) for grid_state in grid_states for trial in grid_state.trials]
    raise typer.Exit(EXIT[overall(states)])


@verbs.command()
def merge(
    other: Path = argument(..., "OTHER_RUNS", "Runs folder to take trials from."),
    home: Home = options.RUNS,
    grid: str | None = flag(None, "--grid", "Only the trials of this grid; default: all grids in that folder.", "GRID"),
    root: list[str] = options.ROOT,
    stale: bool = flag(False, "--stale", "Also take trials that were trained with different code; tables then say so."),
    dry_run: bool = flag(False, "--dry-run", "Dry run: show what would be taken."),
    as_json: bool = options.JSON,
) -> None:
    """Take finished trials from another runs folder.

    Each trial is verified: trials of different data or code are refused, and finished trials here are never replaced.
    A grid with `uses` runs Python code: it is skipped unless you have approved its files, or pass --trust-code.
    """
    there, outcomes, lines, reasons = Home(user_path(other)), [], [], list[str]()
    for grid_there in merging.grids_of(there, home, grid, root, reasons.append):
        merged = merging.merge(grid_there, there, home, stale=stale, take=not dry_run)
        outcomes += merged
        lines += merging.lines(grid_there, merged, there, home, took=not dry_run)
    show_for(as_json, lambda: outcomes, lambda: lines)
    for reason in reasons:
        leave_out(reason)
    if reasons or any(entry.outcome in ("refused", "kept") for entry in outcomes):
        raise typer.Exit(INCOMPLETE)


@verbs.command()
def prune(
    home: Home = options.RUNS,
    done: bool = flag(False, "--done", "Also move finished trials that belong to no grid."),
    empty: bool = flag(False, "--empty", "Empty the trash: delete its contents permanently."),
    yes: bool = flag(False, "--yes -y", "Do not ask for confirmation."),
    as_json: bool = options.JSON,
) -> None:
    """Move trials that belong to no grid to the trash (asks first).

    The trash is DIR/trash. Partially written files of crashed runs are deleted. --json only shows what would be moved.
    """
    if done and empty:
        raise UserError("--done moves trials to the trash and --empty deletes the trash; run prune once with each.")
    rubbish = pruning.trash(home) if empty else pruning.rubbish(home, done=done)
    show_for(as_json, rubbish.to_dict, lambda: map(worded, rubbish.lines(home)))
    if not rubbish.items or (as_json and not yes):
        return
    if not yes and not sys.stdin.isatty():
        confirm = Step.of("prune", done=done, empty=empty, yes=True, runs=home.path)
        raise UserError("stdin is not a terminal, so prune cannot ask for confirmation. To confirm: {step}", confirm)
    if yes or typer.confirm("Delete all this for good?" if empty else "Remove all this?", err=True):
        removed = pruning.remove(rubbish, home)
        say(f"removed: {len(removed.items)} of {len(rubbish.items)}, {size(removed.bytes)}")
        if home.trash.exists():
            empty_it = shell(Step.of("prune", empty=True, runs=home.path))
            say(f"trials were moved to {home.trash}; to free the disk space: {empty_it}")


@verbs.command()
def selftest(home: Home = options.RUNS, address: str | None = options.ADDRESS) -> None:
    """Verify on this machine that killed trials resume without loss.

    It kills a worker while a tiny grid trains, in a separate folder below DIR.
    """
    from goalgrid.runners.selftest import story

    say(f"this takes a minute or two, in a separate folder below {home.path}")
    try:
        for claim in story.selftest(home.path, address):
            show(f"ok      {claim}")
    except story.Unmet as unmet:
        show(f"FAILED  {unmet}")
        raise typer.Exit(EXIT[State.FAILED]) from None
    show(f"goalgrid can be trusted with {home.path}: nothing was lost, and nothing was trained twice")


def _concurrency(jobs: int | None) -> list[str]:
    """Return the override that sets how many trials train concurrently; empty if `jobs` is None."""
    return [f"resources.concurrency={jobs}"] if jobs else []


def _show_each(
    grids: Sequence[Grid],
    home: Home,
    to_dict: Callable[[GridState], Any],
    lines: Callable[[GridState], Iterable[Note]],
    as_json: bool = False,
) -> list[GridState]:
    """Show the grids one after another, since they may use different user files of the same name."""
    contents, grid_states = dict[str, Any](), list[GridState]()
    for grid in grids:
        grid_states.append(GridState.of(grid, home))
        if as_json:
            contents[grid.name] = to_dict(grid_states[-1])
        else:
            show_notes(lines(grid_states[-1]))
    if as_json:
        show_json(next(iter(contents.values())) if len(contents) == 1 else contents)
    else:
        show_lines(named_grids.together(grid_states))
    return grid_states


def _train(grids: Sequence[Grid], home: Home, choice: Choice, launch: LaunchOptions, paper: str | None = None) -> None:
    from goalgrid.cli.terminal_view import TerminalView
    from goalgrid.launching.training import train_all

    outlive_disks()
    state = train_all(grids, home, choice, launch, paper, view=TerminalView(), ended=_show_end)
    raise typer.Exit(exit_code(grids, home, state))


def _show_end(end: "GridEnd") -> None:
    """Print the table of a trained grid, how the launch ended, and the suggested next steps."""
    if end.table:
        show_table(end.table)
    say("\n".join(map(worded, status_lines.ended(end.grid_state))))
    if end.untrained:
        say(worded(end.untrained))
    if end.again:
        say(f"not complete; to continue: {shell(end.again)}")
    if end.written:
        done = overall(end.reached) is State.DONE
        say("\n".join(_next_lines(end.grid_state) if done else [status_lines.written(end.grid_state)]))


def _next_lines(grid_state: GridState) -> list[str]:
    """Return where the tables of a finished grid were written, and the suggested next commands."""
    commands = {shell(step): meaning for step, meaning in status_lines.next_steps(grid_state).items()}
    width = max(map(len, commands))
    lines = [f"  {command:{width}}  {meaning}" for command, meaning in commands.items()]
    return [f"{status_lines.written(grid_state)}. Next:", *lines]
