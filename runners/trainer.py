"""The shared trainer: one loop for all recipes and objectives, validated each epoch, exact to resume at its end."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import objectives
from grid.errors import UserError
from grid.files import write_json_lines
from grid.identity import derived_seed
from grid.protocols import protocol
from grid.settings import TrainSettings, TrialSettings
from retrieval import evaluation
from retrieval.data import Split
from retrieval.model import Vse, build
from retrieval.prefetch import ahead
from runners import checkpoints
from runners.inputs import Batch, Inputs, batches

EMBED_BATCH = 512
"""Feature vectors or captions embedded at a time when evaluating; pixels come in the batches of training."""


class TrainingError(UserError):
    """The training itself went wrong: a term of it is no longer finite."""


class Trainer:
    """Trains one trial in its folder.

    Args:
        last, best, history: where the checkpoints and the history stand; training goes on from `last` where it is.
        report: told (epochs behind, metrics) after every epoch.
        start: the parent's best checkpoint, where this trial fine-tunes another's model.
    """

    def __init__(
        self,
        settings: TrialSettings,
        inputs: Inputs,
        *,
        last: Path,
        best: Path,
        history: Path,
        report: Callable[[int, dict[str, float]], None],
        start: Path | None = None,
    ) -> None:
        self.settings, self.inputs, self.report = settings, inputs, report
        self.last, self.best, self.history_path = last, best, history
        torch.manual_seed(derived_seed(settings, "dropout"))
        shape, words, seed = inputs.pairs.train.images.shape, len(inputs.reader), derived_seed(settings, "weights")
        self.model = build(settings.model, shape, words, seed=seed, places=inputs.places).to(inputs.device)
        if start is not None:
            self.model.start_from(_weights(start, inputs.device))
        goal = settings.objective
        self.objective = objectives.build(goal.name, variant=goal.variant, **goal.parameters).to(inputs.device)
        self.optimizer = _optimizer(self.model, settings.train)
        self.epoch, self.step = 0, 0
        self.best_rsum, self.best_epoch = -math.inf, 0
        self.rows: list[dict[str, Any]] = []

    def fit(self) -> None:
        """Train to the last epoch, from the last checkpoint where there is one.

        Raises:
            TrainingError: the loss or a gradient is not finite; says at which step.
            UserError: data cannot be read or a checkpoint cannot be written.
        """
        self._resume()
        while self.epoch < self.settings.train.epochs:
            started = time.monotonic()
            metrics = self._train_epoch()
            ranks = self.evaluate("val")
            metrics |= {f"val_{name}": value for name, value in ranks.metrics().items()}
            metrics["val_spread"] = ranks.spread
            self.epoch += 1
            self.rows.append({"epoch": self.epoch, "step": self.step, "seconds": time.monotonic() - started, **metrics})
            self._save(improved=metrics["val_rsum"] > self.best_rsum)
            self.report(self.epoch, metrics)

    def by_protocols(self, names: Sequence[str]) -> dict[str, evaluation.Ranks]:
        """Evaluate the test split by several protocols, from the same embeddings of the selected checkpoint."""
        if self.settings.train.selection == "best-val-rsum":
            self.model.load_weights(_weights(self.best, self.inputs.device))
        embedded = self._embedded("test")
        return {name: evaluation.rank_in_folds(*embedded, protocol(name).fold) for name in names}

    @property
    def selected_epoch(self) -> int:
        """The epoch whose weights the selection rule picks."""
        return self.best_epoch if self.settings.train.selection == "best-val-rsum" else self.epoch

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
        sums: dict[str, Tensor] = {}
        epoch = batches(self.settings, self.inputs, self.epoch)
        for place, batch in enumerate(epoch):
            for name, value in self._step(objective, batch, self._ramp(place / len(epoch))).items():
                sums[name] = sums.get(name, 0) + value.double()
        means = {name: float(value) / len(epoch) for name, value in sums.items()}
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
        self._finite(loss, norm)
        self.optimizer.step()
        self.step += 1
        return {"loss": loss.detach(), "grad_norm": norm, **objective.report}

    def _finite(self, loss: Tensor, norm: Tensor) -> None:
        """Stop before a step that would spoil the weights, naming the step and the term."""
        if bool(torch.isfinite(loss + norm)):
            return
        term = "the loss" if not torch.isfinite(loss) else f"the gradient of {self._culprit()}"
        value = float(loss.detach()) if not torch.isfinite(loss) else float(norm)
        raise TrainingError(
            f"{term} became {value} at step {self.step + 1} (epoch {self.epoch + 1}). "
            "A smaller train.lr or objective.tau often helps."
        )

    def _culprit(self) -> str:
        gradients = ((name, weight.grad) for name, weight in self.model.named_parameters() if weight.grad is not None)
        return next(
            (name for name, gradient in gradients if not torch.isfinite(gradient).all()),
            "all weights together",
        )

    def _save(self, *, improved: bool) -> None:
        if improved:
            self.best_rsum, self.best_epoch = self.rows[-1]["val_rsum"], self.epoch
            checkpoints.save(self.best, {"epoch": self.epoch, "model": self.model.weights()})
        write_json_lines(self.history_path, self.rows)
        content = {
            "epoch": self.epoch,
            "step": self.step,
            "best_rsum": self.best_rsum,
            "best_epoch": self.best_epoch,
            "rows": self.rows,
            "model": self.model.weights(),
            "optimizer": self.optimizer.state_dict(),
            "random": checkpoints.random_states(self.inputs.device),
        }
        checkpoints.save(self.last, content)

    def _resume(self) -> None:
        content = checkpoints.load(self.last, self.inputs.device)
        if content is None:
            return
        self.model.load_weights(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        checkpoints.restore_random_states(content["random"], self.inputs.device)
        self.epoch, self.step, self.rows = content["epoch"], content["step"], content["rows"]
        self.best_rsum, self.best_epoch = content["best_rsum"], content["best_epoch"]


def _weights(checkpoint: Path, device: torch.device) -> dict[str, Tensor]:
    content = checkpoints.load(checkpoint, device)
    if content is None:
        raise UserError(f"the best checkpoint {checkpoint} cannot be read. Remove its trial's folder to train it anew.")
    weights: dict[str, Tensor] = content["model"]
    return weights


def _optimizer(model: Vse, train: TrainSettings) -> torch.optim.Optimizer:
    """Adam or AdamW with one group a learning rate; each group knows its factor."""
    factors = {"heads": 1.0, "image": train.image_lr_factor, "text": train.text_lr_factor}
    groups = [{"params": parameters, "factor": factors[kind]} for kind, parameters in model.groups().items()]
    kind = torch.optim.AdamW if train.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=train.lr, weight_decay=train.weight_decay, fused=True)
