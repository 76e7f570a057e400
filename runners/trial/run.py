"""Run a trial in its folder from start to record. Independent of Ray and the command line."""

import errno
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from torch import Tensor

from goalgrid.grid import global_state, plugins
from goalgrid.grid.errors import UserError, said_by
from goalgrid.grid.registration import advice
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.user_modules import WrongReturn
from goalgrid.grid.store.attempts import DONE, STOPPED, Failure
from goalgrid.grid.store.files import flush, make_durable, read_json, write_json
from goalgrid.grid.store.home import State, TrialFolder
from goalgrid.results.records import record, steps
from goalgrid.retrieval.components.training_method import Around
from goalgrid.retrieval.encoders import pretrained
from goalgrid.retrieval.encoders.calls.tower_calls import tower_calls
from goalgrid.retrieval.evaluation import Ranks
from goalgrid.retrieval.model import DualEncoder
from goalgrid.retrieval.published.checkpoint_files import CheckpointFile
from goalgrid.retrieval.published.published_model import start_weights
from goalgrid.retrieval.splits.equality import FIRST
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.runners.training import checkpoints, training_methods
from goalgrid.runners.training.embedding import NonFinite, embedded, ranked, ranks_of_test
from goalgrid.runners.training.fingerprint import code_fingerprint, plugins_of
from goalgrid.runners.training.inputs import Inputs, batches, data_fingerprint, prepare, protocols_of
from goalgrid.runners.training.learner import model_of
from goalgrid.runners.training.machine import Machine, is_device_error, is_out_of_memory
from goalgrid.runners.training.measured import weights_over_plane
from goalgrid.runners.training.progress import Cadence
from goalgrid.runners.training.replicas import ReplicaDied, Replicas
from goalgrid.runners.training.trainer import Hooks, Preempted, Trainer, validation
from goalgrid.runners.trial import archive, learnt_pooling, lease
from goalgrid.runners.trial.ensemble import Ensemble
from goalgrid.runners.trial.events import Event, EventKind, Listener
from goalgrid.runners.trial.lease import Lease
from goalgrid.runners.trial.loaded_model import environment_on, ranker, settings_of, trained
from goalgrid.runners.trial.retries import given_up
from goalgrid.runners.trial.stopping import Stop

STEP_SECONDS = 1.0
"""Seconds between two reports of a trial's current step."""

LOGGED = ("loss", "lr", "val_i2t_r1", "val_t2i_r1", "val_rsum")
"""Metrics that the attempt's log shows per epoch; the history has all metrics."""


Judgement = Callable[[str, int, Mapping[str, float]], Mapping[str, Any] | None]
"""Function of trial id, epoch and the epoch's metrics: returns why the trial is stopped, None if it continues."""


class Halted(Exception):
    """The early-stopping rule of the launch stops the trial; its checkpoint is written."""


CLASSES: dict[type[BaseException], Failure] = {
    NonFinite: Failure.NON_FINITE, ReplicaDied: Failure.KILLED, DataError: Failure.DATA, ImportError: Failure.IMPORT,
    WrongReturn: Failure.BUG,
}  # fmt: skip
"""Failure classes by exception type."""


