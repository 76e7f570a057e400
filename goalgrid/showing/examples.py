"""Examples of what a trained model finds, chosen by the ranks of all seeds and objectives of its block."""

from typing import TYPE_CHECKING

from goalgrid.planning.overview import Overview
from grid.errors import UserError, unknown
from grid.expansion import Cell, Trial
from grid.gridfile import make_known
from grid.store.home import State

if TYPE_CHECKING:
    from results.analysis.example_queries import ExampleQuery, Ranks
    from results.figures.of_trial.retrieval_examples import RetrievalExamples


def retrieved(overview: Overview, trial_id: str) -> "RetrievalExamples":
    """Test queries of a trial with their first answers.

    Raises:
        UserError: no such trial, or it is not done or has no weights; or its data are others now.
    """
    known = {trial.id: trial for trial in able(overview)}
    which = f"Trials with weights: {', '.join(known) or 'none is done'}."
    if not trial_id:
        raise UserError(f"examples of which trial? Give --trial ID. {which}")
    if trial_id not in known:
        hint = "It is in the grid, but not done, or it has no weights." if trial_id in overview.states else ""
        raise UserError(unknown("trial", trial_id, list(known), where=f"of grid {overview.grid.name!r}", hint=hint))
    from runners.launch.jobs import machine_for
    from runners.trial.inspection.retrieving import Retrieving

    make_known(overview.grid)
    found = Retrieving(overview.folder(known[trial_id]), machine_for(overview.grid, overview.home, gpu=False))
    return found.examples(queries(overview, trial_id))


def able(overview: Overview) -> list[Trial]:
    """The finished trials that have weights."""
    return [trial for trial in overview.having(State.DONE) if not (trial.shared.members or trial.shared.published)]


def queries(overview: Overview, trial_id: str) -> "list[ExampleQuery]":
    """The queries to show, chosen by the ranks of the trial's cell and of the other objectives of its block."""
    from results.analysis.example_queries import example_queries
    from results.analysis.query_bootstrap import QueryRanks

    own = next(cell for cell in overview.cells if trial_id in {trial.id for trial in cell.trials})
    block = [
        cell
        for cell in overview.cells
        if (cell.dataset, cell.recipe, cell.swept) == (own.dataset, own.recipe, own.swept)
    ]
    ranks = QueryRanks.read(block, overview.home)

    def of(cell: Cell) -> "dict[str, Ranks]":
        import numpy as np

        done = [ranks.by_trial[trial.id] for trial in cell.trials if trial.id in ranks.by_trial]
        return {direction: np.stack([each[direction] for each in done]) for direction in ("i2t", "t2i") if done}

    others = {cell.objective: found for cell in block if cell is not own and (found := of(cell))}
    return example_queries(own.objective, of(own), others)
