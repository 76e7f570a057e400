"""Measurements of a trial's model that its record lacks: further evaluations, speed, and number of parameters.

Evaluations and speeds are one-row Parquet files with checksums.
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
"""Keys stored next to the metrics: number of test captions, and of those with a word outside the vocabulary."""

ModelKey = tuple[str, str, tuple[tuple[str, object], ...]]


@dataclass(frozen=True)
class _Measured:
    """A measurement of a trial's model made after training."""

    @classmethod
    def _read(cls, path: Path, leave: Leave, what: str, again: str) -> Self | None:
        """Read a measurement; None if there is none, or if the file is unreadable and skipped."""
        columns = columns_of(path, leave, what, again)
        return cls(**{name: value for name, (value,) in columns.items()}) if columns else None

    def write(self, path: Path) -> None:
        checksummed.write(path, pa.Table.from_pylist([asdict(self)]))


@dataclass(frozen=True)
class FurtherEvaluation(_Measured):
    """Metrics of a trial's best checkpoint for a protocol that is not in its record.

    Such a protocol uses human relevance judgements or another data set.

    Args:
        metrics: in percent, by name; also the counts `CAPTIONS` and, for models with a word vocabulary, `UNKNOWN`.
        data_fingerprint: fingerprint of the evaluation data, as in a record.
    """

    trial_id: str
    protocol: str
    metrics: Mapping[str, float | None]
    data_fingerprint: str

    @classmethod
    def read(cls, path: Path, leave: Leave = refuse) -> Self | None:
        """Read an evaluation; None if there is none, or if the file is unreadable or another trial's and is skipped."""
        again = "Remove the file; goalgrid resume GRID repeats the evaluation."
        evaluation, folder = cls._read(path, leave, "evaluation", again), path.parent.parent.name
        ids = folder, folder.rpartition("-")[0]  # in `replaced/` with a time behind the id
        if evaluation and (evaluation.trial_id not in ids or evaluation.protocol != path.stem):
            leave(f"the file {path} holds the evaluation of {evaluation.trial_id} by {evaluation.protocol}. {again}")
            return None
        return evaluation

    @classmethod
    def of_now(cls, path: Path, now: str) -> bool:
        """Return whether an evaluation exists that is not known to be outdated.

        Args:
            now: fingerprint of the current evaluation data; empty if unknown.
        """
        evaluation = cls.read(path, lambda message: None) if now else None
        return exists(path) and not (evaluation and provenance.is_other(evaluation.data_fingerprint, now))


@dataclass(frozen=True)
class Speed(_Measured):
    """Speed of a model, as measured by `goalgrid evaluate --speed`.

    Args:
        pairs: pairs scored per second, given the embeddings of images and captions; best of several runs.
        queries: queries answered per second, end to end: embedding, scoring and ranking.
        parameters, learning: number of parameters, and of trainable ones.
    """

    pairs: float
    queries: float
    parameters: int
    learning: int
    device: str
    threads: int

    def lines(self) -> list[str]:
        return [
            f"{self.pairs / 1000:,.1f} thousand pairs scored per second; "
            f"{self.queries:,.1f} queries per second end to end",
            f"{self.parameters:,} parameters, {self.learning:,} of them trainable",
        ]

    @classmethod
    def read(cls, path: Path, leave: Leave = refuse) -> Self | None:
        again = f"Measure it again: goalgrid evaluate --trial {path.parent.name} --speed."
        return cls._read(path, leave, "speed", again)


@dataclass(frozen=True, eq=False)
class Models:
    """Speeds and parameter counts of a grid's models, read on first use.

    A value measured for one trial holds for all trials with the same model.
    """

    cells: Sequence[Cell]
    home: Home
    done: Mapping[str, object]
    """Keyed by the ids of the finished trials to use."""
    leave: Leave = refuse

    def of(self, cell: Cell, metric: str) -> tuple[float, tuple[str, ...]]:
        """Return one figure for a cell's model, and the ids of the trials that it was measured on; NaN if none.

        Several measurements are averaged. The parameters of an ensemble are the sum over its members.

        Args:
            metric: `parameters` (millions), `kpps` (thousand pairs scored per second), or `queries` (per second).
        """
        if metric == "parameters":
            values = self._parameters.get(_model(cell), {})
        else:
            speeds = self._speeds.get(_model(cell), {}).items()
            values = {trial: speed.pairs / 1000 if metric == "kpps" else speed.queries for trial, speed in speeds}
        return (sum(values.values()) / len(values) if values else math.nan), tuple(values)

    def note(self) -> str:
        """Return a note that names the devices of the measured speeds, and how to measure speeds."""
        how = "kpps is measured by goalgrid evaluate --trial ID --speed"
        if not (devices := self.devices):
            return f"{how}; one trial of each model is enough."
        several = "; speeds on different devices are not comparable" if len(devices) > 1 else ""
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
    """Return a key that cells with the same model share: data set (for its vocabulary), recipe and model settings."""
    swept = tuple(pair for pair in cell.swept if pair[0].startswith(("model.", "dataset.")))
    return cell.dataset, cell.recipe, swept
