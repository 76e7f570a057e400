"""Figures from files stored next to records: learnt pooling weights, and the distribution of triplets."""

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goalgrid.grid.palette import BLUE, VERMILION
from goalgrid.results.figures.study import TRACED, FigureKind, Study, by_dataset
from goalgrid.results.figures.style import WIDTH, blank, legend_below, line_styles
from goalgrid.results.figures.training import curve
from goalgrid.results.records import steps

MODALITIES = {"image": "image regions", "text": "tokens of a caption"}


def draw_pooling(study: Study) -> Figure | None:
    """Draw the learnt weights theta over rank, a panel per modality, and ADPOOL's balance of its two levels.

    As VSE+2AD Fig. 3 and Eq. (3)-(5), VSE-infinity §3; from the selected checkpoints, over the validation split. None
    if no trial stored its pooling weights. The balance is the share of the token level against the embedding level.
    """
    study = study.beside(attrgetter("pooling"), "rank")
    names = [name for name in study.part.cells if study.trials(name)]
    if not names:
        return None
    styles = line_styles(names)
    figure = blank(3.1, study, study.spread)
    *panels, balances = figure.subplots(1, len(MODALITIES) + 1, width_ratios=[2, 2, 1.2])
    handles: dict[str, Any] = {}
    for axes, (modality, title) in zip(panels, MODALITIES.items(), strict=True):
        for name in names:
            if len(study.curve(name, f"theta_{modality}")[0]):
                count = len(study.trials(name))
                handles[f"{name}, n = {count}"] = curve(axes, study, name, f"theta_{modality}", styles[name])
        axes.set(title=title, xlabel="rank, from the largest", ylim=(0, None))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(visible=True)
    panels[0].set_ylabel(r"mean weight $\theta$")
    _balances(balances, study, names, styles)
    legend_below(figure, handles.values(), handles, most=3)
    return figure


def _balances(axes: Axes, study: Study, names: Sequence[str], styles: dict[str, dict[str, Any]]) -> None:
    """Draw a large marker per cell with its spread, and a small one per trial, so that diverging seeds are visible."""
    curves = {name: [study.curve(name, f"balance_{modality}")[1] for modality in MODALITIES] for name in names}
    balances = {name: [curve[:, :1].ravel() for curve in of_name] for name, of_name in curves.items()}
    balanced = [name for name in names if any(map(len, balances[name]))]  # the others pool without a balance
    places = np.linspace(-0.2, 0.2, len(balanced)) if len(balanced) != 1 else [0.0]
    for name, shift in zip(balanced, places, strict=True):
        look = styles[name] | {"linestyle": "none"}
        for place, values in enumerate(balances[name]):
            if len(values):
                spread = values.std(ddof=1) if len(values) > 1 else None
                axes.errorbar(place + shift, values.mean(), yerr=spread, capsize=3, markersize=5, **look)
                axes.plot(np.full(len(values), place + shift + 0.08), values, markersize=2.5, fillstyle="none", **look)
    axes.set_visible(bool(balanced))
    axes.set(title="balance", ylabel="share of the token level", xlim=(-0.5, 1.5), ylim=(-0.03, 1.03))
    axes.set_xticks(range(len(MODALITIES)), list(MODALITIES))
    axes.grid(visible=True, axis="y")


SHOWN = 4
"""Maximum number of epochs drawn per cell, including the first and the last."""
LINES = 15


def draw_triplets(study: Study) -> Figure | None:
    """Draw the density of triplets over their weights, a row per cell, a column per epoch; None without triplets.

    Axes are s_pos and the hardest s_neg; grey is the weight, red the triplets of the first seed. GOAL Figs 2 and 3 show
    only the weights; a weight near 0 where all triplets lie has no training signal.
    """
    densities = {name: steps.read_densities(study.home.trial(study.trials(name)[0]).triplets, study.scores.leave)
            for name in study.part.cells if study.trials(name)}  # fmt: skip
    densities = {name: density for name, density in list(densities.items())[:LINES] if density[0]}
    if not densities:
        return None
    columns = min(SHOWN, max(len(counts) for counts, _ in densities.values()))
    figure = blank(
        WIDTH / SHOWN * len(densities) + 0.7,
        study,
        "grey: T, or the gradient weight of a loss; red: the triplets of one seed",
    )
    every = figure.subplots(len(densities), columns, sharex=True, sharey=True, squeeze=False)
    for row, (name, (counts, weights)) in zip(every, densities.items(), strict=True):
        epochs = sorted(counts)
        chosen = [epochs[place] for place in np.linspace(0, len(epochs) - 1, columns).round().astype(int)]
        for axes, epoch in zip(row, chosen, strict=True):
            _panel(axes, np.array(counts[epoch]), np.array(weights, dtype=float))
            axes.set_title(f"epoch {epoch}", fontsize="medium")
        row[0].set_ylabel(f"{name}\n$s_{{neg}}$")
    for axes in every[-1]:
        axes.set_xlabel("$s_{pos}$")
    return figure


def _panel(axes: Axes, counts: np.ndarray, weights: np.ndarray) -> None:
    bins = math.isqrt(len(counts))
    middles = (np.arange(bins) + 0.5) / bins * 2 - 1
    top = max(1.0, float(np.nanmax(np.abs(weights)))) if np.isfinite(weights).any() else 1.0
    plane, density = weights.reshape(bins, bins).T, counts.reshape(bins, bins).T  # s_neg goes up
    axes.imshow(plane, origin="lower", extent=(-1, 1, -1, 1), cmap="Greys", vmin=0, vmax=top, alpha=0.4)
    levels = density.max() * np.array([0.1, 0.5])
    axes.contourf(middles, middles, density, levels=[*levels, density.max() + 1], colors=[VERMILION], alpha=0.85)
    axes.plot([-1, 1], [-1, 1], color=BLUE, linewidth=0.7, linestyle=":")
    axes.text(0.97, -0.47, f"mean {np.average(weights, weights=counts):.2g}", fontsize="small", ha="right", va="bottom")
    axes.set(xlim=(-0.5, 1), ylim=(-0.5, 1), aspect="equal")


FIGURE_KINDS = {
    "pooling": FigureKind(
        10,
        draw_pooling,
        "What the pooling learnt",
        "trials whose model pools by GPO or ADPOOL, with stored pooling weights",
        by_dataset,
    ),
    "triplets": FigureKind(8, draw_triplets, "Where triplets lie", TRACED),
}
