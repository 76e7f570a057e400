"""What `goalgrid compare` says: two grids in sentences and small tables, as rows of data and as JSON."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from goalgrid.grid.errors.wording import counted
from goalgrid.results.analysis.documents import (
    TEXT,
    Document,
    DocumentSection,
    Sheet,
    interval_text,
    number_text,
    p_text,
)
from goalgrid.results.analysis.effects_text import finite, metric_title
from goalgrid.results.analysis.grid_comparison import CellDifference, Differing, GridComparison
from goalgrid.results.renderers import csv
from goalgrid.results.statistics.significance import LEVEL

FORMATS = (*TEXT, "csv")
SHOWN = 48
"""Characters of a value that differs; the JSON has all of them."""


def document(comparison: GridComparison) -> Document:
    """What differs, then a section for every metric."""
    metrics = dict.fromkeys(difference.metric for difference in comparison.differences)
    title = f"{comparison.a} (A) and {comparison.b} (B): {counted(comparison.cells, 'cell')} compared"
    sections = [DocumentSection(title, tuple(_what(comparison)))]
    for metric in metrics:
        differences = [difference for difference in comparison.differences if difference.metric == metric]
        sections.append(DocumentSection(metric_title(metric, comparison.noun), tuple(_metric(differences))))
    return Document(tuple(sections), tuple(_footer(comparison)))


def for_programs(comparison: GridComparison) -> Any:
    """The comparison for JSON, unrounded; null for a number that does not exist."""
    return finite(asdict(comparison))


def write_out(comparison: GridComparison, kind: str) -> str:
    if kind == "csv":
        rows = for_programs(comparison)["differences"]
        for row in rows:
            interval = row.pop("interval")
            row |= {"interval_low": interval["low"], "interval_high": interval["high"]}
        return csv.written(list(rows[0]), [list(row.values()) for row in rows])
    return TEXT[kind](document(comparison))


def _what(comparison: GridComparison) -> Iterator[str | Sheet]:
    if comparison.settings:
        yield Sheet("Settings that differ", ("setting", "A", "B", "cells"), tuple(map(_differing, comparison.settings)))
    else:
        yield "All settings are the same."
    if comparison.sources:
        head = ("of the finished trials", "A", "B")
        yield Sheet("Beside the settings", head, tuple(_differing(source)[:3] for source in comparison.sources))
    yield from comparison.alone


def _differing(setting: Differing) -> tuple[str, str, str, str]:
    a, b = (text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…" for text in (setting.a, setting.b))
    return setting.name, a, b, str(setting.cells)


def _metric(differences: list[CellDifference]) -> Iterator[str | Sheet]:
    tested = [cell for cell in differences if math.isfinite(cell.holm)]
    real = [cell for cell in tested if cell.holm < LEVEL]
    higher, untested = sum(cell.mean > 0 for cell in real), len(differences) - len(tested)
    if tested:
        words = f"B differs from A in {len(real)} of {counted(len(tested), 'cell')} tested at {100 * LEVEL:.0f} % "
        words += f"(Holm): higher in {higher}, lower in {len(real) - higher}."
        yield words + (f" {counted(untested, 'cell')} without a test." if untested else "")
    else:
        yield f"No cell is tested: {'; '.join(dict.fromkeys(cell.how for cell in differences))}."
    rows = tuple(
        (d.name, number_text(d.a), number_text(d.b), str(d.pairs or f"{d.n_a} | {d.n_b}"),
         number_text(d.mean, sign="+"), interval_text(d.interval, "+"), p_text(d.p), p_text(d.holm), d.how)
        for d in differences
    )  # fmt: skip
    head = ("cell", "A", "B", "seeds", "B - A", "95 % interval", "p", "Holm", "compared")
    yield Sheet.telling("", head, rows)


def _footer(comparison: GridComparison) -> Iterator[str]:
    how = {difference.how for difference in comparison.differences}
    yield "A, B: means over the seeds that are compared. Holm: adjusted for all cells of a metric."
    if "seed by seed" in how:
        yield (
            "Seed by seed: t interval and paired t test over the seeds that both have; the same seed gives the same "
            "start weights and batches. Other seeds are left out."
        )
    if "unpaired (Welch)" in how:
        yield (
            "Unpaired (Welch): fewer than two seeds in common, or another recipe, which draws other weights and "
            "batches from the same seed; all seeds count, and both sides may vary differently."
        )
    if any("one seed" in words for words in how):
        yield "One seed shows no spread: a difference without interval and test may be chance. Add seeds."
