"""The values shown in tables, mainly scores: the mean over a cell's seeds, with the ids of the trials."""

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.evaluations import Evaluate
from goalgrid.grid.expansion import Cell, with_values
from goalgrid.grid.groups import nested
from goalgrid.grid.protocols import ECCV, JUDGED
from goalgrid.grid.store.home import Home, State, TrialFolder
from goalgrid.grid.unequal import Values, unequal
from goalgrid.results.records import provenance, record, record_cache
from goalgrid.results.records.chance import Chance
from goalgrid.results.records.models import CAPTIONS, UNKNOWN, FurtherEvaluation, Models
from goalgrid.results.records.rounding import rounded, written
from goalgrid.results.records.steps import Leave, refuse

NEVER_RUN = "never run"
UNREADABLE = "with a record that cannot be read"


class TableValue(ABC):
    """The value of a table entry: measured, quoted from a paper, or the difference of the two."""

    trials: tuple[str, ...] = ()
    """Ids of the trials that the value was measured on; empty if it was not measured."""
    missing: tuple[tuple[str, str], ...] = ()
    """Ids of the trials without a value, each with the reason."""

    @property
    def at_chance(self) -> bool:
        """Whether all its trials perform at chance level on the validation split; then it cannot be the best."""
        return False

    @property
    def quoted(self) -> bool:
        """Whether the value is quoted from a paper."""
        return False

    @property
    @abstractmethod
    def text(self) -> str:
        """The value as shown in a table."""

    @property
    def shown(self) -> float:
        """The value used to pick the best, rounded as shown; NaN if it is excluded."""
        return math.nan

    @abstractmethod
    def tidy(self) -> dict[str, object]:
        """Return all fields of the value, unrounded, by column of a tidy export; NaN for a missing number."""


@dataclass(frozen=True)
class Word(TableValue):
    """A word shown in place of a number."""

    word: str

    @property
    def text(self) -> str:
        return self.word

    def tidy(self) -> dict[str, object]:
        return {"n": None, "mean": math.nan, "std": math.nan, "text": self.text}


@dataclass(frozen=True)
class Quantity(TableValue):
    """A property of a model that does not depend on the seed: parameters or speed. Never marked as best."""

    value: float
    trials: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Three significant digits; at least all digits before the decimal point.

        >>> [Quantity(value).text for value in (393750.2, 68.51, 0.17, math.nan)]
        ['393,750', '68.5', '0.170', '--']
        """
        if math.isnan(self.value):
            return "--"
        return f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:#.3g}"

    def tidy(self) -> dict[str, object]:
        return {"mean": self.value, "text": self.text, "trials": list(self.trials)}


class Multiple(Quantity):
    """Speed of a model as a multiple of the slowest model's speed in the table."""

    @property
    def text(self) -> str:
        """The value as shown in a table, e.g. `4.6×`."""
        return f"{self.value:.1f}×"

    @property
    def shown(self) -> float:
        return round(self.value, 1)


