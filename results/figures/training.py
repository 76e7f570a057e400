"""Curves over epochs or steps, with bands over seeds: training, diagnostics, single steps.

Training, as in SelHN Figs 1, 3 and 5, Unified Figs 3 and 4, VSE+2AD Fig. A.2-1. Diagnostics that a surrogate loss
cannot show: SelHN Fig. 3, Unified Fig. 4. Steps, for losses that adapt while they train: SelHN Fig. 7 (which anchors
learn from all negatives), VSE+2AD Fig. C-2 (ADOPT's K).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from goalgrid.grid.objectives.goal_matrix import CELLS, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.palette import FAINT
from goalgrid.results.figures.study import EPOCHS, TRACED, FigureKind, Study
from goalgrid.results.figures.style import PLAIN, blank, legend_below, line_styles, shortened, symbol
from goalgrid.results.records import history
from goalgrid.results.reference.curves import PrintedCurve

QUANTITIES = {
    "loss": "loss",
    "val_rsum": "val. rsum (%)",
    "delta_s": r"mean $|s_{neg} - s_{pos}|$",
    "grad_norm": "gradient norm",
}
STEP_QUANTITIES = {
    "branch": "anchors on\nthe other branch",
    "k": "$K$ of ADOPT\n(negatives)",
    "delta_s": r"mean $|s_{neg} - s_{pos}|$",
    "loss": "loss of the batch",
}
"""Quantities drawn by default, with their labels."""
DIAGNOSTICS = {"s_pos": "mean $s_{pos}$", "s_neg": "mean $s_{neg}$", "active": "active triplets (share)"}

SURROGATE = "mean surrogate\n(no loss)"
"""Label for GOAL's cells, whose value is a surrogate: only its gradient is meaningful."""

NEAR = 0.95


def draw(study: Study, quantities: Sequence[str] = (), reference: PrintedCurve | None = None) -> Figure | None:
    """Draw one row per quantity, then the epochs until 95 % of the final rsum; None if nothing was logged.

    Args:
        quantities: names in the history; if empty, `QUANTITIES` (surrogates are not drawn as losses), and the epochs
            until 95 %.
        reference: a paper's curve, shown with the same quantity for the matching cells.
    """
    labels = dict(_labels(quantities, QUANTITIES))
    if "loss" in labels and set(study.part.cells) & set(CELLS):
        labels["loss"] = SURROGATE if quantities else "loss, of those\nthat have one"
    if not quantities and set(study.part.cells) <= set(CELLS):
        del labels["loss"]
    return over_epochs(study, labels, 1.6, reference, until_near=not quantities, surrogates=bool(quantities))


def draw_steps(study: Study, quantities: Sequence[str] = ()) -> Figure | None:
    """Draw one row per quantity over training steps; None if no trial logged single steps."""
    traced = study.beside(attrgetter("trace"), "step")
    return over_epochs(traced, _labels(quantities, STEP_QUANTITIES), 1.5, along="step")


