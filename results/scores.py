"""The entries of tables.

Above all a mean over seeds that knows how many there were, how many there should be, and which.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, Protocol

from grid import catalog
from grid.errors import UserError
from grid.expansion import Cell
from grid.home import Home, State
from results import missing, provenance, record, summaries
from results.provenance import Code

SHOWN_DIGITS = 1
"""Digits after the point in every table; ties are decided at this precision."""


class Value(Protocol):
    """What an entry of a table holds, in every format: measured, printed by a paper, or the difference of the two."""

    @property
    def text(self) -> str:
        """As a reader sees it."""

    @property
    def shown(self) -> float:
        """What competes for being the best, at the precision of the text; NaN: nothing does."""

    def tidy(self) -> dict[str, object]:
        """All that is known of it, unrounded, by column of a tidy export."""


@dataclass(frozen=True)
class Words:
    """An entry without a number."""

    text: str

    @property
    def shown(self) -> float:
        return math.nan

    def tidy(self) -> dict[str, object]:
        return {"text": self.text}


@dataclass(frozen=True)
class Score:
    """Values of one metric over the seeds of one cell."""

    values: tuple[float, ...]
    expected: int
    """How many seeds the grid has."""
    trials: tuple[str, ...] = ()
    """Ids of the trials behind the values, in their order."""
    seeds: tuple[int, ...] = ()
    """Of those trials."""
    interval: bool = False
    """Whether ± is half the 95 % t interval of the mean instead of the standard deviation."""
    missing: tuple[tuple[str, str], ...] = ()
    """Ids of the trials that have no value, each with the reason."""

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        """NaN without values."""
        return fmean(self.values) if self.values else math.nan

    @property
    def std(self) -> float:
        """Sample standard deviation (n - 1); NaN for fewer than two values."""
        return stdev(self.values) if self.n > 1 else math.nan

    @property
    def spread(self) -> float:
        """What stands behind ±."""
        if not self.interval:
            return self.std
        from results.statistics import t_interval  # brings scipy, which few tables need

        return t_interval(self.values).half_width

    @property
    def shown(self) -> float:
        """The mean as a reader sees it; NaN without values."""
        return round(self.mean, SHOWN_DIGITS)

    @property
    def text(self) -> str:
        """`63.1 ± 0.2`; without ± for one seed, with `(2/3)` where seeds lack, `--` without any.

        >>> Score((63.0, 63.2), expected=3).text, Score((50.0,), expected=1).text, Score((), expected=3).text
        ('63.1 ± 0.1 (2/3)', '50.0', '--')
        """
        if not self.values:
            return "--"
        spread = f" ± {self.spread:.{SHOWN_DIGITS}f}" if self.n > 1 else ""
        lacking = f" ({self.n}/{self.expected})" if self.n < self.expected else ""
        return f"{self.mean:.{SHOWN_DIGITS}f}{spread}{lacking}"

    def tidy(self) -> dict[str, object]:
        """How many seeds, of how many, their mean and spread, the trials behind them, and why others are missing."""
        return {
            "n": self.n,
            "expected": self.expected,
            "mean": self.mean if self.n else None,
            "std": self.std if self.n > 1 else None,
            "text": self.text,
            "trials": list(self.trials),
            "missing": "; ".join(f"{trial_id} {reason}" for trial_id, reason in self.missing) or None,
        }


@dataclass(frozen=True)
class Scores:
    """The records of a grid's finished trials, as far as tables need them."""

    rows: Mapping[str, Mapping[str, Any]]
    """By trial id."""
    protocol: str | None = None
    """Show this evaluation protocol where a data set has it; None: the one that each trial was set to."""
    metrics: tuple[str, ...] = record.METRICS
    """Of each record."""
    interval: bool = False
    """Whether ± is half the 95 % t interval of the mean instead of the standard deviation."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Why a trial has no record, by its id; one that is in neither never ran."""
    code: Code | None = None
    """What the records' code is compared with; None: it is not."""

    @classmethod
    def read(
        cls,
        cells: Iterable[Cell],
        home: Home,
        *,
        protocol: str | None = None,
        interval: bool = False,
        code: Code | None = None,
    ) -> "Scores":
        """Read the records of all trials that are done, and the states of those others that were begun.

        Raises:
            UserError: a record cannot be read, trials of one data set and recipe saw different data, or none was
                evaluated by the protocol that is asked for.
        """
        ids = dict.fromkeys(trial.id for cell in cells for trial in cell.trials)
        states = missing.states(ids, home)
        done = [home.trial(trial_id).record for trial_id, state in states.items() if state is State.DONE]
        absent = {
            trial_id: missing.reason(home.trial(trial_id), state)
            for trial_id, state in states.items()
            if state is not State.DONE
        }
        metrics = [f"test_{name}" for name in record.METRICS]
        columns = [
            *("trial_id", "dataset", "recipe", "protocol", "data_fingerprint", "code_fingerprint", "other_metrics"),
            *metrics,
        ]
        rows = summaries.read(home, done, columns).to_pylist()
        _one_data_each(rows)
        having = {dataset for dataset in {row["dataset"] for row in rows} if protocol in catalog.protocols(dataset)}
        asked = [row for row in rows if row["dataset"] in having]
        if protocol and asked and all(by_protocol(row, protocol, "rsum") is None for row in asked):
            raise UserError(
                f"no finished trial was evaluated by protocol {protocol!r}: the records are older than that. "
                f"Train anew, with --set dataset.protocol={protocol} or into another --runs folder."
            )
        return cls({row["trial_id"]: row for row in rows}, protocol, interval=interval, absent=absent, code=code)

    def of(self, cell: Cell, metric: str) -> Score:
        """A test metric of one cell, over its seeds, by the protocol that is shown."""
        shown = self.protocol_of(cell)
        found = {t.id: by_protocol(self.rows[t.id], shown, metric) for t in cell.trials if t.id in self.rows}
        values = {trial_id: value for trial_id, value in found.items() if value is not None}
        seeds = tuple(trial.settings.seed for trial in cell.trials if trial.id in values)
        return Score(
            tuple(values.values()),
            expected=len(cell.trials),
            trials=tuple(values),
            seeds=seeds,
            interval=self.interval,
            missing=tuple((trial.id, self._why(trial.id, shown)) for trial in cell.trials if trial.id not in values),
        )

    def _why(self, trial_id: str, protocol: str) -> str:
        return f"not evaluated by {protocol}" if trial_id in self.rows else self.absent.get(trial_id, missing.NEVER_RUN)

    def of_other_code(self, cells: Iterable[Cell]) -> tuple[Counter[str], int]:
        """What is said of the code of these cells' finished trials, of how many, and how many trials there are."""
        if self.code is None:
            return Counter(), 0
        now = provenance.code_of(cells, self.rows, self.code)
        said = Counter(provenance.code_differs(self.rows[own]["code_fingerprint"], code) for own, code in now.items())
        said.pop("", None)
        return said, len(now)

    def protocol_of(self, cell: Cell) -> str:
        """The protocol that is shown of this cell."""
        swept = "dataset.protocol" in dict(cell.swept)
        if self.protocol is None or swept or self.protocol not in catalog.protocols(cell.dataset):
            return cell.trials[0].settings.dataset.protocol
        return self.protocol

    def section(self, cell: Cell) -> str:
        """What all rows of a block have in common where methods are compared."""
        return self.protocol_of(cell)

    def label(self, cell: Cell) -> str:
        """The cell as one method among others: `fc-bow, con_con, train.lr = 0.001`."""
        return ", ".join([cell.recipe, cell.objective, *(f"{name} = {value}" for name, value in cell.swept)])

    def axes(self, cell: Cell) -> dict[str, str]:
        """Names and values of the cell's axes, for tidy exports."""
        names = {"dataset": cell.dataset, "protocol": self.protocol_of(cell), "recipe": cell.recipe}
        return {**names, **{name: str(value) for name, value in cell.swept}, "objective": cell.objective}

    def others(self, cells: Iterable[Cell]) -> list[str]:
        """Protocols beside those shown by which some of these trials were evaluated too."""
        cells = list(cells)
        keys = (key for row in self.rows.values() for key, _ in row["other_metrics"] or ())
        shown = {self.protocol_of(cell) for cell in cells}
        return [name for name in dict.fromkeys(key.rpartition("/")[0] for key in keys) if name not in shown]


