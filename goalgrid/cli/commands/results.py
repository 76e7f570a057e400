"""Verbs that show results: table, effects, fair, claims, compare, figures, report, site, export."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from goalgrid.cli import completion, options
from goalgrid.cli.console import check_json, say, show, show_for, show_json, show_list, show_table
from goalgrid.cli.exits import EXIT, INCOMPLETE
from goalgrid.cli.fairness import exit_code
from goalgrid.cli.next_steps import shell, worded
from goalgrid.cli.options import argument, either, flag, options_of
from goalgrid.grid.errors import UserError, check_known, user_path
from goalgrid.grid.expansion import Cell
from goalgrid.grid.messages import Step, warn
from goalgrid.grid.store.home import Home, State
from goalgrid.grid.store.output_files import check_output, write_output
from goalgrid.reports.figures import FigureRequest
from goalgrid.reports.figures import write as draw
from goalgrid.results.export.table_request import TableRequest
from goalgrid.state.grid_state import GridState, NothingDone
from goalgrid.state.named_grids import recall, start
from goalgrid.state.papers import no_grid, source

if TYPE_CHECKING:
    from goalgrid.results.tables import Table

verbs = typer.Typer()

COMMENTS = {"terminal": "{}\n", "markdown": "<!-- {} -->\n", "latex": "% {}\n", "csv": ""}
"""Templates of the comment above a comparison in a file that names the command, by format."""


@verbs.command()
@options_of(TableRequest, before="format_")
def table(
    grid: str | None = argument(
        None, "GRID", "A grid; with --reference, a paper or one of its tables.", completion.grids
    ),
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    protocol: str | None = options.PROTOCOL,
    cite: list[str] = flag(
        [],
        "--cite",
        "LaTeX only: citation key for a reference number in the paper's rows: 23=scan18 prints \\cite{scan18}.",
        "NUMBER=KEY",
    ),
    format_: str = flag("terminal", "--format", "Output format, e.g. latex or markdown; an unknown name lists all."),
    output: Path | None = options.OUTPUT,
    as_json: bool = flag(False, "--json", "Same as --format json."),
    complete: bool = options.COMPLETE,
    **options: Any,
) -> None:
    """Print the paper's table of the trials done so far.

    --paper NAME fills a table of a paper with the trials of all grids; --against paper shows the paper's numbers next
    to yours; --reference prints the table as published.
    """
    from goalgrid.reports.tables import deliver
    from goalgrid.results import renderers

    check_known("format", format_, renderers.FORMATS)
    check_json(as_json, format_)
    format_ = "json" if as_json else format_
    request = TableRequest(grid or "", protocol=protocol, cite=tuple(cite), set_=tuple(set_), **options)
    if complete and request.reference:
        raise UserError("--reference shows published numbers, none of which can be missing; leave --complete out.")
    if request.reference and not request.paper and (printed := _printed_tables(grid)):
        if output or format_ != "terminal":
            raise UserError("--reference lists tables on the screen; name a table, or leave --format and --output out.")
        show_list(printed)
    elif grid is None and request.paper is None:
        raise no_grid(home)
    else:
        try:
            delivered = deliver(request, home, format_, output)
            if delivered.path:
                say(f"written: {delivered.path}")
            elif delivered.kind == "terminal":
                show_table(delivered.table)
            else:
                show(renderers.text(delivered.table, delivered.kind).rstrip("\n"))
            shown = delivered.table
        except NothingDone as error:
            if not complete or request.paper:
                raise
            say(f"error: {worded(error)}")
            shown = None
        grids = [] if request.reference or request.paper else [recall(request.grid, home, request.set_)]
        if code := exit_code(grids, home):
            raise typer.Exit(code)
        if complete:
            _exit_incomplete(request, home, shown)


def _printed_tables(paper: str | None) -> dict[str, str]:
    """Map the names of a paper's tables (None: all papers) to their headings; empty if there is no such paper."""
    from goalgrid.results.reference.reading import PAPERS, listing

    return listing(paper) if paper is None or paper in PAPERS else {}


