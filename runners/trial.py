"""One trial from start to record, in a folder. Knows neither Ray nor the command line."""

import json
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from grid import catalog
from grid.errors import UserError
from grid.files import write_json, write_text
from grid.home import State, TrialFolder
from grid.settings import TrialSettings
from results import record
from retrieval.evaluation import Ranks
from runners import lease, provenance
from runners.events import Event, Report
from runners.inputs import data_fingerprint, prepare
from runners.machine import Machine
from runners.trainer import Trainer


def run_trial(settings: TrialSettings, folder: TrialFolder, report: Report, machine: Machine) -> State:
    """Train a trial that is not done, from where it stands, and leave its record.

    Every failure is caught, written to `error.txt` and reported: one trial never stops the others.
    """
    epochs = settings.train.epochs
    try:
        if folder.done.exists():
            report(Event(folder.trial_id, "done", epochs, epochs))
            return State.DONE
        with lease.held(folder.lease):
            report(Event(folder.trial_id, "started", 0, epochs))
            folder.error.unlink(missing_ok=True)
            metrics = _train(settings, folder, report, machine)
            report(Event(folder.trial_id, "done", epochs, epochs, metrics))
            return State.DONE
    except lease.Busy as busy:
        report(Event(folder.trial_id, "busy", 0, epochs, message=str(busy)))
        return State.RUNNING
    except Exception as error:  # whatever it is, it is this trial's failure, not the grid's
        report(Event(folder.trial_id, "failed", 0, epochs, message=_leave_error(folder, error)))
        return State.FAILED


def _train(settings: TrialSettings, folder: TrialFolder, report: Report, machine: Machine) -> dict[str, float]:
    torch.set_num_threads(machine.threads)
    write_json(folder.settings, settings.model_dump(mode="json"))
    environment = provenance.environment(machine.device, machine.threads)
    write_json(folder.environment, environment)
    inputs = prepare(settings, machine)
    inputs.reader.save(folder.vocabulary)
    trainer = Trainer(
        settings,
        inputs,
        last=folder.last_checkpoint,
        best=folder.best_checkpoint,
        history=folder.history,
        report=lambda epoch, metrics: report(Event(folder.trial_id, "epoch", epoch, settings.train.epochs, metrics)),
        start=_parent(settings, folder),
    )
    trainer.fit()
    by_protocol = trainer.by_protocols(protocols_of(settings))
    ranks = by_protocol.pop(settings.dataset.protocol)
    others = {name: others.metrics() for name, others in by_protocol.items()}
    record.write(folder.record, _record(settings, folder, trainer, ranks, others, environment))
    write_text(folder.done, datetime.now(UTC).isoformat(timespec="seconds") + "\n")
    folder.last_checkpoint.unlink(missing_ok=True)  # three times the model; what may start from it takes the best
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
    selected = trainer.rows[trainer.selected_epoch - 1]
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
        "selected_epoch": trainer.selected_epoch,
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


def _leave_error(folder: TrialFolder, error: Exception) -> str:
    """Write `error.txt`: the traceback where the fault may be ours, and the message as its last line."""
    message = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, UserError):
        message = f"{type(error).__name__}: {message}"
    trace = "" if isinstance(error, UserError) else "".join(traceback.format_exception(error)) + "\n"
    try:
        write_text(folder.error, f"{trace}{message}\n")
    except UserError:  # the disk that failed the trial cannot take its error either; the report still goes out
        return message
    return message
