"""Tests papers' claims on printed numbers or on trials, and writes the output of `goalgrid claims`."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import combinations, product
from typing import Any, TypeVar

from goalgrid.grid.errors import counted
from goalgrid.grid.expansion import Cell, with_values
from goalgrid.grid.groups import nested
from goalgrid.results.analysis.documents import GLUE, Document, DocumentSection, Sheet
from goalgrid.results.records.rounding import p_text, written
from goalgrid.results.records.scores import Scores
from goalgrid.results.reference import claims as reference
from goalgrid.results.reference.claims import Claim
from goalgrid.results.reference.reading import Result, results_of
from goalgrid.results.statistics.significance import LEVEL, Sample, holm, kendall, kendall_p, paired_t, welch

HOLDS, FAILS, UNTOLD, ABSENT = "holds", "fails", "cannot be told", "no such cells"
PRINTED = "printed"
"""Name of the source that consists of the papers' own tables."""
MOST = 3
"""Maximum number of contradicting comparisons listed in a line."""
ROUNDING = 0.05
"""Half a unit of the last printed digit; also the standard deviation assumed for a printed ±0.0."""
RECALLS = [f"{direction}_r{cut}" for direction in ("i2t", "t2i") for cut in (1, 5, 10)]
"""The metrics that rsum is the sum of."""


@dataclass(frozen=True)
class Entry:
    """A value of a cell, measured or printed; `block`: data set, protocol and swept values."""

    recipe: str
    objective: str
    block: str
    metric: str
    sample: Sample
    seeds: tuple[int, ...] = ()
    parameters: Mapping[str, object] = field(default_factory=dict)
    trials: tuple[str, ...] = ()
    """Ids of the trials; cells in several blocks share them if their objective ignores a swept setting."""

    @property
    def name(self) -> str:
        return f"{self.recipe}:{self.objective}"

    @property
    def runs(self) -> object:
        """Key that identifies the value: its trials and metric; a printed number is its own key."""
        return (*self.trials, self.metric) if self.trials else id(self)

    def axis(self, name: str) -> str:
        """Return the value of an axis that a claim may hold fixed."""
        pair, _, triplet = self.objective.partition("_")
        return {"recipe": self.recipe, "objective": self.objective, "pair": pair, "triplet": triplet}[name]


@dataclass(frozen=True)
class Comparison:
    """A comparison of a cell that a claim calls better with one that it calls worse."""

    better: str
    than: str
    block: str
    metric: str
    difference: float
    lead: float
    """Margin by which the claim is met; negative if it is contradicted."""
    p: float
    """Two-sided p value: paired t test if the seeds can be paired, else Welch's test; NaN without a spread."""
    holm: float = math.nan
    """p, adjusted for all comparisons of the claim."""

    @property
    def verdict(self) -> str:
        return _verdict(self.lead, self.holm)


@dataclass(frozen=True)
class Agreement:
    """Rank agreement (Kendall's tau) of two blocks on the means of the same cells."""

    blocks: tuple[str, str]
    metric: str
    cells: int
    tau: float
    p: float
    """Two-sided p value for unrelated orders; NaN if all means of a block are equal."""
    holm: float = math.nan

    @property
    def verdict(self) -> str:
        return _verdict(self.tau, self.holm)


Tested = TypeVar("Tested", Comparison, Agreement)


def _verdict(amount: float, p: float) -> str:
    return UNTOLD if not p < LEVEL else HOLDS if amount > 0 else FAILS


