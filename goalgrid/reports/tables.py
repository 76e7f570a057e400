"""Draw tables from records or from a paper, and write them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError, check_known, counted, unknown
from goalgrid.grid.expansion import trials_of
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.messages import Note, Step, leave_out, warn
from goalgrid.grid.protocols import ECCV
from goalgrid.grid.store.home import Home, State
from goalgrid.grid.store.output_files import write_output
from goalgrid.results import layouts, renderers
from goalgrid.results.export.table_request import TableRequest
from goalgrid.results.layouts.captions import COLUMN_NAMES
from goalgrid.results.records.provenance import OTHER_DATA
from goalgrid.results.records.record import write_records
from goalgrid.results.records.scores import Scores, counted_reasons
from goalgrid.results.records.steps import Leave
from goalgrid.results.tables import Table
from goalgrid.state.grid_state import GridState, NothingDone, overall
from goalgrid.state.named_grids import recall, start
from goalgrid.state.papers import filled, usual_protocol
from goalgrid.state.status_lines import seed_lines


def draw(request: TableRequest, home: Home, grid: Grid | None = None) -> Table:
    """Draw the requested table; raise UserError for unknown names or contradictory options.

    `grid`: the grid, if it is already loaded.
    """
    check_known("layout", request.layout or "goal", layouts.LAYOUTS)
    for name in request.metric.split(","):
        check_known("metric", name, COLUMN_NAMES)
    check_known("comparison", request.against or "paper", ["paper"])
    if request.paper is not None:
        return _filled(request, home)
    if request.reference:
        return _printed(request)
    grid_state = GridState.of(grid or recall(request.grid, home, request.set_), home, request.only)
    scores = some_scores(grid_state, request.protocol, request.grid, request.set_)
    return with_seeds(request.draw(grid_state.cells, scores), grid_state)


def with_seeds(table: Table, grid_state: GridState) -> Table:
    """Add to the caption the cells that have not selected their settings, and the state of seeds until resolved."""
    lacking = [search.title for search in grid_state.searches if not search.chosen]
    sentences = [f"Not shown, since no settings are selected yet: {', '.join(lacking)}."] if lacking else []
    sentences += [f"{line[0].upper()}{line[1:]}." for line in seed_lines(grid_state)]
    return table.saying(*sentences)


def with_letters(table: Table, grid_state: GridState) -> Table:
    """Return the table with letters for the fairness violations of its cells, explained below it in LaTeX."""
    from goalgrid.results.analysis.fairness import fair_rows, lettered

    return lettered(table, fair_rows(grid_state.cells, scores_of(grid_state), grid_state.home))


def some_scores(
    grid_state: GridState, protocol: str | None, source: str, overrides: Sequence[str], verb: str = "table"
) -> Scores:
    """Return the scores of finished trials, as `scores_of`; raise NothingDone, with advice, if there are none."""
    scores, grid, home = scores_of(grid_state, protocol), grid_state.grid, grid_state.home
    if not scores.rows:
        states = set(grid_state.states.values())
        shown = {grid_state.states[trial.id] for trial in trials_of(grid_state.cells)}
        other = list(scores.absent.values()).count(OTHER_DATA)
        done = f"no trial{' with chosen values' * bool(grid.select)} is done"
        if other:
            done = f"all {counted(other, 'trial')} that are done were {OTHER_DATA}"
            again = Step.of("run", source, set=tuple(overrides), stale=True, runs=home.path)
            helps = Note("To retrain them: {step}", again)
        elif states <= {State.PLANNED}:
            helps = start(source, home, overrides, verb=verb)
        else:
            done = f"{'no record can be read' if State.DONE in shown else done} ({grid_state.headline()})"
            to_run = State.DONE not in shown and states <= {State.DONE, State.PLANNED}
            verb, text = ("run", "To continue") if to_run else ("status", "For the reasons and advice")
            helps = Note(f"{text}: {{step}}", Step.of(verb, source, set=tuple(overrides), runs=home.path))
        raise NothingDone(f"grid {grid.name!r} under {home.path}: {done}. {helps.text}", helps.step)
    return scores


def known_protocol(grid: Grid, name: str | None) -> str | None:
    """Return the protocol of this name, or that of the data set of this name in [evaluate]; None: the usual protocol.

    Raises UserError if neither the grid's data sets nor [evaluate] have it.
    """
    on = [protocol for protocol in grid.evaluate.names if name in grid.evaluate.datasets]
    known = [protocol for dataset in grid.datasets for protocol in catalog.protocols(dataset)] + grid.evaluate.names
    if on or name is None or name in known:
        return next((protocol for protocol in on if protocol in catalog.protocols(str(name))), name)
    if grid.datasets == [name]:
        raise UserError(f"grid {grid.name!r} trains on {name!r}, which is shown by default; leave this option out.")
    field = "datasets" if name in (*catalog.names("datasets"), *grid.datasets) else "protocols" if name == ECCV else ""
    more = Step.of("resume", grid.name, set=(f'evaluate.{field}=["{name}"]',), load=True) if field else None
    where, hint = f"of grid {grid.name!r}", "To add it to [evaluate]: {step}." if more else ""
    raise UserError(unknown("protocol or data set", name, dict.fromkeys(known), where=where, hint=hint), more)


def scores_of(grid_state: GridState, protocol: str | None = None, leave: Leave = leave_out) -> Scores:
    """Return the scores of finished trials by this protocol (None: the usual one); raises as `known_protocol`.

    `leave`: called with a message for each unreadable file, which is skipped.
    """
    grid = grid_state.grid
    return Scores.read(
        grid_state.cells, grid_state.home, protocol=known_protocol(grid, protocol), usual=usual_protocol(grid),
        now=grid_state.data.now, leave=leave, evaluate=grid.evaluate, lacking=grid_state.lacking,
        make=f"goalgrid resume {grid.name}",
    )  # fmt: skip


class KeptTable(NamedTuple):
    table: Table
    written: bool
    """Whether the table's files and the records were written to the grid's folder."""


def keep_table(grid_state: GridState) -> KeptTable | None:
    """Write the grid's table and records to the grid's folder; return None if no trial is done.

    If they cannot be written, warn.
    """
    scores = scores_of(grid_state) if grid_state.counts[State.DONE] else None
    if not (scores and scores.rows):
        return None
    table = with_seeds(TableRequest(grid_state.grid.name).draw(grid_state.cells, scores), grid_state)
    table = with_letters(table, grid_state) if grid_state.grid.letters_faults else table
    folder = grid_state.home.grid(grid_state.grid.name)
    try:
        write_records(scores.rows, grid_state.home, folder.results)
        renderers.write_all(table, folder.tables)
    except UserError as error:
        warn(f"the table was not saved: {error}")
        return KeptTable(table, written=False)
    return KeptTable(table, written=True)


def table_of_paper(name: str | None, home: Home, against: str | None = None) -> Table | None:
    """Draw a paper's table with our numbers, if `against` is "paper" next to its own; None without name or trials."""
    with suppress(NothingDone):
        return draw(TableRequest("", paper=name, against=against), home) if name else None
    return None