def run_trial(
    settings: TrialSettings,
    folder: TrialFolder,
    report: Listener,
    machine: Machine,
    *,
    launch: str = "alone",
    node: str = "",
    launch_id: str = "",
    cadence: Cadence = Cadence(),  # noqa: B008
    stop: Stop | None = None,
    judge: Judgement | None = None,
) -> State:
    """Make an attempt at an unfinished trial, from its last checkpoint to its record, or until a rule stops it.

    Every failure is caught, classified and written to the attempt, so that a trial never stops the others. Once its
    tries are used up, `error.txt` marks the trial as failed.
    """
    if folder.is_done():
        report(Event(folder.trial_id, "done"))
        return State.DONE
    if given_up(folder, launch):  # its processes died too often
        report(Event(folder.trial_id, "failed", message=folder.reason()))
        return State.FAILED
    with ExitStack() as stack:
        try:
            hold = stack.enter_context(lease.new_attempt(folder, stop or Stop(), launch, node, launch_id))
        except lease.Busy as busy:
            if folder.is_done():
                report(Event(folder.trial_id, "done"))
                return State.DONE
            latest = folder.latest()
            if latest is None or latest.launch() != launch:  # of this launch, no user needs a warning
                report(Event(folder.trial_id, "busy", message=str(busy)))
            return State.RUNNING
        except UserError as error:  # no attempt could be begun
            report(Event(folder.trial_id, "failed", message=f"{classify(error)}: {error}"))
            return State.FAILED
        global_state.in_calls.clear()
        stack.enter_context(global_state.restored())
        running = TrialRun(settings, folder, hold, report, machine, judge)
        try:
            return running.train(cadence)
        except BaseException as error:  # any error is this trial's failure, not the grid's
            if plugins.is_interrupt(error):
                raise
            return running.ended(error)