@verbs.command()
def effects(
    grid: str = options.GRID,
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    metric: str = options.METRIC,
    direction: str = options.DIRECTION,
    protocol: str | None = options.PROTOCOL,
    baseline: str | None = flag(
        None, "--baseline", "Baseline to compare with; default: con_con, or the first objective.", "OBJECTIVE"
    ),
    across: list[str] = flag([], "--across", "Add this axis as a factor, e.g. objective.tau.", "AXIS"),
    reference: bool = flag(
        False, "--reference", "GRID is a table of a paper: analyse its published means and standard deviations."
    ),
    format_: str = options.ANALYSIS_FORMAT,
    as_json: bool = options.JSON,
) -> None:
    """Report main effects and interactions with their uncertainty (ANOVA).

    It also reports which cells differ significantly from a baseline.
    """
    from goalgrid.reports.analyses import analysed
    from goalgrid.results.analysis import effects_text
    from goalgrid.results.analysis.block_analysis import printed_analyses

    check_known("format", format_, effects_text.FORMATS)
    check_json(as_json, format_)
    if reference:
        if protocol or baseline or across or set_:
            raise UserError(
                "--reference analyses a table as published; leave --protocol, --baseline, --across and --set out."
            )
        analyses = [analysis for analysis in printed_analyses(grid) if direction in (analysis.metric[:3], "both")]
        cells = list[Cell]()
    else:
        grid_state = GridState.of(recall(grid, home, set_), home)
        cells = grid_state.cells
        analyses = analysed(
            grid_state, metric=metric, direction=direction, protocol=protocol,
            baseline=baseline, across=across, source=grid, overrides=set_,
        )  # fmt: skip
    text = effects_text.write_out(analyses, cells, format_).rstrip("\n")
    show_for(as_json, lambda: analyses, text.splitlines)


@verbs.command()
def fair(
    grid: str = options.GRID,
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    format_: str = flag("terminal", "--format", "terminal, markdown or latex."),
    as_json: bool = options.JSON,
) -> None:
    """Show whether the cells of a grid were compared fairly.

    Lists for each cell the settings selected on validation, their validation score on fresh seeds, the cost of the
    search, how the trials trained, and all violations. Rules under [fair] require in the grid file turn violations into
    errors: fair, run and table then exit with 4.
    """
    from goalgrid.reports.fairness import sheet
    from goalgrid.results.analysis.documents import TEXT
    from goalgrid.results.analysis.fairness import document

    check_known("format", format_, TEXT)
    check_json(as_json, format_)
    grid_state = GridState.of(recall(grid, home, set_), home)
    rows = sheet(grid_state, grid, set_)
    text = TEXT[format_](document(rows)).rstrip("\n")
    show_for(as_json, lambda: [row.to_dict() for row in rows], text.splitlines)
    raise typer.Exit(exit_code([grid_state.grid], home))


@verbs.command()
def claims(
    paper: str | None = argument(None, "PAPER", "goal, selhn, unified or 2ad; default: all."),
    grid: str | None = argument(None, "GRID", "Also test the claims on the trials of this grid.", completion.grids),
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    comparisons: bool = flag(False, "--comparisons", "Show every comparison with its difference and p value."),
    format_: str = flag("terminal", "--format", "terminal, markdown or latex."),
    as_json: bool = options.JSON,
) -> None:
    """Test which of the papers' claims hold.

    Claims are tested on the published tables and, with GRID, on your trials: holds, fails or undecided.
    """
    from goalgrid.reports import analyses
    from goalgrid.results.analysis import claims as judged_claims
    from goalgrid.results.analysis.documents import TEXT

    check_known("format", format_, TEXT)
    check_json(as_json, format_)
    judged = analyses.judged(paper, grid, home, set_)
    text = TEXT[format_](judged_claims.document(judged, comparisons=comparisons)).rstrip("\n")
    show_for(as_json, lambda: judged_claims.for_programs(judged), text.splitlines)


