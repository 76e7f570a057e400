"""GOAL's matrix as a heat map; main effects of the factors, and their interaction."""

import re
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from goalgrid.grid.palette import BLUE, INK
from goalgrid.results.analysis.block_analysis import crossed
from goalgrid.results.analysis.factors import factors_of
from goalgrid.results.analysis.observations import Observations
from goalgrid.results.figures.study import FigureKind, Study
from goalgrid.results.figures.style import WIDTH, blank, legend_below, line_styles, shortened, side_by_side, symbol
from goalgrid.results.layouts.captions import METRIC_NAMES
from goalgrid.results.records.scores import Score, best
from goalgrid.results.statistics.anova import Factor, anova
from goalgrid.results.tables import LIKE_BEST

NOTE = f"bars: 95 % t interval over seeds; {LIKE_BEST}: no other level is significantly better (5 %)"
ONE_SEED = "one seed, so no interval"


def draw_matrix(study: Study) -> Figure | None:
    """Draw Recall@1 as in GOAL Tables 3 to 5; None unless the grid crosses pair weights with triplet weights."""
    factors, _ = factors_of(study.part.places)
    if len(factors) != 2:
        return None
    pairs, triplets = factors.values()
    cells = [[study.part.cells[f"{pair}_{triplet}"] for triplet in triplets] for pair in pairs]
    rows, columns = ([symbol(factor, level) for level in levels] for factor, levels in factors.items())
    figure = blank(0.46 * len(pairs) + 1.15, study, f"{study.spread}; best in bold")
    for axes, (direction, title) in zip(side_by_side(figure, 2), study.directions.items(), strict=True):
        metric = f"{direction}_{study.scores.headline}"
        image = _heat(axes, [[study.scores.of(cell, metric) for cell in row] for row in cells])
        axes.set_title(title)
        axes.set_xticks(np.arange(len(columns)) + 0.5, columns, fontsize="large")
        axes.set_yticks(np.arange(len(rows)) + 0.5, rows, fontsize="large")
        bar = figure.colorbar(image, ax=axes, label=METRIC_NAMES[study.scores.headline], pad=0.02)
        bar.outline.set_visible(False)
    return figure


def _heat(axes: Axes, scores: list[list[Score]]) -> Any:
    means = np.array([[score.mean for score in row] for row in scores])
    image = axes.pcolormesh(means, cmap="cividis", edgecolors="white", linewidth=1.5)  # PGF takes no bitmaps
    axes.set(xlim=(0, means.shape[1]), ylim=(means.shape[0], 0))
    winners = best([score for row in scores for score in row])
    for (row, column), mean in np.ndenumerate(means):
        score = scores[row][column]
        dark = bool(np.asarray(image.norm(mean)) < 0.55) if np.isfinite(mean) else False
        first = row * means.shape[1] + column in winners
        size = "medium" if score.n == score.expected else "small"
        lines = re.sub(r" (?=[±(])", "\n", score.text)  # a cell may be narrower than the whole text
        axes.text(column + 0.5, row + 0.5, lines, ha="center", va="center", fontsize=size,
                  color="white" if dark else INK, weight="bold" if first else "normal")  # fmt: skip
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    return image


def draw_effects(study: Study) -> Figure | None:
    """Draw the factors' marginal means and their interaction, one row per direction; None for fewer than two cells."""
    rows = {direction: _analysed(study, direction) for direction in study.directions}
    analysed = {direction: parts for direction, parts in rows.items() if parts}
    if not analysed:
        return None
    factors = next(iter(analysed.values()))[0]
    sure = any(np.isfinite(level.interval.half_width) for factor in factors for level in factor.levels)
    figure = blank(2.25 * len(analysed) + 0.4, study, NOTE if sure else ONE_SEED)
    columns = len(factors) + (len(factors) == 2)
    every = figure.subplots(len(analysed), columns, sharex="col", sharey="row", squeeze=False)
    for line, (direction, (parts, means)) in zip(every, analysed.items(), strict=True):
        for axes, factor in zip(line, parts, strict=False):
            _main(axes, factor)
        if len(parts) == 2:
            lines, across = parts
            styles = line_styles([symbol(lines.name, level.name) for level in lines.levels])
            for values, (label, style) in zip(means, styles.items(), strict=True):
                line[2].plot(np.arange(len(values)), values, label=label, linewidth=1.4, markersize=4, **style)
            _name(line[2], across)
        line[0].set_ylabel(f"{study.directions[direction]}\n{METRIC_NAMES[study.scores.headline]}")
        for axes in line:
            axes.grid(visible=True, axis="y")
    for axes, title in zip(every[0], [*(factor.name for factor in factors), "interaction"], strict=False):
        axes.set_title(title)
    if len(factors) == 2:
        handles, labels = every[0][2].get_legend_handles_labels()
        legend_below(figure, handles, labels, most=len(labels), loc="outside lower right")
    return figure


def _analysed(study: Study, direction: str) -> tuple[tuple[Factor, ...], Any] | None:
    """Return the factors with their marginal means, and the cell means as an array with one axis per factor."""
    metric = f"{direction}_{study.scores.headline}"
    seen = Observations.shared({name: study.scores.of(cell, metric) for name, cell in study.part.cells.items()})
    if len(seen.names) < 2 or not seen.seeds:
        return None
    values, factors = crossed(study.part, seen)
    return anova(values, factors).factors, values.mean(axis=-1)


def _main(axes: Axes, factor: Factor) -> None:
    means = np.array([level.mean for level in factor.levels])
    places = np.arange(len(means))
    half = np.nan_to_num([level.interval.half_width for level in factor.levels])
    axes.errorbar(places, means, half, fmt="o", color=BLUE, ecolor=BLUE, capsize=2.5, markersize=5)
    below = {name for level in factor.levels for name in level.above or ()}
    for place, level in enumerate(factor.levels):
        if level.above is not None and level.name not in below:
            top = (place, means[place] + half[place])
            axes.annotate(LIKE_BEST, top, xytext=(0, 2), textcoords="offset points", ha="center", clip_on=False)
    _name(axes, factor)


def _name(axes: Axes, factor: Factor) -> None:
    labels = [shortened(symbol(factor.name, level.name)) for level in factor.levels]
    room = 60 * axes.figure.bbox.width / axes.figure.dpi / WIDTH
    long = max(map(len, (level.name for level in factor.levels))) * len(labels) > room
    axes.set_xticks(range(len(labels)), labels, rotation=60 if long else 0, ha="right" if long else "center")
    axes.set_xlim(-0.45, len(labels) - 0.45)


FIGURE_KINDS = {
    "matrix": FigureKind(
        1,
        draw_matrix,
        "The matrix",
        "objectives of GOAL's matrix with at least two pair weights and two triplet weights",
    ),
    "effects": FigureKind(
        2, draw_effects, "Main effects and interaction", "at least two cells with finished trials of the same seeds"
    ),
}