@dataclass(frozen=True)
class Score(TableValue):
    """The values of one metric over a cell's seeds."""

    values: tuple[float, ...]
    expected: int
    trials: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    """Ids (`trials`) and seeds of the trials, in the order of `values`."""
    missing: tuple[tuple[str, str], ...] = ()
    chance: Container[str] = field(default=frozenset(), compare=False, repr=False)
    """Ids of the trials that perform at chance level."""

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        """Mean of the values; NaN if there are none."""
        return fmean(self.values) if self.values else math.nan

    @cached_property
    def std(self) -> float:  # of exact fractions, so it takes its time
        """Sample standard deviation (n - 1); NaN for fewer than two values."""
        return stdev(self.values) if self.n > 1 else math.nan

    @cached_property
    def at_chance(self) -> bool:
        return bool(self.trials) and all(trial_id in self.chance for trial_id in self.trials)

    def of_seeds(self, seeds: Collection[int]) -> list[str]:
        """Return the ids of the trials with these seeds."""
        return [trial_id for trial_id, seed in zip(self.trials, self.seeds, strict=True) if seed in seeds]

    @property
    def shown(self) -> float:
        """The mean, rounded as in `text`; NaN without values."""
        return rounded(self.mean)

    @property
    def text(self) -> str:
        """Mean ± standard deviation, e.g. `63.1 ± 0.2`; no ± for one seed; `(2/3)`: seeds are missing; `--`: all are.

        >>> Score((63.0, 63.2), expected=3).text, Score((50.0,), expected=1).text, Score((), expected=3).text
        ('63.1 ± 0.1 (2/3)', '50.0', '--')
        """
        if not self.values:
            return "--"
        spread = "" if self.n < 2 else f" ± {written(self.std)}"
        lacking = f" ({self.n}/{self.expected})" if self.n < self.expected else ""
        return f"{written(self.mean)}{spread}{lacking}"

    def tidy(self) -> dict[str, object]:
        return {
            "n": self.n,
            "expected": self.expected,
            "mean": self.mean,
            "std": self.std,
            "text": self.text,
            "trials": list(self.trials),
            "missing": "; ".join(f"{trial_id} {reason}" for trial_id, reason in self.missing) or None,
        }


