"""The values that tables show: above all a score, the mean over the seeds of a cell, with the trials behind it."""

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
    """The value of a table's entry: measured, printed by a paper, or the difference of the two."""

    trials: tuple[str, ...] = ()
    """Ids of the trials behind it; none of a value that was not measured."""
    missing: tuple[tuple[str, str], ...] = ()
    """Ids of the trials that have no value, each with the reason."""

    @property
    def at_chance(self) -> bool:
        """Whether all its trials are no better than chance on the validation split: then it is not the best."""
        return False

    @property
    def quoted(self) -> bool:
        """Whether it is a paper's number."""
        return False

    @property
    @abstractmethod
    def text(self) -> str:
        """As a reader sees it."""

    @property
    def shown(self) -> float:
        """The number that competes for the best, at the precision of the text; NaN: it does not compete."""
        return math.nan

    @abstractmethod
    def tidy(self) -> dict[str, object]:
        """Return everything that is known of the value, unrounded, by column of a tidy export; NaN for no number."""


@dataclass(frozen=True)
class Word(TableValue):
    """A word in the place of a number."""

    word: str

    @property
    def text(self) -> str:
        return self.word

    def tidy(self) -> dict[str, object]:
        return {"n": None, "mean": math.nan, "std": math.nan, "text": self.text}