@verbs.command()
def compare(
    a: str = argument(..., "A", "A grid that ran, or a grid file.", completion.grids),
    b: str | None = argument(None, "B", "The grid to compare with; default: A.", completion.grids),
    home: Home = options.RUNS,
    other: Home | None = options.OTHER_RUNS,
    replaced: bool = flag(False, "--replaced", "Use A's results from before its trials were last retrained."),
    metric: str = options.METRIC,
    direction: str = options.DIRECTION,
    protocol: str | None = options.PROTOCOL,
    format_: str = options.ANALYSIS_FORMAT,
    output: Path | None = options.OUTPUT,
    as_json: bool = options.JSON,
) -> None:
    """Compare two grids cell by cell, and show how their settings differ.

    Differences are B minus A, paired by seed where possible. Also compares two code versions or two runs folders.
    """
    from goalgrid.reports.analyses import compared
    from goalgrid.results import renderers
    from goalgrid.results.analysis import grid_comparison

    if output and as_json:
        raise UserError("--json prints to stdout; leave --output out.")
    check_known("format", format_, grid_comparison.FORMATS)
    check_json(as_json, format_)
    if output and (format_ != "terminal" or output.suffix not in ("", ".txt")):
        format_ = renderers.format_for(output, format_, grid_comparison.FORMATS)
    comparison = compared(
        a, b, home, other=other, replaced=replaced, metric=metric, direction=direction, protocol=protocol
    )
    if as_json:
        show_json(comparison)
    elif output is None:
        show(grid_comparison.write_out(comparison, format_).rstrip("\n"))
    else:
        comment = COMMENTS[format_].format(f"goalgrid compare {a} {b or a}")
        write_output(output, (comment + grid_comparison.write_out(comparison, format_)).encode())
        say(f"written: {output}")


@verbs.command()
@options_of(FigureRequest, before="output")
def figures(
    grid: str = options.GRID,
    kinds: list[str] = argument(
        [], "KIND", "Figure, e.g. matrix or training; an unknown name lists all; default: all."
    ),
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    only: list[str] = options.ONLY,
    output: Path | None = flag(
        None, "--output -o", "Output folder; default: DIR/grids/NAME/figures.", "DIR", parser=user_path
    ),
    format_: str = options.PICTURE_FORMAT,
    protocol: str | None = options.PROTOCOL,
    **options: Any,
) -> None:
    """Draw figures of the trials done so far.

    Figures of a grid: the matrix, effects, training behaviour, diagnostics, and your results against the paper's;
    sensitivity to swept values; steps and triplets of trials with train.trace_every; geometry of the embeddings against
    rsum; pooling: the weights learnt by GPO and ADPOOL; speed: rsum against pairs scored per second; search: the
    candidates [select] chose from. Figures of one trial: attention of caption words to image regions, in models that
    score sets; and examples: queries with their top results.
    """
    for line in draw(FigureRequest(kinds, format_, either(only), protocol, **options), grid, home, set_, output):
        say(line)


@verbs.command()
def report(
    grid: str | None = options.OPTIONAL_GRID,
    paper: str | None = options.PAPER,
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    only: list[str] = options.ONLY,
    output: Path | None = flag(
        None, "--output -o", "Output file; default: DIR/grids/NAME/report.html.", "FILE", parser=user_path
    ),
    watch: bool = flag(False, "--watch", "Keep updating the page until all trials have ended; open pages reload."),
    every: int = flag(10, "--every", "Seconds between two updates, with --watch.", "SECONDS", min=1),
    serve: bool = flag(False, "--serve", "Serve a live page on localhost until Ctrl-C."),
    port: int = flag(8750, "--port", "With --serve: the port; 0 picks a free one.", "PORT", min=0),
    host: str = flag(
        "127.0.0.1",
        "--host",
        "With --serve: the interface to bind; any other than localhost adds a secret path.",
        "ADDRESS",
    ),
    compare_with: str | None = flag(None, "--compare", "Add a section: this grid minus GRID, cell by cell.", "GRID"),
    other: Home | None = options.OTHER_RUNS,
    examples_of: str = flag("", "--examples", "Add a section: example retrievals and failures of this trial.", "ID"),
) -> None:
    """Write the whole grid as one HTML page.

    It contains tables, effects, figures, failures and provenance; with --paper also the paper's table filled with your
    trials. The page works offline.
    """
    if (watch or serve) and examples_of:
        raise UserError("--examples loads a model and its data at every update; leave it out with --watch and --serve.")
    if serve and (watch or output):
        raise UserError("--serve writes no file; leave out --watch and --output.")
    from goalgrid.reports import report as page
    from goalgrid.reports.analyses import section
    from goalgrid.results import renderers

    grid = source(grid, paper, home)
    grid_state = GridState.of(recall(grid, home, set_), home, either(only))
    compared = partial(section, compare_with, grid, home, other)
    if serve:
        from goalgrid.reports import serve as live

        for number in (signal.SIGINT, signal.SIGTERM):  # a KeyboardInterrupt would wait for threads that read results
            signal.signal(number, lambda *_: os._exit(0))
        live.serve(live.LivePage(grid_state, compared, paper, shell), host, port)
        return
    path = output or home.grid(grid_state.grid.name).report
    renderers.format_for(path, "html")
    check_output(path)  # drawing takes seconds
    if not watch:
        if not grid_state.counts[State.DONE]:
            helps = start(grid, home, set_, verb="report")
            warn(f"grid {grid_state.grid.name!r} under {home.path}: no trial is done. {helps.text}", helps.step)
        html = page.render(grid_state, beside=compared(), examples_of=examples_of, paper=paper, wording=shell)
        write_output(path, html.encode())
        say(f"written: {path}")
        return
    try:
        for seen in page.watch(grid_state, path, every, compared, paper, shell):
            say(f"written: {path} ({seen.headline()})")
    except KeyboardInterrupt:
        raise typer.Exit(INCOMPLETE) from None


