"""Describes how training here differs from the source of a paper's numbers, e.g. in settings, words or validation.

A source is assumed to use the settings of the recipe, the objective's defaults and the whole data set, except for
deviations listed in `sources.toml`.
"""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache, reduce
from itertools import chain
from operator import getitem
from typing import Any, Literal

from goalgrid.grid import catalog
from goalgrid.grid.catalog import toml
from goalgrid.grid.expansion import Cell
from goalgrid.grid.settings.base import Settings
from goalgrid.results.reference.matching import Differing, difference_text, differing_values, of_recipe, sections
from goalgrid.results.reference.reading import Result

VARIANT, VALIDATION = "objective.variant", "dataset.val_images"
WORDS = ("dataset.words", "dataset.vocabulary")
APART = (VALIDATION, *WORDS)
"""Settings that are described by separate sentences."""
ANY = ("*",)


class Source(Settings):
    """Settings of a published experiment that differ from the recipe, and points that the publication leaves open.

    Applies to the experiments that match all of its patterns (wildcards as in file names).
    """

    paper: tuple[str, ...] = ANY
    dataset: tuple[str, ...] = ANY
    recipe: tuple[str, ...] = ANY
    objective: tuple[str, ...] = ANY
    variant: Literal["", "paper", "released"] = ""
    """The variant of the objective that `readings` apply to; empty: both."""
    where: str = ""
    """Where the settings are published."""
    set: dict[str, Any] = {}
    """Published settings by dotted name."""
    readings: tuple[str, ...] = ()
    """How we interpret points that the publication leaves open."""

    def is_about(self, paper: str, cell: Cell) -> bool:
        names = [(paper, self.paper), (cell.dataset, self.dataset)]
        names += [(cell.recipe, self.recipe), (cell.objective, self.objective)]
        return all(any(fnmatchcase(name, pattern) for pattern in patterns) for name, patterns in names)


@cache
def sources() -> tuple[Source, ...]:
    return tuple(map(Source.model_validate, toml("goalgrid.results.reference", "sources")["sources"]))


def differences(results: Sequence[Result], cells: Sequence[Cell]) -> tuple[str, ...]:
    """List how the cells that fill a row differ from the row's source, in short phrases, the most important first.

    Args:
        results: the numbers of the row.
        cells: cells of one grid with equal swept values.
    """
    paper = results[0].name.partition("-")[0]
    trained = _trained(results, cells)
    every = chain(
        _settings(paper, trained),
        (f"the ranker: {text}" for text in _settings(paper, _rankers(trained, cells))),
        *(source.readings for cell in trained for source in _about(paper, cell) if _has_variant(source, cell)),
        *(cell.origin.readings for cell in trained),
        map(_words, trained),
        (_validation(paper, cell) for cell in trained),
    )
    return tuple(dict.fromkeys(filter(None, every)))


def common(rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the phrases that all rows have in common; none for a single row."""
    first, *others = [*rows] or [()]
    return tuple(phrase for phrase in first if others and all(phrase in other for other in others))


def _trained(results: Iterable[Result], cells: Iterable[Cell]) -> list[Cell]:
    """Return the trained cells behind a row, including an ensemble's members and the recipes that others start from."""
    models = {
        (result.dataset, model, result.objective)
        for result in results
        if result.recipe
        for model in catalog.SHIPPED.lineage(result.recipe)
    }
    row = [cell for cell in cells if (cell.dataset, cell.recipe, cell.objective) in models]
    return [cell for cell in row if not cell.published and not cell.trials[0].shared.members]


def _rankers(trained: Iterable[Cell], cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells that rank the training split for other cells."""
    named = {trial.ranker for cell in trained for trial in cell.trials} - {""}
    return [cell for cell in cells if any(trial.id in named for trial in cell.trials)]


def _about(paper: str, cell: Cell) -> list[Source]:
    return [source for source in sources() if source.is_about(paper, cell)]


def _has_variant(source: Source, cell: Cell) -> bool:
    return source.variant in ("", cell.trials[0].shared.objective.variant)


def _settings(paper: str, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a phrase such as `epochs 30 in place of 15`; one per data set if the data sets differ in it."""
    of_dataset = {name: [_changed(paper, c) for c in cells if c.dataset == name] for name in _datasets(cells)}
    texts = {name: difference_text(changed) for name, changed in of_dataset.items()}
    if len(set(texts.values())) == 1:
        yield from filter(None, set(texts.values()))
    else:
        yield from (f"on {_title(name)}: {text}" for name, text in texts.items() if text)


def _title(dataset: str) -> str:
    return catalog.described(dataset).known_as or dataset


def _datasets(cells: Iterable[Cell]) -> dict[str, None]:
    return dict.fromkeys(cell.dataset for cell in cells)


def _changed(paper: str, cell: Cell) -> Differing:
    """Return the settings in which a cell differs from its source, each with both values."""
    published = {name: value for source in _about(paper, cell) for name, value in source.set.items()}
    variant = published.pop(VARIANT, "paper")
    ours, theirs = sections(cell), of_recipe(cell, variant)
    ours["objective"] = {"variant": cell.trials[0].shared.objective.variant, **ours["objective"]}
    theirs["objective"] = {"variant": variant, **theirs["objective"]}
    for name, value in published.items():
        *path, last = name.split(".")
        reduce(getitem, path, theirs)[last] = value
    return {name: values for name, values in differing_values(ours, theirs).items() if name not in APART}


def _words(cell: Cell) -> str:
    """Return a phrase on tokenisation and vocabulary if they differ from the published ones; else empty."""
    recipe, shared = cell.origin, cell.trials[0].shared
    if not recipe.words or not all(model.text.tokenizer is None for model in (recipe.model, shared.model)):
        return ""
    ours = {"plain words": "nltk's"} if shared.dataset.words == "plain" else {}
    ours |= {} if shared.dataset.vocabulary else {"the training captions' vocabulary": "a file"}
    return f"{' and '.join(ours)} (published: {', '.join(ours.values())})" if ours else ""


def _validation(paper: str, cell: Cell) -> str:
    """Return a phrase on the number of validation images if the source used another number; else empty."""
    shared, data = cell.trials[0].shared, catalog.described(cell.dataset)
    naming = [source for source in _about(paper, cell) if VALIDATION in source.set]
    if not (naming and shared.train.epochs and shared.train.selection != "last" and "val" in data.splits):
        return ""
    ours, theirs = shared.dataset.val_images or data.splits["val"].images, naming[-1].set[VALIDATION]
    if ours == theirs:
        return ""
    return f"{ours:,} validation images of {_title(cell.dataset)} pick the checkpoint ({naming[-1].where}: {theirs:,})"
