"""The shared trainer: one loop for all recipes and objectives, validated each epoch, exact to resume at any step."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import objectives
from grid.errors import UserError
from grid.files import write_json_lines
from grid.home import TrialFolder
from grid.identity import derived_seed
from grid.protocols import protocol
from grid.settings import TrainSettings, TrialSettings
from retrieval import evaluation
from retrieval.data import Split
from retrieval.model import Vse, build
from retrieval.prefetch import ahead
from runners import checkpoints
from runners.inputs import Batch, Inputs, batches

BRIEF_SECONDS = 5.0
"""A trial that ends within so long leaves no checkpoint to go on from."""

EMBED_BATCH = 512
"""Feature vectors or captions embedded at a time when evaluating; pixels come in the batches of training."""


class NonFinite(UserError):
    """The training itself went wrong: a term of it is no longer finite."""


class Preempted(Exception):
    """The trainer was asked to end, and has written a checkpoint of where it stands."""


@dataclass(frozen=True)
class Cadence:
    """How often a checkpoint is written within an epoch; one more stands at the end of every epoch."""

    steps: int | None = None
    minutes: float | None = None

    def due(self, steps: int, seconds: float) -> bool:
        """Whether so many steps, or so much time, since the last one are enough."""
        return bool((self.steps and steps >= self.steps) or (self.minutes and seconds >= 60 * self.minutes))


@dataclass(frozen=True)
class Hooks:
    """Whom a trainer tells what.

    Args:
        begin: told from which step it goes on.
        epoch: told (epochs behind, metrics) after every epoch.
        beat: told the number of steps after each of them, and in between; whether the trainer is to end.
        warn: told what a user should know.
    """

    begin: Callable[[int], None] = lambda step: None
    epoch: Callable[[int, dict[str, float]], None] = lambda epoch, metrics: None
    beat: Callable[[int], bool] = lambda step: False
    warn: Callable[[str], None] = lambda message: None


class Trainer:
    """Trains one trial in its folder, from its last checkpoint where there is one.

    Args:
        start: the parent's best checkpoint, where this trial fine-tunes another's model.
    """

    def __init__(
        self,
        settings: TrialSettings,
        inputs: Inputs,
        folder: TrialFolder,
        *,
        hooks: Hooks = Hooks(),
        cadence: Cadence = Cadence(),
        start: Path | None = None,
    ) -> None:
        self.settings, self.inputs, self.folder = settings, inputs, folder
        self.hooks, self.cadence = hooks, cadence
        torch.manual_seed(derived_seed(settings, "dropout"))
        shape, words, seed = inputs.pairs.train.images.shape, len(inputs.reader), derived_seed(settings, "weights")
        self.model = build(settings.model, shape, words, seed=seed, places=inputs.places).to(inputs.device)
        if start is not None:
            self.model.start_from(_best(start, inputs.device)["model"])
        goal = settings.objective
        self.objective = objectives.build(goal.name, variant=goal.variant, **goal.parameters).to(inputs.device)
        self.optimizer = _optimizer(self.model, settings.train)
        self.epoch, self.step = 0, 0
        self.batch, self.sums, self.seconds = 0, dict[str, Tensor](), 0.0
        """Of the epoch that is begun: batches behind, sums of what they measured, time that they took."""
        self.best: dict[str, Any] | None = None
        """The row of the epoch whose weights validated best."""
        self.rows: list[dict[str, Any]] = []
        self._saved = (0, time.monotonic())
        """Step and time of the last checkpoint."""

    def fit(self) -> None:
        """Train to the last epoch.

        Raises:
            NonFinite: the loss or a gradient is not finite; says at which step.
            Preempted: it was asked to end; the checkpoint stands.
            UserError: data cannot be read or a checkpoint cannot be written.
        """
        self._resume()
        self.hooks.begin(self.step)
        while self.epoch < self.settings.train.epochs:
            started = time.monotonic()
            metrics = self._train_epoch()
            self.hooks.beat(self.step)
            ranks = self.evaluate("val")
            metrics |= {f"val_{name}": value for name, value in ranks.metrics().items()}
            metrics["val_spread"] = ranks.spread
            self.epoch += 1
            seconds = self.seconds + time.monotonic() - started
            self.rows.append({"epoch": self.epoch, "step": self.step, "seconds": seconds, **metrics})
            self.batch, self.sums, self.seconds = 0, {}, 0.0
            self._end_epoch()
            self.hooks.epoch(self.epoch, metrics)
            if self.hooks.beat(self.step) and self.epoch < self.settings.train.epochs:
                raise Preempted

    def by_protocols(self, names: Sequence[str]) -> dict[str, evaluation.Ranks]:
        """Evaluate the test split by several protocols, from the same embeddings of the selected checkpoint."""
        if self.settings.train.selection == "best-val-rsum" and self.selected is not self.rows[-1]:
            self.model.load_weights(_best(self.folder.best_checkpoint, self.inputs.device)["model"])
        embedded = self._embedded("test")
        return {name: evaluation.rank_in_folds(*embedded, protocol(name).fold) for name in names}

    @property
    def selected(self) -> dict[str, Any]:
        """The row of the epoch whose weights the selection rule picks."""
        by_validation = self.settings.train.selection == "best-val-rsum" and self.best is not None
        return self.best if by_validation and self.best else self.rows[-1]

    def evaluate(self, split_name: str) -> evaluation.Ranks:
        """Ranks of one split, as a whole, with the weights as they are."""
        return evaluation.rank(*self._embedded(split_name))

    def _embedded(self, split_name: str) -> tuple[Tensor, Tensor, np.ndarray]:
        """Images, captions and which image each caption describes; of the validation split what settings ask for."""
        split: Split = getattr(self.inputs.pairs, split_name)
        images, texts = split.first(self.settings.dataset.val_images if split_name == "val" else None)
        device, tokens = self.inputs.device, self.inputs.tokens[split_name]
        size = EMBED_BATCH if len(split.images.shape) < 3 else self.settings.train.batch_size
        self.model.eval()
        with torch.inference_mode(), self._precision():
            image = torch.cat([
                self.model.embed_images(batch.to(device))
                for batch in ahead(lambda rows: split.images.gather(rows.numpy()), torch.arange(images).split(size))
            ])  # fmt: skip
            text = torch.cat([
                self.model.embed_texts(*(part.to(device) for part in tokens.gather(rows)))
                for rows in torch.from_numpy(texts).split(EMBED_BATCH)
            ])  # fmt: skip
        return image, text, split.image_of_text[texts]

    def _train_epoch(self) -> dict[str, float]:
        train = self.settings.train
        lr = train.lr * train.decay_factor ** (self.epoch // train.decay_every)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["factor"]
        self.model.hold_image_backbone(self.epoch < train.frozen_epochs)
        self.model.train()
        warming = self.epoch < train.warmup_epochs
        objective = objectives.with_mining(self.objective, "all") if warming else self.objective
        epoch, started, before = batches(self.settings, self.inputs, self.epoch), time.monotonic(), self.seconds
        for place, batch in epoch.since(self.batch):
            for name, value in self._step(objective, batch, self._ramp(place / len(epoch))).items():
                self.sums[name] = self.sums.get(name, 0) + value.double()
            self.batch, self.seconds = place + 1, before + time.monotonic() - started
            asked = self.hooks.beat(self.step)
            if asked or self.cadence.due(self.step - self._saved[0], time.monotonic() - self._saved[1]):
                self._save()
            if asked:
                raise Preempted
        self.seconds = before
        means = {name: float(value) / len(epoch) for name, value in self.sums.items()}
        return {"lr": lr, **{name: value for name, value in means.items() if not math.isnan(value)}}

    def _ramp(self, share: float) -> float:
        """Factor of the loss: 1, but in the epochs after the frozen ones it rises from 0. VSE-infinity's grid recipes.

        Args:
            share: of the epoch that is behind.
        """
        train = self.settings.train
        since = self.epoch - train.frozen_epochs
        return (since + share) / train.ramp_epochs if 0 <= since < train.ramp_epochs else 1.0

    def _precision(self) -> torch.autocast:
        """Encoders in bfloat16 where the recipe says so; objectives leave it again by themselves."""
        enabled = self.settings.train.precision == "bf16"
        return torch.autocast(self.inputs.device.type, torch.bfloat16, enabled=enabled)

    def _step(self, objective: objectives.Objective, batch: Batch, factor: float) -> dict[str, Tensor]:
        """One update; what it measured, still on the device."""
        device = self.inputs.device
        with self._precision():
            image = self.model.embed_images(batch.images.to(device))
            text = self.model.embed_texts(*(part.to(device) for part in batch.tokens))
        loss = factor * objective(image, text, torch.from_numpy(np.ascontiguousarray(batch.owners)).to(device))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.train.clip_norm)
        self._check_finite(loss, norm)
        self.optimizer.step()
        self.step += 1
        return {"loss": loss.detach(), "grad_norm": norm, **objective.report}

    def _check_finite(self, loss: Tensor, norm: Tensor) -> None:
        """Stop before a step that would spoil the weights, naming the step and the term."""
        if bool(torch.isfinite(loss + norm)):
            return
        term = "the loss" if not torch.isfinite(loss) else f"the gradient of {self._culprit()}"
        value = float(loss.detach()) if not torch.isfinite(loss) else float(norm)
        raise NonFinite(
            f"{term} became {value} at step {self.step + 1} (epoch {self.epoch + 1}). "
            "A smaller train.lr or objective.tau often helps."
        )

    def _culprit(self) -> str:
        gradients = ((name, weight.grad) for name, weight in self.model.named_parameters() if weight.grad is not None)
        return next(
            (name for name, gradient in gradients if not torch.isfinite(gradient).all()),
            "all weights together",
        )

    def _end_epoch(self) -> None:
        """Leave what counts so far. The best weights go first: a checkpoint never names some that do not stand."""
        row, brief = self.rows[-1], self._brief()
        if self.best is None or row["val_rsum"] > self.best["val_rsum"]:
            self.best = row
            content = {"row": row, "model": self.model.weights()}
            checkpoints.save(self.folder.best_checkpoint, content, durable=not brief)
        write_json_lines(self.folder.history, self.rows, durable=False)
        if not brief:
            self._save()

    def _brief(self) -> bool:
        """Whether the trial is at its end so soon that doing it again is cheaper than a checkpoint."""
        step, since = self._saved
        return self.epoch == self.settings.train.epochs and step == 0 and time.monotonic() - since < BRIEF_SECONDS

    def _save(self) -> None:
        content = {
            "epoch": self.epoch,
            "step": self.step,
            "batch": self.batch,
            "sums": self.sums,
            "seconds": self.seconds,
            "rows": self.rows,
            "model": self.model.weights(),
            "optimizer": self.optimizer.state_dict(),
            "random": checkpoints.random_states(self.inputs.device),
        }
        checkpoints.save(self.folder.last_checkpoint, content, previous=self.folder.previous_checkpoint)
        self._saved = (self.step, time.monotonic())

    def _resume(self) -> None:
        """Go on from the last whole checkpoint. The best weights may be newer than it: they are of this trial too."""
        best = self._whole(self.folder.best_checkpoint)
        for path in (self.folder.last_checkpoint, self.folder.previous_checkpoint):
            content = self._whole(path)
            if content is None:
                continue
            if content["rows"] and best is None:
                self.hooks.warn(f"its best weights are lost, so the trial starts anew: {self.folder.best_checkpoint}")
                return
            self.model.load_weights(content["model"])
            self.optimizer.load_state_dict(content["optimizer"])
            checkpoints.restore_random_states(content["random"], self.inputs.device)
            self.epoch, self.step, self.rows = content["epoch"], content["step"], content["rows"]
            self.batch, self.sums, self.seconds = content["batch"], content["sums"], content["seconds"]
            self.best = best and best["row"]
            self._saved = (self.step, time.monotonic())
            return

    def _whole(self, path: Path) -> dict[str, Any] | None:
        """The checkpoint at `path`, or None; a corrupt one is set aside."""
        try:
            return checkpoints.load(path, self.inputs.device)
        except checkpoints.Corrupt as error:
            self.hooks.warn(f"{error}; set aside as {checkpoints.set_aside(path).name}, the one before is used")
            return None


def _best(path: Path, device: torch.device) -> dict[str, Any]:
    """The best checkpoint at `path`.

    Raises:
        UserError: it is not there or not whole.
    """
    try:
        content = checkpoints.load(path, device)
    except checkpoints.Corrupt:
        content = None
    if content is None:
        raise UserError(f"the best checkpoint {path} cannot be read. Train its trial anew: goalgrid run --force.")
    return content


def _optimizer(model: Vse, train: TrainSettings) -> torch.optim.Optimizer:
    """Adam or AdamW with one group a learning rate; each group knows its factor."""
    factors = {"heads": 1.0, "image": train.image_lr_factor, "text": train.text_lr_factor}
    groups = [{"params": parameters, "factor": factors[kind]} for kind, parameters in model.groups().items()]
    kind = torch.optim.AdamW if train.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=train.lr, weight_decay=train.weight_decay, fused=True)
