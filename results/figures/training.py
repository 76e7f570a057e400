"""Training behaviour: logged values over epochs, with bands over seeds, and how soon the final rsum is near.

As SelHN Figs 1, 3 and 5, Unified Figs 3 and 4 and VSE+2AD Fig. A.2-1 draw it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goalgrid.grid.palette import FAINT
from goalgrid.results.figures.study import FigureKind, Study
from goalgrid.results.figures.style import over_epochs
from goalgrid.results.records.history import LOGGED
from goalgrid.results.reference.curves import PrintedCurve

QUANTITIES = {
    "loss": "loss",
    "val_rsum": "val. rsum (%)",
    "delta_s": r"mean $|s_{neg} - s_{pos}|$",
    "grad_norm": "gradient norm",
}
"""What is drawn unless a user names other quantities, with its label."""

NEAR = 0.95
"""Share of the final rsum that counts as near."""


def draw(study: Study, quantities: Sequence[str] = (), reference: PrintedCurve | None = None) -> Figure | None:
    """A row a quantity, and below the epochs until 95 % of the final rsum; None where nothing was logged.

    Args:
        quantities: names of the history; none: `QUANTITIES`, and the epochs below.
        reference: a paper's curve to show beside the same quantity, for the objectives of the same names.
    """
    labels = {name: QUANTITIES.get(name) or label(name) for name in quantities} or QUANTITIES
    return over_epochs(study, labels, 1.6, reference, None if quantities else _draw_epochs_until_near)


def label(name: str) -> str:
    """Name and unit of a logged value."""
    unit = LOGGED[name].unit.split(",")[0] if name in LOGGED else ""
    return f"{name}\n({unit})" if unit else name


def epochs_until_near(study: Study, name: str) -> dict[int, int]:
    """First epoch whose validation rsum is at least 95 % of the last epoch's, by seed, of a cell's finished trials."""
    epochs = {}
    for trial in study.part.cells[name].trials:
        rsums = study.histories.get(trial.id, {}).get("val_rsum")
        if rsums:
            final = rsums[max(rsums)]
            epochs[trial.settings.seed] = min(epoch for epoch, rsum in rsums.items() if rsum >= NEAR * final)
    return epochs


def _draw_epochs_until_near(
    axes: Axes, study: Study, lines: Mapping[str, str], styles: Mapping[str, dict[str, Any]]
) -> None:
    """A line of marks an objective, a mark a seed; grey lines join the trials of a seed, the text is their mean."""
    epochs = {label: epochs_until_near(study, name) for label, name in lines.items()}
    seeds = sorted(set().union(*epochs.values()))
    places = np.linspace(-0.24, 0.24, len(seeds)) if len(seeds) > 1 else np.zeros(len(seeds))
    shifts = dict(zip(seeds, places.tolist(), strict=True))
    for seed, shift in shifts.items():
        paired = [(values[seed], place + shift) for place, values in enumerate(epochs.values()) if seed in values]
        axes.plot(*zip(*paired, strict=True), color=FAINT, linewidth=0.6, zorder=1)
    for place, (label, values) in enumerate(epochs.items()):
        look = {"color": styles[label]["color"], "marker": styles[label]["marker"]}
        axes.plot(
            list(values.values()), [place + shifts[seed] for seed in values], linestyle="none", markersize=4, **look
        )
        if values:
            mean = float(np.mean(list(values.values())))
            late = mean > sum(axes.get_xlim()) / 2  # the text stands where no marks are
            axes.annotate(
                f"mean {mean:.1f}", (0.01 if late else 0.99, place), xycoords=("axes fraction", "data"), fontsize=7,
                ha="left" if late else "right", va="center",
            )  # fmt: skip
    axes.set_yticks(range(len(epochs)), list(epochs))
    axes.set_ylim(len(epochs) - 0.5, -0.5)


FIGURE_KIND = FigureKind(3, draw, "Training behaviour", "trials that were trained here for an epoch or more")
