"""Several grids and several runs folders: compare, merge."""

from pathlib import Path
from typing import Annotated

import typer

from goalgrid.showing.comparison import compared
from goalgrid.terminal import completion
from goalgrid.terminal.options import RUNS, Json, OtherRuns, Runs, all_known
from goalgrid.terminal.views import say, show, show_json
from grid.errors import UserError
from grid.store.files import write_text

verbs = typer.Typer()


@verbs.command()
def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A grid that ran, or a grid file.", autocompletion=completion.grids)
    ],
    b: Annotated[
        str | None,
        typer.Argument(metavar="B", help="The grid beside it; default: the same.", autocompletion=completion.grids),
    ] = None,
    home: Runs = RUNS,
    other: OtherRuns = None,
    replaced: Annotated[
        bool, typer.Option("--replaced", help="A is as it was before its trials were last trained anew.")
    ] = False,
    metric: Annotated[str, typer.Option(help="r1, r5, r10, medr or rsum.")] = "r1",
    direction: Annotated[str, typer.Option(help="i2t, t2i or both.")] = "both",
    protocol: Annotated[str | None, typer.Option(help="Another protocol of the data set, e.g. coco-5x1k.")] = None,
    format_: Annotated[str, typer.Option("--format", help="terminal, markdown, latex, csv or parquet.")] = "terminal",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of the screen.")] = None,
    as_json: Json = False,
) -> None:
    """Set two grids side by side, and say what differs.

    B minus A, cell by cell, paired by seed where seeds pair; two versions of code or two runs folders, too.
    """
    from results.analysis import comparison_text

    all_known(("format", format_, comparison_text.FORMATS))
    if format_ == "parquet" and output is None:
        raise UserError("--format parquet writes a file: name it by --output FILE.")
    found = compared(a, b, home, other=other, replaced=replaced, metric=metric, direction=direction, protocol=protocol)
    if as_json:
        show_json(comparison_text.for_programs(found))
    elif output is None:
        show(comparison_text.write_out(found, format_).rstrip("\n"))
    else:
        if format_ == "parquet":
            comparison_text.write_parquet(found, output)
        else:
            write_text(output, comparison_text.write_out(found, format_))
        say(f"written: {output}")
