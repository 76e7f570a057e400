"""The progress of a trial: how far it is, and what it leaves of that in its folder, history and checkpoints."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from grid.errors import UserError
from grid.settings import TrainSettings
from grid.store.files import write_json_lines
from grid.store.home import TrialFolder
from runners.training import checkpoints

BRIEF_SECONDS = 5.0
"""A trial that ends within so long leaves no checkpoint to go on from."""


@dataclass(frozen=True)
class Cadence:
    """How often a checkpoint is written within an epoch; one more stands at the end of every epoch."""

    steps: int | None = None
    minutes: float | None = None

    def due(self, steps: int, seconds: float) -> bool:
        """Whether so many steps, or so much time, since the last one are enough."""
        return bool((self.steps and steps >= self.steps) or (self.minutes and seconds >= 60 * self.minutes))


@dataclass
class Progress:
    """How far a trial is.

    Args:
        warn: told what a user should know.
        batch, sums, seconds: of the epoch that is begun: batches behind, sums of what they measured, time they took.
        best: the row of the epoch whose weights validated best.
        replicas: the most processes that trained it together.
    """

    train: TrainSettings
    folder: TrialFolder
    device: torch.device
    warn: Callable[[str], None] = lambda message: None
    epoch: int = 0
    step: int = 0
    batch: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    seconds: float = 0.0
    rows: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    replicas: int = 1
    _saved: tuple[int, float] = field(default_factory=lambda: (0, time.monotonic()))
    """Step and time of the last checkpoint."""

    @property
    def over(self) -> bool:
        """Whether its last epoch is behind it."""
        return self.epoch >= self.train.epochs

    @property
    def selected(self) -> dict[str, Any]:
        """The row of the epoch whose weights the selection rule picks."""
        by_validation = self.train.selection == "best-val-rsum" and self.best is not None
        return self.best if by_validation and self.best else self.rows[-1]

    def means(self, batches: int) -> dict[str, float]:
        """Of what the epoch's batches measured, where the trial measures it."""
        means = {name: float(value) / batches for name, value in self.sums.items()}
        return {name: value for name, value in means.items() if not math.isnan(value)}

    def end_epoch(self, metrics: Mapping[str, float], seconds: float, weights: Callable[[], dict[str, Tensor]]) -> None:
        """Leave the epoch's row, and the weights if no others validated better.

        The best weights go first: a checkpoint, which the caller writes next unless the trial is `brief`, never names
        some that do not stand.

        Args:
            seconds: that the epoch took.
        """
        self.epoch += 1
        row = {"epoch": self.epoch, "step": self.step, "seconds": seconds, **metrics}
        self.rows.append(row)
        self.batch, self.sums, self.seconds = 0, {}, 0.0
        if self.best is None or row["val_rsum"] > self.best["val_rsum"]:
            self.best = row
            content = {"row": row, "model": weights()}
            checkpoints.save(self.folder.best_checkpoint, content, durable=not self.brief)
        write_json_lines(self.folder.history, self.rows, durable=False)

    @property
    def brief(self) -> bool:
        """Whether the trial is at its end so soon that doing it again is cheaper than a checkpoint."""
        step, since = self._saved
        return self.over and step == 0 and time.monotonic() - since < BRIEF_SECONDS

    def due(self, cadence: Cadence) -> bool:
        """Whether a checkpoint within the epoch is due."""
        step, since = self._saved
        return cadence.due(self.step - step, time.monotonic() - since)

    def save(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint of where the trial stands.

        Args:
            state: of the trainer: "model", "optimizer" and "random"; "random_of_others", where replicas train it.
        """
        content = {
            "epoch": self.epoch,
            "step": self.step,
            "batch": self.batch,
            "sums": self.sums,
            "seconds": self.seconds,
            "rows": self.rows,
            "replicas": self.replicas,
            **state,
        }
        checkpoints.save(self.folder.last_checkpoint, content, previous=self.folder.previous_checkpoint)
        self._saved = (self.step, time.monotonic())

    def restore(self) -> dict[str, Any] | None:
        """Go on from the last whole checkpoint, whose state is returned; None: from the beginning.

        The best weights may be newer than the checkpoint: they are of this trial too.
        """
        best = self._whole("best_checkpoint")
        for name in ("last_checkpoint", "previous_checkpoint"):
            content = self._whole(name)
            if content is None:
                continue
            if content["rows"] and best is None:
                self.warn(f"its best weights are lost, so the trial starts anew: {self.folder.best_checkpoint}")
                return None
            self.epoch, self.step, self.rows = content["epoch"], content["step"], content["rows"]
            self.batch, self.sums, self.seconds = content["batch"], content["sums"], content["seconds"]
            self.best = best and best["row"]
            self.replicas = content.get("replicas", 1)
            self._saved = (self.step, time.monotonic())
            return content
        return None

    def _whole(self, name: str) -> dict[str, Any] | None:
        """The checkpoint of this name, or None; a corrupt one is set aside."""
        path = getattr(self.folder, name)
        try:
            return checkpoints.load(path, self.device)
        except checkpoints.Corrupt as error:
            self.warn(f"{error}; set aside as {checkpoints.set_aside(path).name}, the one before is used")
            return None


def best_of(folder: TrialFolder, device: torch.device) -> dict[str, Any]:
    """The best checkpoint of a trial.

    Raises:
        UserError: it is not there or not whole.
    """
    path = folder.best_checkpoint
    try:
        content = checkpoints.load(path, device)
    except checkpoints.Corrupt:
        content = None
    if content is None:
        raise UserError(f"the best checkpoint {path} cannot be read. Train its trial anew: goalgrid run --force.")
    return content