def _labels(quantities: Sequence[str], usual: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels of quantities (name and unit for unusual ones); if none are given, the usual quantities."""
    logged = history.all_logged()
    units = {name: logged[name].unit.split(",")[0] if name in logged else "" for name in quantities}
    return {name: usual.get(name) or (f"{name}\n({unit})" if unit else name) for name, unit in units.items()} or usual


def epochs_until_near(study: Study, name: str) -> dict[int, int]:
    """Return the first epoch with at least 95 % of the final validation rsum, by seed, for a cell's finished trials."""
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
    """Draw a marker per objective and seed, and each objective's mean as text; grey lines join trials of one seed."""
    epochs = {label: epochs_until_near(study, name) for label, name in lines.items()}
    seeds = sorted(set().union(*epochs.values()))
    around = np.linspace(-0.24, 0.24, len(seeds)) if len(seeds) > 1 else np.zeros(len(seeds))
    shifts = dict(zip(seeds, around.tolist(), strict=True))
    places = {label: place for place, label in enumerate(styles)}  # the panels share their vertical axis
    for seed, shift in shifts.items():
        paired = [(values[seed], places[label] + shift) for label, values in epochs.items() if seed in values]
        axes.plot(*zip(*paired, strict=True), color=FAINT, linewidth=0.6, zorder=1)
    for label, values in epochs.items():
        look, place = styles[label] | PLAIN | {"markersize": 4}, places[label]
        axes.plot(list(values.values()), [place + shifts[seed] for seed in values], **look)
        if values:
            mean = float(np.mean(list(values.values())))
            late = mean > sum(axes.get_xlim()) / 2  # the text is where no marks are
            axes.annotate(
                f"mean {mean:.1f}", (0.01 if late else 0.99, place), xycoords=("axes fraction", "data"),
                fontsize="small",
                ha="left" if late else "right", va="center",
            )  # fmt: skip
    axes.set_yticks(range(len(places)), map(shortened, places))
    axes.set_ylim(len(places) - 0.5, -0.5)


def panels(study: Study) -> dict[str, dict[str, str]]:
    """Return the lines of adjacent panels: for each panel's title, the cell names by line label.

    GOAL's matrix has one panel per triplet weight, with one line per pair weight; other grids have one panel.
    """
    names = list(study.part.cells)
    if not set(names) <= set(CELLS):
        return {"": {name: name for name in names}}
    return {
        symbol("triplet weight", triplet): {
            symbol("pair weight", pair): f"{pair}_{triplet}" for pair in PAIR_WEIGHTS if f"{pair}_{triplet}" in names
        }
        for triplet in TRIPLET_WEIGHTS
        if any(name.endswith(f"_{triplet}") for name in names)
    }


def over_epochs(
    study: Study,
    quantities: Mapping[str, str],
    row_height: float,
    reference: PrintedCurve | None = None,
    until_near: bool = False,
    along: str = "epoch",
    surrogates: bool = True,
) -> Figure | None:
    """Draw curves over epochs, one row per logged quantity, one column per panel; None if no quantity was logged.

    Lines are means over seeds, bands ± one sample standard deviation.

    Args:
        row_height: height of each quantity's row, in inches.
        reference: a paper's curve, drawn as small markers in the row of its quantity, for the matching cells.
        until_near: whether to add a row with the epochs until 95 % of the final rsum.
        surrogates: whether to draw the surrogate values of GOAL's cells in the row of the loss.
    """
    logged = {quantity for trial in study.every_trial for quantity in study.histories[trial]}
    rows = {quantity: title for quantity, title in quantities.items() if quantity in logged}
    if not rows:
        return None
    count = len(rows) + until_near
    figure = blank(row_height * count + 0.9, study, study.spread)
    columns = panels(study)
    styles = line_styles(list(dict.fromkeys(label for lines in columns.values() for label in lines)))
    every = figure.subplots(count, len(columns), sharex=True, sharey="row", squeeze=False)
    handles = dict[str, Line2D]()
    for line, (quantity, title) in zip(every[: len(rows)], rows.items(), strict=True):
        for axes, lines in zip(line, columns.values(), strict=True):
            if quantity == "loss" and not surrogates:
                lines = {label: name for label, name in lines.items() if name not in CELLS}
            handles |= _panel(axes, study, quantity, lines, styles, reference)
        line[0].set_ylabel(title)
        _spread_out(line[0])
    if until_near:
        for axes, lines in zip(every[-1], columns.values(), strict=True):
            _draw_epochs_until_near(axes, study, lines, styles)
            axes.grid(visible=True, axis="x")
        every[-1][0].set_ylabel("until 95 % of\nthe final rsum")
    for axes, heading in zip(every[0], columns, strict=True):
        axes.set_title(heading, fontsize="x-large")
    for axes in every[-1]:
        axes.set_xlabel(along)
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    figure.align_ylabels(every[:, 0])
    legend_below(figure, handles.values(), handles, most=5)
    return figure


def _panel(
    axes: Axes,
    study: Study,
    quantity: str,
    lines: Mapping[str, str],
    styles: Mapping[str, dict[str, Any]],
    reference: PrintedCurve | None,
) -> dict[str, Line2D]:
    """Draw the curves of a quantity in a panel, including a paper's curves; return them by label."""
    handles = dict[str, Line2D]()
    printed = reference.of(study.part.cells) if reference and reference.quantity == quantity else {}
    for label, name in lines.items():
        if study.trials(name):
            handles[label] = curve(axes, study, name, quantity, styles[label])
        if reference and name in printed:
            look = {**styles[label], "linestyle": "none", "markersize": 3, "fillstyle": "none"}
            (handles[f"{label}, {reference.source}"],) = axes.plot(reference.epochs, printed[name], **look)
    axes.grid(visible=True)
    return handles


WIDE = 30
"""A row of positive values whose range exceeds this factor gets a logarithmic axis.

Values of both signs get one, linear near 0, if the largest absolute value exceeds the median by this factor.
"""


def _spread_out(axes: Axes) -> None:
    """Make a row's vertical axis logarithmic if its lines would otherwise overlap."""
    heights = [value for other in axes.get_shared_y_axes().get_siblings(axes) for line in other.lines
             for value in np.asarray(line.get_ydata(), dtype=float)]  # fmt: skip
    sizes = np.abs(heights)
    if heights and min(heights) > 0 and max(heights) > WIDE * min(heights):
        axes.set_yscale("log")
    elif heights and min(heights) <= 0 and sizes.max() > WIDE * (middle := float(np.median(sizes))) > 0:
        axes.set_yscale("symlog", linthresh=10.0 ** np.ceil(np.log10(middle)), linscale=0.6)


def curve(axes: Axes, study: Study, name: str, quantity: str, style: dict[str, Any]) -> Line2D:
    epochs, values = study.curve(name, quantity)
    look = {**style, "markersize": 3.2, "linewidth": 1.4, "markevery": max(1, len(epochs) // 8)}
    mean = values.mean(axis=0)
    if len(values) > 1:
        std = values.std(axis=0, ddof=1)
        axes.fill_between(epochs, mean - std, mean + std, color=style["color"], alpha=0.12, linewidth=0)
    return axes.plot(epochs, mean, **look)[0]


diagnostics = partial(over_epochs, quantities=DIAGNOSTICS, row_height=1.5)
FIGURE_KINDS = {
    "training": FigureKind(3, draw, "Training behaviour", EPOCHS),
    "diagnostics": FigureKind(4, diagnostics, "Similarities and active triplets", EPOCHS),
    "steps": FigureKind(6, draw_steps, "Training step by step", TRACED),
}
