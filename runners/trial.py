"""One trial from start to record, in a folder. Knows neither Ray nor the command line."""

import json
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from grid import catalog
from grid.attempts import DONE
from grid.errors import UserError
from grid.failures import Failure
from grid.files import make_durable, write_json, write_text
from grid.home import State, TrialFolder
from grid.settings import TrialSettings
from results import provenance, record
from retrieval.evaluation import Ranks
from runners import attempts
from runners.attempts import Hold, Origin
from runners.events import Event, Kind, Report
from runners.failures import classify, given_up
from runners.inputs import data_fingerprint, prepare
from runners.machine import Machine
from runners.stopping import Stop
from runners.trainer import Cadence, Hooks, Preempted, Trainer

LOGGED = ("loss", "lr", "val_i2t_r1", "val_t2i_r1", "val_rsum")
"""What an attempt's log says of an epoch; the history has everything."""


@dataclass(frozen=True)
class Voice:
    """How a trial speaks: to its driver."""

    trial_id: str
    epochs: int
    report: Report

    def tell(self, kind: Kind, message: str = "", *, epoch: int = 0, metrics: dict[str, float] = {}) -> None:  # noqa: B006
        self.report(Event(self.trial_id, kind, epoch, self.epochs, metrics, message))

    def done(self, metrics: dict[str, float] = {}) -> None:  # noqa: B006
        self.tell("done", epoch=self.epochs, metrics=metrics)


def run_trial(
    settings: TrialSettings,
    folder: TrialFolder,
    report: Report,
    machine: Machine,
    *,
    origin: Origin = Origin(),  # noqa: B008
    cadence: Cadence = Cadence(),  # noqa: B008
    stop: Stop | None = None,
) -> State:
    """Make one attempt at a trial that is not done, from where it stands; done, it leaves its record.

    Every failure is caught, classed and left with its attempt: one trial never stops the others. Where the policy of
    its class has no further try, `error.txt` reports the trial as failed.
    """
    voice = Voice(folder.trial_id, settings.train.epochs, report)
    if folder.done.exists():
        voice.done()
        return State.DONE
    if given_up(folder, origin.launch):  # its process died once too often
        voice.tell("failed", folder.reason())
        return State.FAILED
    try:
        with attempts.held(folder, origin, stop or Stop()) as hold:
            return _attempt(settings, folder, hold, machine, cadence, voice)
    except attempts.Busy as busy:
        if folder.done.exists():
            voice.done()
            return State.DONE
        if not busy.ours:
            voice.tell("busy", str(busy))
        return State.RUNNING
    except UserError as error:  # no attempt could be begun
        voice.tell("failed", f"{classify(error)}: {error}")
        return State.FAILED


def _attempt(
    settings: TrialSettings, folder: TrialFolder, hold: Hold, machine: Machine, cadence: Cadence, voice: Voice
) -> State:
    """Train while this process holds the trial, and say how it ended."""

    def warn(message: str) -> None:
        hold.log(f"warning: {message}")
        voice.tell("warning", message)

    def epoch(epoch: int, metrics: dict[str, float]) -> None:
        hold.log(f"epoch {epoch}: " + ", ".join(f"{name} {metrics[name]:.4g}" for name in LOGGED))
        voice.tell("epoch", epoch=epoch, metrics=metrics)

    hold.log(f"attempt {hold.attempt.number}: process {hold.lease['pid']} on {hold.lease['host']}, {machine.device}")
    voice.tell("started")
    try:
        folder.error.unlink(missing_ok=True)
        metrics = _train(settings, folder, hold, machine, cadence, Hooks(hold.begin, epoch, hold.beat, warn))
    except attempts.Fenced:
        voice.tell("busy", "another process took this trial over")
        return State.RUNNING
    except Preempted:
        hold.end(Failure.PREEMPTED, "asked to end; it goes on from its checkpoint")
        voice.tell("stopped")
        return State.INTERRUPTED
    except Exception as error:  # whatever it is, it is this trial's failure, not the grid's
        return _failed(folder, hold, error, voice)
    hold.end(DONE)
    voice.done(metrics)
    return State.DONE


