"""Tables as they are asked for: drawn from records or from a paper, delivered, and held against files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from goalgrid.planning.overview import many, named_tables_exist, recall
from goalgrid.terminal.exits import DIFFERENT, INCOMPLETE
from goalgrid.terminal.options import all_known
from goalgrid.terminal.views import say, show, show_table
from grid import catalog
from grid.errors import UserError, unknown
from grid.expansion import Cell, expand
from grid.gridfile import Grid
from grid.store.home import Home

if TYPE_CHECKING:
    from results.export.table_request import TableRequest
    from results.records.scores import Scores
    from results.tables.table import Table


def draw(request: "TableRequest", home: Home) -> "Table":
    """The table that is asked for; where no trial of the grid is done, the command ends here.

    Raises:
        UserError: an unknown name, options that do not fit together, or records that cannot be read.
    """
    from results.layouts import LAYOUTS
    from results.layouts.captions import METRIC_NAMES

    metrics = request.metric.split(",") if request.axes else [request.metric]
    all_known(
        ("layout", request.layout or "goal", LAYOUTS),
        *(("metric", name, METRIC_NAMES) for name in metrics),
        ("comparison", request.against or "paper", ["paper"]),
    )
    if request.reference:
        return _printed(request)
    found = recall(request.grid, home)
    named_tables_exist(found)
    cells = expand(found)
    scores = scores_of(found, cells, home, request.protocol, interval=request.interval)
    stop_without(scores.rows, home, request.grid)
    return request.draw(cells, scores)


def scores_of(
    grid: Grid, cells: Sequence[Cell], home: Home, protocol: str | None, *, interval: bool = False
) -> "Scores":
    """What the finished trials of a grid measured, by this protocol if one is asked for.

    Raises:
        UserError: no data set of the grid has this protocol, or records cannot be read.
    """
    from results.records.scores import Scores
    from runners.training.fingerprint import code_fingerprint

    protocols = [name for dataset in grid.datasets for name in catalog.protocols(dataset)]
    if protocol is not None and protocol not in protocols:
        raise UserError(unknown("protocol", protocol, protocols, where=f"of grid {grid.name!r}"))
    return Scores.read(cells, home, protocol=protocol, interval=interval, code=code_fingerprint)


def stop_without(rows: Mapping[str, object], home: Home, grid: str) -> None:
    """Where no trial is done, say how to start, and end the command."""
    if not rows:
        say(f"no trial of grid {grid!r} is done under {home.path}. Start it: goalgrid run {grid}")
        raise typer.Exit(INCOMPLETE)


def deliver(drawn: "Table", kind: str, output: Path | None, folder: Path) -> None:
    """Print a table, or write it where it is asked for, or, as Parquet, into the folder where such tables are kept."""
    from results import renderers

    if kind == "terminal" and output is None:
        show_table(drawn)
    elif kind == "terminal":
        raise UserError(f"--output {output} needs a --format: {', '.join(renderers.ENDINGS)}.")
    elif output or kind == "parquet":
        path = output or folder / f"{drawn.name}.parquet"
        renderers.write(drawn, kind, path)
        say(f"written: {path}")
    else:
        show(renderers.text(drawn, kind).rstrip("\n"))


def check(request: "TableRequest", kind: str, path: Path, home: Home, *, trials: bool) -> None:
    """Recompute the table of a file, and say whether it is the same; where it is not, the command ends here.

    Args:
        request: the options of the command line; without a grid, the file says them itself.
        kind: the format; "terminal": the file says it, or its ending does.
        trials: whether to say of every number from which trials it comes.

    Raises:
        UserError: neither the file nor the command line says how the table is made.
    """
    from results.checks import table_check as checking

    made = checking.made_by(path)
    if not request.grid:
        if made is None:
            raise UserError(f"{path} does not say by which command it was made: goalgrid table GRID --check {path}.")
        if request != type(request)(""):
            raise UserError(f"{path} says its own options; to check it by others, give the grid, too.")
        request, kind = made
    elif kind == "terminal":
        kind = (made[1] if made else None) or checking.kind_of(path) or ""
        if not kind:
            raise UserError(f"in which format is {path}? Give --format.")
    drawn = draw(request, home)
    if trials:
        for name, text, ids in checking.trials(drawn):
            show(f"{name}: {text}  from {' '.join(ids) or 'no trial'}")
    found = checking.compare(drawn, kind, path)
    command = f"{drawn.command} --format {kind}"
    if found.differences:
        show(f"{path} differs from `{command}` now, file -> now:")
        for line in found.differences:
            show(f"  {line}")
        raise typer.Exit(DIFFERENT)
    numbers = [ids for _, _, ids in checking.trials(drawn)]
    behind = {trial for ids in numbers for trial in ids}
    note = f" ({found.note})" if found.note else ""
    same = "holds the same" if note else "is the same, byte for byte,"
    show(f"{path} {same} as `{command}` now{note}: {many(len(numbers), 'number')} from {many(len(behind), 'trial')}")


def _printed(request: "TableRequest") -> "Table":
    """A paper's own table."""
    from results.reference import Paper

    if request.against or request.protocol:
        raise UserError("--reference shows a table as the paper printed it; leave --against and --protocol out.")
    if request.axes:
        raise UserError("--reference shows a table as the paper printed it; leave --rows, --columns and --blocks out.")
    paper = Paper.read(request.grid)
    return replace(request, layout=request.layout or paper.layout).draw(paper.cells, paper)
