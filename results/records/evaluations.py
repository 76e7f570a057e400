"""Evaluations beside a trial's record: by people's judgements, or on other data. A sealed Parquet file a protocol."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from goalgrid.grid.store.home import TrialFolder
from goalgrid.results.records import sealed
from goalgrid.results.records.steps import Leave, columns_of, refuse

CAPTIONS, UNKNOWN = "captions", "unknown_captions"
"""Beside the metrics: captions of the test split, and those with a word that the training's vocabulary lacks."""


@dataclass(frozen=True)
class FurtherEvaluation:
    """What the best checkpoint of a trial reaches by a protocol that its record does not have.

    Args:
        metrics: in percent, by name; with the numbers of `CAPTIONS` and, of a model that reads words, `UNKNOWN`.
        data_fingerprint: of the data that it was evaluated on, as in a record.
    """

    trial_id: str
    protocol: str
    metrics: Mapping[str, float | None]
    data_fingerprint: str

    def write(self, folder: TrialFolder) -> None:
        sealed.write(folder.evaluation(self.protocol), pa.Table.from_pylist([asdict(self)]))

    @classmethod
    def read(cls, path: Path, leave: Leave = refuse) -> "FurtherEvaluation | None":
        """None where nothing was evaluated, or where the file is not that of its trial and is left out."""
        again = "Remove the file; goalgrid resume GRID makes it anew."
        columns = columns_of(path, leave, "evaluation", again)
        evaluation = cls(**{name: value for name, (value,) in columns.items()}) if columns else None
        folder = path.parent.parent.name  # in `replaced/` with a time behind the id
        ours = evaluation and evaluation.trial_id in (folder, folder.rpartition("-")[0])
        if evaluation and (not ours or evaluation.protocol != path.stem):
            leave(f"the evaluation {path} is that of {evaluation.trial_id} by {evaluation.protocol}. {again}")
            return None
        return evaluation