def by_protocol(row: Mapping[str, Any], protocol: str, metric: str) -> float | None:
    """A test metric of one record by one of its protocols; None where it was not evaluated by that."""
    if row["protocol"] == protocol:
        return float(row[f"test_{metric}"])
    return dict(row["other_metrics"] or ()).get(f"{protocol}/{metric}")


def best(values: Sequence[Value], *, lowest: bool = False) -> set[int]:
    """Places of the best values, all that tie at the shown precision."""
    shown = [value.shown for value in values if not math.isnan(value.shown)]
    if not shown:
        return set()
    top = min(shown) if lowest else max(shown)
    return {place for place, value in enumerate(values) if value.shown == top}


def _one_data_each(rows: Iterable[Mapping[str, Any]]) -> None:
    seen: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        seen.setdefault((row["dataset"], row["recipe"]), {}).setdefault(row["data_fingerprint"], row["trial_id"])
    for (dataset, _), fingerprints in seen.items():
        if len(fingerprints) > 1:
            examples = ", ".join(f"{trial_id} ({mark})" for mark, trial_id in fingerprints.items())
            raise UserError(
                f"trials on {dataset!r} saw different data, so one table must not hold them: {examples}. "
                "`goalgrid run --stale` trains anew those that saw other data than the latest; no result is deleted."
            )
