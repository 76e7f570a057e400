"""Checks a finished trial's settings, vocabulary and weights against its record before they are used.

The record has a checksum; settings and vocabulary have none, so files of a different run could go unnoticed.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from goalgrid.grid.catalog import Catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.grid.syntax import differing
from goalgrid.results.records import record

COLUMNS = ("settings", "environment", "code_fingerprint", "selected_epoch", *(f"val_{name}" for name in record.METRICS))

POINTS, QUERIES = 1.0, 2
"""Tolerance of a recall on another machine: in percentage points, or in queries; the larger of the two applies.

Other CPUs, library versions or thread counts round differently. Answers with nearly equal scores then swap places, and
a few queries change their rank. A wrong vocabulary, wrong weights or wrong sizes change many.
"""


@dataclass(frozen=True)
class FinishedTrial:
    """A finished trial's folder and record, to check the trial's other files against the record."""

    folder: TrialFolder
    row: Mapping[str, Any]

    @classmethod
    def read(cls, folder: TrialFolder) -> "FinishedTrial":
        (row,) = record.collect([folder.record], list(COLUMNS)).to_pylist()
        return cls(folder, row)

    @cached_property
    def noted(self) -> dict[str, Any]:
        return dict(json.loads(self.row["environment"]))

    @property
    def validation(self) -> dict[str, float]:
        """Metrics of the validation split."""
        return {name: self.row[f"val_{name}"] for name in record.METRICS}

    def check_settings(self, settings: TrialSettings, known: Catalog) -> None:
        """Raise a UserError if the settings file in the trial's folder differs from the recorded settings."""
        trained = TrialSettings.model_validate_json(self.row["settings"], context=known.context)
        if settings != trained:
            differ = ", ".join(differing(settings.model_dump(mode="json"), trained.model_dump(mode="json")))
            raise self._other(f"the settings {self.folder.settings}", f"these settings differ: {differ}")

    def check_vocabulary(self, fingerprint: str) -> None:
        """Raise a UserError if the trial's vocabulary differs from the recorded one (not checked if none is recorded).

        Args:
            fingerprint: hash of the vocabulary file in the trial's folder.
        """
        trained = self.noted.get("vocabulary", fingerprint)
        if fingerprint != trained:
            raise self._other(f"the vocabulary {self.folder.vocabulary}", f"its digest is {fingerprint}, not {trained}")

    def check_weights(self, content: Mapping[str, Any]) -> None:
        """Raise a UserError if the best checkpoint is not that of the recorded run and epoch.

        Args:
            content: content of the checkpoint file: "row", the history's row for its epoch, and "vocabulary", a
                fingerprint. A checkpoint for resuming has no "row".
        """
        row, path, epoch = content.get("row"), self.folder.best_checkpoint, self.row["selected_epoch"]
        if row is None:
            raise self._other(f"the best checkpoint {path}", "it is a checkpoint for resuming")
        values = {f"val_{name}": value for name, value in self.validation.items()}
        if row.get("epoch", 0) != epoch or any(row.get(name, value) != value for name, value in values.items()):
            ours, theirs = row.get("val_rsum", math.nan), values.get("val_rsum", math.nan)
            epochs = f"epoch {row.get('epoch', 0)} with val_rsum {ours:.2f}, not epoch {epoch} with {theirs:.2f}"
            raise self._other(f"the best checkpoint {path}", f"it holds {epochs}")
        words = content.get("vocabulary")
        if words is not None and words != self.noted.get("vocabulary", words):
            how = f"its vocabulary has the fingerprint {words}, not {self.noted['vocabulary']}"
            raise self._other(f"the best checkpoint {path}", how)

    def check_numbers(
        self,
        recorded: Mapping[str, float],
        metrics: Mapping[str, float],
        queries: int,
        others: Callable[[], Sequence[str]],
    ) -> None:
        """Raise a UserError if evaluating the trial's model again does not reproduce its recorded metrics.

        Args:
            recorded, metrics: recorded and new values, for one split and one protocol.
            queries: number of queries in one direction.
            others: returns the differences between the training environment and this one (`provenance.elsewhere`); if
                there are any, the recalls may differ by `POINTS` percent or `QUERIES` queries.
        """
        differ = {name: value for name, value in recorded.items() if metrics.get(name, value) != value}
        if not differ:
            return
        reasons, room = others(), max(POINTS, 100 * QUERIES / queries)
        recalls = [abs(metrics[name] - value) for name, value in differ.items() if name.partition("_")[2][:1] == "r"]
        if reasons and all(distance < room + 1e-9 for distance in recalls):
            return
        numbers = ", ".join(f"{name} {metrics[name]:.2f} instead of {value:.2f}" for name, value in differ.items())
        why = "it was trained on this machine, with this code and these library versions"
        if reasons:
            why = f"only a few queries may differ because of {', '.join(reasons)}"
        raise self._other(f"trial {self.folder.trial_id}", f"its files give {numbers}, although {why}")

    def _other(self, what: str, how: str) -> UserError:
        return UserError(
            f"{what} does not match the record of the trial: {how}. Restore the files of the original run, or retrain "
            "it: goalgrid run GRID --force --only FILTER."
        )