@dataclass(frozen=True)
class Quantity(TableValue):
    """A number of a model, which is the same in every seed: its weights, its speed. It competes for nothing."""

    value: float
    trials: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Three digits, or all digits before the point.

        >>> [Quantity(value).text for value in (393750.2, 68.51, 0.17, math.nan)]
        ['393,750', '68.5', '0.170', '--']
        """
        if math.isnan(self.value):
            return "--"
        return f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:#.3g}"

    def tidy(self) -> dict[str, object]:
        return {"mean": self.value, "text": self.text, "trials": list(self.trials)}


class Multiple(Quantity):
    """Speed of a model as a multiple of the slowest in its table."""

    @property
    def text(self) -> str:
        """`4.6×`, as printed."""
        return f"{self.value:.1f}×"

    @property
    def shown(self) -> float:
        return round(self.value, 1)


@dataclass(frozen=True)
class Score(TableValue):
    """Values of one metric over the seeds of one cell."""

    values: tuple[float, ...]
    expected: int
    trials: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    """Ids and seeds of the trials behind the values, in the order of the values."""
    missing: tuple[tuple[str, str], ...] = ()
    chance: Container[str] = field(default=frozenset(), compare=False, repr=False)
    """Ids of the trials that are no better than chance."""

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        """NaN without values."""
        return fmean(self.values) if self.values else math.nan

    @cached_property
    def std(self) -> float:  # of exact fractions, so it takes its time
        """Sample standard deviation (n - 1); NaN for fewer than two values."""
        return stdev(self.values) if self.n > 1 else math.nan

    @cached_property
    def at_chance(self) -> bool:
        return bool(self.trials) and all(trial_id in self.chance for trial_id in self.trials)

    def of_seeds(self, seeds: Collection[int]) -> list[str]:
        """Return the ids of the trials that have these seeds."""
        return [trial_id for trial_id, seed in zip(self.trials, self.seeds, strict=True) if seed in seeds]

    @property
    def shown(self) -> float:
        """The mean, rounded as the text shows it; NaN without values."""
        return rounded(self.mean)

    @property
    def text(self) -> str:
        """`63.1 ± 0.2`; without ± for one seed, with `(2/3)` where seeds are missing, `--` where all are.

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
    """The columns that tables need of the records of a grid's finished trials."""

    rows: Mapping[str, Mapping[str, Any]]
    protocol: str | None = None
    """The evaluation protocol that the user asks for, which is shown where a data set has it; None: `usual`."""
    usual: str | None = None
    """The protocol that is shown unless another is asked for; None: the protocol in the trial's settings."""
    evaluate: Evaluate = field(default_factory=Evaluate)
    """The further evaluations of the grid, whose protocols are shown for all cells."""
    lacking: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The protocols of these by which trials were not evaluated, or on other data than are here now, by trial id."""
    make: str = ""
    """The command that makes those that are missing."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Why a trial has no record, by its id; a trial without record and reason never ran."""
    now: provenance.Now | None = None
    """The code and data that the records are compared with; None: they are not."""
    models: Models | None = None
    leave: Leave = refuse
    chance: Container[str] = frozenset()
    """Ids of the trials that are no better than chance on the validation split."""
    cells: Sequence[Cell] = ()
    """The cells that were read, among which `unequal_of` compares."""

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
        """Read the records of all finished trials, and the states of trials that were started and are not done.

        Trials that were trained on data that changed since are left out, with that reason.

        UserError: trials of one data set and recipe saw different data, or none was evaluated by the protocol.

        Args:
            usual: shown unless the records are older than that protocol.
            leave: takes messages about records and files next to them that cannot be read, now or later.
            mixed: whether to take trials of different data, of which the caller chooses.
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
                f"no finished trial was evaluated by protocol {protocol!r}: the records are older than the protocol. "
                f"Retrain with --set dataset.protocol={protocol}, or into another --runs folder."
            )
        usual, models = usual if _evaluated(usual, rows.values()) else None, Models(cells, home, rows, leave)
        scores = cls(
            rows, protocol, usual, evaluate, lacking, make, absent, now, models, leave, Chance(home, rows), cells
        )
        return scores._evaluated_by(str(protocol), home) if protocol in evaluate.names else scores

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the protocol that is shown."""
        return tuple(f"{way}_{name}" for way in ("i2t", "t2i") for name in JUDGED) if self.judged else record.METRICS

    @property
    def headline(self) -> str:
        """Return the metric, in both directions, that represents all in a figure."""
        return JUDGED[0] if self.judged else "r1"

    @property
    def judged(self) -> bool:
        """Whether the answers are those that people judged right."""
        return self.protocol == ECCV

    def of(self, cell: Cell, metric: str, protocol: str | None = None) -> Score:
        """Return a test metric of a cell over its seeds, by this protocol or by the one that is shown."""
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
        """By the id of a cell's first trial, which cells of equal settings share."""
        pairs = zip(self.cells, unequal(self.cells), strict=True)
        return {cell.trials[0].id: values for cell, values in pairs if cell.trials}

    def unequal_of(self, cell: Cell) -> Values:
        """Return a cell's values of the settings in which the cells of its data set differ, axes left out."""
        return self._unequal.get(cell.trials[0].id, {}) if cell.trials else {}

    def of_model(self, cell: Cell, metric: str) -> Quantity:
        """Return `parameters` of a cell's model in millions, `kpps`, or `queries` a second."""
        return Quantity(*self.models.of(cell, metric)) if self.models else Quantity(math.nan)

    def of_other_code(self, cells: Iterable[Cell]) -> list[str]:
        """State how many of these cells' finished trials were trained with other code; empty if none."""
        remarks = self.code_differs(cell for cell in cells if not cell.published).values()
        counts = Counter(remarks).items()
        return [f"{count} of {len(remarks)} trials were {remark}." for remark, count in counts if remark]

    def code_differs(self, cells: Iterable[Cell]) -> dict[str, str]:
        """Return how the code of finished trials differs from that of now, by id; empty if it does not."""
        now = provenance.of_trials(cells, self.rows, self.now.code) if self.now else {}
        return {name: provenance.code_differs(self.rows[name]["code_fingerprint"], code) for name, code in now.items()}

    def to_evaluate(self, cells: Iterable[Cell]) -> str:
        """State how to make the further evaluations that finished trials lack; empty if none is missing."""
        done = (trial.id for cell in cells for trial in cell.trials if trial.id in self.rows)
        missing = any(self.protocol in self.lacking.get(trial_id, ()) for trial_id in done)
        return f"To make the missing evaluations: {self.make}." if missing else ""

    def unknown_words(self, cells: Sequence[Cell]) -> str:
        """State how many captions have words that the models never read in training; empty if none has."""
        most, captions = (
            max((v for c in cells for v in self.of(c, name).values), default=0) for name in (UNKNOWN, CAPTIONS)
        )
        return f"Up to {most:,.0f} of {captions:,.0f} captions have words that no training read." if most else ""

    def leaks(self, cells: Sequence[Cell]) -> str:
        """Name the splits that share images although trials were trained on them (`--allow-leak`); or empty."""
        shared = dict[str, None]()
        for cell in cells:
            shared |= {f"{what} ({cell.dataset})": None for _, what in self.leaks_of(cell)}
        return f"Trained with --allow-leak: {', '.join(shared)}." if shared else ""

    def leaks_of(self, cell: Cell) -> list[tuple[str, str]]:
        """Return the kind of each leak that a cell was trained with, and which splits share images."""
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
        """Return what the rows of a block share in a layout that compares methods: the protocol."""
        return self.protocol_of(cell)

    def label(self, cell: Cell) -> str:
        """Name the cell as one method among others: `fc-bow, con_con, train.lr = 0.001`."""
        return with_values(f"{cell.recipe}, {cell.objective}", cell.swept)

    def axes(self, cell: Cell) -> dict[str, str]:
        names = {"dataset": cell.dataset, "protocol": self.protocol_of(cell), "recipe": cell.recipe}
        return {**names, **{name: str(value) for name, value in cell.swept}, "objective": cell.objective}

    def further(self, cells: Iterable[Cell], home: Home) -> "Iterator[Scores]":
        """Yield the scores by each protocol that is not shown, and by those of [evaluate] that some trial has."""
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
        """The scores by a protocol of [evaluate], with the metrics by it; of trials that lack them, none."""
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
            "On a machine with the data, `goalgrid resume GRID` evaluates again; "
            f"or remove evaluations/{protocol}.parquet."
        )
        refuse_mixed_data(seen, again)
        return replace(self, rows=rows, protocol=protocol)


