"""Figures of one finished trial: attention between an image and a caption, and examples of retrieval results."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.expansion import Cell, Trial
from goalgrid.grid.store.home import State
from goalgrid.state.grid_state import GridState

if TYPE_CHECKING:
    from goalgrid.results.analysis.queries import ExampleQuery, Ranks
    from goalgrid.results.figures.trial import AttentionMap, RetrievalExamples
    from goalgrid.runners.training.machine import Machine
    from goalgrid.runners.trial.inspection import TrialAttention

EXAMPLES = 3
"""Number of test images whose attention a report shows, each with its first caption."""


def attention_of(grid_state: GridState, trial_id: str, image: str, caption: str) -> "AttentionMap":
    """Return the attention of a trial between an image and a caption; raise UserError if it has none or is unknown.

    Args:
        image: name of a test image; empty: the first.
        caption: number of a caption of the image, from 1; or any text.
    """
    attention = _attention(grid_state, _chosen(grid_state, trial_id, "attention", _unattending))
    return attention.draw(attention.photographs.find(image) if image else 0, caption)


def attention_examples(grid_state: GridState) -> "tuple[AttentionMap, ...]":
    """Return attention maps of the first test images and captions, for the grid's first trial that has attention."""
    trial = next((trial for trial in grid_state.having(State.DONE) if not _unattending(trial)), None)
    if trial is None:
        return ()
    attention = _attention(grid_state, trial)
    return tuple(attention.draw(row, "1") for row in range(min(EXAMPLES, len(attention.photographs.split.images))))


def retrieved(grid_state: GridState, trial_id: str) -> "RetrievalExamples":
    """Return test queries of a trial with their top results, chosen by the ranks of all seeds and objectives.

    Raises UserError if the trial is unknown, is not done, has no weights, or its data has changed.
    """
    trial = _chosen(grid_state, trial_id, "examples", _without_examples)
    from goalgrid.runners.trial.inspection import TrialRetrieval

    retrieval = TrialRetrieval(grid_state.folder(trial), _machine(grid_state))
    if not (chosen := _queries(grid_state, trial_id)):
        raise UserError(f"{trial_id} has no query to show: no query is found first by all seeds, or missed by all.")
    return retrieval.examples(chosen)


def _chosen(grid_state: GridState, trial_id: str, figure: str, lacks: Callable[[Trial], str]) -> Trial:
    """Return the finished trial with this id; raise UserError if it is unknown, not done, or has no such figure.

    `lacks`: returns why a trial has no such figure; empty if it has.
    """
    known = {trial.id: trial for trial in grid_state.trials}
    done = grid_state.having(State.DONE)
    able = [trial.id for trial in done if not lacks(trial)]
    none = f"none; {done[0].id} {lacks(done[0])}" if done else "none is done"
    which = f"Trials with {figure}: {', '.join(able) or none}."
    if not trial_id:
        raise UserError(f"missing option --trial ID: the trial to show {figure} of. {which}")
    if trial_id not in known:
        raise UserError(unknown("trial", trial_id, able, where=f"of grid {grid_state.grid.name!r}"))
    if reason := lacks(known[trial_id]):
        raise UserError(f"{trial_id} {reason}. {which}")
    if (state := grid_state.states[trial_id]) is not State.DONE:
        raise UserError(f"{trial_id} is {state.value}, not done. {which}")
    return known[trial_id]


def _weightless(trial: Trial) -> str:
    if trial.shared.members:
        return "is an ensemble, which has no weights: name one of its members"
    return "is the record of a published checkpoint, without its weights" if trial.shared.published else ""


def _unattending(trial: Trial) -> str:
    model = trial.shared.model
    if model.of_sets and model.scorer.kind == "own":
        return "has a user-defined scorer, which returns only scores"
    return _weightless(trial) or (
        "" if model.of_sets else "scores single vectors, so it has no attention between words and regions"
    )


def _without_examples(trial: Trial) -> str:
    anew = trial.shared.model.rerank_k
    return _weightless(trial) or ("re-ranks the top results by a second stage, which cannot be shown" if anew else "")


def _attention(grid_state: GridState, trial: Trial) -> "TrialAttention":
    from goalgrid.runners.trial.inspection import TrialAttention

    return TrialAttention(grid_state.folder(trial), _machine(grid_state))


def _machine(grid_state: GridState) -> "Machine":
    from goalgrid.runners.launch.jobs import machine_for

    return machine_for(grid_state.grid, grid_state.home, gpu=False)


def _queries(grid_state: GridState, trial_id: str) -> "list[ExampleQuery]":
    """Return the queries to show, chosen by ranks of the trial's cell and of other objectives in its block."""
    from goalgrid.results.analysis.queries import QueryRanks, example_queries

    cells = [*grid_state.cells, *grid_state.points]
    cell_of_trial = next(cell for cell in cells if trial_id in {trial.id for trial in cell.trials})
    block = [cell for cell in cells if cell.block == cell_of_trial.block]
    ranks = QueryRanks.read(block, grid_state.home)
    shown = ranks.by_trial.keys() - grid_state.of_other_data  # other data have other queries

    def of(cell: Cell) -> "dict[str, Ranks]":
        import numpy as np

        done = [ranks.by_trial[trial.id] for trial in cell.trials if trial.id in shown]
        return {name: np.stack([of_trial[name] for of_trial in done]) for name in ("i2t", "t2i") if done}

    others = {cell.objective: ranked for cell in block if cell is not cell_of_trial and (ranked := of(cell))}
    return example_queries(cell_of_trial.objective, of(cell_of_trial), others)