@dataclass(frozen=True)
class Scores:
    """The results of a grid's finished trials that tables need."""

    rows: Mapping[str, Mapping[str, Any]]
    """Columns of the records, by trial id."""
    protocol: str | None = None
    """The requested evaluation protocol, shown for data sets that have it; None: `usual`."""
    usual: str | None = None
    """The protocol shown if none is requested; None: the protocol in the trial's settings."""
    evaluate: Evaluate = field(default_factory=Evaluate)
    """The grid's further evaluations ([evaluate]); their protocols apply to all cells."""
    lacking: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By trial id, the protocols of `evaluate` for which the trial has no evaluation, or one on outdated data."""
    make: str = ""
    """The command that runs the missing evaluations."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Why a trial has no result here, by trial id; a trial without record and reason never ran."""
    now: provenance.Now | None = None
    """Current code and data fingerprints to compare the records with; None: no comparison."""
    models: Models | None = None
    leave: Leave = refuse
    """Takes messages about unreadable files that are skipped."""
    chance: Container[str] = frozenset()
    """Ids of the trials that perform at chance level on the validation split."""
    cells: Sequence[Cell] = ()
    """All cells that were read; `unequal_of` compares the settings of these."""

    @classmethod
    def read(
        cls,
        cells: Sequence[Cell],
        home: Home,
        *,
        protocol: str | None = None,
        usual: str | None = None,
        now: provenance.Now | None = None,
        leave: Leave = refuse,
        mixed: bool = False,
        evaluate: Evaluate = Evaluate(),  # noqa: B008
        lacking: Mapping[str, Collection[str]] = {},
        make: str = "",
    ) -> "Scores":
        """Read the records of all finished trials, and the states of unfinished ones.

        Trials whose data changed since training are excluded, with that reason.

        Args:
            protocol: protocol to show; default: `usual`.
            usual: default protocol; ignored if no record has it, i.e. if all are older than the protocol.
            now: current code and data fingerprints to compare the records with; default: no comparison.
            leave: takes messages about unreadable records and files next to them, which are skipped.
            mixed: whether to accept trials on different data; the caller must then choose among them.
            evaluate: the grid's further evaluations.
            lacking: protocols of `evaluate` for which a trial has no current evaluation, by trial id.
            make: command that runs the missing evaluations.

        Raises:
            UserError: trials of one data set and recipe saw different data, or none was evaluated by the protocol.
        """
        ids = dict.fromkeys(trial.id for cell in cells for trial in cell.trials)
        states = home.states(ids)
        done = [trial_id for trial_id, state in states.items() if state is State.DONE]
        begun = {name: state for name, state in states.items() if state not in (State.DONE, State.PLANNED)}
        absent = {name: _reason(home.trial(name), state) for name, state in begun.items()}
        columns = ["dataset", "recipe", "protocol", "data_fingerprint", "code_fingerprint", "other_metrics"]
        columns += dict.fromkeys(["environment", "val_rsum", *(choice.by for cell in cells for choice in cell.choices)])
        columns += [f"test_{name}" for name in record.METRICS]
        unreadable: record.Unreadable = {}
        rows = record_cache.rows(home, done, columns, unreadable)
        for path, message in unreadable.items():
            absent[path.parent.name] = UNREADABLE
            leave(message)
        if now:
            other = provenance.of_other_data(rows, cells, now.data)
            absent |= dict.fromkeys(other, provenance.OTHER_DATA)
            rows = {trial_id: row for trial_id, row in rows.items() if trial_id not in other}
        if not mixed:
            refuse_mixed_data(rows.values())
        if protocol not in (None, *evaluate.names) and not _evaluated(protocol, rows.values()):
            raise UserError(
                f"no finished trial was evaluated by protocol {protocol!r}: the records are older than this protocol. "
                f"Retrain with --set dataset.protocol={protocol}, or in another --runs folder."
            )
        usual, models = usual if _evaluated(usual, rows.values()) else None, Models(cells, home, rows, leave)
        scores = cls(
            rows, protocol, usual, evaluate, lacking, make, absent, now, models, leave, Chance(home, rows), cells
        )
        return scores._evaluated_by(str(protocol), home) if protocol in evaluate.names else scores

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the displayed protocol."""
        return tuple(f"{way}_{name}" for way in ("i2t", "t2i") for name in JUDGED) if self.judged else record.METRICS

    @property
    def headline(self) -> str:
        """The metric that figures show, without the direction: it is shown for i2t and t2i."""
        return JUDGED[0] if self.judged else "r1"

    @property
    def judged(self) -> bool:
        """Whether relevance is judged by humans (ECCV Caption)."""
        return self.protocol == ECCV

    def of(self, cell: Cell, metric: str, protocol: str | None = None) -> Score:
        """Return a test metric of a cell over its seeds; `protocol` defaults to the displayed one."""
        shown = protocol or self.protocol_of(cell)
        evaluated = {t.id: by_protocol(self.rows[t.id], shown, metric) for t in cell.trials if t.id in self.rows}
        values = {trial_id: value for trial_id, value in evaluated.items() if value is not None}
        return Score(
            tuple(values.values()),
            expected=len(cell.trials),
            trials=tuple(values),
            seeds=tuple(trial.seed for trial in cell.trials if trial.id in values),
            missing=tuple(
                (t.id, f"not evaluated by {shown}" if t.id in self.rows else self.absent.get(t.id, NEVER_RUN))
                for t in cell.trials
                if t.id not in values
            ),
            chance=self.chance,
        )

    @cached_property
    def _unequal(self) -> Mapping[str, Values]:
        """Values of unequal settings by the id of the cell's first trial; cells with equal settings share this id."""
        pairs = zip(self.cells, unequal(self.cells), strict=True)
        return {cell.trials[0].id: values for cell, values in pairs if cell.trials}

    def unequal_of(self, cell: Cell) -> Values:
        """Return a cell's values for the settings that differ among its data set's cells, except the axes."""
        return self._unequal.get(cell.trials[0].id, {}) if cell.trials else {}

    def of_model(self, cell: Cell, metric: str) -> Quantity:
        """Return one figure for a cell's model: `parameters` (millions), `kpps`, or `queries` (per second)."""
        return Quantity(*self.models.of(cell, metric)) if self.models else Quantity(math.nan)

    def of_other_code(self, cells: Iterable[Cell]) -> list[str]:
        """Return remarks on how many of these cells' finished trials were trained with different code."""
        remarks = self.code_differs(cell for cell in cells if not cell.published).values()
        counts = Counter(remarks).items()
        return [f"{count} of {len(remarks)} trials were {remark}." for remark, count in counts if remark]

    def code_differs(self, cells: Iterable[Cell]) -> dict[str, str]:
        """Map trial ids to how their code differs from the current code; an empty text if it does not."""
        now = provenance.of_trials(cells, self.rows, self.now.code) if self.now else {}
        return {name: provenance.code_differs(self.rows[name]["code_fingerprint"], code) for name, code in now.items()}

    def to_evaluate(self, cells: Iterable[Cell]) -> str:
        """Return a note with the command for evaluations that finished trials lack; empty if none is missing."""
        done = (trial.id for cell in cells for trial in cell.trials if trial.id in self.rows)
        missing = any(self.protocol in self.lacking.get(trial_id, ()) for trial_id in done)
        return f"To run the missing evaluations: {self.make}." if missing else ""

    def unknown_words(self, cells: Sequence[Cell]) -> str:
        """Return a note on how many captions contain words unseen in training; empty if none does."""
        most, captions = (
            max((v for c in cells for v in self.of(c, name).values), default=0) for name in (UNKNOWN, CAPTIONS)
        )
        return f"Up to {most:,.0f} of {captions:,.0f} captions contain words unseen in training." if most else ""

    def leaks(self, cells: Sequence[Cell]) -> str:
        """Return a note on splits that share images in trials run with `--allow-leak`; empty if there are none."""
        shared = dict[str, None]()
        for cell in cells:
            shared |= {f"{what} ({cell.dataset})": None for _, what in self.leaks_of(cell)}
        return f"Trained with --allow-leak: {', '.join(shared)}." if shared else ""

    def leaks_of(self, cell: Cell) -> list[tuple[str, str]]:
        """Return the leaks that a cell was trained with: for each, its kind and the splits that share images."""
        leaks = dict[tuple[str, str], None]()
        chooses = bool(cell.choices) or cell.trials[0].shared.train.selection != "last"
        for row in (self.rows[trial.id] for trial in cell.trials if trial.id in self.rows):
            if '"leaks"' in (environment := row.get("environment", "")):
                known = json.loads(environment)["leaks"]
                leaks |= {(kind, what): None for kind, what in known if kind == "leak" or chooses}
        return list(leaks)

    def protocol_of(self, cell: Cell) -> str:
        if self.protocol in self.evaluate.names:
            return str(self.protocol)
        known = [] if "dataset.protocol" in dict(cell.swept) else catalog.protocols(cell.dataset)
        chosen = next((name for name in (self.protocol, self.usual) if name in known), None)
        return chosen or cell.trials[0].shared.dataset.protocol

    def section(self, cell: Cell) -> str:
        """Return the heading for the cell's block of rows in a layout that compares methods: the protocol."""
        return self.protocol_of(cell)

    def label(self, cell: Cell) -> str:
        """Return the cell's label in a comparison of methods, e.g. `fc-bow, con_con, train.lr = 0.001`."""
        return with_values(f"{cell.recipe}, {cell.objective}", cell.swept)

    def axes(self, cell: Cell) -> dict[str, str]:
        names = {"dataset": cell.dataset, "protocol": self.protocol_of(cell), "recipe": cell.recipe}
        return {**names, **{name: str(value) for name, value in cell.swept}, "objective": cell.objective}

    def further(self, cells: Iterable[Cell], home: Home) -> "Iterator[Scores]":
        """Yield the scores for each recorded protocol that is not displayed, then for each available [evaluate] one."""
        shown, every = {self.protocol_of(cell) for cell in cells}, dict[str, None]()
        for row in self.rows.values():
            every |= {row["protocol"]: None} | {key.rpartition("/")[0]: None for key, _ in row["other_metrics"] or ()}
        yield from (replace(self, protocol=name) for name in every if name not in shown)
        for name in self.evaluate.names:
            try:
                scores = self._evaluated_by(name, home)
            except UserError as error:
                self.leave(f"the table by {name}: {error}")
            else:
                keys = (key for row in scores.rows.values() for key, _ in row["other_metrics"] or ())
                yield from [scores] if any(key.startswith(f"{name}/") for key in keys) else []

    def _evaluated_by(self, protocol: str, home: Home) -> "Scores":
        """Return the scores for an [evaluate] protocol; trials that were not evaluated by it have no value."""
        rows, seen = dict[str, Mapping[str, Any]](), list[Mapping[str, Any]]()
        for trial_id, row in self.rows.items():
            rows[trial_id] = row
            if protocol not in (*catalog.protocols(row["dataset"]), *self.lacking.get(trial_id, ())):
                evaluation = FurtherEvaluation.read(home.trial(trial_id).evaluation(protocol), self.leave)
                values = evaluation.metrics if evaluation else {}
                further = [(f"{protocol}/{name}", value) for name, value in values.items() if value is not None]
                rows[trial_id] = {**row, "other_metrics": [*(row["other_metrics"] or ()), *further]}
                seen += [{**row, "dataset": protocol, **asdict(evaluation)}] if evaluation else []
        again = (
            "Run `goalgrid resume GRID` on a machine with the data to evaluate again, "
            f"or remove evaluations/{protocol}.parquet."
        )
        refuse_mixed_data(seen, again)
        return replace(self, rows=rows, protocol=protocol)


