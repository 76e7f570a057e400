"""Several grids and several runs folders: compare, merge."""

from dataclasses import asdict
from pathlib import Path

import typer

from goalgrid.grid.errors import check_known, user_path
from goalgrid.grid.store.files import write_text
from goalgrid.grid.store.home import Home
from goalgrid.housekeeping import merge as merging
from goalgrid.showing.comparison import compared
from goalgrid.terminal import INCOMPLETE, completion, options
from goalgrid.terminal.options import argument, flag
from goalgrid.terminal.views import say, say_left_out, show, show_for, show_json

verbs = typer.Typer()


@verbs.command()
def compare(
    a: str = argument(..., "A", "A grid that ran, or a grid file.", completion.grids),
    b: str | None = argument(None, "B", "The grid beside it; default: the same.", completion.grids),
    home: Home = options.RUNS,
    other: Home | None = options.OTHER_RUNS,
    replaced: bool = flag(False, "--replaced", "A is as it was before its trials were last trained anew."),
    metric: str = options.METRIC,
    direction: str = options.DIRECTION,
    protocol: str | None = options.PROTOCOL,
    on: str | None = options.ON,
    format_: str = options.ANALYSIS_FORMAT,
    output: Path | None = options.OUTPUT,
    as_json: bool = options.JSON,
) -> None:
    """Set two grids side by side, and say what differs.

    B minus A, cell by cell, paired by seed where seeds pair; two versions of code or two runs folders, too.
    """
    from goalgrid.results import renderers
    from goalgrid.results.analysis import grid_comparison

    if output and format_ == "terminal":
        format_ = renderers.format_of(output) or format_
    check_known("format", format_, grid_comparison.FORMATS)
    comparison = compared(
        a, b, home, other=other, replaced=replaced, metric=metric, direction=direction, protocol=protocol or on
    )
    if as_json:
        show_json(grid_comparison.for_programs(comparison))
    elif output is None:
        show(grid_comparison.write_out(comparison, format_).rstrip("\n"))
    else:
        write_text(output, grid_comparison.write_out(comparison, format_))
        say(f"written: {output}")


@verbs.command()
def merge(
    other: Path = argument(..., "OTHER_RUNS", "The runs folder to take trials from."),
    home: Home = options.RUNS,
    grid: str | None = flag(None, "--grid", "Only the trials of this grid; default: of all grids there.", "GRID"),
    root: list[str] = options.ROOT,
    stale: bool = flag(False, "--stale", "Take trials that other code trained, too; tables then say so."),
    dry_run: bool = flag(False, "--dry-run", "Only say what would be taken."),
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
    show_for(as_json, lambda: [asdict(entry) for entry in outcomes], lambda: lines)
    for reason in reasons:
        say_left_out(reason)
    if reasons or any(entry.outcome in ("refused", "kept") for entry in outcomes):
        raise typer.Exit(INCOMPLETE)
