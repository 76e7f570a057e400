"""Facts about a trial's model, in addition to its record: further evaluations, its speed, its number of weights.

Evaluations and speeds are sealed Parquet files of one row.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Self

import pyarrow as pa

from goalgrid.grid.errors import counted
from goalgrid.grid.expansion import Cell, Trial
from goalgrid.grid.groups import nested
from goalgrid.grid.store.files import exists
from goalgrid.grid.store.home import Home
from goalgrid.results.records import checksummed, provenance, record_cache
from goalgrid.results.records.steps import Leave, columns_of, refuse

CAPTIONS, UNKNOWN = "captions", "unknown_captions"
"""In addition to metrics: captions of the test split, and those with a word that the vocabulary lacks."""

ModelKey = tuple[str, str, tuple[tuple[str, object], ...]]


@dataclass(frozen=True)
class _Measured:
    """Measurements of a trial's model after its training."""

    @classmethod
    def _read(cls, path: Path, leave: Leave, what: str, again: str) -> Self | None:
        """None where nothing was measured, or where the file cannot be read and is left out."""
        columns = columns_of(path, leave, what, again)
        return cls(**{name: value for name, (value,) in columns.items()}) if columns else None

    def write(self, path: Path) -> None:
        checksummed.write(path, pa.Table.from_pylist([asdict(self)]))


@dataclass(frozen=True)
class FurtherEvaluation(_Measured):
    """Metrics of a trial's best checkpoint by a protocol that its record does not have.

    By people's judgements, or on other data.

    Args:
        metrics: in percent, by name; with the numbers of `CAPTIONS` and, of a model that reads words, `UNKNOWN`.
        data_fingerprint: of the data that it was evaluated on, as in a record.
    """

    trial_id: str
    protocol: str
    metrics: Mapping[str, float | None]
    data_fingerprint: str

    @classmethod
    def read(cls, path: Path, leave: Leave = refuse) -> Self | None:
        """Read an evaluation; None: nothing was evaluated, or the file is of another trial and is left out."""
        again = "Remove the file; goalgrid resume GRID makes it again."
        evaluation, folder = cls._read(path, leave, "evaluation", again), path.parent.parent.name
        ids = folder, folder.rpartition("-")[0]  # in `replaced/` with a time behind the id
        if evaluation and (evaluation.trial_id not in ids or evaluation.protocol != path.stem):
            leave(f"the evaluation {path} is that of {evaluation.trial_id} by {evaluation.protocol}. {again}")
            return None
        return evaluation

    @classmethod
    def of_now(cls, path: Path, now: str) -> bool:
        """Return whether an evaluation exists, and as far as known of the data with the fingerprint `now`."""
        evaluation = cls.read(path, lambda message: None) if now else None
        return exists(path) and not (evaluation and provenance.is_other(evaluation.data_fingerprint, now))


@dataclass(frozen=True)
class Speed(_Measured):
    """Speed of a model, as `goalgrid evaluate --speed` measured it.

    Args:
        pairs: scored a second, images and captions already embedded; the best of several runs.
        queries: answered a second, images and captions embedded, scored and ranked.
    """

    pairs: float
    queries: float
    parameters: int
    learning: int
    device: str
    threads: int

    def lines(self) -> list[str]:
        return [
            f"{self.pairs / 1000:,.1f} thousand pairs scored a second; {self.queries:,.1f} queries a second end to end",
            f"{self.parameters:,} parameters, {self.learning:,} of which learn",
        ]

    @classmethod
    def read(cls, path: Path, leave: Leave = refuse) -> Self | None:
        again = f"Measure it again: goalgrid evaluate --trial {path.parent.name} --speed."
        return cls._read(path, leave, "speed", again)


@dataclass(frozen=True, eq=False)
class Models:
    """The models of a grid, read only where a table or a figure asks: one trial speaks for its model."""

    cells: Sequence[Cell]
    home: Home
    done: Mapping[str, object]
    """Ids of the trials whose records count."""
    leave: Leave = refuse

    def of(self, cell: Cell, metric: str) -> tuple[float, tuple[str, ...]]:
        """Return `parameters` in millions, `kpps`, or `queries` a second, and the trials that measured it; or NaN.

        The parameters of an ensemble are those of its members together.
        """
        if metric == "parameters":
            values = self._parameters.get(_model(cell), {})
        else:
            speeds = self._speeds.get(_model(cell), {}).items()
            values = {trial: speed.pairs / 1000 if metric == "kpps" else speed.queries for trial, speed in speeds}
        return (sum(values.values()) / len(values) if values else math.nan), tuple(values)

    def note(self) -> str:
        """Name the devices of measured speeds, or how to measure speeds if there are none."""
        how = "kpps is measured by goalgrid evaluate --trial ID --speed"
        if not (devices := self.devices):
            return f"{how}; one trial of each model is enough."
        several = ": speeds of several devices do not compare" if len(devices) > 1 else ""
        return f"{how}, here on {'; '.join(devices)}{several}."

    @property
    def devices(self) -> list[str]:
        speeds = [speed for of_model in self._speeds.values() for speed in of_model.values()]
        return list(dict.fromkeys(f"{speed.device}, {counted(speed.threads, 'thread')}" for speed in speeds))

    @cached_property
    def _parameters(self) -> dict[ModelKey, dict[str, float]]:
        trials = dict(self._trials())
        parts = {key: trial.parents if trial.shared.members else (trial.id,) for key, trial in trials.items()}
        ids = dict.fromkeys(chain.from_iterable(parts.values()))
        rows = record_cache.rows(self.home, ids, ["parameters"], {})  # `Scores` names what is unreadable
        sizes = {part: row["parameters"] for part, row in rows.items() if row["parameters"] is not None}
        return {
            key: {trial.id: sum(sizes[part] for part in parts[key]) / 1e6}
            for key, trial in trials.items()
            if sizes.keys() >= set(parts[key])
        }

    @cached_property
    def _speeds(self) -> dict[ModelKey, dict[str, Speed]]:
        speeds = ((*pair, Speed.read(self.home.trial(pair[1].id).speed, self.leave)) for pair in self._trials())
        return nested((key, trial.id, speed) for key, trial, speed in speeds if speed)

    def _trials(self) -> Iterator[tuple[ModelKey, Trial]]:
        for cell in self.cells:
            yield from ((_model(cell), trial) for trial in cell.trials if trial.id in self.done)


def _model(cell: Cell) -> ModelKey:
    """What cells share that have the same model: the data, from which the vocabulary is, and settings of the model."""
    swept = tuple(pair for pair in cell.swept if pair[0].startswith(("model.", "dataset.")))
    return cell.dataset, cell.recipe, swept