@verbs.command()
def site(
    folder: Path = argument(..., "DIR", "Folder to write to, e.g. one that a web server publishes.", parser=user_path),
    grids: list[str] = argument([], "GRID", "Grids that have run; default: all.", completion.grids),
    home: Home = options.RUNS,
    compared: list[str] = flag([], "--compare", "Add a section: B minus A, cell by cell.", "A,B"),
) -> None:
    """Write a static website: an index of grids and one page per grid.

    Links are relative. Run it again to update the pages.
    """
    from goalgrid.reports.report import write_site

    for path in write_site(folder, grids, home, compared, shell):
        say(f"written: {path}")


@verbs.command()
def export(
    grid: str | None = options.OPTIONAL_GRID,
    target: Path | None = argument(None, "DIR", "A new or empty folder.", parser=user_path),
    paper: str | None = options.PAPER,
    home: Home = options.RUNS,
    set_: list[str] = options.SET,
    only: list[str] = options.ONLY,
    complete: bool = options.COMPLETE,
) -> None:
    """Write everything a paper needs into one folder.

    It contains the report, tables, figures, effects, records, settings and checksums; with --paper also the paper's
    table filled with your trials.
    """
    from goalgrid.reports import report as page
    from goalgrid.reports.tables import table_of_paper
    from goalgrid.results.export.export_folder import export as write
    from goalgrid.results.export.staging import staged

    if paper and target is None:
        grid, target = None, user_path(grid) if grid else None
    if target is None:
        raise UserError("missing argument DIR: a new or empty folder.")
    filtered, grid = either(only), source(grid, paper, home)
    grid_state = GridState.of(recall(grid, home, set_), home, filtered)
    if not grid_state.cells:
        go_on = Step.of("resume", grid_state.grid.name, runs=home.path)
        raise UserError(
            f"grid {grid_state.grid.name!r}: no cell has selected its settings yet. To continue: {{step}}", go_on
        )
    with staged(target) as staging:
        measured, filled = page.read(grid_state), table_of_paper(paper, home)
        html = page.render(grid_state, measured=measured, paper=paper, wording=shell)
        write(
            grid_state.grid,
            grid_state.cells,
            measured,
            home,
            staging,
            report=html,
            paper=paper,
            filled=filled,
            only=filtered,
        )
    say(f"written: {target}")
    if complete:
        _exit_incomplete(TableRequest(grid, set_=tuple(set_), only=filtered), home, filled)


def _exit_incomplete(request: TableRequest, home: Home, table: "Table | None") -> None:
    """Report the entries that the requested table lacks, and exit with the code for its trials' state."""
    from goalgrid.reports.tables import shortfall

    state, lacking = shortfall(request, home, table)
    if lacking:
        say(f"incomplete: {lacking}")
    raise typer.Exit(EXIT[state])
