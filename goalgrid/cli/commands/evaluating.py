"""Evaluating: a checkpoint, one's own or a published one, on any split, protocol or data."""

from pathlib import Path
from typing import Any

import typer

from goalgrid.cli import options
from goalgrid.cli.console import say, show_for
from goalgrid.cli.options import argument, flag, options_of
from goalgrid.grid.errors import UserError, user_path
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.output_files import check_output
from goalgrid.inspection import evaluated

verbs = typer.Typer()


@verbs.command()
@options_of(evaluated.EvaluationRequest, before="weights")
def evaluate(
    file: Path | None = argument(None, "[FILE]", "A published checkpoint; with --as.", show_default=False),
    home: Home = options.RUNS,
    trial: str = flag("", "--trial", "A finished trial: its best checkpoint.", "ID"),
    as_: str = flag("", "--as", "Family of the checkpoint (vsepp, scan, clip, ...).", "FAMILY"),
    vocabulary: Path | None = flag(None, "--vocabulary", "The words of FILE's training, .pkl or .json.", "FILE"),
    weights: list[str] = options.WEIGHTS,
    embeddings: Path | None = flag(
        None, "--embeddings", "Write embeddings and ranks to this folder.", "FILE.npz", parser=user_path
    ),
    as_json: bool = options.JSON,
    **options: Any,
) -> None:
    """Evaluate a checkpoint on a split, protocol or data.

    It trains nothing and changes no record. The speed of a trial is kept next to its record.
    """
    if bool(trial) == (file is not None):
        raise UserError(
            "which checkpoint? Either --trial ID names a finished trial (goalgrid plan GRID --trials lists the ids), "
            "or give a published FILE with --as FAMILY."
        )
    request = evaluated.EvaluationRequest(tuple(weights), **options)
    if file is None and (as_ or vocabulary or request.into):
        raise UserError("--as, --vocabulary and --into are for a published FILE; a trial has its family and its grid.")
    if bool(request.into) != bool(request.as_objective):
        raise UserError("--into GRID and --as-objective NAME go together: a table shows a checkpoint by its objective.")
    if embeddings is not None and embeddings.suffix != ".npz":
        raise UserError(f"--embeddings {embeddings}: the file must end in .npz.")
    if embeddings is not None:
        check_output(embeddings)
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
    trial: list[str] = flag([], "--trial", "A finished trial; give the option again for more trials.", "ID"),
    home: Home = options.RUNS,
    as_json: bool = options.JSON,
) -> None:
    """Measure a trial's gradients on the unit sphere.

    On its first training batch, with its best weights. The columns say how much of the gradient moves anchor, positive
    and negatives, how much normalisation takes away, and whether the gradients of the two texts cancel.
    """
    from goalgrid.inspection import gradients as measured

    if not trial:
        raise UserError("of which trial? --trial ID names a finished trial; goalgrid plan GRID --trials lists the ids.")
    rows = measured.of_trials(trial, home)
    show_for(as_json, lambda: rows, lambda: measured.lines(rows))
