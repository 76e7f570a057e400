"""The trainer: one loop for all recipes and objectives, with validation each epoch and exact resume at any step."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from goalgrid.grid.errors import UserError, counted
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.user_modules import in_its_file
from goalgrid.grid.store.home import TrialFolder
from goalgrid.retrieval import evaluation
from goalgrid.retrieval.model import DualEncoder
from goalgrid.runners.training import checkpoints, training_methods
from goalgrid.runners.training.embedding import NonFinite, batches_of, embedded, objective_value, ranked, ranks_of_test
from goalgrid.runners.training.inputs import Batch, Inputs, data_fingerprint
from goalgrid.runners.training.learner import FiniteCheck, Learner
from goalgrid.runners.training.measured import of_batches
from goalgrid.runners.training.progress import Cadence, Progress, best_of
from goalgrid.runners.training.replicas import Replicas


class Preempted(Exception):
    """The trainer was asked to stop, and has written a checkpoint."""


@dataclass(frozen=True)
class Hooks:
    """The callbacks of a trainer.

    Args:
        begin: called with the step from which training starts or resumes.
        epoch: called after every epoch with (epochs trained, metrics).
        beat: called after every step and validation with the steps trained; returns whether to stop.
        warn: called with a message for the user.
        begin_anew: called with the reason why training cannot resume; archives the folder's content.
    """

    begin: Callable[[int], None] = lambda step: None
    epoch: Callable[[int, dict[str, float]], None] = lambda epoch, metrics: None
    beat: Callable[[int], bool] = lambda step: False
    warn: Callable[[str], None] = lambda message: None
    begin_anew: Callable[[str], None] = lambda reason: None


class Trainer:
    """Trains a trial in its folder, from its last checkpoint if there is one.

    Args:
        code: fingerprint of the code.
        start: folder of the parent trial whose best model this trial fine-tunes.
        published: loads the weights of a published checkpoint, which this trial fine-tunes, into the model.
        replicas: the other ranks; only this process writes, validates and decides. None: no other ranks.
    """

    def __init__(
        self,
        settings: TrialSettings,
        inputs: Inputs,
        folder: TrialFolder,
        *,
        hooks: Hooks = Hooks(),
        cadence: Cadence = Cadence(),  # noqa: B008
        code: str = "",
        start: TrialFolder | None = None,
        published: Callable[[DualEncoder], Mapping[str, Tensor]] | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        self.settings, self.inputs = settings, inputs
        self.hooks, self.cadence = hooks, cadence
        self.replicas = replicas or Replicas(settings)
        self.learner = Learner(settings, inputs)
        self.model, self.objective, self.optimizer = self.learner.model, self.learner.objective, self.learner.optimizer
        if start is not None:
            self._start_from(start)
        if published is not None:
            self.model.load_weights(published(self.model))
        sources = {"data": data_fingerprint(inputs, settings.model), "code": code}
        sources |= training_methods.sources(settings, inputs)
        self.progress = Progress(settings.train, folder, inputs.device, sources, hooks.warn, hooks.begin_anew)
        self._last: FiniteCheck | None = None
        """The pending check of the last step."""

    def _start_from(self, parent: TrialFolder) -> None:
        """Load the parent's best weights; raise UserError if they do not fit or have another vocabulary."""
        content, words = best_of(parent, self.inputs.device), self.inputs.vocabulary
        if content.get("vocabulary", words) != words:
            raise UserError(
                f"it starts from {parent.trial_id}, whose vocabulary ({content['vocabulary']}) differs from that of "
                f"the data here ({words}). Retrain that trial first: goalgrid resume GRID --stale."
            )
        self.model.start_from(content["model"])

    def fit(self) -> None:
        """Train to the last epoch.

        Raises:
            NonFinite: the loss or a gradient is not finite; the message names the step.
            ReplicaDied: a replica died.
            Preempted: it was asked to stop; a checkpoint is written.
            UserError: data cannot be read or a checkpoint cannot be written.
        """
        progress = self.progress
        self._resume()
        self.hooks.begin(progress.step)
        try:
            while not progress.over:
                self._fit_epoch()
        finally:
            progress.writer.close()  # a checkpoint that could not be written is the error, whatever came after it

    def _fit_epoch(self) -> None:
        progress, started = self.progress, time.monotonic()
        metrics = self._train_epoch()
        self.hooks.beat(progress.step)
        metrics |= self._validate()
        seconds = progress.seconds + time.monotonic() - started
        progress.end_epoch(metrics, seconds, self._weights, self._state)
        self.hooks.epoch(progress.epoch, metrics)
        if self.hooks.beat(progress.step) and not progress.over:
            raise Preempted

    def by_protocols(self, names: Sequence[str]) -> dict[str, evaluation.Ranks]:
        """Evaluate the selected checkpoint on the test split by these protocols; embeds the split once."""
        if self.progress.selected is not self.progress.rows[-1]:
            self.model.load_weights(self.progress.selected_weights())

        def beat() -> None:
            if self.hooks.beat(self.progress.step):
                raise Preempted

        return ranks_of_test(self.model, self.settings, self.inputs, names, beat)[1]

    def evaluate(self, split_name: str) -> evaluation.Ranks:
        """Rank a whole split with the model's current weights."""
        return ranked(self.model, *embedded(self.model, self.settings, self.inputs, split_name))

    def _validate(self) -> dict[str, float]:
        with self.replicas.together("validate"):
            embeddings = embedded(self.model, self.settings, self.inputs, "val", self.learner.group)
        size, loss = self.settings.train.batch_size, math.nan
        if not self.settings.objective.columns:  # which are read of training captions alone
            loss = objective_value(self.model, self.objective, size, *embeddings)
        metrics = validation(ranked(self.model, *embeddings))
        if self.model.scorer is None and not math.isnan(loss):
            batches = [(image, text) for _, image, text in batches_of(size, *embeddings)]
            with torch.no_grad():
                means, counts = of_batches(self.objective, batches)
            metrics |= {name: mean for name, mean in means.items() if math.isfinite(mean)}
            self.progress.trace.keep_density(self.progress.epoch + 1, counts)
        return {**metrics, "val_loss": loss} if math.isfinite(loss) else metrics

    def _train_epoch(self) -> dict[str, float]:
        progress = self.progress
        epoch, started, before = self.learner.begin(progress.epoch), time.monotonic(), progress.seconds
        self.replicas.begin(progress.epoch, progress.batch)
        for place, batch in epoch.since(progress.batch):
            progress.note(self._step(batch, place / len(epoch)))
            progress.batch, progress.seconds = place + 1, before + time.monotonic() - started
            asked = self.hooks.beat(progress.step)
            if asked or progress.due(self.cadence):
                self._check_finite()
                progress.save(self._state())
            if asked:
                raise Preempted
        self._check_finite()
        progress.seconds = before
        metrics = {"lr": self.learner.lr, **progress.means()}
        for method in self.learner.methods:
            metrics |= method.report()
        return metrics

    def _step(self, batch: Batch, passed: float) -> dict[str, Tensor]:
        """Make one update; return its scalars, still on the device."""
        with self.replicas.together("step"):
            measured = self.learner.gradient(batch, passed, self._check_finite)
        self.optimizer.step()
        self.progress.step += 1
        self._last = FiniteCheck(measured, self.learner.finite)
        return measured

    def _check_finite(self) -> None:
        """Raise NonFinite if the last step was not finite; such a step leaves the weights unchanged.

        The host reads the check one step late, while the device is busy with the next batch. The gradients are still
        those of the checked step, so the message can name the first weight whose gradient is not finite.
        """
        last, self._last = self._last, None
        if last is None or last.finite():
            return
        own_loss = self.objective.user_loss
        term = f"the loss of {in_its_file(f'objective {own_loss[0]!r}', own_loss[1])}" if own_loss else "the loss"
        value, norm = last.measured["loss"], last.measured["grad_norm"]
        if bool(torch.isfinite(value)):
            named = (*self.model.named_parameters(), *self.objective.named_parameters("objective"))
            gradients = {name: weight.grad for name, weight in named if weight.grad is not None}
            spoilt = (name for name, gradient in gradients.items() if not torch.isfinite(gradient).all())
            term, value = f"the gradient of {next(spoilt, 'all weights together')}", norm
        raise NonFinite(
            f"{term} became {float(value)} at step {self.progress.step} (epoch {self.progress.epoch + 1}). "
            f"{_advice(self.progress.step, self.settings)}"
        )

    def _weights(self) -> dict[str, Any]:
        return {"model": self.model.weights(), "vocabulary": self.inputs.vocabulary, **self.learner.learnt()}

    def _state(self) -> dict[str, Any]:
        random = checkpoints.random_states(self.inputs.device)
        return {**self.learner.state(), "random": random, "random_of_others": self.replicas.random_states()}

    def _resume(self) -> None:
        state = self.progress.restore()
        others = state.get("random_of_others", []) if state else []
        if state is not None:
            self.learner.load(state)
            checkpoints.restore_random_states(state["random"], self.inputs.device)
            before, now = len(others) + 1, self.replicas.count
            if before != now:
                self.hooks.warn(
                    f"it resumes with resources.replicas = {now} (previously {before}), so dropout masks differ"
                )
        self._keep_threads()
        self.replicas.start(self.learner, others, self.progress.step)
        self.progress.replicas = max(self.progress.replicas, self.replicas.count)

    def _keep_threads(self) -> None:
        """On a CPU, use the number of threads that the trial began with."""
        began, now = self.progress.threads, torch.get_num_threads()
        if self.inputs.device.type != "cpu":
            self.progress.threads = now
        elif began != now:
            torch.set_num_threads(began)
            machine = self.replicas.machine
            resources = machine.resources.model_copy(update={"cpu": began})
            self.replicas.machine = replace(machine, resources=resources)
            self.hooks.warn(
                f"it resumes with the {counted(began, 'thread')} it began with, although resources.cpu is now {now}: "
                f"the number of threads changes the last digits. To retrain it from scratch with {now}: "
                "goalgrid run GRID --force --only FILTER"
            )


def _advice(step: int, settings: TrialSettings) -> str:
    """Return advice for a step that was not finite."""
    if step == 1:
        return "It is the first step: check the loss, the pooling, the encoders, the features and the initial weights."
    steep = [f"objective.{name}" for name in ("tau", "gamma") if name in settings.objective.parameters]
    return f"A smaller {' or '.join(['train.lr', *steep])} often helps."


def validation(ranks: evaluation.Ranks) -> dict[str, float]:
    """Return the validation metrics of an epoch's row; `val_chance` is the rsum an untrained model may reach."""
    means = {name: value for name, value in ranks.similarities.items() if math.isfinite(value)}
    metrics = {f"val_{name}": value for name, value in {**ranks.metrics(), **means}.items()}
    return {**metrics, "val_spread": ranks.spread, "val_chance": evaluation.chance_rsum(len(ranks.i2t), len(ranks.t2i))}
