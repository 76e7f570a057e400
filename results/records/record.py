"""The record of a finished trial: a Parquet file with one row; all trials share one schema."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from goalgrid.grid.errors import NESTED, UserError, parsed_json
from goalgrid.grid.expansion import Cell, trials_of
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.files import atomic_write, make_durable, write_text
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results.records import checksummed
from goalgrid.results.records.history import LOGGED, unit_of
from goalgrid.results.records.history import METRICS as METRICS

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

PART = 500

_HISTORY = pa.list_(pa.struct([("epoch", pa.int32()), ("name", pa.string()), ("value", pa.float64())]))


def _column(name: str, kind: pa.DataType, meaning: str, unit: str = "", *, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"meaning": meaning, "unit": unit})


_LOGGED = ("s_pos", "s_neg", "delta_s", "active", "false_negatives", "k", "grad_image", "grad_text", "grad_norm")
DIAGNOSTICS = {"spread": "val_spread", **{name: name for name in _LOGGED}}
"""Maps each diagnostic to its name in the history. The column is null if the objective does not have it."""


def _metrics(split: str) -> list[pa.Field]:
    """Return the metric columns of a split; a two-stage test has no median rank."""
    return [
        _column(f"{split}_{name}", pa.float64(), f"{name} on the {split} split", unit_of(name),
                nullable=split == "test" and name.endswith("medr")) for name in METRICS
    ]  # fmt: skip


SCHEMA = pa.schema([
    _column("trial_id", pa.string(), "readable name and hash of all settings"),
    _column("dataset", pa.string(), "name of the data set"),
    _column("protocol", pa.string(), "evaluation protocol of the test metrics"),
    _column("recipe", pa.string(), "backbone with its training settings"),
    _column("objective", pa.string(), "what drove the gradient; PAIR_TRIPLET for GOAL's matrix"),
    _column("variant", pa.string(), "paper: as the equations say; released: as the published code does"),
    _column("seed", pa.int64(), "of weights, batches and dropout"),
    _column("starts_from", pa.string(), "id of the trial whose best checkpoint it fine-tunes", nullable=True),
    _column("settings", pa.string(), "all settings of the trial, as JSON"),
    _column("selection", pa.string(), "rule that picked the checkpoint whose test metrics count"),
    _column("selected_epoch", pa.int32(), "epoch of that checkpoint; 0: nothing was trained", "epochs, from 1"),
    _column("epochs", pa.int32(), "epochs trained; 0: nothing was trained", "epochs"),
    _column("steps", pa.int64(), "updates of the weights", "steps"),
    *_metrics("val"),
    *_metrics("test"),
    _column("other_metrics", pa.map_(pa.string(), pa.float64()),
            "test metrics by the data set's other protocols, from the same embeddings, keyed PROTOCOL/METRIC",
            "as of the test metrics", nullable=True),
    *(_column(f"diagnostic_{name}", pa.float64(), f"{LOGGED[logged].meaning}, at the selected epoch",
              LOGGED[logged].unit, nullable=True) for name, logged in DIAGNOSTICS.items()),
    _column("test_i2t_ranks", pa.list_(pa.int32()), "rank of each test image's best caption", "from 0; -n: n - 1/2"),
    _column("test_t2i_ranks", pa.list_(pa.int32()), "rank of each test caption's image", "from 0; -n: n - 1/2"),
    _column("test_image_of_text", pa.list_(pa.int32()), "each test caption's image", "row, from 0", nullable=True),
    _column("history", _HISTORY, "every value logged at the end of an epoch"),
    _column("replicas", pa.int32(), "most processes that trained it together; null: one", "processes", nullable=True),
    _column("parameters", pa.int64(), "weights of the model, without networks whose features are cached", "weights",
            nullable=True),
    _column("parameters_learning", pa.int64(), "weights that training changes", "weights", nullable=True),
    _column("train_seconds", pa.float64(), "wall time of all epochs, validation included", "seconds"),
    _column("data_fingerprint", pa.string(), "hash of the data set's content; after + of pretrained weights"),
    _column("code_fingerprint", pa.string(), "hash of the code that it used, after the version of hashing"),
    _column("environment", pa.string(), "versions, device and threads, as JSON"),
    _column("finished_at", pa.string(), "when the record was written, ISO 8601, UTC"),
])  # fmt: skip


SHORT = [
    name for name in SCHEMA.names
    if name not in ("settings", "test_i2t_ranks", "test_t2i_ranks", "test_image_of_text", "history")
]  # fmt: skip

_LONG = [
    "settings", "environment", "other_metrics.key_value.key", "other_metrics.key_value.value",
    "test_i2t_ranks.list.element", "test_t2i_ranks.list.element", "test_image_of_text.list.element",
    "history.list.element.epoch", "history.list.element.name", "history.list.element.value",
]  # fmt: skip
"""Parquet paths of the columns that are worth compressing; the others hold one short value."""


@dataclass(frozen=True)
class Trained:
    """Results of a finished training, for its record.

    Args:
        rows: the history, one row per epoch; empty for an ensemble.
        selected: history row of the selected checkpoint's epoch; for an ensemble, its validation metrics.
        metrics: metrics on the test split, by protocol.
        ranks: ranks of the test queries in the trial's protocol, for `i2t` and `t2i`.
        image_of_text: row index of each test caption's image.
        parameters: number of all parameters and of trainable ones; None if unknown, e.g. for an ensemble.
    """

    trial_id: str
    settings: TrialSettings
    metrics: Mapping[str, Mapping[str, float]]
    ranks: Mapping[str, Sequence[float]]
    image_of_text: Sequence[int]
    selected: Mapping[str, Any]
    data_fingerprint: str
    code_fingerprint: str
    environment: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]] = ()
    replicas: int = 1
    parameters: tuple[int, int] | None = None

    def values(self) -> dict[str, Any]:
        settings, selected, usual = self.settings, self.selected, self.settings.dataset.protocol
        by_others = {protocol: metrics for protocol, metrics in self.metrics.items() if protocol != usual}
        others = [(f"{protocol}/{name}", metrics[name]) for protocol, metrics in by_others.items() for name in metrics]
        return {
            "trial_id": self.trial_id,
            "dataset": settings.dataset.name,
            "protocol": usual,
            "recipe": settings.recipe,
            "objective": settings.objective.name,
            "variant": settings.objective.variant,
            "seed": settings.seed,
            "starts_from": settings.starts_from,
            "settings": settings.model_dump_json(),
            "selection": settings.train.selection,
            "selected_epoch": selected.get("epoch", 0),
            "epochs": self.rows[-1]["epoch"] if self.rows else 0,
            "steps": self.rows[-1]["step"] if self.rows else 0,
            **{f"val_{name}": selected[f"val_{name}"] for name in METRICS},
            **{f"test_{name}": value for name, value in self.metrics[usual].items()},
            "other_metrics": others or None,
            **{f"diagnostic_{name}": selected.get(logged) for name, logged in DIAGNOSTICS.items()},
            "test_i2t_ranks": as_stored(self.ranks["i2t"]),
            "test_t2i_ranks": as_stored(self.ranks["t2i"]),
            "test_image_of_text": self.image_of_text,
            "history": [
                {"epoch": row["epoch"], "name": name, "value": float(value)}
                for row in self.rows
                for name, value in row.items()
                if name != "epoch"
            ],
            "replicas": self.replicas if self.replicas > 1 else None,
            "parameters": self.parameters[0] if self.parameters else None,
            "parameters_learning": self.parameters[1] if self.parameters else None,
            "train_seconds": sum(row["seconds"] for row in self.rows),
            "data_fingerprint": self.data_fingerprint,
            "code_fingerprint": self.code_fingerprint,
            "environment": json.dumps(self.environment, sort_keys=True),
            "finished_at": _now(),
        }


def as_stored(ranks: Sequence[float]) -> list[int]:
    """Encode ranks as integers for a record; a mean rank of ties that ends in 1/2, n - 1/2, becomes -n.

    >>> as_stored([0, 7, 0.5, 2.0, 3.5])
    [0, 7, -1, 2, -4]
    """
    return [-int(rank + 1) if rank % 1 else int(rank) for rank in ranks]


def ranks_of(stored: "NDArray[Any]") -> "NDArray[Any]":
    """Decode the ranks of a record: the inverse of `as_stored`.

    >>> import numpy as np
    >>> ranks_of(np.array([0, 7, -1, 2, -4])).tolist()
    [0.0, 7.0, 0.5, 2.0, 3.5]
    """
    halves = stored < 0
    return stored * (1.0 - 2.0 * halves) - 0.5 * halves if halves.any() else stored


def write(path: Path, values: Mapping[str, Any]) -> None:
    """Write one record from its values by column; durable only after the caller syncs the folder."""
    row = pa.RecordBatch.from_struct_array(pa.array([values], pa.struct(list(SCHEMA))))  # converts all columns at once
    options = {"compression": dict.fromkeys(_LONG, "zstd"), "use_dictionary": False, "write_statistics": False}
    checksummed.write(path, pa.Table.from_batches([row], SCHEMA), durable=False, **options)


def finish(folder: TrialFolder, trained: Trained) -> None:
    """Write the record of a trial, then mark the trial as done."""
    write(folder.record, trained.values())
    make_durable(folder.path)  # before `done` says so
    write_text(folder.done, _now() + "\n", durable=False)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


Unreadable = dict[Path, str]
"""Paths of unreadable records, each with the message for the user."""


def collect(paths: Iterable[Path], columns: list[str] | None = None, unreadable: Unreadable | None = None) -> pa.Table:
    """Read the records at these paths into one table.

    Args:
        paths: paths of the records.
        columns: columns to read; default: all.
        unreadable: unreadable records are skipped and added to it; if None, they raise a UserError.
    """
    return pa.concat_tables([_empty(columns), *parts(paths, columns, unreadable)])


def parts(
    paths: Iterable[Path], columns: list[str] | None = None, unreadable: Unreadable | None = None
) -> Iterator[pa.Table]:
    """Yield the records in tables of `PART` rows, to bound the memory; arguments as in `collect`."""
    unread = iter(paths)
    while batch := list(itertools.islice(unread, PART)):
        records = [_read(path, columns, unreadable) for path in batch]
        yield pa.concat_tables([_empty(columns), *records], promote_options="default").combine_chunks()


VALIDATED = [name for name in SCHEMA.names if name != "other_metrics" and not name.startswith("test_")]
"""All columns except those about the test split."""


def write_records(ids: Iterable[str], home: Home, path: Path, columns: list[str] = SCHEMA.names) -> int:
    """Concatenate the readable records of these trials into one Parquet file; return their number."""
    done, unreadable = [home.trial(trial_id).record for trial_id in ids], Unreadable()
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    with atomic_write(path) as aside, pq.ParquetWriter(aside, schema, compression="zstd") as writer:
        for part in parts(done, columns, unreadable):
            writer.write_table(part)
    return len(done) - len(unreadable)


def _empty(columns: list[str] | None) -> pa.Table:
    schema = pa.schema([SCHEMA.field(name) for name in columns or SCHEMA.names])
    return pa.Table.from_batches([], schema)  # empty_table() would import pandas


def _read(path: Path, columns: list[str] | None, unreadable: Unreadable | None) -> pa.Table:
    """Read a record; if it is unreadable, note that in `unreadable` and return an empty table."""
    try:
        known = columns or SCHEMA.names  # an earlier version may have written columns that are gone
        table = checksummed.read(path, [*known, *{"trial_id"}.difference(known)])
        (of,) = table["trial_id"].to_pylist()
        folder = path.parent.name  # in `replaced/` with a time behind the id
        if path.name == TrialFolder(path.parent).record.name and of not in (folder, folder.rpartition("-")[0]):
            raise checksummed.Damaged(f"it is the record of {of}")
        for name in {"settings", "environment"}.intersection(table.column_names):
            text = str(table[name][0].as_py())
            if text.count("{") + text.count("[") > NESTED:  # a level has one
                parsed_json(text)
        return table.select([name for name in known if name in table.schema.names])
    except (checksummed.Damaged, OSError, ValueError, KeyError) as error:
        if unreadable is None:
            raise cannot_be_read(path, error) from error
        unreadable[path] = str(cannot_be_read(path, error))
        return _empty(columns)


def cannot_be_read(path: Path, error: Exception) -> UserError:
    """Return the error for an unreadable record: which one, why, and what to do."""
    why = str(error).rstrip(".")
    return UserError(f"the record {path} cannot be read: {why}. Retrain its trial with goalgrid resume GRID --stale.")


_SETTINGS = ["recipe", "seed", "starts_from", "schema_version"]
"""Settings that are already columns of the record, or are not about the trial."""


def data_frame(home: Home, ids: Sequence[str], unreadable: Unreadable | None = None) -> "pd.DataFrame":
    """Return one row per trial: the columns of its record, then its settings by dotted name.

    Settings that a trial does not have are missing (NaN) in its row. Metrics of other protocols are in columns named
    `PROTOCOL/METRIC`. Ranks and history are left out.
    """
    import pandas as pd

    table = collect([home.trial(trial_id).record for trial_id in ids], [*SHORT, "settings"], unreadable)
    frame = table.drop_columns(["settings", "other_metrics"]).to_pandas()
    settings = [json.loads(text) for text in table["settings"].to_pylist()]
    others: list[Mapping[str, float]] = [dict(pairs or ()) for pairs in table["other_metrics"].to_pylist()]
    named = pd.json_normalize(settings).drop(columns=_SETTINGS, errors="ignore")
    named.columns = [name.replace("objective.parameters.", "objective.") for name in named.columns]
    return pd.concat([frame, named, pd.DataFrame(others)], axis=1).set_index("trial_id")


CIRCUMSTANCES = frozenset({"train_seconds", "environment", "finished_at"})
"""Columns that tell when, where and how long a trial ran; they do not affect results."""


def differences(cells: Sequence[Cell], one: Home, other: Home) -> list[str]:
    """List how two runs folders differ: trials finished in only one of them, and record columns that differ."""
    folders = [[home.trial(trial.id) for trial in trials_of(cells)] for home in (one, other)]
    first, second = ({folder.trial_id: folder.record for folder in side if folder.is_done()} for side in folders)
    lines = [f"{trial_id}: done in only one of the runs" for trial_id in sorted(first.keys() ^ second.keys())]
    for trial_id in sorted(first.keys() & second.keys()):
        lines += [f"{trial_id}: {name} differs" for name in differing(first[trial_id], second[trial_id])]
    return lines or ([] if first else ["no trial is done"])


def differing(one: Path, other: Path) -> list[str]:
    """Return the columns in which two records differ, ignoring when, where and how long the trials ran."""
    rows = [collect([path]).drop_columns(sorted(CIRCUMSTANCES)).to_pylist()[0] for path in (one, other)]
    for row in rows:
        row["history"] = [logged for logged in row["history"] if logged["name"] != "seconds"]
    return [name for name in rows[0] if rows[0][name] != rows[1][name]]