def _failed(folder: TrialFolder, hold: Hold, error: Exception, voice: Voice) -> State:
    """Class the failure, leave it with its attempt and its log, and see whether another try can help."""
    failure, users = classify(error), isinstance(error, UserError)
    message = " ".join(str(error).split()) or type(error).__name__
    message = message if users else f"{type(error).__name__}: {message}"
    trace = "" if users else "".join(traceback.format_exception(error)) + "\n"
    if trace:
        hold.log(trace)
    over = not hold.end(failure, message) or given_up(folder, hold.lease["launch"], trace)
    voice.tell("failed" if over else "retry", f"{failure}: {message}")
    return State.FAILED if over else State.INTERRUPTED


def _train(
    settings: TrialSettings, folder: TrialFolder, hold: Hold, machine: Machine, cadence: Cadence, hooks: Hooks
) -> dict[str, float]:
    torch.set_num_threads(machine.threads)
    write_json(folder.settings, settings.model_dump(mode="json"), durable=False)
    environment = provenance.environment(machine.device.type, machine.device_name, machine.threads)
    write_json(folder.environment, environment, durable=False)
    inputs = prepare(settings, machine)
    inputs.reader.save(folder.vocabulary)
    hold.beat(0)
    trainer = Trainer(settings, inputs, folder, hooks=hooks, cadence=cadence, start=_parent(settings, folder))
    trainer.fit()
    by_protocol = trainer.by_protocols(protocols_of(settings))
    ranks = by_protocol.pop(settings.dataset.protocol)
    others = {name: others.metrics() for name, others in by_protocol.items()}
    hold.commit()
    content = _record(settings, folder, trainer, ranks, others, environment)
    record.write(folder.record, content, durable=False)
    make_durable(folder.path)  # before `done` says so
    write_text(folder.done, datetime.now(UTC).isoformat(timespec="seconds") + "\n", durable=False)
    make_durable(folder.path)
    for checkpoint in (folder.last_checkpoint, folder.previous_checkpoint):
        checkpoint.unlink(missing_ok=True)  # three times the model each; what may start from it takes the best
    return {f"test_{name}": value for name, value in ranks.metrics().items()}


def _parent(settings: TrialSettings, folder: TrialFolder) -> Path | None:
    """The best checkpoint of the trial that this one starts from.

    Raises:
        UserError: that trial is not done.
    """
    if settings.starts_from is None:
        return None
    parent = folder.sibling(settings.starts_from)
    if not parent.done.exists():
        raise UserError(f"it starts from {parent.trial_id}, which is not done. Run the grid: parents come first.")
    return parent.best_checkpoint


def protocols_of(settings: TrialSettings) -> list[str]:
    """The trial's own protocol, then every other of its data set: one training serves them all."""
    return list(dict.fromkeys([settings.dataset.protocol, *catalog.protocols(settings.dataset.name)]))


def _record(
    settings: TrialSettings,
    folder: TrialFolder,
    trainer: Trainer,
    ranks: Ranks,
    others: dict[str, dict[str, float]],
    environment: dict[str, Any],
) -> dict[str, Any]:
    selected = trainer.selected
    return {
        "trial_id": folder.trial_id,
        "dataset": settings.dataset.name,
        "protocol": settings.dataset.protocol,
        "recipe": settings.recipe,
        "objective": settings.objective.name,
        "variant": settings.objective.variant,
        "seed": settings.seed,
        "starts_from": settings.starts_from,
        "settings": settings.model_dump_json(),
        "selection": settings.train.selection,
        "selected_epoch": selected["epoch"],
        "epochs": trainer.epoch,
        "steps": trainer.step,
        **{f"val_{name}": selected[f"val_{name}"] for name in record.METRICS},
        **{f"test_{name}": value for name, value in ranks.metrics().items()},
        "other_metrics": record.other_metrics(others),
        **record.diagnostics(selected),
        "test_i2t_ranks": ranks.i2t.tolist(),
        "test_t2i_ranks": ranks.t2i.tolist(),
        "history": record.long_history(trainer.rows),
        "train_seconds": sum(row["seconds"] for row in trainer.rows),
        "data_fingerprint": data_fingerprint(trainer.inputs, settings.model),
        "code_fingerprint": provenance.code_fingerprint(),
        "environment": json.dumps(environment, sort_keys=True),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