def by_protocol(row: Mapping[str, Any], protocol: str, metric: str) -> float | None:
    """Return a test metric of a record by a protocol; None if the trial was not evaluated by it."""
    if row["protocol"] == protocol:
        value = row.get(f"test_{metric}")
        return None if value is None else float(value)
    return dict(row["other_metrics"] or ()).get(f"{protocol}/{metric}")


def best(values: Sequence[TableValue], *, lowest: bool = False) -> set[int]:
    """Return the indices of the best value and of values that tie with it as shown; none that is at chance."""
    shown = {value.shown for value in values if not math.isnan(value.shown)}
    for top in sorted(shown, reverse=not lowest):
        if winners := {place for place, value in enumerate(values) if value.shown == top and not value.at_chance}:
            return winners
    return set()


AGAIN = "`goalgrid resume GRID --stale` retrains all but those with the latest data; no result is deleted."


def refuse_mixed_data(rows: Iterable[Mapping[str, Any]], again: str = AGAIN) -> None:
    """Raise where trials of the same data set and recipe saw different data."""
    marks = ((row, provenance.evaluated_data(row["data_fingerprint"])) for row in rows)
    seen = nested(((row["dataset"], row["recipe"]), mark, row["trial_id"]) for row, mark in marks)
    for (dataset, _), fingerprints in seen.items():
        if len(fingerprints) > 1:
            examples = ", ".join(f"{trial_id} ({mark})" for mark, trial_id in fingerprints.items())
            raise UserError(
                f"trials on {dataset!r} saw different data, so one table must not mix them: {examples}. {again}"
            )


def _evaluated(protocol: str | None, rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether trials on the data sets of this protocol were evaluated by it, if there are any."""
    candidates = [row for row in rows if protocol in catalog.protocols(row["dataset"])]
    return not candidates or any(by_protocol(row, protocol or "", "rsum") is not None for row in candidates)


def _reason(folder: TrialFolder, state: State) -> str:
    """Why a trial that was begun has no record: `running`, `interrupted`, `failed (out-of-memory)`."""
    failure = folder.failure() if state is State.FAILED else None
    return f"{state} ({failure})" if failure else str(state)


def counted_reasons(reasons: Iterable[str]) -> str:
    """Count how often each reason holds, the most frequent first.

    >>> counted_reasons(["failed (killed)", NEVER_RUN, "failed (killed)"])
    '2 trials failed (killed), 1 never run'
    """
    counts = Counter(reasons).most_common()
    nouns = [f" trial{'s' * (number > 1)}" if place == 0 else "" for place, (_, number) in enumerate(counts)]
    return ", ".join(f"{number}{noun} {reason}" for (reason, number), noun in zip(counts, nouns, strict=True))
