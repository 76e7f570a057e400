"""Training step by step, where trials kept every N-th step (`train.trace_every`): losses that choose while they train.

As SelHN Fig. 7 (which anchors learn from all negatives) and VSE+2AD Fig. C-2 (ADOPT's K) draw it.
"""

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from goalgrid.results.figures.study import FigureKind, Study
from goalgrid.results.figures.style import over_epochs
from goalgrid.results.figures.training import label
from goalgrid.results.records import steps

QUANTITIES = {
    "branch": "anchors on\nthe other branch",
    "k": "$K$ of ADOPT\n(negatives)",
    "delta_s": r"mean $|s_{neg} - s_{pos}|$",
    "loss": "loss of the batch",
}
"""What is drawn unless a user names other quantities, with its label."""


def draw(study: Study, quantities: Sequence[str] = ()) -> Figure | None:
    """A row for each quantity, over steps; None where no trial kept steps.

    Args:
        quantities: names of what a step measures; none: `QUANTITIES`.
    """
    traces = {trial: steps.read(study.home.trial(trial).trace, leave=study.scores.leave) for trial in study.histories}
    traced = {trial: values for trial, values in traces.items() if values}
    labels = {name: QUANTITIES.get(name) or label(name) for name in quantities} or QUANTITIES
    return over_epochs(replace(study, histories=traced), labels, 1.5, along="step")


FIGURE_KIND = FigureKind(6, draw, "Training step by step", "trials with train.trace_every")