def shortfall(request: TableRequest, home: Home, table: Table | None) -> tuple[State, str]:
    """Return the combined state of the requested table's trials, and a description of what is missing (or empty).

    The state is failed if one of its trials failed, interrupted if others are missing, and done if none is missing.
    `table`: the table as drawn; None: no trial is done.
    """
    missing = dict(pair for entry in table.entries() for pair in entry.score.missing) if table else {}
    states = [State.FAILED if why.startswith(State.FAILED) else State.INTERRUPTED for why in missing.values()]
    lacking = counted_reasons(missing.values())
    if not (request.paper or request.reference):
        grid_state = GridState.of(recall(request.grid, home, request.set_), home, request.only)
        states += [grid_state.reached(trial) for trial in grid_state.trials]
        lacking = grid_state.headline()
    state = overall(states)
    return State.INTERRUPTED if state is State.RUNNING else state, lacking if state is not State.DONE else ""


@dataclass(frozen=True)
class Delivered:
    """A table in a format, and the file it was written to; None if it is to be printed."""

    table: Table
    kind: str
    path: Path | None


def deliver(request: TableRequest, home: Home, kind: str, output: Path | None) -> Delivered:
    """Draw the requested table, and write it if it goes to a file.

    A Parquet table without `output` is written to the grid's folder. `kind`: the format; with "terminal" and a file,
    the format given by its suffix.
    """
    grid = None if request.reference or request.paper else recall(request.grid, home, request.set_)
    folder = home.path / ("papers" if request.paper else "reference") / (request.paper or request.grid)
    folder = home.grid(grid.name).tables if grid else folder
    kind = renderers.format_for(output, kind) if output else kind
    table = draw(request, home, grid)
    if kind != "latex" and (given := request.of_latex):
        raise UserError(f"{', '.join(given)} can be used for LaTeX only. Give --format latex, or --output NAME.tex.")
    if kind == "latex" and grid and grid.letters_faults:
        table = with_letters(table, GridState.of(grid, home, request.only))
    if kind == "terminal" or not (output or kind in renderers.DATA):
        return Delivered(table, kind, None)
    path = output or folder / f"{table.name}.{renderers.ENDINGS[kind]}"
    write_output(path, renderers.encoded(table, kind))
    return Delivered(table, kind, path)


def _filled(request: TableRequest, home: Home) -> Table:
    """Draw a paper's table, filled with the trials of all grids."""
    named = {"GRID": request.grid, "--reference": request.reference, "--protocol": request.protocol}
    named |= {"--rows, --columns and --blocks": request.axes, "--set": request.set_, "--only": request.only}
    if others := [name for name, value in named.items() if value]:
        raise UserError(f"--paper fills a paper's table by the paper's protocols; leave {', '.join(others)} out.")
    source = filled(str(request.paper), home)
    if not source.used:
        if source.undecided:
            from goalgrid.results.reference.filled import APART

            raise NothingDone(
                f"{source.name} under {home.path}: trials with different settings could fill each row. {APART}"
            )
        begin = Step.of("run", paper=source.name, runs=home.path)
        raise NothingDone(f"{source.name} under {home.path}: no trial is done. Start it: {{step}}", begin)
    return request.draw(list(source.rows), source)


def _printed(request: TableRequest) -> Table:
    options = ("against", "protocol", "only", "rows", "columns", "blocks", "marks", "set_")
    if given := [f"--{name.rstrip('_')}" for name in options if getattr(request, name)]:
        raise UserError(f"--reference shows a table as published; leave {' and '.join(given)} out.")
    from goalgrid.results.reference.reading import Paper

    paper = Paper.read(request.grid)
    return request.draw(list(paper.rows), paper)
