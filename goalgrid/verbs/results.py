"""What came out: table, effects, figures, report, export."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.store.files import write_text
from goalgrid.grid.store.home import Home
from goalgrid.looking import attention, examples
from goalgrid.reading.named_grids import recall, start
from goalgrid.reading.overview import Overview
from goalgrid.showing.effects import analysed
from goalgrid.showing.tables import NothingDone, deliver, draw, measured
from goalgrid.showing.tables import check as hold_against
from goalgrid.terminal import INCOMPLETE, completion
from goalgrid.terminal.options import RUNS, GridName, Json, OtherRuns, Override, Runs, all_known
from goalgrid.terminal.views import say, show_for, show_list

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from goalgrid.results.analysis.documents import Document

verbs = typer.Typer()

ATTENTION, EXAMPLES = "attention", "examples"
"""Figures of one trial, beside those of a whole grid."""

OtherProtocol = Annotated[
    str | None,
    typer.Option(help="A protocol of the data set, e.g. coco-5x1k; else that of the first table that the grid names."),
]


@verbs.command()
def table(
    context: typer.Context,
    grid: Annotated[
        str | None,
        typer.Argument(
            metavar="GRID",
            help="A grid; with --reference, a paper or a table of a paper.",
            autocompletion=completion.grids,
        ),
    ] = None,
    home: Runs = RUNS,
    set_: Override = [],
    layout: Annotated[
        str | None,
        typer.Option(help="E.g. goal, listing or methods, a wrong name lists all; default: what suits the grid."),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="AXIS,...", help="Axes as rows, e.g. objective or pair; with seed, each seed stands for itself."
        ),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="AXIS,...", help="Axes as columns, e.g. dataset,metric.")
    ] = None,
    blocks: Annotated[
        str | None, typer.Option(metavar="AXIS,...", help="Axes as blocks; axes that no option names are blocks, too.")
    ] = None,
    metric: Annotated[
        str,
        typer.Option(help="r1, r5, r10, medr, rsum, parameters or kpps; several where a layout has room: medr,kpps."),
    ] = "r1",
    protocol: OtherProtocol = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Print a paper's own table; without GRID, list these tables.")
    ] = False,
    against: Annotated[
        str | None, typer.Option(help="paper: show our number, the paper's, and the difference.")
    ] = None,
    marks: Annotated[
        bool,
        typer.Option("--marks", help="Mark cells that cannot be told from the best; the caption says by which test."),
    ] = False,
    interval: Annotated[
        bool,
        typer.Option(
            "--interval", help="Print half the 95 % t interval of the mean after ±, not the standard deviation."
        ),
    ] = False,
    averages: Annotated[
        bool, typer.Option("--averages", help="Add a row and a column with means over cells, as the caption says.")
    ] = False,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="With --averages: over cells that lack seeds, too.")
    ] = False,
    format_: Annotated[
        str, typer.Option("--format", help="E.g. latex or markdown, a wrong name lists all.")
    ] = "terminal",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file instead of the screen; its ending may say the format.")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="FILE",
            help="Say whether this written table is still what the records say; exit code 5 if not.",
        ),
    ] = None,
    trials: Annotated[bool, typer.Option("--trials", help="With --check: name the trials behind each number.")] = False,
) -> None:
    """Print the paper's table of what is done so far.

    --against paper sets the paper's numbers beside it; --reference prints the paper's own table.
    """
    from goalgrid.results import renderers
    from goalgrid.results.export.table_request import TableRequest
    from goalgrid.results.reference.paper_source import listing
    from goalgrid.results.reference.reading import PAPERS

    all_known(("format", format_, renderers.FORMATS))
    options = {field.name: context.params[field.name] for field in fields(TableRequest)}
    request = TableRequest(**options | {"grid": grid or "", "set_": tuple(set_)})
    if check:
        with _incomplete_without_trials():
            hold_against(request, format_, check, home, trials=trials)
    elif trials:
        raise UserError("--trials says what is behind the numbers of a file; give --check FILE.")
    elif reference and (grid is None or grid in PAPERS):
        show_list(listing(grid))
    elif grid is None:
        raise UserError(f"which grid? Known: {', '.join(catalog.names('presets'))}; or the path of a grid file.")
    else:
        folder = home.path / "reference" if reference else home.grid(recall(grid, home, set_).name).tables
        with _incomplete_without_trials():
            deliver(draw(request, home), format_, output, folder)


@verbs.command()
def effects(
    grid: GridName,
    home: Runs = RUNS,
    set_: Override = [],
    metric: Annotated[str, typer.Option(help="r1, r5, r10, medr or rsum.")] = "r1",
    direction: Annotated[str, typer.Option(help="i2t, t2i or both.")] = "both",
    protocol: OtherProtocol = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="OBJECTIVE", help="Compare with this objective; default: con_con, else the first."),
    ] = None,
    across: Annotated[
        list[str], typer.Option("--across", metavar="AXIS", help="Make this axis a factor too, e.g. objective.tau.")
    ] = [],
    reference: Annotated[
        bool, typer.Option("--reference", help="GRID is a table of a paper: analyse its printed means and deviations.")
    ] = False,
    format_: Annotated[str, typer.Option("--format", help="terminal, markdown, latex or csv.")] = "terminal",
    as_json: Json = False,
) -> None:
    """Say which axis matters, and how sure that is.

    Main effects and interaction, and what differs from a baseline.
    """
    from goalgrid.results.analysis import effects_text

    all_known(("format", format_, effects_text.FORMATS))
    if reference:
        from goalgrid.results.analysis.printed_analysis import printed_analyses

        if protocol or baseline or across or set_:
            raise UserError("--reference analyses a table as the paper printed it; leave the other options out.")
        printed = [each for each in printed_analyses(grid) if direction in (each.metric[:3], "both")]
        text = effects_text.write_out(printed, (), format_).rstrip("\n")
        show_for(as_json, lambda: effects_text.for_programs(printed), text.splitlines)
        return
    with _incomplete_without_trials():
        found, cells = analysed(
            recall(grid, home, set_), home, metric=metric, direction=direction, protocol=protocol,
            baseline=baseline, across=across, anew=start(grid, home, set_),
        )  # fmt: skip
    text = effects_text.write_out(found, cells, format_).rstrip("\n")
    show_for(as_json, lambda: effects_text.for_programs(found), text.splitlines)


@verbs.command()
def claims(
    paper: Annotated[
        str | None, typer.Argument(metavar="PAPER", help="goal, selhn, unified or 2ad; default: all.")
    ] = None,
    grid: Annotated[
        str | None,
        typer.Argument(
            metavar="GRID", help="A grid whose trials test the sentences, too.", autocompletion=completion.grids
        ),
    ] = None,
    home: Runs = RUNS,
    set_: Override = [],
    comparisons: Annotated[
        bool, typer.Option("--comparisons", help="Show every comparison with its difference and its p.")
    ] = False,
    format_: Annotated[str, typer.Option("--format", help="terminal, markdown or latex.")] = "terminal",
    as_json: Json = False,
) -> None:
    """Say which of the papers' sentences hold.

    By their own tables, and with GRID by your trials: holds, fails, or cannot be told.
    """
    from goalgrid.results.analysis import claims_text
    from goalgrid.results.analysis.documents import TEXT
    from goalgrid.showing import claimed

    all_known(("format", format_, TEXT))
    with _incomplete_without_trials():
        found = claimed.sources(paper, grid, home, set_)
    document = claims_text.document(found, comparisons=comparisons)
    page = claimed.PAGE + "\n" if format_ == "markdown" and (paper, grid) == (None, None) else ""
    text = page + TEXT[format_](document).rstrip("\n")
    show_for(as_json, lambda: claims_text.for_programs(found), text.splitlines)


@verbs.command()
def figures(
    grid: GridName,
    kinds: Annotated[
        list[str],
        typer.Argument(metavar="KIND", help="E.g. matrix or training, a wrong name lists all; default: all."),
    ] = [],
    home: Runs = RUNS,
    set_: Override = [],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the pictures.")] = Path(),
    format_: Annotated[str, typer.Option("--format", help="png, pdf or svg.")] = "png",
    trial: Annotated[
        str, typer.Option(metavar="ID", help="With attention or examples: whose; a wrong id lists the trials.")
    ] = "",
    image: Annotated[
        str, typer.Option(metavar="NAME", help="With attention: a test image, by file name or id; default: the first.")
    ] = "",
    caption: Annotated[
        str, typer.Option(metavar="N|TEXT", help="With attention: the image's Nth caption, or a text of your own.")
    ] = "1",
    quantity: Annotated[
        list[str],
        typer.Option(
            "--quantity", metavar="NAME", help="With training or steps: draw this logged value; a wrong name lists all."
        ),
    ] = [],
    reference: Annotated[
        str, typer.Option(metavar="CURVE", help="With training: a paper's printed curve, e.g. 2ad-figureA1.")
    ] = "",
) -> None:
    """Draw the figures of what is done so far.

    The matrix, effects, training behaviour, diagnostics, and ours against the paper's; sensitivity to swept numbers;
    steps and triplets of trials with train.trace_every; geometry of the embeddings against the rsum;
    pooling, the weights that GPO and ADPOOL learnt; speed, rsum against pairs scored a second. Of one trial: attention,
    which words of a caption look at which regions of an image, in a model of sets; and examples, queries with their
    first answers.
    """
    from goalgrid.results import figures as draw

    known = [*draw.FIGURES, ATTENTION, EXAMPLES]
    all_known(("format", format_, draw.FORMATS), *(("figure", kind, known) for kind in kinds))
    of_trial = [kind for kind in kinds if kind in (ATTENTION, EXAMPLES)]
    if (trial and not of_trial) or (image and ATTENTION not in kinds):
        raise UserError(
            "--trial, --image and --caption belong to attention: goalgrid figures GRID attention --trial ID; "
            "--trial also belongs to examples."
        )
    if (quantity and not {"training", "steps"} & {*kinds}) or (reference and "training" not in kinds):
        raise UserError("--quantity and --reference belong to training: goalgrid figures GRID training --quantity NAME")
    if of_trial:
        overview = Overview.of(recall(grid, home, set_), home)
        for name, picture in _figures_of_trial(overview, of_trial, trial, image, caption):
            say(f"written: {draw.save(picture, output, name, format_)}")
        kinds = [kind for kind in kinds if kind not in of_trial]
        if not kinds:
            return
    with _incomplete_without_trials():
        cells, scores = measured(recall(grid, home, set_), home, anew=start(grid, home, set_))
    studies = draw.Study.read(cells, scores, home)
    written = {
        kind: draw.write(studies, output, kinds=[kind], formats=[format_], quantities=quantity, reference=reference)
        for kind in kinds or draw.FIGURES
    }
    for path in (path for paths in written.values() for path in paths):
        say(f"written: {path}")
    for kind in (kind for kind, paths in written.items() if not paths and (kinds or not any(written.values()))):
        say(f"nothing to draw for {kind}: it needs {draw.FIGURES[kind].needs}")


def _figures_of_trial(
    overview: Overview, kinds: list[str], trial: str, image: str, caption: str
) -> "Iterator[tuple[str, Figure]]":
    """The examples and the attention of a trial, where they are asked for: the name of the file, and the picture."""
    if EXAMPLES in kinds:
        yield f"{EXAMPLES}-{trial}", examples.retrieved(overview, trial).draw()
    if ATTENTION in kinds:
        found = attention.drawn(overview, trial, image, caption)
        yield f"{ATTENTION}-{found.name}", found.draw()


@verbs.command()
def report(
    grid: GridName,
    home: Runs = RUNS,
    set_: Override = [],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: DIR/grids/NAME/report.html.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Write it again and again until no trial is left; an open page follows.")
    ] = False,
    every: Annotated[int, typer.Option(metavar="SECONDS", min=1, help="Time between two writings, with --watch.")] = 10,
    beside: Annotated[
        str | None,
        typer.Option("--compare", metavar="GRID", help="Add a section: the report's grid minus GRID, cell by cell."),
    ] = None,
    other: OtherRuns = None,
    examples_of: Annotated[
        str, typer.Option("--examples", metavar="ID", help="Add a section: what this trial finds and misses.")
    ] = "",
) -> None:
    """Write the whole grid as one HTML page.

    Tables, effects, figures, failures and provenance; the page needs no network.
    """
    from goalgrid.showing import report as page

    overview = Overview.of(recall(grid, home, set_), home)
    if watch and examples_of:
        raise UserError("--examples loads a model and its data each time; leave it out with --watch.")
    section = partial(_section, beside, grid, home, other)
    path = output or home.grid(overview.grid.name).report
    if not watch:
        write_text(path, page.render(overview, beside=section(), examples_of=examples_of))
        say(f"written: {path}")
        return
    try:
        for seen in page.watch(overview, path, every, section):
            say(f"written: {path} ({seen.headline()})")
    except KeyboardInterrupt:
        raise typer.Exit(INCOMPLETE) from None


@verbs.command()
def export(
    grid: GridName,
    target: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    home: Runs = RUNS,
    set_: Override = [],
) -> None:
    """Write everything that a paper needs into one folder.

    Report, tables, figures, effects, records, settings and checksums.
    """
    from goalgrid.results.export.export_folder import begun
    from goalgrid.results.export.export_folder import export as write
    from goalgrid.showing import report as page

    overview = Overview.of(recall(grid, home, set_), home)
    with begun(target):
        write(overview.grid, overview.cells, home, target, report=page.render(overview), now=overview.now)
    say(f"written: {target}")


def _section(beside: str | None, grid: str, home: Home, other: Home | None) -> "Document | None":
    """The report's section on the grid minus another grid, or minus itself in another runs folder."""
    if beside is None and other is None:
        return None
    from goalgrid.results.analysis.comparison_text import document
    from goalgrid.showing.comparison import compared

    return document(compared(beside or grid, grid, other or home, other=home))


@contextmanager
def _incomplete_without_trials() -> Iterator[None]:
    """End the command as incomplete where no trial is done."""
    try:
        yield
    except NothingDone as error:
        say(str(error))
        raise typer.Exit(INCOMPLETE) from None
