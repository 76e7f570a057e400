"""Captions on validation searches: the number of points, the chosen values, and their gain over the default."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from goalgrid.grid.chosen import Chosen
from goalgrid.grid.errors import counted
from goalgrid.grid.expansion import Cell, block_title
from goalgrid.grid.groups import grouped


@dataclass(frozen=True)
class Validation:
    """The selection metric of a cell on the validation split; means over the cell's searches."""

    search: float
    """Of the chosen points, on the seed of the search."""
    default: float
    """Of the default settings, on the same seed; NaN if they were not tried or diverged."""
    gain: float
    """Difference between chosen and default settings, on seeds that both have; NaN without a default."""
    fresh: float
    """Of the chosen settings, on seeds that were not used to choose; NaN if no such trial has finished."""

    def known(self) -> dict[str, float]:
        """Return the values that are not NaN, by name."""
        return {name: value for name, value in vars(self).items() if not math.isnan(value)}


def validation_of(cell: Cell, rows: Mapping[str, Mapping[str, Any]]) -> Validation | None:
    """Return the validation results of a cell's chosen settings; None if nothing was chosen.

    Args:
        rows: records of finished trials by id, including the selection metric.
    """
    if not cell.choices:
        return None
    defaults = [choice.default for choice in cell.choices]
    known = [default.value for default in defaults if default and not default.diverged]
    gains = [choice.gain for choice in cell.choices if choice.gain is not None]
    done = [rows[trial.id] for trial in cell.trials if trial.id in rows]
    fresh = [value for row in done if (value := row.get(cell.choices[0].by)) is not None]
    return Validation(_mean([choice.best.value for choice in cell.choices]), _mean(known), _mean(gains), _mean(fresh))


def chosen(cells: Sequence[Cell]) -> str:
    """Return `each cell at its own best of 12 points by validation rsum; `; empty if nothing was chosen."""
    choices = [choice for cell in cells for choice in cell.choices]
    if not choices:
        return ""
    metric = named(choices[0].by)
    draws, stopped = max(choice.draws for choice in choices), _range(choice.stopped for choice in choices)
    text = f"each cell at its own best of {draws} points by validation {metric}"
    if stopped != "0":
        spent, whole = (_range(choice.epochs[place] for choice in choices) for place in (0, 1))
        text = (
            f"each cell at the best, by validation {metric}, of the points that were not stopped: of {draws} points, "
            f"{stopped} stopped early, {spent} of {whole} epochs"
        )
    confirmed = next((choice for choice in choices if choice.candidates), None)
    if confirmed:
        text += f" (the best {confirmed.confirm} confirmed by {counted(confirmed.confirm_seeds, 'more seed')})"
    return f"{text}; "


def of_fewer_points(cells: Sequence[Cell]) -> str:
    """Name the cells whose best point was chosen among fewer points than the grid draws, and say why."""
    several = len({cell.block for cell in cells}) > 1
    fewer = [
        f"{f'{block_title(c.block)}: ' * several}{c.objective} {' or '.join(dict.fromkeys(counts))}"
        for c in cells
        if (counts := [points(choice) for choice in c.choices if len(choice.possible) < choice.draws])
    ]
    return f"Chosen among fewer points: {', '.join(fewer)}." if fewer else ""


def points(choice: Chosen) -> str:
    """Count the points that could be chosen, with the reasons for the others: `4 (1 failed, 1 diverged)`."""
    missing = {**choice.missing, "diverged": choice.diverged}
    reasons = ", ".join(f"{count} {reason}" for reason, count in missing.items() if count)
    return f"{len(choice.possible)} ({reasons})" if reasons else str(len(choice.possible))


def fresh_seeds(cells: Sequence[Cell], seeds: str) -> str:
    """Say which trials ± covers: `3 fresh seeds of one search`, `3 searches, a fresh seed each`."""
    searches = max(len(cell.choices) for cell in cells)
    if not searches:
        return f"{seeds} seeds"
    return f"{seeds} searches, a fresh seed each" if searches > 1 else f"{seeds} fresh seeds of one search"


def search_against_fresh(cells: Sequence[Cell], rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Compare the validation metric of the chosen settings in the search, of the default, and on fresh seeds.

    Empty if nothing was chosen.
    """
    known = [(cell, value) for cell in cells if (value := validation_of(cell, rows))]
    sentences = []
    for by, pairs in grouped((cell.choices[0].by, value) for cell, value in known).items():
        values = grouped(item for value in pairs for item in value.known().items())
        if "fresh" not in values and "default" not in values:
            continue
        default = f" (default {_span(values['default'])}, gain {_span(values['gain'])})" if "default" in values else ""
        fresh = f", {_span(values['fresh'])} on fresh seeds" if "fresh" in values else ""
        several = "; for each cell: goalgrid fair GRID" if len(pairs) > 1 else ""
        text = f"{_span(values['search'])} in the search{default}{fresh}{several}"
        sentences.append(f"Validation {named(by)} of the chosen settings: {text}.")
    return " ".join(sentences)


def named(by: str) -> str:
    """Return the name of the selection metric: `rsum`, `i2t R@1`."""
    return by.removeprefix("val_").replace("_r", " R@")


def _span(values: Sequence[float]) -> str:
    """Return the range of the values: `7.0`, or `5.0 to 7.0`."""
    return " to ".join(dict.fromkeys(f"{value:.1f}" for value in (min(values), max(values))))


def _range(values: Iterable[int]) -> str:
    """Return the range of the values: `7`, or `5 to 7`."""
    return " to ".join(map(str, sorted({min(every := [*values]), max(every)})))


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan
