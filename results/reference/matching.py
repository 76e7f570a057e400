"""Matches a grid's cells with the papers' numbers for the same data set, protocol, recipe, objective and metric."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from goalgrid.grid import groups, syntax
from goalgrid.grid.expansion import Cell
from goalgrid.grid.settings import DatasetSettings
from goalgrid.grid.settings.base import CHOICES
from goalgrid.grid.syntax import setting_text
from goalgrid.results.records.rounding import written
from goalgrid.results.records.scores import Score, Scores, TableValue
from goalgrid.results.reference.reading import Printed, Result, all_results, table_names

ResultKey = tuple[str, str, str, str, str]
"""Data set, protocol, recipe, objective, metric."""
NEAR = 3
"""Number of reported results that an error message lists."""
Differing = dict[str, tuple[object, object]]
"""Settings that differ between two cells, by dotted name: the first cell's value, then the other's."""


@dataclass(frozen=True)
class Difference(TableValue):
    """Our value minus the paper's, with Welch's standard error if both have a spread over runs."""

    ours: Score
    theirs: Printed

    @property
    def mean(self) -> float:
        """Difference of the means; NaN if either is missing."""
        return self.ours.mean - self.theirs.mean

    @property
    def error(self) -> float:
        """sqrt(s1^2 / n1 + s2^2 / n2); NaN if we have a single run, or the paper gives no spread or number of runs."""
        if self.ours.n < 2 or math.isnan(self.theirs.std) or not self.theirs.n:
            return math.nan
        return math.sqrt(self.ours.std**2 / self.ours.n + self.theirs.std**2 / self.theirs.n)

    @property
    def text(self) -> str:
        """Difference ± standard error, e.g. `+0.3 ± 0.4`; no ± if the error is unknown.

        >>> Difference(Score((63.0, 64.0), expected=2), Printed("63.1±0.2", n=3)).text
        '+0.4 ± 0.5'
        """
        if math.isnan(self.mean):
            return "--"
        error = "" if math.isnan(self.error) else f" ± {written(self.error)}"
        return f"{written(self.mean, sign='+')}{error}"

    @property
    def verdict(self) -> str:
        """Verdict at the 5 % level: `above`, `below` or `within`; empty if our spread is unknown or the number doubted.

        Welch's test is used. If the paper prints no spread, its number is treated as one further run of ours and
        compared with the prediction interval t(0.975, n - 1) s sqrt(1 + 1 / n).
        """
        from goalgrid.results.statistics.significance import Sample, t_interval, welch  # imports scipy

        ours, theirs = Sample.of(self.ours.values), Sample(self.theirs.mean, self.theirs.std, self.theirs.n)
        half = welch(ours, theirs)[0].half_width if self.ours.n > 1 and (self.theirs.n or 0) > 1 else math.nan
        if math.isnan(half):
            half = t_interval(self.ours.values).half_width * math.sqrt(self.ours.n + 1)
        if math.isnan(self.mean) or math.isnan(half) or self.theirs.doubt:
            return ""
        return "within" if abs(self.mean) <= half else "above" if self.mean > 0 else "below"

    def tidy(self) -> dict[str, object]:
        return {"difference": self.mean, "standard_error": self.error, "text": self.text}


@dataclass(frozen=True)
class Match:
    """The numbers that papers report for a grid's cells."""

    results: dict[ResultKey, list[Result]]
    """Per cell and metric: first the number to use, then those that other tables print."""
    scores: Scores

    def of(self, cell: Cell, metric: str) -> Result | None:
        """Return the papers' number for this cell; None if there is none."""
        return next(iter(self._printed(cell, metric)), None)

    def notes(self, cell: Cell, metric: str) -> str:
        """Return caveats on the papers' number: doubts, and different values in other tables; empty if none."""
        if not (first := self.of(cell, metric)):
            return ""
        every = self._printed(cell, metric)
        others = [other for other in every if other.value.mean != first.value.mean and not other.doubt]
        printed = ", ".join(f"{result.value.text} in {result.name}" for result in (first, *others))
        return "; ".join(filter(None, [first.doubt, f"printed as {printed}" if others else ""]))

    def _printed(self, cell: Cell, metric: str) -> list[Result]:
        return self.results.get((*_names(cell, self.scores), metric), [])

    @property
    def sources(self) -> list[str]:
        """Names of the tables used, in the papers' order."""
        used = {first.name for first, *_ in self.results.values()}
        return [name for name in table_names() if name in used]


def reported(cells: Sequence[Cell], scores: Scores, metrics: Sequence[str]) -> Match:
    """Find the papers' numbers for these cells and metrics.

    If several tables print a number, numbers without known faults take precedence, then those with a standard
    deviation, then those from the table with the most numbers for these cells.
    """
    keys = {(*_names(cell, scores), metric) for cell in cells for metric in metrics}
    candidates = [(key, result) for result in all_results() if (key := _key(result)) in keys]
    covered = Counter(result.name for _, result in candidates)

    def rank(candidate: tuple[ResultKey, Result]) -> tuple[bool, bool, int]:
        result = candidate[1]
        return bool(result.doubt), math.isnan(result.value.std), -covered[result.name]

    return Match(groups.grouped(sorted(candidates, key=rank)), scores)


