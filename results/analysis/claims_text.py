"""What `goalgrid claims` says: each sentence of a paper, whether it holds, and the comparisons behind that."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from goalgrid.grid.errors.wording import counted
from goalgrid.results.analysis.claims import ABSENT, FAILS, HOLDS, Comparison, JudgedClaim
from goalgrid.results.analysis.documents import GLUE, Document, DocumentSection, Sheet, p_text
from goalgrid.results.analysis.effects_text import finite
from goalgrid.results.records.rounding import written

MOST = 3


def document(sources: Sequence[tuple[str, Sequence[JudgedClaim]]], *, comparisons: bool = False) -> Document:
    """A section for every claim, with a line for each source: `printed`, or the name of a grid."""
    sections = []
    for by_source in zip(*(claims for _, claims in sources), strict=True):
        claim = by_source[0].claim
        parts: list[str | Sheet] = [f'"{claim.sentence}."']
        for (source, _), judged in zip(sources, by_source, strict=True):
            parts.append(line(source, judged))
            parts += _sheets(source, judged) if comparisons else []
        sections.append(DocumentSection(f"{by_source[0].paper} {claim.where}: {claim.name}", tuple(parts)))
    return Document(tuple(sections), FOOTER)


def line(source: str, judged: JudgedClaim) -> str:
    """The verdict by tests, and by the means alone."""
    if judged.verdict == ABSENT:
        at_one = f" with the same {' and '.join(judged.claim.equal)}" if judged.claim.equal else ""
        return f"{source}: {ABSENT}{at_one}."
    if judged.agreements:
        agreements = judged.agreements
        low = min(agreements, key=lambda agreement: agreement.tau)
        counts = f"{_verdicts(judged)} of {len(agreements)} pairs of blocks; least tau {written(low.tau, 2)}"
        p = f" (p{GLUE}{p_text(low.holm)} after Holm)"
        return f"{source}: {judged.verdict}; {counts}{p}, {' and '.join(low.blocks)}, {low.metric}."
    many, right = len(judged.comparisons), sum(comparison.difference > 0 for comparison in judged.comparisons)
    runs = f", n = {judged.n}" if judged.n else ""
    tests = f"{_verdicts(judged)} of {counted(many, 'comparison')}{runs}"
    if all(math.isnan(comparison.p) for comparison in judged.comparisons):
        tests = f"{counted(many, 'comparison')} without a spread to test by{runs}"
    against = "; ".join(
        f"{_minus(comparison)}, {comparison.block}, {comparison.metric}: {written(comparison.difference, sign='+')}"
        for comparison in judged.against[:MOST]
    )
    contradicted = f". Against it most: {against}" if against else ""
    return f"{source}: {judged.verdict}; {tests}. In the means it {judged.in_means}: {right} of {many}{contradicted}."


def for_programs(sources: Sequence[tuple[str, Sequence[JudgedClaim]]]) -> list[dict[str, Any]]:
    """The verdicts for JSON, unrounded."""
    return [
        finite(asdict(judged))
        | {"claim": judged.claim.model_dump(), "source": source}
        | {"verdict": judged.verdict, "in_means": judged.in_means}
        for source, claims in sources
        for judged in claims
    ]


def _minus(comparison: Comparison) -> str:
    """`con_nca minus con_con of fc-bow`; two recipes stand before their objectives."""
    (one, mine), (other, theirs) = (name.split(":", 1) for name in (comparison.better, comparison.than))
    if one == other:
        return f"{mine} minus {theirs} of {one}"
    return f"{comparison.better} minus {comparison.than}"


def _verdicts(judged: JudgedClaim) -> str:
    reversed_ = judged.verdicts.count(FAILS)
    return f"{judged.verdicts.count(HOLDS)} hold and {reversed_ or 'none'} {'are' if reversed_ > 1 else 'is'} reversed"


def _sheets(source: str, judged: JudgedClaim) -> Iterator[Sheet]:
    if judged.comparisons:
        head = ("better minus worse", "block", "metric", "difference", "p", "Holm", "")
        rows = tuple(
            (f"{test.better} minus {test.than}", test.block, test.metric, written(test.difference, sign="+"),
             p_text(test.p), p_text(test.holm), test.verdict)
            for test in judged.comparisons
        )  # fmt: skip
        yield Sheet.telling(source, head, rows)
    if judged.agreements:
        alike = tuple(
            (" and ".join(test.blocks), test.metric, str(test.cells), written(test.tau, 2), p_text(test.p),
             p_text(test.holm), test.verdict)
            for test in judged.agreements
        )  # fmt: skip
        yield Sheet(source, ("blocks", "metric", "cells", "tau", "p", "Holm", ""), alike)


FOOTER = (
    "Holds: each comparison of the sentence is significant at 5 % after Holm's correction over its comparisons; fails: "
    'a comparison is significantly reversed; cannot be told: neither. For a sentence with "generally" or "most", '
    "more than half of the comparisons decide.",
    "Test: paired t by seed for trials of one recipe, Welch's t elsewhere. A printed ±0.0 counts as ±0.05.",
    "Same order: Kendall's tau-b of the means of the same cells in two blocks. Significant: orders with nothing in "
    "common are as alike, or as opposite, in less than 5 % of cases (exact test, Holm). There is no interval of tau: "
    "after a few seeds, the true means of close cells have too many possible orders.",
)
