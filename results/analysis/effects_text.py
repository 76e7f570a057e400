"""Writes the output of `goalgrid effects`: analyses as sentences and small tables, or as CSV."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from goalgrid.grid.errors import counted
from goalgrid.grid.expansion import Cell
from goalgrid.grid.protocols import shown
from goalgrid.results.analysis.block_analysis import WORTH_FINDING, Analysis, BaselineDifference, Queries
from goalgrid.results.analysis.documents import GLUE, TEXT, Document, DocumentSection, Sheet, finite, interval_text
from goalgrid.results.analysis.observations import rule
from goalgrid.results.layouts.captions import METRIC_NAMES, NO_BEST, NOT_LEARNT, directions, selections
from goalgrid.results.records.rounding import NONE, number_text, p_text, written
from goalgrid.results.renderers import csv
from goalgrid.results.statistics.anova import Anova, Effect
from goalgrid.results.statistics.pairs import test_of
from goalgrid.results.statistics.significance import LEVEL, std_factors
from goalgrid.results.tables import LIKE_BEST

FORMATS = (*TEXT, "csv")
FEW = 10
"""Number of seeds below which an estimate based on a standard deviation gets a warning."""
ALONE = "with no other cell to compare"


def document(analyses: Sequence[Analysis], cells: Sequence[Cell]) -> Document:
    """Build a document with one section per analysis; a block's conditions are in its first section.

    `cells`: cells of the grid; empty for a paper's table.
    """
    footer, sections, titles = _footer(analyses, cells) if cells else (PRINTED,), list[DocumentSection](), set[str]()
    for analysis in analyses:
        sections.append(_section(analysis, () if analysis.title in titles else analysis.conditions))
        titles.add(analysis.title)
    return Document(tuple(sections), tuple(footer))


def write_out(analyses: Sequence[Analysis], cells: Sequence[Cell], kind: str) -> str:
    """Write the analyses in one of `FORMATS`; `cells`: cells of the grid, empty for a paper's table.

    CSV has one line per number: block, metric, position in the analysis, and the unrounded number.
    """
    if kind != "csv":
        return TEXT[kind](document(analyses, cells))
    rows = [(analysis.title, analysis.metric, *row) for analysis in analyses for row in _rows(analysis)]
    return csv.written(["block", "metric", "what", "name", "quantity", "value"], rows)


PRINTED = (
    "From printed means and standard deviations, which are rounded: main effects, interactions, and the spread of runs "
    "within cells as the error. Differences: Welch's test. A printed ±0.0 counts as ±0.05."
)


def metric_title(metric: str, noun: str) -> str:
    """Return the title of a metric, e.g. `Image → Text, Recall@1 (%)`."""
    direction, _, name = metric.partition("_")
    return f"{directions(noun)[direction].text}, {METRIC_NAMES[name]}" if name else METRIC_NAMES[metric]


def finding(analysis: Analysis) -> str:
    """Summarise a block: the best cell, cells not distinguishable from it, and how many seeds would separate them."""
    if not analysis.best:
        return f"{analysis.title}, {_size(analysis)}: {_none_best(analysis).replace('All', 'all', 1)}"
    among = f" of the {counted(len(analysis.names), 'cell')} compared" if analysis.caveats else ""
    best = f"has {_short(analysis)}" if _alone(analysis) else f"has the best {_short(analysis)}{among},"
    begin = f"{analysis.title}, {_size(analysis)}: {analysis.best} {best}"
    words, nearest = " ".join([_best(analysis, begin), *analysis.caveats]), analysis.nearest
    if len(analysis.seeds) < 2 and not _alone(analysis):
        return f"{words} One seed: no difference is tested."
    if nearest is None or nearest.name not in analysis.like_best:
        return words
    seeds = f"about {nearest.seeds_needed}" if nearest.seeds_needed else "more than 1,000"
    ahead = f"lead of {written(abs(nearest.mean))} over {nearest.name}"
    if len(analysis.seeds) < 3:  # their spread may be 32 times that of many seeds
        return f"{words} Two seeds are too few to estimate how many would show its {ahead}."
    return f"{words} If the {ahead} is as large as observed, {seeds} seeds would show it (paired t test, power 0.8)."


def verdict(analysis: Analysis, name: str) -> str:
    """State whether a cell is distinguishable from the best, and its difference from the baseline."""
    means = dict(zip(analysis.names, analysis.means, strict=True))
    over = f" over {counted(len(analysis.seeds), 'shared seed')}" if analysis.caveats else ""
    what = f"{_short(analysis)} {written(means[name])}{over}"
    if not analysis.best:
        words = f"{what}. {_none_best(analysis)}".rstrip(".")
    elif name == analysis.best:
        words = f"{what}, {ALONE}" if _alone(analysis) else f"{what}, the best of {len(means)} cells"
    else:
        alike = "not distinguishable" if name in analysis.like_best else "distinguishable"
        tested = f", {alike} at {_percent(LEVEL)} ({test_of(len(means))})" if analysis.like_best else ""
        words = f"{what}; the best is {analysis.best}, {written(means[analysis.best])}{tested}"
    for difference in analysis.differences:
        if difference.name == name:
            interval = interval_text(difference.interval, "+")
            words += f". Minus {analysis.baseline}: {written(difference.mean, sign='+')}, 95 % interval {interval}, "
            words += f"p = {p_text(difference.p_t)}, by Holm {p_text(difference.holm_t)}"
    return f"{words}."


def _alone(analysis: Analysis) -> bool:
    return len(analysis.names) == 1


def _short(analysis: Analysis) -> str:
    """Return a short title of the metric, e.g. `rsum` or `Image → Text, Recall@1`."""
    return metric_title(analysis.metric, analysis.noun).partition(" (")[0].partition(", the")[0]


def _size(analysis: Analysis) -> str:
    return f"{counted(len(analysis.names), 'cell')} x {counted(len(analysis.seeds), 'seed')}"


def _section(analysis: Analysis, conditions: Sequence[str]) -> DocumentSection:
    parts: list[str | Sheet] = [*conditions]
    if analysis.anova:
        parts += [_summary(analysis.anova), _anova_sheet(analysis.anova), _margins(analysis.anova)]
    beginning = f"Only {analysis.best}," if _alone(analysis) else f"Best: {analysis.best},"
    parts += [_best(analysis, beginning) if analysis.best else _none_best(analysis), _cells(analysis)]
    if analysis.queries:
        parts.append(_queries(analysis.queries, analysis.noun))
    parts += [f"Note: {note}." for note in analysis.notes]
    title = f"{analysis.title}: {metric_title(analysis.metric, analysis.noun)}, {_size(analysis)}"
    return DocumentSection(title, tuple(parts))


def _summary(anova: Anova) -> str:
    words: list[str] = []
    for effect in sorted(anova.effects, key=lambda effect: effect.share, reverse=True):
        name = f"interaction {effect.name}" if " x " in effect.name else effect.name
        of_what = "" if words else " of the variance"
        words.append(f"{name} explains {_percent(effect.share)}{of_what}{_test(effect)}")
    rest = f"The seed explains {_percent(anova.seeds)}; {_percent(anova.error)} is residual."
    if math.isnan(anova.seeds):
        rest = f"{_percent(anova.error)} is residual, the spread of runs within cells."
    if not anova.freedom:
        rest = "With one seed there is no residual variance, so nothing is tested."
    return f"The {'; the '.join(words)}. {rest}"


def _test(effect: Effect) -> str:
    if math.isnan(effect.p):
        return ""
    p = f"p {p_text(effect.p)}" if effect.p < 0.001 else f"p = {p_text(effect.p)}"
    return f" (partial η²{GLUE}{written(effect.partial_eta2, 2)}; {p.replace(' ', GLUE)})"


def _anova_sheet(anova: Anova) -> Sheet:
    rows = [
        (effect.name, _percent(effect.share), number_text(effect.partial_eta2, 2), number_text(effect.omega2, 2),
         f"F({effect.freedom}, {anova.freedom}) = {number_text(effect.f)}", p_text(effect.p))
        for effect in anova.effects
    ]  # fmt: skip
    rest = [("seed", _percent(anova.seeds))] if not math.isnan(anova.seeds) else []
    rest.append(("residual", _percent(anova.error)))
    head = ("axis", "of the variance", "partial η²", "ω²", "F test", "p")
    if not anova.freedom:
        return Sheet("", head[:2], tuple(row[:2] for row in rows))
    return Sheet("", head, (*rows, *((*row, "", "", "", "") for row in rest)))


def _margins(anova: Anova) -> Sheet:
    title, head = "Marginal means: over all other axes", ("level", "mean", "95 % interval", "above")
    rows = []
    for factor in anova.factors:
        names = [level.name for level in factor.levels]
        for level in factor.levels:
            above = _listed(level.above, [name for name in names if name != level.name]) if level.above else ""
            rows.append((f"{factor.name} {level.name}", written(level.mean), interval_text(level.interval), above))
    if not anova.freedom:
        return Sheet(title, head[:2], tuple(row[:2] for row in rows))
    if any(level.above is not None for factor in anova.factors for level in factor.levels):
        title += f"; above: by more than seeds explain, {_percent(LEVEL)} for all levels of an axis together"
    return Sheet.telling(title, head, tuple(rows))


def _best(analysis: Analysis, beginning: str) -> str:
    best = f"{beginning} {written(analysis.means[analysis.names.index(analysis.best)])}"
    if not analysis.like_best:
        return f"{best}, {ALONE}." if _alone(analysis) else f"{best}."
    others = [name for name in analysis.like_best if name != analysis.best]
    if not others:
        return f"{best}; every other cell is distinguishable from it at {_percent(LEVEL)}."
    which = _listed(others, [name for name in analysis.names if name != analysis.best])
    return f"{best}; not distinguishable from it at {_percent(LEVEL)} ({LIKE_BEST}): {which}."


def _none_best(analysis: Analysis) -> str:
    return f"{analysis.names[0]} is {NOT_LEARNT}." if _alone(analysis) else NO_BEST


def _listed(some: Sequence[str], every: Sequence[str]) -> str:
    """List the names, or `all but` the few that are missing."""
    lacking = [name for name in every if name not in some]
    if len(some) <= max(1, len(lacking)):
        return ", ".join(some)
    return f"all but {', '.join(lacking)}" if lacking else "all others"


def _cells(analysis: Analysis) -> Sheet:
    differences = {difference.name: difference for difference in analysis.differences}
    order = sorted(zip(analysis.means, analysis.names, strict=True), reverse=not analysis.metric.endswith("medr"))
    names = {name: f"{name} {LIKE_BEST}" if name in analysis.like_best else name for name in analysis.names}
    if not differences:
        return Sheet("", ("cell", "mean"), tuple((names[name], written(mean)) for mean, name in order))
    rows = [(names[name], written(mean), *_difference(differences.get(name))) for mean, name in order]
    head = ("cell", "mean", "difference", "95 % interval", "p (t)", "Holm", "seeds for 0.5")
    if not analysis.paired:
        return Sheet(f"Differences from {analysis.baseline}", head[:-1], tuple(row[:-1] for row in rows))
    return Sheet(f"Differences from {analysis.baseline}, seed by seed", head, tuple(rows))


def _difference(difference: BaselineDifference | None) -> tuple[str, ...]:
    if difference is None:
        return ("",) * 5
    needed = NONE if math.isnan(difference.p_t) else str(difference.seeds_needed or "> 1000")
    tests = p_text(difference.p_t), p_text(difference.holm_t)
    return written(difference.mean, sign="+"), interval_text(difference.interval, "+"), *tests, needed


def _queries(queries: Queries, noun: str) -> str:
    words = f"Over other test {noun}s (bootstrap over {queries.images:,} {noun}s, models held fixed): {queries.cell} "
    words += interval_text(queries.interval)
    if queries.difference:
        words += f", {queries.cell} minus {queries.minus} {interval_text(queries.difference, '+')}"
    return f"{words}; this uncertainty adds to that over seeds."


def _footer(analyses: Sequence[Analysis], cells: Sequence[Cell]) -> Iterator[str]:
    protocols = ", ".join(dict.fromkeys(shown(name) for analysis in analyses for name in analysis.protocol.split(", ")))
    yield f"Test metrics on {protocols}; {selections(cells)}."
    if max(len(analysis.seeds) for analysis in analyses) < 2:
        yield (
            "One seed: the table describes these means only; other seeds may disagree. For intervals and tests, add "
            "seeds to the grid: goalgrid run GRID --set 'seeds=[0,1,2,3,4]'."
        )
        return
    yield (
        "Model: main effects, interactions and the seed as a block (cells of one seed share initial weights and "
        "batches); the error of F tests is pooled over cells. η², ω²: Hays (1963). Intervals of means: t over seeds."
    )
    if compared := {len(analysis.names) for analysis in analyses if analysis.like_best}:
        yield rule(compared).text
    for n in sorted({len(analysis.seeds) for analysis in analyses if analysis.differences}):
        factors = std_factors(n)
        bounds = f"{written(factors.low)} to {written(factors.high)}"
        needed = (
            f"Seeds for {WORTH_FINDING}: needed for a paired t test to find {WORTH_FINDING} points with power 0.8 at "
            f"{_percent(LEVEL)} (unadjusted), given the spread of the differences"
        )
        if n < FEW:
            yield f"{needed}; the true spread may be {bounds} times that of these {n} seeds."
        else:
            yield f"{needed}."


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{written(100 * share, 0)}{GLUE}%"


def _rows(analysis: Analysis) -> Iterator[tuple[str, str, str, object]]:
    content = finite(analysis)
    for name, mean in zip(analysis.names, analysis.means, strict=True):
        yield "cell", name, "mean", mean
        yield "cell", name, "like_best", int(name in analysis.like_best) if analysis.like_best else None
    for what, by_cell in (("setting", analysis.settings), ("chosen", analysis.chosen)):
        yield from ((what, name, key, value) for name, values in by_cell.items() for key, value in values.items())
    for kind in ("effects", "factors") if analysis.anova else ():
        for part in content["anova"][kind]:
            yield from _flat(kind.removesuffix("s"), part)
    for difference in content["differences"]:
        yield from _flat("difference", difference)


def _flat(what: str, content: dict[str, Any], name: str = "") -> Iterator[tuple[str, str, str, object]]:
    name = " ".join(filter(None, [name, content["name"]]))
    for key, value in content.items():
        if key == "levels":
            for level in value:
                yield from _flat("level", level, name)
        elif isinstance(value, dict):
            yield from ((what, name, f"{key}_{end}", number) for end, number in value.items())
        elif key == "above":
            yield what, name, key, None if value is None else ", ".join(value)
        elif key != "name":
            yield what, name, key, value
