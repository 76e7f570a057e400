"""Scatter plots with one point per cell or epoch: ours against the paper's, rsum against geometry or speed."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from goalgrid.grid.palette import FAINT
from goalgrid.results.figures import style
from goalgrid.results.figures.study import EPOCHS, FigureKind, Study, by_dataset
from goalgrid.results.layouts.captions import METRIC_NAMES
from goalgrid.results.reference.matching import Difference, Match, reported

NOTE = "bars: ± one standard deviation over seeds and runs; dashed: equal; paper:"
QUANTITIES = {
    "val_s_pos": "alignment: mean $s_{pos}$",
    "val_uniform": "uniformity: log E[exp(s)]",
    "val_gap": "modality gap",
}


def draw_paper(study: Study) -> Figure | None:
    """Draw our Recall@1 over the paper's, one panel per direction; None if no paper reports the trained cells."""
    metrics = {f"{direction}_r1": title for direction, title in study.directions.items()}
    match = reported(list(study.part.cells.values()), study.scores, list(metrics))
    shown = {metric: pairs for metric in metrics if (pairs := _both(study, match, metric))}
    if not shown:
        return None
    names = [name for name in study.part.cells if any(name in pairs for pairs in shown.values())]
    looks = style.point_looks(names)
    figure = style.blank(4.2, study, f"{NOTE} {', '.join(match.sources)}")
    every = style.side_by_side(figure, len(shown))
    for axes, (metric, pairs) in zip(every, shown.items(), strict=True):
        for name, pair in pairs.items():
            across, along = (value if math.isfinite(value) else None for value in (pair.theirs.std, pair.ours.std))
            look = {**looks[name], **style.PLAIN, "markeredgecolor": "white", "markeredgewidth": 0.6, "elinewidth": 0.8}
            axes.errorbar(pair.theirs.mean, pair.ours.mean, xerr=across, yerr=along, **look)
        _square(axes)
        recall = METRIC_NAMES["r1"]
        axes.set(title=metrics[metric], xlabel=f"paper's {recall}", ylabel=f"our {recall}")
    style.point_legend(figure, names, looks)
    return figure


def _both(study: Study, match: Match, metric: str) -> dict[str, Difference]:
    """Return our value and the paper's by cell name, for cells that have both; doubtful paper values are omitted."""
    both = {name: (study.scores.of(cell, metric), match.of(cell, metric)) for name, cell in study.part.cells.items()}
    return {n: Difference(ours, its.value) for n, (ours, its) in both.items() if ours.n and its and not its.doubt}


def _square(axes: Axes) -> None:
    axes.set_box_aspect(1)
    low = min(axes.get_xlim()[0], axes.get_ylim()[0])
    high = max(axes.get_xlim()[1], axes.get_ylim()[1])
    room = 0.03 * (high - low)  # else the frame cuts markers in the corners
    low, high = low - room, high + room
    axes.plot([low, high], [low, high], color=FAINT, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.set(xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6))
    axes.grid(visible=True)


def draw_geometry(study: Study) -> Figure | None:
    """Draw validation rsum over each quantity, one point per trial and epoch; None if nothing was logged.

    According to VSE+2AD §3.3, alignment and uniformity show how mature a model is.
    """
    names = [name for name in study.part.cells if pairs(study, name, "val_gap")]
    if not names:
        return None
    looks = style.point_looks(names)
    correlations = [rho([pair for name in names for pair in pairs(study, name, quantity)]) for quantity in QUANTITIES]
    meant = "; ρ: Spearman's rank correlation over all points" if any(map(math.isfinite, correlations)) else ""
    figure = style.blank(2.9, study, f"one point per trial and epoch{meant}")
    panels = style.side_by_side(figure, len(QUANTITIES), sharey=True)
    for axes, (quantity, title), correlation in zip(panels, QUANTITIES.items(), correlations, strict=True):
        for name in names:
            points = pairs(study, name, quantity)
            axes.plot(*zip(*points, strict=True), **{**looks[name], **style.PLAIN, "markersize": 3}, alpha=0.7)
        axes.set_title(f"ρ = {correlation:.2f}" if math.isfinite(correlation) else "", fontsize="medium")
        axes.set_xlabel(title)
        axes.grid(visible=True)
        if (place := axes.get_subplotspec()) and place.is_first_col():
            axes.set_ylabel("val. rsum (%)")
    style.point_legend(figure, names, looks)
    return figure


def pairs(study: Study, name: str, quantity: str) -> list[tuple[float, float]]:
    """Return pairs of quantity and validation rsum, for every epoch of a cell's trials."""
    points = []
    for trial in study.trials(name):
        values, rsums = study.histories[trial].get(quantity, {}), study.histories[trial].get("val_rsum", {})
        points += [(value, rsums[epoch]) for epoch, value in values.items() if epoch in rsums]
    return points


def rho(points: list[tuple[float, float]]) -> float:
    """Return Spearman's rank correlation; NaN if one variable is constant."""
    from scipy.stats import spearmanr

    first, second = np.array(points).T
    return float(spearmanr(first, second).statistic) if len({*first}) > 1 and len({*second}) > 1 else float("nan")


def draw_speed(study: Study) -> Figure | None:
    """Draw rsum over thousands of pairs scored per second; None if no speed was measured.

    As in SelHN Fig. 8; VSE+2AD Table 2 prints the same two quantities.
    """
    cells = {
        name: cell
        for name, cell in study.part.cells.items()
        if study.scores.of(cell, "rsum").n and not math.isnan(study.scores.of_model(cell, "kpps").value)
    }
    if not cells:
        return None
    alone = len({cell.objective for cell in cells.values()}) == 1
    names = {name: name.replace(f" {cell.objective}", "", 1) if alone else name for name, cell in cells.items()}
    styles = style.line_styles(list(cells))
    figure = style.blank(3.6, study, study.spread)
    axes = figure.subplots()
    for name, cell in cells.items():
        kpps, weights = (study.scores.of_model(cell, metric) for metric in ("kpps", "parameters"))
        rsum = study.scores.of(cell, "rsum")
        label = names[name] if math.isnan(weights.value) else f"{names[name]}, {weights.text} M weights"
        look = {**styles[name], **style.PLAIN, "label": label, "capsize": 2.5}
        axes.errorbar(kpps.value, rsum.mean, rsum.std if rsum.n > 1 else None, **look)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 100 * low else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    devices = "; ".join(study.scores.models.devices) if study.scores.models else ""
    axes.set(xlabel=f"thousands of pairs scored per second, on {devices}", ylabel="rsum (%)")
    axes.margins(0.12)
    axes.grid(visible=True)
    style.legend_below(figure, *axes.get_legend_handles_labels(), most=2 if len(cells) < 9 else 3)
    return figure


FIGURE_KINDS = {
    "paper": FigureKind(
        5,
        draw_paper,
        "The paper's numbers and ours",
        "cells whose Recall@1 is printed in a paper (list: goalgrid tables)",
    ),
    "geometry": FigureKind(9, draw_geometry, "Alignment, uniformity and modality gap", EPOCHS),
    "speed": FigureKind(
        11,
        draw_speed,
        "rsum against speed",
        "measured speeds: run goalgrid evaluate --trial ID --speed for each model",
        by_dataset,
    ),
}
