"""Write the HTML pages of `goalgrid report` (one grid, once or while it runs) and `goalgrid site` (many grids)."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from goalgrid.grid.errors import UserError
from goalgrid.grid.messages import Step, Wording, leave_out
from goalgrid.grid.notes import later
from goalgrid.grid.store.home import ENDED, Home, State
from goalgrid.grid.store.output_files import check_output, write_output
from goalgrid.inspection.trial_figures import attention_examples, retrieved
from goalgrid.reports.analyses import section
from goalgrid.reports.tables import scores_of, table_of_paper
from goalgrid.results.analysis.documents import Document
from goalgrid.results.export.report_page import Measured, picture, rendered
from goalgrid.results.pages import page
from goalgrid.state import named_grids, status
from goalgrid.state.grid_state import ORDER, GridState, ranges
from goalgrid.state.status_lines import note_lines, running_lines

INDEX, PAGES = "index.html", "grids"


def render(
    grid_state: GridState,
    *,
    measured: Measured | None = None,
    refresh: int = 0,
    live: int = 0,
    beside: Document | None = None,
    examples_of: str = "",
    paper: str | None = None,
    index: str = "",
    wording: Wording = str,
) -> str:
    """Return the report page as HTML; raise UserError if records cannot be read, or the trial has no weights.

    Args:
        measured: results to show; None: read them from the records.
        refresh: seconds after which the page reloads itself while trials are unfinished.
        live: for a served page, how many times its results have been read; 0: the page is a file.
        beside: the comparison with another grid.
        examples_of: id of the trial whose queries and results are shown; empty: none.
        paper: the paper's table to show, filled with the trials of all grids.
        index: relative link to the index of all grids; empty: there is none.
        wording: formats the next steps on the page.
    """
    name = grid_state.grid.name
    step = partial(Step.of, runs=grid_state.home.path)
    examples = [retrieved(grid_state, examples_of)] if examples_of else []
    return rendered(
        measured or read(grid_state),
        standing_of(grid_state, wording),
        name=name,
        axes={axis: ranges(values) for axis, values in grid_state.grid.axes().items()},
        file=grid_state.grid.to_toml(),
        commands={
            "go on": wording(step("resume", name)),
            "state": wording(step("status", name)),
            "LaTeX": wording(step("table", name, format="latex")),
            "everything behind this page": wording(step("export", name, "DIR")),
        },
        written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z"),
        refresh=refresh if _unfinished(grid_state) else 0,
        live=live,
        beside=beside,
        examples=[picture(f"queries of {shown.trial} with their first answers", shown.draw()) for shown in examples],
        paper=table_of_paper(paper, grid_state.home, "paper"),
        runs=_runs_words(wording, grid_state.home),
        notes=grid_state.grid.notes,
        later=later(grid_state.home.grid(name).notes),
        index=index,
    )


def _runs_words(wording: Wording, home: Home) -> str:
    """Return the option that names the runs folder, for commands written in templates."""
    bare, whole = (wording(Step.of("status", runs=runs)) for runs in (None, home.path))
    return whole.removeprefix(bare)


def standing_of(grid_state: GridState, wording: Wording) -> dict[str, Any]:
    """Return the state of the grid for the page."""
    return {
        "headline": grid_state.headline(),
        "states": {state.value: grid_state.counts[state] for state in ORDER},
        "trials": {trial_id: state.value for trial_id, state in grid_state.states.items()},
        "running": running_lines(grid_state),
        "troubles": [group.to_dict(wording) for group in status.failures(grid_state)],
        "notes": [note.worded(wording) for note in note_lines(grid_state)],
    }


def read(grid_state: GridState) -> Measured:
    """Read the results of the finished trials, with examples of attention if a model has it."""
    grid, left_out = grid_state.grid, list[str]()
    scores = scores_of(grid_state, leave=left_out.append)
    results = replace(Measured.of(grid.name, grid_state.cells, scores, grid_state.home), left_out=left_out)
    for message in left_out:
        leave_out(message)
    try:
        maps = attention_examples(grid_state)
        pictures = (picture(f"{shown.trial}, {shown.image}: {shown.caption}", shown.draw()) for shown in maps)
        return replace(results, attention=tuple(pictures))
    except UserError as error:
        return replace(results, no_attention=str(error))


def watch(
    grid_state: GridState,
    path: Path,
    seconds: int,
    beside: Callable[[], Document | None],
    paper: str | None,
    wording: Wording = str,
) -> Iterator[GridState]:
    """Write the page every `seconds` until every trial has ended; yield each state that it shows."""
    done, measured = None, Measured()
    while True:
        if done != grid_state.having(State.DONE):
            done, measured = grid_state.having(State.DONE), read(grid_state)
        html = render(grid_state, measured=measured, refresh=seconds, beside=beside(), paper=paper, wording=wording)
        write_output(path, html.encode())
        yield grid_state
        if not _unfinished(grid_state):
            return
        time.sleep(seconds)
        grid_state = GridState.of(grid_state.grid, grid_state.home, grid_state.only)


def _unfinished(grid_state: GridState) -> bool:
    return any(state not in ENDED for state in grid_state.states.values())


def write_site(
    folder: Path, names: Sequence[str], home: Home, comparisons: Sequence[str], wording: Wording = str
) -> Iterator[Path]:
    """Write the pages of these grids (default: all that have run), then the index; yield each path.

    Args:
        comparisons: pairs of grids to compare, `A,B` each.

    Raises UserError if no grid has run, a grid is unknown or cannot be compared, or `folder` has a foreign index.html.
    """
    index = folder / INDEX
    check_output(index)
    if not (names := names or home.grids()):
        first = Step.of("run", "demo", runs=home.path, load=True)
        raise UserError(f"no grid has run under {home.path}. Start one: {{step}}", first)
    grids = {grid.name: grid for grid in (named_grids.recall(name, home) for name in names)}
    for name in grids:
        check_output(folder / PAGES / f"{name}.html")
    compared = dict[str, Document | None]()
    for words in comparisons:
        a, _, b = map(str.strip, words.partition(","))
        if not (a and b) or "," in b:
            raise UserError(f"--compare {words!r}: give two grids, e.g. --compare {a or 'mine'},demo")
        compared[f"{b} minus {a}"] = section(a, b, home, None)
    entries = []
    for grid in grids.values():
        grid_state = GridState.of(grid, home)
        measured = read(grid_state)
        path = folder / PAGES / f"{grid.name}.html"
        write_output(path, render(grid_state, measured=measured, index=f"../{INDEX}", wording=wording).encode())
        yield path
        finished = [home.trial(trial.id).done.stat().st_mtime for trial in grid_state.having(State.DONE)]
        date = f"{datetime.fromtimestamp(max(finished)):%Y-%m-%d}" if finished else ""
        findings = [" ".join(filter(None, pair)) for pair in zip(measured.findings, measured.conditions, strict=True)]
        entry = {"name": grid.name, "title": grid.notes.title or grid.name, "findings": findings}
        entries.append({**entry, "headline": grid_state.headline(), "date": date})
    write_output(index, page("site.html", entries=entries, compared=compared).encode())
    yield index