def changes(cells: Sequence[Cell]) -> list[str]:
    """Return the dotted names of all settings in which trained cells differ from the published ones (`differing`)."""
    return list(dict.fromkeys(name for cell in cells if not cell.published for name in differing(cell)))


def differing(cell: Cell, other: Cell | None = None) -> Differing:
    """Return the settings in which a cell differs from another cell; default: from the published settings.

    Published settings are those of the cell's recipe, its objective's defaults and the whole data set. Not compared
    with them are the choice of validation images, the maximum caption length and, for recipes that define their own
    words, tokenisation and vocabulary.
    """
    if other:
        return differing_values(sections(cell), sections(other))
    shared = cell.trials[0].shared
    theirs = of_recipe(cell, shared.objective.variant)
    theirs["dataset"] |= {name: getattr(shared.dataset, name) for name in ("val_images", "max_words")}
    left_open = ("dataset.words", "dataset.vocabulary") if cell.origin.words else ()
    return {n: values for n, values in differing_values(sections(cell), theirs).items() if n not in left_open}


def of_recipe(cell: Cell, variant: str) -> dict[str, dict[str, Any]]:
    """Return the published settings by section: the cell's recipe, its objective's `variant` and the whole data set."""
    recipe, shared = cell.origin, cell.trials[0].shared
    dataset = shared.dataset
    return {
        "dataset": DatasetSettings.model_validate({"name": dataset.name, "protocol": dataset.protocol}).model_dump(),
        "train": recipe.train.model_dump(),
        "model": recipe.model.model_dump(),
        "objective": shared.objective.entry.defaults(variant),
    }


def differing_values(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Differing:
    """Return the differing settings with both values; if e.g. the encoder differs, not its dependent settings."""
    differences, shared = syntax.differing(ours, theirs), syntax.flat(ours).keys() & syntax.flat(theirs).keys()
    chosen = {name.rpartition(".")[0] for name in differences if name.rpartition(".")[2] in CHOICES}
    return {n: pair for n, pair in differences.items() if n in shared or n.rpartition(".")[0] not in chosen}


def difference_text(cells: Iterable[Differing]) -> str:
    """Describe differences, e.g. `epochs 30 in place of 15, decay every 15 in place of 30 and 20`; empty if none."""
    values = groups.grouped(chain.from_iterable(cell.items() for cell in cells)).items()
    sides = ((name, [dict.fromkeys(map(setting_text, side)) for side in zip(*of, strict=True)]) for name, of in values)
    return ", ".join(
        f"{_plain(name)} {' and '.join(ours)} in place of {' and '.join(theirs)}" for name, (ours, theirs) in sides
    )


def _plain(name: str) -> str:
    """Return a setting's name in plain words, e.g. `learning rate` for `train.lr`."""
    words = name.partition(".")[2].replace(".", " ").replace("_", " ")
    return re.sub(r"\blr\b", "learning rate", words)


def sections(cell: Cell) -> dict[str, dict[str, Any]]:
    """Return the settings of a cell, by section."""
    shared = cell.trials[0].shared
    sections = {name: getattr(shared, name).model_dump() for name in ("dataset", "train", "model")}
    return {**sections, "objective": shared.objective.parameters}


def _names(cell: Cell, scores: Scores) -> tuple[str, str, str, str]:
    return cell.dataset, scores.protocol_of(cell), cell.recipe, cell.objective


def _key(result: Result) -> ResultKey | None:
    if result.recipe is None or result.objective is None or math.isnan(result.value.mean):
        return None
    return result.dataset, result.protocol, result.recipe, result.objective, result.metric


def nothing_reported(cells: Sequence[Cell], scores: Scores, metrics: Sequence[str]) -> str:
    """Return the error message for a grid without reported numbers: its cells, the nearest reported ones, a hint."""
    ours = dict.fromkeys(f"{cell.recipe} on {cell.dataset} by {scores.protocol_of(cell)}" for cell in cells)
    keys = [key for result in all_results() if (key := _key(result))]
    recipes = {cell.recipe for cell in cells}
    theirs = groups.nested((f"{key[2]} on {key[0]} by {key[1]}", key[3], None) for key in keys if key[2] in recipes)
    some = {name: ", ".join(names) if len(names) < 6 else f"{len(names)} objectives" for name, names in theirs.items()}
    known = [f"{name} ({objectives})" for name, objectives in some.items()]
    more = f"; and {len(known) - NEAR} more" if len(known) > NEAR else ""
    nearest = f"Reported: {'; '.join(known[:NEAR])}{more}. " if known else ""
    return (
        f"no paper reports {' or '.join(metrics)} for this grid's cells ({', '.join(ours)}). "
        f"{nearest}All reported tables: goalgrid table --reference."
    )
