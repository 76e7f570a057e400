"""Verbs for checkpoints: evaluate a trial or a published checkpoint, and measure a trial's gradients."""

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
    file: Path | None = argument(None, "[FILE]", "A published checkpoint; requires --as.", show_default=False),
    home: Home = options.RUNS,
    trial: str = flag("", "--trial", "Evaluate the best checkpoint of this finished trial.", "ID"),
    as_: str = flag("", "--as", "Family of the checkpoint (vsepp, scan, clip, ...).", "FAMILY"),
    vocabulary: Path | None = flag(
        None, "--vocabulary", "Vocabulary that FILE was trained with, .pkl or .json.", "FILE"
    ),
    weights: list[str] = options.WEIGHTS,
    embeddings: Path | None = flag(
        None, "--embeddings", "Write embeddings and ranks to this file.", "FILE.npz", parser=user_path
    ),
    as_json: bool = options.JSON,
    **options: Any,
) -> None:
    """Evaluate a checkpoint on any split, protocol or data set.

    It trains nothing and changes no record. A trial's measured speed is stored next to its record.
    """
    if bool(trial) == (file is not None):
        raise UserError(
            "no checkpoint given, or two. Give either --trial ID of a finished trial (goalgrid plan GRID --trials "
            "lists the ids), or a published FILE with --as FAMILY."
        )
    request = evaluated.EvaluationRequest(tuple(weights), **options)
    if file is None and (as_ or vocabulary or request.into):
        raise UserError("--as, --vocabulary and --into apply only to a published FILE; leave them out with --trial.")
    if bool(request.into) != bool(request.as_objective):
        raise UserError(
            "--into GRID and --as-objective NAME must be given together: tables list checkpoints by objective."
        )
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
    trial: list[str] = flag([], "--trial", "A finished trial; repeatable.", "ID"),
    home: Home = options.RUNS,
    as_json: bool = options.JSON,
) -> None:
    """Measure a trial's gradients on the unit sphere.

    Uses its first training batch and its best weights. The columns show how much of the gradient moves the anchor, the
    positive and the negatives, how much normalisation removes, and whether the gradients of the two texts cancel.
    """
    from goalgrid.inspection import gradients as measured

    if not trial:
        raise UserError("no trial given: --trial ID names a finished trial; goalgrid plan GRID --trials lists the ids.")
    rows = measured.of_trials(trial, home)
    show_for(as_json, lambda: rows, lambda: measured.lines(rows))
