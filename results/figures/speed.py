"""rsum against speed, a point for each model and objective: SelHN Fig. 8; VSE+2AD Table 2 prints the two side by side.

Speeds are what `goalgrid evaluate --trial ID --speed` measured; a trial of each model is enough.
"""

import math

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from goalgrid.grid.expansion import Cell
from goalgrid.results.figures.study import FigureKind, Study, by_dataset
from goalgrid.results.figures.style import blank, legend_below, line_styles


def draw(study: Study) -> Figure | None:
    """Thousands of pairs scored a second to the right, rsum upwards; None where no speed was measured."""
    cells = measured(study)
    if not cells:
        return None
    alone = len({cell.objective for cell in cells.values()}) == 1
    names = {name: name.replace(f" {cell.objective}", "", 1) if alone else name for name, cell in cells.items()}
    styles = line_styles(list(cells))
    several = any(study.scores.of(cell, "rsum").n > 1 for cell in cells.values())
    figure = blank(3.6, study, "bars: ± one sample standard deviation over seeds" if several else "one seed, no spread")
    axes = figure.subplots()
    for name, cell in cells.items():
        kpps, weights = (study.scores.of_model(cell, metric) for metric in ("kpps", "parameters"))
        rsum = study.scores.of(cell, "rsum")
        look = {"color": styles[name]["color"], "marker": styles[name]["marker"], "linestyle": "none", "markersize": 6}
        label = names[name] if math.isnan(weights.value) else f"{names[name]}, {weights.text} M weights"
        axes.errorbar(kpps.value, rsum.mean, rsum.std if rsum.n > 1 else None, label=label, capsize=2.5, **look)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 100 * low else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    devices = "; ".join(study.scores.models.devices) if study.scores.models else ""
    axes.set(xlabel=f"thousands of pairs scored a second, on {devices}", ylabel="rsum (%)")
    axes.margins(0.12)
    axes.grid(visible=True)
    legend_below(figure, *axes.get_legend_handles_labels(), most=2 if len(cells) < 9 else 3)
    return figure


def measured(study: Study) -> dict[str, Cell]:
    """The cells with finished trials whose model has a measured speed."""
    return {
        name: cell
        for name, cell in study.part.cells.items()
        if study.scores.of(cell, "rsum").n and not math.isnan(study.scores.of_model(cell, "kpps").value)
    }


FIGURE_KIND = FigureKind(
    11,
    draw,
    "rsum against speed",
    "speeds, which goalgrid evaluate --trial ID --speed measures, of a trial of each model",
    by_dataset,
)
