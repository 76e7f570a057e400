"""What rises or falls with the rsum: alignment, uniformity and modality gap by epoch, with Spearman's rho.

VSE+2AD §3.3 says that the first two tell how mature a model is.
"""

import numpy as np
from matplotlib.figure import Figure

from goalgrid.results.figures.study import FigureKind, Study
from goalgrid.results.figures.style import PLAIN, blank, point_legend, point_looks

QUANTITIES = {
    "val_s_pos": "alignment: mean $s_{pos}$",
    "val_uniform": "uniformity: log E[exp(s)]",
    "val_gap": "modality gap",
}


def draw(study: Study) -> Figure | None:
    """A panel for each quantity, a point for each epoch of a trial; None where nothing was logged."""
    names = [name for name in study.part.cells if pairs(study, name, "val_gap")]
    if not names:
        return None
    looks = point_looks(names)
    figure = blank(2.9, study, "a point for each epoch of a trial; ρ: Spearman's rank correlation over all points")
    for axes, (quantity, title) in zip(
        figure.subplots(1, len(QUANTITIES), sharey=True), QUANTITIES.items(), strict=True
    ):
        every = [pair for name in names for pair in pairs(study, name, quantity)]
        for name in names:
            points = pairs(study, name, quantity)
            axes.plot(*zip(*points, strict=True), **{**looks[name], **PLAIN, "markersize": 3}, alpha=0.7)
        axes.set_title(f"ρ = {rho(every):.2f}", fontsize=9)
        axes.set_xlabel(title)
        axes.grid(visible=True)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("val. rsum (%)")
    point_legend(figure, names, looks)
    return figure


def pairs(study: Study, name: str, quantity: str) -> list[tuple[float, float]]:
    """The quantity and the validation rsum in every epoch of a cell's trials."""
    points = []
    for trial in study.trials(name):
        values, rsums = study.histories[trial].get(quantity, {}), study.histories[trial].get("val_rsum", {})
        points += [(value, rsums[epoch]) for epoch, value in values.items() if epoch in rsums]
    return points


def rho(points: list[tuple[float, float]]) -> float:
    """Spearman's rank correlation; nan where one side does not vary."""
    from scipy.stats import spearmanr

    first, second = np.array(points).T
    return float(spearmanr(first, second).statistic) if len({*first}) > 1 and len({*second}) > 1 else float("nan")


FIGURE_KIND = FigureKind(
    9, draw, "Alignment, uniformity and modality gap", "trials that were trained here for an epoch or more"
)