def by_protocol(row: Mapping[str, Any], protocol: str, metric: str) -> float | None:
    """Return a test metric from a record for a protocol; None if the trial was not evaluated by it."""
    if row["protocol"] == protocol:
        value = row.get(f"test_{metric}")
        return None if value is None else float(value)
    return dict(row["other_metrics"] or ()).get(f"{protocol}/{metric}")


def best(values: Sequence[TableValue], *, lowest: bool = False) -> set[int]:
    """Return the indices of the best value and of those that tie with it when rounded; never values at chance."""
    shown = {value.shown for value in values if not math.isnan(value.shown)}
    for top in sorted(shown, reverse=not lowest):
        if winners := {place for place, value in enumerate(values) if value.shown == top and not value.at_chance}:
            return winners
    return set()


AGAIN = "`goalgrid resume GRID --stale` retrains those with older data; no result is deleted."


def refuse_mixed_data(rows: Iterable[Mapping[str, Any]], again: str = AGAIN) -> None:
    """Raise a UserError if trials of the same data set and recipe saw different data; `again`: advice to the user."""
    marks = ((row, provenance.evaluated_data(row["data_fingerprint"])) for row in rows)
    seen = nested(((row["dataset"], row["recipe"]), mark, row["trial_id"]) for row, mark in marks)
    for (dataset, _), fingerprints in seen.items():
        if len(fingerprints) > 1:
            examples = ", ".join(f"{trial_id} ({mark})" for mark, trial_id in fingerprints.items())
            raise UserError(
                f"trials on {dataset!r} saw different data, so one table must not mix them: {examples}. {again}"
            )


def _evaluated(protocol: str | None, rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether any trial on this protocol's data sets was evaluated by it; True if there are no such trials."""
    candidates = [row for row in rows if protocol in catalog.protocols(row["dataset"])]
    return not candidates or any(by_protocol(row, protocol or "", "rsum") is not None for row in candidates)


def _reason(folder: TrialFolder, state: State) -> str:
    """Return why a started trial has no record, e.g. `running`, `interrupted` or `failed (out-of-memory)`."""
    failure = folder.failure() if state is State.FAILED else None
    return f"{state} ({failure})" if failure else str(state)


def counted_reasons(reasons: Iterable[str]) -> str:
    """List the reasons with their counts, most frequent first.

    >>> counted_reasons(["failed (killed)", NEVER_RUN, "failed (killed)"])
    '2 trials failed (killed), 1 never run'
    """
    counts = Counter(reasons).most_common()
    nouns = [f" trial{'s' * (number > 1)}" if place == 0 else "" for place, (_, number) in enumerate(counts)]
    return ", ".join(f"{number}{noun} {reason}" for (reason, number), noun in zip(counts, nouns, strict=True))
