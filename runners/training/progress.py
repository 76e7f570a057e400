"""The progress of a trial, with the history and checkpoints in its folder."""

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import TrainSettings
from goalgrid.grid.store.files import write_json_lines
from goalgrid.grid.store.home import TrialFolder
from goalgrid.results.records.finished_trial import FinishedTrial
from goalgrid.runners.training import checkpoints
from goalgrid.runners.training.measured import StepTrace

BRIEF_SECONDS = 5.0
"""A trial shorter than this writes no checkpoint to resume from."""
SAVED = ("epoch", "step", "batch", "sums", "seconds", "rows", "replicas", "threads", "devices")
"""Fields of a trial's progress in its checkpoint; checkpoints of earlier versions may lack the last fields."""


@dataclass(frozen=True)
class Cadence:
    """How often checkpoints are written within an epoch, in addition to the one at the end of every epoch."""

    steps: int | None = None
    minutes: float | None = None


@dataclass
class Progress:
    """The progress of a trial.

    Args:
        sources: fingerprints of the "data" and "code" of the training, and of the inputs that training methods
            prepared; training does not resume from a checkpoint with other fingerprints.
        batch, sums, seconds: of the current epoch: batches trained so far; sums of their scalars by names, with the
            number of batches that have them; time in seconds.
        selected: history row of the epoch that the selection rule picks so far; empty before the first.
        replicas: the largest number of replicas that trained it.
        threads: threads per process at the start; on a CPU, another number rounds differently.
        devices: the device types that trained it, "cpu" or "cuda", in order of use.
    """

    train: TrainSettings
    folder: TrialFolder
    device: torch.device
    sources: Mapping[str, str]
    warn: Callable[[str], None] = lambda message: None
    restart: Callable[[str], None] = lambda reason: None
    epoch: int = 0
    step: int = 0
    batch: int = 0
    sums: dict[tuple[str, ...], tuple[Float[Tensor, " names"], int]] = field(default_factory=dict)
    seconds: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)
    selected: dict[str, Any] = field(default_factory=dict)
    replicas: int = 1
    threads: int = field(default_factory=torch.get_num_threads)
    devices: list[str] = field(default_factory=list)
    trace: StepTrace = field(init=False)
    writer: checkpoints.Writer = field(default_factory=checkpoints.Writer)
    _saved: tuple[int, float] = field(default_factory=lambda: (0, time.monotonic()))
    """Step and time of the last checkpoint."""

    def __post_init__(self) -> None:
        self.trace = StepTrace(self.train.trace_every)
        self.devices.append(self.device.type)

    @property
    def over(self) -> bool:
        return self.epoch >= self.train.epochs

    def note(self, measured: Mapping[str, Tensor]) -> None:
        """Add the scalars that a step measured to the sums of the epoch, and to the trace."""
        device = measured["loss"].device
        there = {name: value for name, value in measured.items() if value.device == device}  # the others are unknown
        names, values = tuple(there), torch.stack(tuple(there.values())).double()
        total, count = self.sums.get(names, (0.0, 0))
        self.sums[names] = total + values, count + 1
        self.trace.keep(self.epoch + 1, self.step, names, values)

    def means(self) -> dict[str, float]:
        """Return the mean of each value over the batches that measured it; means that are not finite are omitted."""
        totals, counts = defaultdict[str, float](float), Counter[str]()
        for names, (values, count) in self.sums.items():
            for name, value in zip(names, values.tolist(), strict=True):
                totals[name] += value
                counts[name] += count
        return {name: total / counts[name] for name, total in totals.items() if math.isfinite(total)}

    def end_epoch(
        self,
        metrics: Mapping[str, float],
        seconds: float,
        weights: Callable[[], Mapping[str, Any]],
        state: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Write the history row of an epoch, the weights if the epoch is selected, and a checkpoint.

        The weights are written first, so that a checkpoint never refers to missing weights. A `brief` trial gets no
        checkpoint.
        """
        self.epoch += 1
        row = {"epoch": self.epoch, "step": self.step, "seconds": seconds, **metrics}
        self.rows.append(row)
        self.batch, self.sums, self.seconds = 0, {}, 0.0
        self.trace.blocks()
        best: dict[str, Any] | None = None
        rank = self.train.selection_rank
        if not self.selected or rank(row) > rank(self.selected):
            self.selected = row
            best = {"trial": self.folder.trial_id, "row": row, **weights(), "sources": dict(self.sources)}
        self._write_history()
        if not self.brief:
            self.save(state(), best)
        elif best:
            self.writer.start(self._write, best, None)

    def _write_history(self) -> None:
        write_json_lines(self.folder.history, self.rows, durable=False)

    @property
    def brief(self) -> bool:
        """Return whether the trial so far was so short that retraining is cheaper than a checkpoint."""
        step, since = self._saved
        return self.over and step == 0 and time.monotonic() - since < BRIEF_SECONDS

    def due(self, cadence: Cadence) -> bool:
        """Return whether a checkpoint is due, by steps or time since the last one; raise if the last write failed."""
        self.writer.check()
        step, since = self._saved
        late = cadence.minutes and time.monotonic() - since >= 60 * cadence.minutes
        return bool(late or (cadence.steps and self.step - step >= cadence.steps))

    def save(self, state: Mapping[str, Any], best: dict[str, Any] | None = None) -> None:
        """Start writing a checkpoint, after any newly selected weights; raise UserError if the last write failed."""
        saved = {name: getattr(self, name) for name in SAVED} | {"trace": self.trace.state()}
        last = {"trial": self.folder.trial_id, "sources": dict(self.sources), **saved, **state}
        self.writer.start(self._write, best, last)
        self._saved = (self.step, time.monotonic())

    def _write(self, best: dict[str, Any] | None, last: dict[str, Any] | None) -> None:
        if best:
            checkpoints.save(self.folder.best_checkpoint, best, durable=last is not None)
        if last:
            checkpoints.save(self.folder.last_checkpoint, last, previous=self.folder.previous_checkpoint)

    def restore(self) -> dict[str, Any] | None:
        """Resume from the last intact checkpoint and return its state; None to start from scratch.

        The selected weights may be newer than the checkpoint; they are used anyway, since they belong to this trial.
        """
        best = self._whole("best_checkpoint")
        content = self._whole("last_checkpoint") or self._whole("previous_checkpoint")
        if content is None:
            return None
        if reason := self._differs(content) or (best and self._differs(best)):
            self.restart(reason)
            return None
        rank = self.train.selection_rank
        ranks = [rank(row) for row in content["rows"]]
        if ranks and (best is None or rank(best["row"]) < max(ranks)):
            self.warn(f"its best weights are missing, so the trial starts from scratch: {self.folder.best_checkpoint}")
            return None
        for name in SAVED:
            setattr(self, name, content.get(name, getattr(self, name)))
        if self.devices[-1] != (now := self.device.type):
            self.warn(f"it resumes on {now} after training on {self.devices[-1]}, which rounds differently (recorded)")
            self.devices.append(now)
        self.sums = {names: (values.to(self.device), count) for names, (values, count) in self.sums.items()}
        self.trace.load(content["trace"])
        self.selected = best["row"] if best else {}
        if [*self.folder.rows()] != self.rows:  # it is written without a flush, and a power cut empties it
            self._write_history()
        self._saved = (self.step, time.monotonic())
        return content

    def _differs(self, content: Mapping[str, Any]) -> str:
        """Return why training cannot resume from a checkpoint (data or code changed); empty if it can."""
        before = content.get("sources")
        if before is None:
            return "its checkpoint does not record the data and code it was trained with"
        changed = [(what, before.get(what), now) for what, now in self.sources.items() if before.get(what) != now]
        others = [f"other {what} ({old} -> {now})" for what, old, now in changed]
        return f"its checkpoint was trained with {' and '.join(others)}" if others else ""

    def selected_weights(self) -> dict[str, Tensor]:
        """Return the weights of the selected epoch; raise UserError if the file has another epoch, and set it aside."""
        content = best_of(self.folder, self.device)
        if content["row"] == self.selected:
            return dict(content["model"])
        path, stored, selected = self.folder.best_checkpoint, content["row"]["epoch"], self.selected["epoch"]
        path.replace(path.with_suffix(".corrupt"))
        raise UserError(
            f"{path} holds epoch {stored}, but epoch {selected} is selected; the trial starts from scratch"
        ) from OSError

    def _whole(self, name: str) -> dict[str, Any] | None:
        """Return the checkpoint of this name in host memory, or None; a corrupt file is set aside for good.

        Weights and moments are later copied to the device one by one, since a GPU may lack memory for a second copy.
        """
        path: Path = getattr(self.folder, name)
        try:
            return _own(self.folder, path, torch.device("cpu"))
        except FileNotFoundError:
            return None
        except checkpoints.Corrupt as error:
            aside = path.replace(path.with_name(f"{path.stem}.corrupt"))
            self.warn(f"{error}; moved to {aside.name}; the previous checkpoint is used")
            return None


def best_of(folder: TrialFolder, device: torch.device) -> dict[str, Any]:
    """Read the best checkpoint of a trial.

    Raises UserError if it is missing, damaged, without weights, or differs from the record.
    """
    path, retrain = folder.best_checkpoint, "Retrain its trial: goalgrid run GRID --force --only FILTER."
    try:
        content = _own(folder, path, device)
    except (checkpoints.Corrupt, OSError) as error:
        cause = None if isinstance(error, FileNotFoundError) else error  # a missing file is no failure of the disk
        raise UserError(f"the best checkpoint {path} cannot be read. {retrain}") from cause
    if "model" not in content:
        raise UserError(
            f'the weights of {folder.trial_id} were deleted, since its grid has reliability.keep = "record". {retrain}'
        )
    if folder.is_done():
        FinishedTrial.read(folder).check_weights(content)
    return content


def drop_weights(folder: TrialFolder) -> None:
    """Remove the weights from a finished trial's best checkpoint, but keep the fields that verify the record."""
    path = folder.best_checkpoint
    if path.exists() and "model" in (content := checkpoints.load(path, torch.device("cpu"))):
        rest = {key: value for key, value in content.items() if key in ("trial", "row", "vocabulary", "sources")}
        checkpoints.save(path, rest)


def _own(folder: TrialFolder, path: Path, device: torch.device) -> dict[str, Any]:
    """Load the checkpoint at `path`; raise `Corrupt` also if it belongs to another trial or is of another kind."""
    content = checkpoints.load(path, device)
    if (of := content.get("trial", folder.trial_id)) != folder.trial_id:
        raise checkpoints.Corrupt(f"{path} belongs to another trial, {of}")
    if ("row" if path == folder.best_checkpoint else "rows") not in content:
        raise checkpoints.Corrupt(f"{path} is a checkpoint of another kind")
    return content
