"""Measure the gradients of finished trials on the unit sphere, one row per trial."""

from collections.abc import Sequence
from typing import Any

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.inspection import evaluated

COLUMNS = {
    "delta_s": "delta_s",
    "distance": "|y_neg-y_pos|",
    "anchor": "anchor",
    "selhn": "by SelHN (8)",
    "positive": "positive",
    "negatives": "negatives",
    "radial": "radial",
    "cosine": "cosine",
}


def of_trials(trials: Sequence[str], home: Home) -> list[dict[str, Any]]:
    """Measure `sphere_gradients` of each trial, with its objective, seed and selected epoch; raises UserError."""
    rows = []
    for trial in trials:
        loaded = evaluated.loaded(trial, home)
        from goalgrid.runners.trial.sphere_gradients import mean_gradients

        assert loaded.trial is not None, "it is evaluated on its own data"
        facts = {"trial": trial, "objective": loaded.settings.objective.name, "seed": loaded.settings.seed}
        facts["epoch"] = loaded.trial.row["selected_epoch"]
        try:
            rows.append(facts | mean_gradients(loaded))
        except UserError as error:
            raise UserError(f"trial {trial}: {error}") from error
    return rows


def lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Format the rows as a table for the terminal, with an explanation of its columns."""
    head = f"{'objective':16} {'seed':>4} {'epoch':>5} " + " ".join(f"{title:>13}" for title in COLUMNS.values())
    body = [
        f"{row['objective']:16} {row['seed']:4} {row['epoch']:5} " + " ".join(f"{row[name]:13.4g}" for name in COLUMNS)
        for row in rows
    ]
    meaning = (
        "Means over the anchors of the first training batch, both directions. anchor, positive, negatives: length of "
        "the gradient along the sphere, equal to Unified Eq. (11) and (12). radial: share of the anchor's squared "
        "gradient that normalisation removes. cosine: between the gradients at the positive and the hardest negative. "
        "Losses of scores have no loss per anchor: their values are for the loss of the whole batch."
    )
    return [head, *body, meaning]