@dataclass(frozen=True)
class JudgedClaim:
    """A claim, tested on the values of one source."""

    paper: str
    claim: Claim
    comparisons: tuple[Comparison, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    n: int | None = None
    """Number of runs per value, if it is known and the same for all values."""

    @property
    def verdicts(self) -> list[str]:
        return [test.verdict for test in self.comparisons] + [test.verdict for test in self.agreements]

    @property
    def verdict(self) -> str:
        """Verdict by significance tests.

        "every": holds if all comparisons are significant, fails if any is significantly reversed. "most": holds, or
        fails, if more than half of them do.
        """
        verdicts = self.verdicts
        if not verdicts:
            return ABSENT
        holding, failing = verdicts.count(HOLDS), verdicts.count(FAILS)
        if self.claim.quantifier == "most":
            return HOLDS if 2 * holding > len(verdicts) else FAILS if 2 * failing > len(verdicts) else UNTOLD
        return FAILS if failing else HOLDS if holding == len(verdicts) else UNTOLD

    @property
    def in_means(self) -> str:
        """Verdict by the means alone, without a test."""
        signs = [test.lead > 0 for test in self.comparisons] + [test.tau > 0 for test in self.agreements]
        if not signs:
            return ABSENT
        enough = 2 * sum(signs) > len(signs) if self.claim.quantifier == "most" else all(signs)
        return HOLDS if enough else FAILS


def as_entry(result: Result) -> Entry:
    """Convert a printed number into an `Entry`."""
    value = result.value
    std = math.nan if math.isnan(value.std) else max(value.std, ROUNDING)
    block = f"{result.dataset} ({result.protocol})"
    recipe, objective = result.recipe or result.model, result.objective or result.loss.partition(" [")[0]
    return Entry(recipe, objective, block, result.metric, Sample(value.mean, std, value.n))


def printed(claim: Claim) -> list[Entry]:
    """Return the printed numbers that a claim is about; rows without rsum get the sum of their six recalls."""
    results = [result for table in claim.tables for result in results_of(table) if _is_about(claim, result.dataset)]
    known = [(result.label, as_entry(result)) for result in results if not math.isnan(result.value.mean)]
    entries = nested(((entry.name, entry.block, label), entry.metric, entry) for label, entry in known)
    for row in entries.values() if "rsum" in claim.metrics else ():
        if "rsum" not in row and row.keys() >= set(RECALLS):
            total = sum(row[name].sample.mean for name in RECALLS)
            row["rsum"] = replace(row[RECALLS[0]], metric="rsum", sample=Sample(total, math.nan, None))
    return [entry for row in entries.values() for metric, entry in row.items() if metric in claim.metrics]


def measured(claim: Claim, cells: Sequence[Cell], scores: Scores) -> list[Entry]:
    entries = []
    for cell in cells:
        swept = dict(cell.swept)
        if not _is_about(claim, cell.dataset) or (claim.across and claim.across not in swept):
            continue
        objective = f"{cell.objective}@{swept.pop(claim.across)}" if claim.across else cell.objective
        block = with_values(f"{cell.dataset} ({scores.protocol_of(cell)})", swept.items())
        for metric in [name for name in claim.metrics if name in scores.metrics]:
            score = scores.of(cell, metric)
            if score.n:
                sample = Sample.of(score.values)
                parameters = cell.trials[0].shared.objective.parameters
                place = (cell.recipe, objective, block, metric)
                entries.append(Entry(*place, sample, score.seeds, parameters, score.trials))
    return entries


def _is_about(claim: Claim, dataset: str) -> bool:
    return any(fnmatchcase(dataset, pattern) for pattern in claim.datasets)


@dataclass(frozen=True)
class ClaimSource:
    """The papers' claims, tested on one source of numbers."""

    name: str
    """`printed`, or the name of a grid."""
    claims: Sequence[JudgedClaim]
    conditions: tuple[str, ...] = ()
    """Sentences on settings chosen by validation for the grid's cells, and on settings that differ between cells."""


def judge(paper: str, claim: Claim, entries: Sequence[Entry]) -> JudgedClaim:
    sizes = {entry.sample.n for entry in entries}
    n = sizes.pop() if len(sizes) == 1 else None
    if claim.kind == "same order":
        return JudgedClaim(paper, claim, agreements=_adjusted(list(_agreements(entries))), n=n)
    return JudgedClaim(paper, claim, _adjusted(list(_comparisons(claim, entries))), n=n)


def _adjusted(tests: Sequence[Tested]) -> tuple[Tested, ...]:
    adjusted = holm([test.p for test in tests]).tolist()
    return tuple(replace(test, holm=p) for test, p in zip(tests, adjusted, strict=True))


def judged(names: Iterable[str], entries: Callable[[Claim], Sequence[Entry]] = printed) -> list[JudgedClaim]:
    """Test all claims of these papers, on the numbers that `entries` returns (default: the papers' own tables)."""
    papers = map(reference.claims, names)
    return [judge(paper.paper, claim, entries(claim)) for paper in papers for claim in paper.claims]


def _comparisons(claim: Claim, entries: Sequence[Entry]) -> Iterable[Comparison]:
    better, worse = (
        [entry for entry in entries if any(fnmatchcase(entry.name, pattern) for pattern in patterns)]
        for patterns in (claim.better, claim.than)
    )
    better = [entry for entry in better if not any(entry.parameters.get(n) == v for n, v in claim.without.items())]
    seen = set[object]()
    for one, other in product(better, worse):
        pair = (frozenset if claim.kind == "alike" else tuple)((one.runs, other.runs))
        shared = (one.block, one.metric) == (other.block, other.metric) and one.name != other.name
        shared &= all(one.parameters.get(name) == other.parameters.get(name) for name in claim.equal)
        shared &= all(one.axis(name) == other.axis(name) for name in claim.same)
        if not shared or pair in seen:
            continue
        seen.add(pair)
        by, than = claim.lead(one.metric), other.name
        if claim.times != 1:
            other, than = _times(claim.times, other), f"{claim.times:g} times {than}"
        difference, p = _difference(one, other)
        difference = round(difference, 9)  # what floating-point sums leave of equal means is on no side
        lead = difference - by
        if claim.kind == "alike":
            lead, p = by - abs(difference), _alike(one, other, by)
        elif by:
            lead, p = lead + ROUNDING, _difference(one, other, by - ROUNDING)[1]
        yield Comparison(one.name, than, one.block, one.metric, difference, lead, p)


def _times(factor: float, entry: Entry) -> Entry:
    """Return the entry with its values multiplied by a factor."""
    sample = entry.sample
    values = tuple(factor * value for value in sample.values)
    return replace(entry, sample=Sample(factor * sample.mean, factor * sample.std, sample.n, values))


def _alike(one: Entry, other: Entry, within: float) -> float:
    """Return the p value for a difference below `within` (two one-sided tests); if it is larger, for exceeding it."""
    (above, p_above), (below, p_below) = _difference(one, other, -within), _difference(one, other, within)
    return max(p_above, p_below) / 2 if above > 0 > below else min(p_above, p_below)


def _difference(one: Entry, other: Entry, less: float = 0.0) -> tuple[float, float]:
    """Return the difference minus `less`, and its p value.

    Paired by seed if the cells share initial weights and batches, i.e. have the same recipe and at least two common
    seeds; else Welch's test.
    """
    mine, theirs = (dict(zip(entry.seeds, entry.sample.values, strict=True)) for entry in (one, other))
    both = [seed for seed in mine if seed in theirs]
    if one.recipe == other.recipe and len(both) > 1:
        differences = [mine[seed] - theirs[seed] - less for seed in both]
        return sum(differences) / len(differences), paired_t(differences)
    moved = replace(one.sample, mean=one.sample.mean - less, values=())
    return moved.mean - other.sample.mean, welch(moved, other.sample)[1]


def _agreements(entries: Sequence[Entry]) -> Iterable[Agreement]:
    """Yield the rank agreement of each two recipes in a block that share at least three objectives."""
    blocks = nested(((entry.metric, entry.recipe, entry.block), entry.objective, entry) for entry in entries)
    for (key, mine), (other, theirs) in combinations(blocks.items(), 2):
        shared = [name for name in mine if name in theirs]
        if key[0::2] == other[0::2] and len(shared) > 2:
            titles = (f"{key[1]} on {key[2]}", f"{other[1]} on {other[2]}")
            means = [[block[name].sample.mean for name in shared] for block in (mine, theirs)]
            yield Agreement(titles, key[0], len(shared), kendall(*means), kendall_p(*means))


def document(sources: Sequence[ClaimSource], *, comparisons: bool = False) -> Document:
    """Build a document with one section per claim and one line per source; `comparisons`: add tables of all tests."""
    sections = []
    for by_source in zip(*(source.claims for source in sources), strict=True):
        claim = by_source[0].claim
        parts: list[str | Sheet] = [" ".join(filter(None, [f'"{claim.sentence}".', claim.note]))]
        for source, of_source in zip(sources, by_source, strict=True):
            parts.append(line(source.name, of_source))
            parts += _sheets(source.name, of_source) if comparisons else []
        sections.append(DocumentSection(f"{by_source[0].paper} {claim.where}: {claim.name}", tuple(parts)))
    conditions = (f"{source.name}: {sentence}" for source in sources for sentence in source.conditions)
    return Document(tuple(sections), (*FOOTER, *conditions))


def line(source: str, judged: JudgedClaim) -> str:
    """Return a sentence with the verdict by tests, and by the means alone."""
    if judged.verdict == ABSENT and source == PRINTED and judged.claim.grid:
        return f"{source}: in a figure, without numbers; its grid: {judged.claim.grid}."
    if judged.verdict == ABSENT:
        at_one = f" with the same {' and '.join(judged.claim.equal)}" if judged.claim.equal else ""
        return f"{source}: {ABSENT}{at_one}."
    if agreements := judged.agreements:
        low = min(agreements, key=lambda agreement: agreement.tau)
        pairs = f"{counted(len(agreements), 'pair')} of blocks"
        counts = f"{_verdicts(judged, pairs)}; lowest tau {written(low.tau, 2)}"
        p = f" (p{GLUE}{p_text(low.holm)} after Holm)"
        return f"{source}: {judged.verdict}; {counts}{p}, {' and '.join(low.blocks)}, {low.metric}."
    many, right = len(judged.comparisons), sum(comparison.lead > 0 for comparison in judged.comparisons)
    runs = f", n = {judged.n}" if judged.n else ""
    tests = f"{_verdicts(judged, counted(many, 'comparison'))}{runs}"
    if all(math.isnan(comparison.p) for comparison in judged.comparisons):
        tests = f"{counted(many, 'comparison')}, untested (no standard deviations){runs}"
    contradicting = sorted((test for test in judged.comparisons if test.lead < 0), key=lambda test: test.lead)
    against = "; ".join(
        f"{_minus(comparison)}, {comparison.block}, {comparison.metric}: {written(comparison.difference, sign='+')}"
        for comparison in contradicting[:MOST]
    )
    contradicted = f". Strongest contradictions: {against}" if against else ""
    means = f"By the means alone, it {judged.in_means}: {right} of {many}"
    return f"{source}: {judged.verdict}; {tests}. {means}{contradicted}."


def for_programs(sources: Sequence[ClaimSource]) -> list[dict[str, Any]]:
    """Return the verdicts and all comparisons for JSON, unrounded."""
    return [
        vars(claim)
        | {"source": source.name, "verdict": claim.verdict, "in_means": claim.in_means}
        | ({"conditions": source.conditions} if source.conditions else {})
        for source in sources
        for claim in source.claims
    ]


def _minus(comparison: Comparison) -> str:
    """Name a comparison, e.g. `con_nca minus con_con of fc-bow`; if the recipes differ, with RECIPE:OBJECTIVE twice."""
    (one, mine), (other, theirs) = (name.split(":", 1) for name in (comparison.better, comparison.than))
    if one == other:
        return f"{mine} minus {theirs} of {one}"
    return f"{comparison.better.rstrip(':')} minus {comparison.than.rstrip(':')}"


def _verdicts(judged: JudgedClaim, compared: str) -> str:
    """Return a summary of the verdicts, e.g. `4 of 96 comparisons significant, none reversed`."""
    return (
        f"{judged.verdicts.count(HOLDS)} of {compared} significant, {judged.verdicts.count(FAILS) or 'none'} reversed"
    )


def _sheets(source: str, judged: JudgedClaim) -> Iterator[Sheet]:
    tests = ("p", "Holm", "")
    if judged.comparisons:
        rows = (
            (
                f"{t.better.rstrip(':')} minus {t.than.rstrip(':')}",
                t.block,
                t.metric,
                written(t.difference, sign="+"),
                *_tested(t),
            )
            for t in judged.comparisons
        )
        yield Sheet.telling(source, ("better minus worse", "block", "metric", "difference", *tests), tuple(rows))
    if judged.agreements:
        alike = (
            (" and ".join(t.blocks), t.metric, str(t.cells), written(t.tau, 2), *_tested(t)) for t in judged.agreements
        )
        yield Sheet(source, ("blocks", "metric", "cells", "tau", *tests), tuple(alike))


def _tested(test: Comparison | Agreement) -> tuple[str, str, str]:
    return p_text(test.p), p_text(test.holm), test.verdict


FOOTER = (
    "Holds: each comparison of the sentence is significant at 5 % after Holm's correction over its comparisons; fails: "
    'a comparison is significantly reversed; cannot be told: neither. For a sentence with "generally" or "most", '
    "more than half of the comparisons decide.",
    "Test: paired t by seed for trials of one recipe, Welch's t elsewhere. A printed ±0.0 counts as ±0.05.",
    "Same order: Kendall's tau-b between two recipes, over the means of the same cells. Significant: unrelated orders "
    "agree, or disagree, as much in less than 5 % of cases (exact test, Holm). Tau has no interval: after a few seeds, "
    "the true means of close cells have too many possible orders.",
)
