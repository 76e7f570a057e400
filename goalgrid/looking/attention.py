"""Attention of trained models of sets: of an image and a caption that the user chooses, and a report's examples."""

from typing import TYPE_CHECKING

from goalgrid.grid.errors import UserError, unknown
from goalgrid.grid.expansion import Trial
from goalgrid.grid.gridfile import register
from goalgrid.grid.store.home import State
from goalgrid.reading.overview import Overview

if TYPE_CHECKING:
    from goalgrid.results.figures.attention_map import AttentionMap
    from goalgrid.runners.trial.inspection import TrialAttention

EXAMPLES = 3
"""The first test images whose attention a report shows, each with its first caption."""


def attention_of(overview: Overview, trial_id: str, image: str, caption: str) -> "AttentionMap":
    """The attention of a trial between an image and a caption.

    Args:
        image: a name of a test image.
        caption: the number of a caption of the image, from 1; or a text.

    Raises:
        UserError: no such trial, image or caption; or the trial is not done, or does not attend.
    """
    known = {trial.id: trial for trial in overview.trials}
    attending = [trial.id for trial in able(overview)]
    which = f"Trials that attend: {', '.join(attending) or 'none is done'}."
    if not trial_id:
        raise UserError(f"the attention of which trial? Give --trial ID. {which}")
    if trial_id not in known:
        raise UserError(unknown("trial", trial_id, attending, where=f"of grid {overview.grid.name!r}"))
    trial, state = known[trial_id], overview.states[trial_id]
    if trial.shared.members:
        raise UserError(f"{trial_id} is an ensemble; its members attend, not the mean of their scores. {which}")
    if trial.shared.published:
        raise UserError(f"{trial_id} is the record of a published checkpoint, without its weights. {which}")
    if not trial.shared.model.of_sets:
        raise UserError(f"{trial_id} scores single vectors, so that no word looks at a region. {which}")
    if state is not State.DONE:
        raise UserError(f"{trial_id} is {state.value}, and attention is drawn of a trial that is done. {which}")
    attention = _loaded(overview, trial)
    return attention.draw(attention.photographs.find(image) if image else 0, caption)


def examples(overview: Overview) -> "tuple[AttentionMap, ...]":
    """Of the grid's first finished trial of sets: the first test images with their first captions.

    Raises:
        UserError: its weights or its data cannot be read.
    """
    trials = able(overview)
    if not trials:
        return ()
    attention = _loaded(overview, trials[0])
    return tuple(attention.draw(row, "1") for row in range(min(EXAMPLES, len(attention.photographs.split.images))))


def able(overview: Overview) -> list[Trial]:
    """The finished trials that attend."""
    return [trial for trial in overview.having(State.DONE) if _attends(trial)]


def _attends(trial: Trial) -> bool:
    model = trial.shared.model
    trained = not (trial.shared.members or trial.shared.published)
    return trained and model.of_sets and model.scorer.kind != "own"  # a scorer of the user's gives scores alone


def _loaded(overview: Overview, trial: Trial) -> "TrialAttention":
    from goalgrid.runners.launch.jobs import machine_for
    from goalgrid.runners.trial.inspection import TrialAttention

    register(overview.grid)
    return TrialAttention(overview.folder(trial), machine_for(overview.grid, overview.home, gpu=False))
