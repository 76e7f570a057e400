"""What the record of a finished trial says of the trial's other files: they are compared with it before they are used.

A record carries a checksum. Settings and vocabulary do not, and a file of another training may fit all the same.
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
"""How far a recall may be from the record's on another machine, in percent, or in queries where these are more.

Another processor, version or number of threads rounds otherwise. This swaps answers of nearly equal scores, so that a
few queries cross a rank. A model with wrong words, weights or sizes loses many.
"""


@dataclass(frozen=True)
class FinishedTrial:
    """A finished trial's record, with which its other files are compared."""

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
        """Raise a UserError unless the settings in the trial's folder are those that it was trained with."""
        trained = TrialSettings.model_validate_json(self.row["settings"], context=known.context)
        if settings != trained:
            differ = ", ".join(differing(settings.model_dump(mode="json"), trained.model_dump(mode="json")))
            raise self._other(f"the settings {self.folder.settings}", f"they differ in {differ}")

    def check_vocabulary(self, fingerprint: str) -> None:
        """Check that the trial folder's words are those of its training, if the record knows them; else a UserError."""
        trained = self.noted.get("vocabulary", fingerprint)
        if fingerprint != trained:
            raise self._other(f"the vocabulary {self.folder.vocabulary}", f"its digest is {fingerprint}, not {trained}")

    def check_weights(self, content: Mapping[str, Any]) -> None:
        """Check that the best checkpoint is of the recorded training and epoch; else a UserError.

        Args:
            content: with the "row" that the history has of this epoch, and the fingerprint of the "vocabulary"; a
                checkpoint to go on from has no such row.
        """
        row, path, epoch = content.get("row"), self.folder.best_checkpoint, self.row["selected_epoch"]
        if row is None:
            raise self._other(f"the best checkpoint {path}", "it is one to go on from")
        values = {f"val_{name}": value for name, value in self.validation.items()}
        if row.get("epoch", 0) != epoch or any(row.get(name, value) != value for name, value in values.items()):
            ours, theirs = row.get("val_rsum", math.nan), values.get("val_rsum", math.nan)
            epochs = f"epoch {row.get('epoch', 0)} with val_rsum {ours:.2f}, not epoch {epoch} with {theirs:.2f}"
            raise self._other(f"the best checkpoint {path}", f"it holds {epochs}")
        words = content.get("vocabulary")
        if words is not None and words != self.noted.get("vocabulary", words):
            how = f"it knows the words {words}, not {self.noted['vocabulary']}"
            raise self._other(f"the best checkpoint {path}", how)

    def check_numbers(
        self,
        recorded: Mapping[str, float],
        metrics: Mapping[str, float],
        queries: int,
        others: Callable[[], Sequence[str]],
    ) -> None:
        """Raise a UserError unless the trial's model gives its recorded numbers again.

        Args:
            recorded, metrics: values of one split by one protocol.
            queries: of one direction.
            others: what was other in the training than here, as `provenance.elsewhere`: then a few queries may differ.
        """
        differ = {name: value for name, value in recorded.items() if metrics.get(name, value) != value}
        if not differ:
            return
        reasons, room = others(), max(POINTS, 100 * QUERIES / queries)
        recalls = [abs(metrics[name] - value) for name, value in differ.items() if name.partition("_")[2][:1] == "r"]
        if reasons and all(distance < room + 1e-9 for distance in recalls):
            return
        numbers = ", ".join(f"{name} {metrics[name]:.2f} for {value:.2f}" for name, value in differ.items())
        why = "it was trained on this machine, by this code and these versions"
        if reasons:
            why = f"only a few queries may differ on account of {', '.join(reasons)}"
        raise self._other(f"trial {self.folder.trial_id}", f"its files give {numbers}, and {why}")

    def _other(self, what: str, how: str) -> UserError:
        return UserError(
            f"{what}: not as the record of the trial says; {how}. Put back the files of its training, or retrain it: "
            "goalgrid run GRID --force --only FILTER."
        )
