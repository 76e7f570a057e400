"""Evaluating: a checkpoint, one's own or a published one, on any split, protocol or data."""

from pathlib import Path
from typing import Annotated

import typer

from goalgrid.grid.errors import UserError
from goalgrid.looking import evaluated
from goalgrid.terminal.options import RUNS, Json, Runs, WeightPlaces
from goalgrid.terminal.views import say, show_for

verbs = typer.Typer()


@verbs.command()
def evaluate(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A published checkpoint; with --as.", show_default=False)
    ] = None,
    home: Runs = RUNS,
    trial: Annotated[str, typer.Option("--trial", metavar="ID", help="A finished trial: its best checkpoint.")] = "",
    as_: Annotated[
        str, typer.Option("--as", metavar="FAMILY", help="Whose checkpoint FILE is; a wrong name lists all.")
    ] = "",
    vocabulary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The words that FILE was trained with, .pkl or .json.")
    ] = None,
    into: Annotated[
        str, typer.Option(metavar="GRID", help="Show FILE beside the trials of this grid, as an imported record.")
    ] = "",
    as_objective: Annotated[
        str, typer.Option("--as-objective", metavar="NAME", help="With --into: the objective that it was trained with.")
    ] = "",
    split: Annotated[str, typer.Option(help="val or test.")] = "test",
    protocol: Annotated[
        str | None, typer.Option(help="Another protocol, e.g. coco-5x1k; eccv: ECCV Caption and CxC.")
    ] = None,
    root: Annotated[
        str, typer.Option(metavar="[DATASET=]DIR", help="Other data of the same kind; default: the trial's own.")
    ] = "",
    weights: WeightPlaces = [],
    embeddings: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Write embeddings and ranks there.")
    ] = None,
    speed: Annotated[
        bool, typer.Option("--speed", help="Time it too: pairs scored and queries answered a second; tables show it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Evaluate a checkpoint on a split, protocol or data.

    It trains nothing and changes no record. The speed of a trial is kept beside its record.
    """
    if trial and file is not None:
        raise UserError(f"--trial {trial} and {file}: a checkpoint of one's own, or a published one; leave one out.")
    if not trial and file is None:
        raise UserError(
            "which checkpoint? --trial ID names a finished trial, goalgrid plan GRID --trials lists the ids; or give a "
            "published FILE with --as FAMILY."
        )
    if file is None and (as_ or vocabulary or into):
        raise UserError(
            "--as, --vocabulary and --into are for a published FILE; a trial knows its family and its grid."
        )
    if bool(into) != bool(as_objective):
        raise UserError("--into GRID and --as-objective NAME go together: a table shows a checkpoint by its objective.")
    if embeddings is not None and embeddings.suffix != ".npz":
        raise UserError(f"--embeddings {embeddings}: the file must end in .npz.")
    request = evaluated.EvaluationRequest(split, protocol, root, tuple(weights), speed, into, as_objective)
    if file is None:
        result = evaluated.of_trial(trial, home, request)
    else:
        result = evaluated.of_file(file, as_, vocabulary, home, request)
    show_for(as_json, result.to_dict, result.lines)
    if embeddings is not None:
        result.save(embeddings)
        say(f"written: {embeddings}")


@verbs.command()
def gradients(
    trial: Annotated[
        list[str],
        typer.Option("--trial", metavar="ID", help="A finished trial; give the option again for more trials."),
    ] = [],
    home: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Measure a trial's gradients on the unit sphere.

    On its first training batch, with its best weights. The columns say how much of the gradient moves anchor, positive
    and negatives, how much normalisation takes away, and whether the gradients of the two texts cancel.
    """
    from goalgrid.looking import gradients as measured

    if not trial:
        raise UserError("of which trial? --trial ID names a finished trial; goalgrid plan GRID --trials lists the ids.")
    rows = measured.of_trials(trial, home)
    show_for(as_json, lambda: measured.for_programs(rows), lambda: measured.lines(rows))
