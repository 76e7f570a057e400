"""The shared trainer: one loop for all recipes and objectives, validated each epoch, exact to resume at its end."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import objectives
from grid.errors import UserError
from grid.files import write_json_lines
from grid.identity import derived_seed
from grid.settings import TrainSettings, TrialSettings
from retrieval import evaluation
from retrieval.data import Pairs, Split
from retrieval.model import Vse, build
from retrieval.vocabulary import Tokens, Vocabulary
from runners import checkpoints

EMBED_BATCH = 512
"""Images or captions embedded at a time when evaluating."""


class TrainingError(UserError):
    """The training itself went wrong: a term of it is no longer finite."""


@dataclass(frozen=True)
class Inputs:
    """A data set with its captions encoded, on the device that trains."""

    pairs: Pairs
    vocabulary: Vocabulary
    tokens: dict[str, Tokens]
    device: torch.device

    @classmethod
    def prepare(cls, pairs: Pairs, *, min_count: int, max_words: int, device: torch.device) -> "Inputs":
        """Build the vocabulary from the training captions and encode all splits."""
        vocabulary = Vocabulary.build(pairs.train.captions, min_count=min_count)
        splits = {"train": pairs.train, "val": pairs.val, "test": pairs.test}
        tokens = {name: vocabulary.encode(split.captions, max_words=max_words) for name, split in splits.items()}
        return cls(pairs, vocabulary, tokens, device)


class Trainer:
    """Trains one trial in its folder.

    Args:
        last, best, history: where the checkpoints and the history stand; training goes on from `last` where it is.
        report: told (epochs behind, metrics) after every epoch.
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
    ) -> None:
        self.settings, self.inputs, self.report = settings, inputs, report
        self.last, self.best, self.history_path = last, best, history
        torch.manual_seed(derived_seed(settings, "dropout"))
        shape, words = inputs.pairs.train.images.shape, len(inputs.vocabulary)
        self.model = build(settings.model, shape, words, seed=derived_seed(settings, "weights")).to(inputs.device)
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

    def test(self) -> evaluation.Ranks:
        """Evaluate the test split once, with the checkpoint that the selection rule picks."""
        if self.settings.train.selection == "best-val-rsum":
            content = checkpoints.load(self.best, self.inputs.device)
            if content is None:
                raise UserError(
                    f"the best checkpoint {self.best} cannot be read. Remove the trial's folder to train it anew."
                )
            self.model.load_state_dict(content["model"])
        return self.evaluate("test")

    @property
    def selected_epoch(self) -> int:
        """The epoch whose weights the selection rule picks."""
        return self.best_epoch if self.settings.train.selection == "best-val-rsum" else self.epoch

    def evaluate(self, split_name: str) -> evaluation.Ranks:
        """Ranks of one split with the weights as they are."""
        split: Split = getattr(self.inputs.pairs, split_name)
        device, tokens = self.inputs.device, self.inputs.tokens[split_name]
        self.model.eval()
        with torch.inference_mode():
            image = torch.cat([
                self.model.embed_images(split.images.gather(rows.numpy()).to(device))
                for rows in torch.arange(len(split.images)).split(EMBED_BATCH)
            ])  # fmt: skip
            text = torch.cat([
                self.model.embed_texts(*(part.to(device) for part in tokens.gather(rows)))
                for rows in torch.arange(len(tokens)).split(EMBED_BATCH)
            ])  # fmt: skip
            return evaluation.rank(image, text, split.image_of_text)

    def _train_epoch(self) -> dict[str, float]:
        train = self.settings.train
        lr = train.lr * train.decay_factor ** (self.epoch // train.decay_every)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.model.train()
        warming = self.epoch < train.warmup_epochs
        objective = objectives.with_mining(self.objective, "all") if warming else self.objective
        sums: dict[str, Tensor] = {}
        steps = 0
        for texts in self._batches():
            for name, value in self._step(objective, texts).items():
                sums[name] = sums.get(name, 0) + value.double()
            steps += 1
        means = {name: float(value) / steps for name, value in sums.items()}
        return {"lr": lr, **{name: value for name, value in means.items() if not math.isnan(value)}}

    def _batches(self) -> Iterator[Tensor]:
        """Rows of training captions in an order that seed and epoch decide; a single one at the end is left out."""
        generator = torch.Generator().manual_seed(derived_seed(self.settings, f"batches of epoch {self.epoch}"))
        order = torch.randperm(len(self.inputs.tokens["train"]), generator=generator)
        return (rows for rows in order.split(self.settings.train.batch_size) if len(rows) > 1)

    def _step(self, objective: objectives.Objective, texts: Tensor) -> dict[str, Tensor]:
        """One update; what it measured, still on the device."""
        split, device = self.inputs.pairs.train, self.inputs.device
        owners = split.image_of_text[texts.numpy()]
        image = self.model.embed_images(split.images.gather(owners).to(device))
        text = self.model.embed_texts(*(part.to(device) for part in self.inputs.tokens["train"].gather(texts)))
        loss = objective(image, text, torch.from_numpy(np.ascontiguousarray(owners)).to(device))
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
            checkpoints.save(self.best, {"epoch": self.epoch, "model": self.model.state_dict()})
        write_json_lines(self.history_path, self.rows)
        content = {
            "epoch": self.epoch,
            "step": self.step,
            "best_rsum": self.best_rsum,
            "best_epoch": self.best_epoch,
            "rows": self.rows,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": checkpoints.random_states(self.inputs.device),
        }
        checkpoints.save(self.last, content)

    def _resume(self) -> None:
        content = checkpoints.load(self.last, self.inputs.device)
        if content is None:
            return
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        checkpoints.restore_random_states(content["random"], self.inputs.device)
        self.epoch, self.step, self.rows = content["epoch"], content["step"], content["rows"]
        self.best_rsum, self.best_epoch = content["best_rsum"], content["best_epoch"]


def _optimizer(model: Vse, train: TrainSettings) -> torch.optim.Optimizer:
    if train.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=train.lr, weight_decay=train.weight_decay, fused=True)
    return torch.optim.Adam(model.parameters(), lr=train.lr, weight_decay=train.weight_decay, fused=True)
