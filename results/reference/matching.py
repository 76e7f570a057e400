"""A grid's cells and the papers' numbers for the same data set, protocol, recipe, objective and metric."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grid import catalog
from grid.errors import UserError
from grid.expansion import Cell
from grid.objectives import resolve
from results.records.scores import SHOWN_DIGITS, Score, Scores, TableValue
from results.reference.reading import Printed, Result, everything

ResultKey = tuple[str, str, str, str, str]
"""Data set, protocol, recipe, objective, metric."""


@dataclass(frozen=True)
class Difference(TableValue):
    """Our value minus the paper's, with Welch's standard error if both have a spread over runs."""

    ours: Score
    theirs: Printed

    @property
    def mean(self) -> float:
        """NaN if either has no number."""
        return self.ours.mean - self.theirs.mean

    @property
    def error(self) -> float:
        """sqrt(s1^2 / n1 + s2^2 / n2); NaN if either has a single run, or no spread."""
        if self.ours.n < 2 or math.isnan(self.theirs.std) or not self.theirs.n:
            return math.nan
        return math.sqrt(self.ours.std**2 / self.ours.n + self.theirs.std**2 / self.theirs.n)

    @property
    def text(self) -> str:
        """`+0.3 ± 0.4`; without ± if the error is unknown.

        >>> Difference(Score((63.0, 64.0), expected=2), Printed("63.1±0.2", n=3)).text
        '+0.4 ± 0.5'
        """
        if math.isnan(self.mean):
            return "--"
        error = "" if math.isnan(self.error) else f" ± {self.error:.{SHOWN_DIGITS}f}"
        return f"{self.mean:+z.{SHOWN_DIGITS}f}{error}"

    def tidy(self) -> dict[str, object]:
        """The difference and its standard error, unrounded."""
        mean, error = (None if math.isnan(value) else value for value in (self.mean, self.error))
        return {"difference": mean, "standard_error": error, "text": self.text}


@dataclass(frozen=True)
class Match:
    """The numbers that papers report for a grid's cells."""

    found: dict[ResultKey, Result]
    scores: Scores

    def of(self, cell: Cell, metric: str) -> Result | None:
        """The number that the paper has for this cell, if any."""
        return self.found.get((*_names(cell, self.scores), metric))

    @property
    def sources(self) -> list[str]:
        """Names of the tables, in the papers' order."""
        used = {result.name for result in self.found.values()}
        return list(dict.fromkeys(result.name for result in everything() if result.name in used))


def match(cells: Sequence[Cell], scores: Scores, metrics: Sequence[str]) -> Match:
    """The numbers that papers report for these cells and metrics.

    Raises:
        UserError: no paper reports any.
    """
    found = reported(cells, scores, metrics)
    if not found.found:
        raise UserError(_nothing(cells, scores, metrics))
    return found


def reported(cells: Sequence[Cell], scores: Scores, metrics: Sequence[str]) -> Match:
    """The papers' numbers for these cells and metrics, if any; of several tables, from the one with most numbers."""
    wanted = {(*_names(cell, scores), metric) for cell in cells for metric in metrics}
    candidates = [(key, result) for result in everything() if (key := _key(result)) in wanted]
    covered = Counter(result.name for _, result in candidates)
    found: dict[ResultKey, Result] = {}
    for key, result in sorted(candidates, key=lambda candidate: -covered[candidate[1].name]):
        found.setdefault(key, result)
    return Match(found, scores)


def changes(cells: Sequence[Cell]) -> list[str]:
    """Settings, by dotted name, in which a cell differs from its recipe or its objective's defaults."""
    names: dict[str, None] = {}
    for cell in cells:
        for trial in cell.trials[:1]:
            settings, recipe = trial.settings, catalog.recipe(cell.recipe)
            objective = resolve(cell.objective, variant=settings.objective.variant)
            names.update(_differing("train", settings.train.model_dump(), recipe.train.model_dump()))
            names.update(_differing("model", settings.model.model_dump(), recipe.model.model_dump()))
            names.update(_differing("objective", settings.objective.parameters, objective))
    return list(names)


def _names(cell: Cell, scores: Scores) -> tuple[str, str, str, str]:
    return cell.dataset, scores.protocol_of(cell), cell.recipe, cell.objective


def _key(result: Result) -> ResultKey | None:
    if result.recipe is None or result.objective is None or math.isnan(result.value.mean):
        return None
    return result.dataset, result.protocol, result.recipe, result.objective, result.metric


def _differing(prefix: str, ours: Mapping[str, object], theirs: Mapping[str, object]) -> dict[str, None]:
    names: dict[str, None] = {}
    for key, value in ours.items():
        other, name = theirs.get(key), f"{prefix}.{key}"
        if isinstance(value, dict) and isinstance(other, dict):
            names.update(_differing(name, value, other))
        elif value != other:
            names[name] = None
    return names


def _nothing(cells: Sequence[Cell], scores: Scores, metrics: Sequence[str]) -> str:
    """The error that says what the grid has, what papers report that is nearest to it, and what to do."""
    keys = [key for result in everything() if (key := _key(result))]
    ours = dict.fromkeys(f"{cell.recipe} on {cell.dataset} by {scores.protocol_of(cell)}" for cell in cells)
    recipes = {cell.recipe for cell in cells}
    near = [key for key in keys if key[2] in recipes] or keys
    theirs: dict[str, dict[str, None]] = {}
    for dataset, protocol, recipe, objective, _ in near:
        theirs.setdefault(f"{recipe} on {dataset} by {protocol}", {})[objective] = None
    known = "; ".join(f"{name} ({_some(list(objectives))})" for name, objectives in theirs.items())
    return (
        f"no paper reports {' or '.join(metrics)} of this grid's cells ({', '.join(ours)}). "
        f"Reported: {known}. All reported tables: goalgrid table --reference."
    )


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 6 else f"{len(names)} objectives"