@dataclass(frozen=True)
class TrialRun:
    """An attempt at a trial: inputs, events, files and outcome."""

    settings: TrialSettings
    folder: TrialFolder
    hold: Lease
    report: Listener
    machine: Machine
    judge: Judgement | None = None

    def train(self, cadence: Cadence) -> State:
        """Train to the last epoch, evaluate, and write the record."""
        settings, folder = self.settings, self.folder
        if settings.ensemble:
            return self.combine()
        if not settings.train.epochs:
            return self.untrained()
        with Replicas(settings, self.machine) as replicas:
            inputs = self.start()
            beat = self._beats(settings.train.epochs * len(batches(settings, inputs, 0)))
            hooks = Hooks(self._begin, self._epoch, beat, self._warn, self._restart)
            parent = next((parent for parent in self.parents() if parent.trial_id == settings.starts_from), None)
            if replicas.count > 1:
                self.hold.log(replicas.summary())
            trainer = Trainer(
                settings, inputs, folder, hooks=hooks, cadence=cadence, code=self.code, start=parent,
                published=self.published(), replicas=replicas,
            )  # fmt: skip
            trainer.fit()
        progress = trainer.progress
        self._write_steps(trainer)
        by_protocol = trainer.by_protocols(protocols_of(settings))
        beat(progress.step)
        embed = partial(embedded, trainer.model, settings, inputs, "val")  # by the selected weights
        steps.write(folder.pooling, learnt_pooling.theta_rows(trainer.model, embed, compiled=settings.train.compile))
        return self.finish(
            inputs, by_protocol, selected=progress.selected, rows=progress.rows, replicas=progress.replicas,
            devices=progress.devices, parameters=trainer.learner.model.sizes,
        )  # fmt: skip

    def _write_steps(self, trainer: Trainer) -> None:
        """Write the values of single steps, and the triplet densities."""
        trace = trainer.progress.trace
        steps.write(self.folder.trace, trace.rows())
        if trace.densities:
            counts = {epoch: density.tolist() for epoch, density in trace.densities.items()}
            steps.write_densities(self.folder.triplets, counts, weights_over_plane(trainer.objective).tolist())

    def combine(self) -> State:
        """Evaluate the mean of the members' scores, and write the record."""
        folders = self.parents()
        inputs = self.start()
        self.hold.begin(0)
        ensemble = Ensemble.load(folders, self.machine, self._beat)
        selected = validation(ensemble.evaluate("val"))
        return self.finish(inputs, ensemble.by_protocols(protocols_of(self.settings)), selected=selected)

    def untrained(self) -> State:
        """Evaluate the model without training, and write record and weights; raise UserError if it has a parent."""
        settings, folder = self.settings, self.folder
        if settings.parents or settings.train.starts_from:
            raise UserError(
                "train.epochs = 0 evaluates a model as initialised by its recipe, but this trial starts from a trained "
                "model. To evaluate that model, use goalgrid evaluate."
            )
        inputs = self.start()
        self.hold.begin(0)
        data, model = data_fingerprint(inputs, settings.model), model_of(settings, inputs)
        if published := self.published():
            model.load_weights(published(model))
        selected = {"epoch": 0, **validation(ranked(model, *embedded(model, settings, inputs, "val")))}
        self._beat()
        _, by_protocol = ranks_of_test(model, settings, inputs, protocols_of(settings), self._beat)
        self._beat()
        content = {"trial": folder.trial_id, "row": selected, "sources": {"data": data}}
        content |= {"model": model.weights(), "vocabulary": inputs.vocabulary}
        checkpoints.save(folder.best_checkpoint, content)
        return self.finish(inputs, by_protocol, selected=selected, parameters=(model.sizes[0], 0))

    def parents(self) -> list[TrialFolder]:
        """Return the folders of an ensemble's members, or of parent and ranker; raise UserError if one is not done."""
        folders = [TrialFolder(self.folder.path.parent / name) for name in self.settings.parents]
        if undone := [folder for folder in folders if not folder.is_done()]:
            parent = undone[0].trial_id
            state = "failed" if undone[0].error.exists() else "is not done"
            if self.settings.ensemble:
                raise UserError(f"it averages {parent}, which {state}. Run the grid: parents come first.")
            if parent == self.settings.ranker:
                raise UserError(f"it is ranked by {parent}, which {state}. Run the grid: parents come first.")
            raise UserError(f"it starts from {parent}, which {state}. Run the grid: parents come first.")
        return folders

    def published(self) -> Callable[[DualEncoder], Mapping[str, Tensor]] | None:
        """Return the loader of the published weights that the model starts from; None if it does not start from any.

        The weights come from a checkpoint that the trial fine-tunes, or from a file with the whole model. The trainer
        gets the loader and does not import weight maps itself, so editing a map makes no other trial stale.

        Raises UserError if the file is missing.
        """
        checkpoint = self.settings.train.starts_from
        file = self.settings.model.whole_file
        if checkpoint is None and file is not None and not self.settings.parents:
            path = pretrained.locate(file, self.machine.places)
            assert path is not None, "a file is no network with random weights"
            return partial(start_weights, CheckpointFile.read(path), family=file.family)
        if checkpoint is None:
            return None
        return partial(start_weights, CheckpointFile.known(checkpoint, dict(self.machine.checkpoints)))

    def start(self) -> Inputs:
        """Log the start, write settings and environment to the folder, and open the data; may raise UserError."""
        hold, folder, device = self.hold, self.folder, self.machine.device
        process = f"process {hold.lease['pid']} on {hold.lease['host']}, {device}"
        hold.log(f"attempt {hold.attempt.number}: {process}, code {self.code}")
        self._tell("started")
        hold.commit()
        folder.error.unlink(missing_ok=True)
        if self.judge is None:  # else the verdict still holds where a training is repeated
            folder.stopped.unlink(missing_ok=True)
        self.machine.begin()
        write_json(folder.settings, self.settings.model_dump(mode="json"), durable=False)
        write_json(self.folder.environment, self.environment, durable=False)
        inputs = prepare(self.settings, self.machine)
        write_json(folder.vocabulary, inputs.reader.content, durable=False)
        hold.beat(0)
        self.parents()  # all are done
        root, trials = self.machine.root(self.settings.dataset.name), folder.path.parent
        around = Around(root, self.machine.features, lambda name: ranker(trials / name, self.machine), self._beat)
        prepared = training_methods.prepared(
            self.settings, lambda method: method.prepare(self.settings, inputs.pairs, around)
        )
        return replace(inputs, prepared=prepared)

    @property
    def environment(self) -> dict[str, Any]:
        """Describe the hardware and software of this attempt; a resumed trial keeps its number of threads."""
        return environment_on(self.machine.device) | {"tf32": self.settings.train.tf32}

    @cached_property
    def code(self) -> str:
        """Fingerprint of the code at the start of the training; later edits do not affect it."""
        parents, known = self.parents() if self.settings.ensemble else [], self.machine.catalog
        return code_fingerprint(self.settings, [settings_of(folder, known).model for folder in parents])

    def finish(
        self, inputs: Inputs, by_protocol: dict[str, Ranks], *, devices: Sequence[str] = (), **more: Any
    ) -> State:
        """Write the record, then mark the trial as done; raise Fenced if another process holds the trial now.

        Args:
            by_protocol: ranks of the test split by each of `protocols_of`.
            devices: device types that trained it; recorded if there were several.
            more: other fields of `record.Trained`.
        """
        folder = self.folder
        environment = self.environment | self._noted(inputs) | ({"devices": devices} if len(devices) > 1 else {})
        data = data_fingerprint(inputs, self.settings.model)
        more |= {"code_fingerprint": self.code, "data_fingerprint": data, "environment": environment}
        written = trained(folder.trial_id, self.settings, inputs, by_protocol, **more)
        self.hold.commit()
        for end in (folder.error, folder.stopped):  # another launch may have given the trial up meanwhile
            end.unlink(missing_ok=True)
        record.finish(folder, written)
        self._drop_checkpoints()
        self.hold.end(DONE)
        metrics = written.metrics[self.settings.dataset.protocol]
        self._tell("done", metrics={f"test_{name}": value for name, value in metrics.items()})
        return State.DONE

    def _noted(self, inputs: Inputs) -> dict[str, Any]:
        """Collect facts about the data for the record, in addition to the environment."""
        noted: dict[str, Any] = {"data_problems": [str(problem) for problem in inputs.content.problems]}
        if leaks := inputs.content.leaks(chooses=True):
            noted["leaks"] = [[problem.kind, problem.what.partition(FIRST)[0]] for problem in leaks]
        noted["splits"] = {split: size for split, *size in inputs.content.sizes}
        noted["vocabulary"] = inputs.vocabulary
        if calls := tower_calls(self.settings.dataset, self.settings.model, self.machine.places):
            noted["calls"] = {call.side: f"{call.weights}: {call.line}" for call in calls}
        noted |= training_methods.sources(self.settings, inputs)
        if changes := self._changes():
            noted["plugins_that_changed_torch"] = changes
        choosing = training_methods.selecting(self.settings, inputs.pairs)
        if choosing < inputs.pairs.val.first(self.settings.dataset.val_images)[0]:
            noted["validation_images_that_select"] = choosing
        return noted

    def _changes(self) -> global_state.Changes:
        """Return, and warn about, torch settings that the trial's plugins changed at import or when called, by file."""
        imported = {use.path: global_state.at_import.get(use.path, {}) for use, _ in plugins_of(self.settings)}
        changes = {
            file: changed
            for file in imported | global_state.in_calls
            if (changed := imported.get(file, {}) | global_state.in_calls.get(file, {}))
        }
        for file, changed in changes.items():
            what = ", ".join(f"{name} ({change})" for name, change in changed.items())
            self._warn(f"{file} changes settings of torch that all trials share. They were restored: {what}")
        return changes

    def _drop_checkpoints(self) -> None:
        """Delete the checkpoints for resuming, which take three times the model's size; keep the best weights."""
        folder = self.folder
        if unneeded := [path for path in (folder.last_checkpoint, folder.previous_checkpoint) if path.exists()]:
            make_durable(folder.path)  # before they are deleted
            self.hold.commit()
            for path in unneeded:
                path.unlink()

    def ended(self, error: BaseException) -> State:
        """Write how the attempt ended before the trial was done: classify a failure, and decide whether to retry."""
        with suppress(lease.Fenced):
            if isinstance(error, Preempted):
                self.hold.end(Failure.PREEMPTED, "asked to end; it will resume from its checkpoint")
                self._tell("interrupted")
                return State.INTERRUPTED
            if isinstance(error, Halted):
                self.hold.end(STOPPED, str(error))
                self._tell("stopped", str(error))
                return State.STOPPED
            if not isinstance(error, lease.Fenced):
                return self._failed(error)
        self._tell("busy", "another process took this trial over")
        return State.RUNNING

    def _failed(self, error: BaseException) -> State:
        failure, users = classify(error), isinstance(error, UserError)
        message = said_by(error)
        if not users:
            name, place = type(error).__name__, plugins.line_of(error)
            message = (message if message == name else f"{name}: {message}") + (
                f" ({place}){advice(error)}" if place else ""
            )
        trace = "" if users and failure is not Failure.BUG else "".join(traceback.format_exception(error)) + "\n"
        if trace:
            self.hold.log(trace)
        over = not self.hold.end(failure, message) or given_up(self.folder, self.hold.lease["launch"], trace)
        self._tell("failed" if over else "retry", f"{failure}: {message}")
        return State.FAILED if over else State.INTERRUPTED

    def _restart(self, reason: str) -> None:
        """Warn that the trial starts from scratch, and move the files of its earlier training to `replaced/`."""
        target = archive.progress(self.folder)
        self._warn(f"{reason}; the trial starts from scratch, and its old files are kept in {target}")

    def _warn(self, message: str) -> None:
        self.hold.log(f"warning: {message}")
        self._tell("warning", message)

    def _begin(self, step: int) -> None:
        self.hold.begin(step)
        if step:
            write_json(self.folder.environment, self.environment, durable=False)
        row = next((row for row in self.folder.rows(last_first=True) if row["step"] <= step), None)
        if row and self.judge:  # the attempt before may have ended before it was judged
            self._epoch(row["epoch"], row)

    def _epoch(self, epoch: int, metrics: dict[str, float]) -> None:
        self.hold.log(f"epoch {epoch}: " + ", ".join(f"{name} {metrics[name]:.4g}" for name in LOGGED))
        self._tell("epoch", epoch=epoch, metrics=metrics)
        verdict = self._verdict(epoch, metrics)
        if verdict and epoch < self.settings.train.epochs:
            flush(self.folder.history)  # which the search reads; checkpoints are still being written
            write_json(self.folder.stopped, verdict)
            metric, bound = (f"{verdict[name]:.4g}" for name in ("metric", "bound"))
            raise Halted(f"{verdict['by']} {metric} after epoch {epoch} misses {bound}, the bound of its cell")

    def _verdict(self, epoch: int, metrics: Mapping[str, float]) -> Mapping[str, Any] | None:
        """Return why the rule stops the trial now; None if it continues. Repeated epochs repeat their verdict."""
        if self.judge is None:
            return None
        now, before = self.judge(self.folder.trial_id, epoch, metrics), read_json(self.folder.stopped)
        repeated = before.get("epoch") == epoch and before.get("metric") == metrics.get(before.get("by", ""))
        return before if repeated else now

    def _beats(self, steps: int) -> Callable[[int], bool]:
        """Return the attempt's `beat`, which also reports the step at most once per second."""
        last = 0.0

        def beat(step: int) -> bool:
            nonlocal last
            if (now := time.monotonic()) - last >= STEP_SECONDS:
                last = now
                self._tell("step", step=step, steps=steps)
            return self.hold.beat(step)

        return beat

    def _beat(self) -> None:
        if self.hold.beat(0):
            raise Preempted

    def _tell(self, kind: EventKind, message: str = "", **details: Any) -> None:
        self.report(Event(self.folder.trial_id, kind, message=message, **details))


def classify(error: BaseException) -> Failure:
    """Return the failure class of an exception raised by a trial, or of its cause."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    known = (failure for link in chain if (failure := _class_of(link)))
    return next(known, Failure.USER if isinstance(error, UserError) else Failure.BUG)


def _class_of(error: BaseException) -> Failure | None:
    for kind, failure in CLASSES.items():
        if isinstance(error, kind):
            return failure
    if is_out_of_memory(error):
        return Failure.OUT_OF_MEMORY
    if is_device_error(error):
        return Failure.DEVICE
    if isinstance(error, OSError):
        return Failure.OUT_OF_MEMORY if error.errno == errno.ENOMEM else Failure.STORAGE
    return None
