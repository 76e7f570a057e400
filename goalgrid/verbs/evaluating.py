"""Evaluating: a checkpoint of one's own on any split, protocol or data."""

from pathlib import Path
from typing import Annotated

import typer

from goalgrid.showing import evaluated
from goalgrid.terminal.options import RUNS, Json, Runs, WeightPlaces
from goalgrid.terminal.views import say, show_for
from grid.errors import UserError

verbs = typer.Typer()


@verbs.command()
def evaluate(
    home: Runs = RUNS,
    trial: Annotated[str, typer.Option("--trial", metavar="ID", help="A finished trial: its best checkpoint.")] = "",
    split: Annotated[str, typer.Option(help="val or test.")] = "test",
    protocol: Annotated[str | None, typer.Option(help="Another protocol of the data set, e.g. coco-5x1k.")] = None,
    root: Annotated[
        str, typer.Option(metavar="[DATASET=]DIR", help="Other data of the same kind; default: the trial's own.")
    ] = "",
    weights: WeightPlaces = [],
    embeddings: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Write embeddings and ranks there.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate a checkpoint on a split, protocol or data.

    It trains nothing and changes no record.
    """
    if not trial:
        raise UserError(
            "which checkpoint? --trial ID names a finished trial: goalgrid plan GRID --trials lists the ids."
        )
    if embeddings is not None and embeddings.suffix != ".npz":
        raise UserError(f"--embeddings {embeddings}: the file must end in .npz.")
    found = evaluated.own(trial, home, evaluated.Wanted(split, protocol, root, tuple(weights)))
    show_for(as_json, found.to_dict, found.lines)
    if embeddings is not None:
        found.save(embeddings)
        say(f"written: {embeddings}")
