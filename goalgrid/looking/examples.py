"""Examples of what a trained model finds, chosen by the ranks of all seeds and objectives of its block."""

from typing import TYPE_CHECKING

from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.expansion import Cell, Trial
from goalgrid.grid.gridfile import register
from goalgrid.grid.store.home import State
from goalgrid.reading.overview import Overview

if TYPE_CHECKING:
    from goalgrid.results.analysis.example_queries import ExampleQuery, Ranks
    from goalgrid.results.figures.retrieval_examples import RetrievalExamples


def retrieved(overview: Overview, trial_id: str) -> "RetrievalExamples":
    """Test queries of a trial with their first answers.

    Raises:
        UserError: no such trial, or it is not done or has no weights; or its data are others now.
    """
    known, shown = {trial.id: trial for trial in overview.trials}, [trial.id for trial in able(overview)]
    which = f"Trials that have examples: {', '.join(shown) or 'none is done'}."
    if not trial_id:
        raise UserError(f"examples of which trial? Give --trial ID. {which}")
    if trial_id not in known:
        raise UserError(unknown("trial", trial_id, shown, where=f"of grid {overview.grid.name!r}"))
    if not _has_weights(known[trial_id]):
        raise UserError(f"{trial_id} trains no model of its own, so it has no weights to search with. {which}")
    if known[trial_id].shared.model.ranked_anew:
        raise UserError(f"{trial_id} ranks the best answers anew by a second stage, which is not shown. {which}")
    if (state := overview.states[trial_id]) is not State.DONE:
        raise UserError(f"{trial_id} is {state.value}, and examples are drawn of a trial that is done. {which}")
    from goalgrid.runners.launch.jobs import machine_for
    from goalgrid.runners.trial.inspection import TrialRetrieval

    register(overview.grid)
    retrieval = TrialRetrieval(overview.folder(known[trial_id]), machine_for(overview.grid, overview.home, gpu=False))
    if not (chosen := queries(overview, trial_id)):
        raise UserError(f"{trial_id} has no query to show: every seed finds no query first and misses none.")
    return retrieval.examples(chosen)


def able(overview: Overview) -> list[Trial]:
    """The finished trials that have weights and rank all answers by one scorer: a second stage ranks few of them."""
    done = overview.having(State.DONE)
    return [trial for trial in done if _has_weights(trial) and not trial.shared.model.ranked_anew]


def _has_weights(trial: Trial) -> bool:
    return not (trial.shared.members or trial.shared.published)


def queries(overview: Overview, trial_id: str) -> "list[ExampleQuery]":
    """The queries to show, chosen by the ranks of the trial's cell and of the other objectives of its block."""
    from goalgrid.results.analysis.example_queries import example_queries
    from goalgrid.results.analysis.query_bootstrap import QueryRanks

    cell_of_trial = next(cell for cell in overview.cells if trial_id in {trial.id for trial in cell.trials})
    block = [
        cell
        for cell in overview.cells
        if (cell.dataset, cell.recipe, cell.swept) == (cell_of_trial.dataset, cell_of_trial.recipe, cell_of_trial.swept)
    ]
    ranks = QueryRanks.read(block, overview.home)
    shown = ranks.by_trial.keys() - overview.of_other_data  # other data have other queries

    def of(cell: Cell) -> "dict[str, Ranks]":
        import numpy as np

        done = [ranks.by_trial[trial.id] for trial in cell.trials if trial.id in shown]
        return {
            direction: np.stack([ranks_of_trial[direction] for ranks_of_trial in done])
            for direction in ("i2t", "t2i")
            if done
        }

    others = {cell.objective: ranked for cell in block if cell is not cell_of_trial and (ranked := of(cell))}
    return example_queries(cell_of_trial.objective, of(cell_of_trial), others)
