"""A grid's cells and the papers' numbers for the same data set, protocol, recipe, objective and metric."""

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
"""Reported recipes and protocols that an error spells out."""
Differing = dict[str, tuple[object, object]]
"""Values of settings of a cell, and what another has in their place, by dotted name."""


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
        error = "" if math.isnan(self.error) else f" ± {written(self.error)}"
        return f"{written(self.mean, sign='+')}{error}"

    @property
    def verdict(self) -> str:
        """`above` or `below`: beyond what seeds explain at 5 %; `within`; empty where the spread of ours is unknown, or
        the printed number is doubted.

        By Welch's test. A number that a paper prints without a spread counts as one more run of ours: the prediction
        interval t(0.975, n - 1) s sqrt(1 + 1 / n).
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
    """The number that counts comes first, then what other tables print for the same cell."""
    scores: Scores

    def of(self, cell: Cell, metric: str) -> Result | None:
        """Return the number that the paper has for this cell, if any."""
        return next(iter(self._printed(cell, metric)), None)

    def notes(self, cell: Cell, metric: str) -> str:
        """Return what a reader must know of the paper's number: a doubt, and values of other tables; mostly empty."""
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
        """Names of the tables, in the papers' order."""
        used = {first.name for first, *_ in self.results.values()}
        return [name for name in table_names() if name in used]


def reported(cells: Sequence[Cell], scores: Scores, metrics: Sequence[str]) -> Match:
    """Find the papers' numbers for these cells and metrics, if any.

    Of several tables that print a number, a table without doubts comes first, then one of means, then the table with
    most numbers of these cells.
    """
    keys = {(*_names(cell, scores), metric) for cell in cells for metric in metrics}
    candidates = [(key, result) for result in all_results() if (key := _key(result)) in keys]
    covered = Counter(result.name for _, result in candidates)

    def rank(candidate: tuple[ResultKey, Result]) -> tuple[bool, bool, int]:
        result = candidate[1]
        return bool(result.doubt), math.isnan(result.value.std), -covered[result.name]

    return Match(groups.grouped(sorted(candidates, key=rank)), scores)


def changes(cells: Sequence[Cell]) -> list[str]:
    """Return the dotted names of settings in which a trained cell leaves what is published, by `differing`."""
    return list(dict.fromkeys(name for cell in cells if not cell.published for name in differing(cell)))


def differing(cell: Cell, other: Cell | None = None) -> Differing:
    """Return how a cell differs from another, else from its recipe, its objective's defaults and the whole data.

    By dotted name: the cell's value, then the other. The recipe leaves open which images validate, where captions are
    cut, and the words and their file if it has words of its own.
    """
    if other:
        return differing_values(sections(cell), sections(other))
    shared = cell.trials[0].shared
    theirs = of_recipe(cell, shared.objective.variant)
    theirs["dataset"] |= {name: getattr(shared.dataset, name) for name in ("val_images", "max_words")}
    left_open = ("dataset.words", "dataset.vocabulary") if cell.origin.words else ()
    return {n: values for n, values in differing_values(sections(cell), theirs).items() if n not in left_open}


def of_recipe(cell: Cell, variant: str) -> dict[str, dict[str, Any]]:
    """Return the settings of the cell's recipe, its objective by a variant and the whole data set, in sections."""
    recipe, shared = cell.origin, cell.trials[0].shared
    dataset = shared.dataset
    return {
        "dataset": DatasetSettings.model_validate({"name": dataset.name, "protocol": dataset.protocol}).model_dump(),
        "train": recipe.train.model_dump(),
        "model": recipe.model.model_dump(),
        "objective": shared.objective.entry.defaults(variant),
    }


def differing_values(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Differing:
    """Return both values where they differ, without settings of another choice, such as another encoder's."""
    differences, shared = syntax.differing(ours, theirs), syntax.flat(ours).keys() & syntax.flat(theirs).keys()
    chosen = {name.rpartition(".")[0] for name in differences if name.rpartition(".")[2] in CHOICES}
    return {n: pair for n, pair in differences.items() if n in shared or n.rpartition(".")[0] not in chosen}


def difference_text(cells: Iterable[Differing]) -> str:
    """Write `epochs 30 in place of 15, decay every 15 in place of 30 and 20`; empty if the cells are equal."""
    values = groups.grouped(chain.from_iterable(cell.items() for cell in cells)).items()
    sides = ((name, [dict.fromkeys(map(setting_text, side)) for side in zip(*of, strict=True)]) for name, of in values)
    return ", ".join(
        f"{_plain(name)} {' and '.join(ours)} in place of {' and '.join(theirs)}" for name, (ours, theirs) in sides
    )


def _plain(name: str) -> str:
    """`train.lr` as `learning rate`, `model.text.word_dim` as `text word dim`."""
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
    """Build the error that says what the grid has, what papers report that is nearest to it, and what to do."""
    ours = dict.fromkeys(f"{cell.recipe} on {cell.dataset} by {scores.protocol_of(cell)}" for cell in cells)
    keys = [key for result in all_results() if (key := _key(result))]
    recipes = {cell.recipe for cell in cells}
    theirs = groups.nested((f"{key[2]} on {key[0]} by {key[1]}", key[3], None) for key in keys if key[2] in recipes)
    some = {name: ", ".join(names) if len(names) < 6 else f"{len(names)} objectives" for name, names in theirs.items()}
    known = [f"{name} ({objectives})" for name, objectives in some.items()]
    more = f"; and {len(known) - NEAR} more" if len(known) > NEAR else ""
    nearest = f"Reported: {'; '.join(known[:NEAR])}{more}. " if known else ""
    return (
        f"no paper reports {' or '.join(metrics)} of this grid's cells ({', '.join(ours)}). "
        f"{nearest}All reported tables: goalgrid table --reference."
    )
