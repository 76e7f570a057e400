"""Run a job: its trials in order in one process; then find its remaining trials from the files on disk."""

import json
import os
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from goalgrid.grid import global_state, plugins
from goalgrid.grid.errors import UserError, said_by
from goalgrid.grid.settings import DataKey
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.files import read_json, readable_text, write_text
from goalgrid.grid.store.home import State
from goalgrid.results.records import provenance
from goalgrid.results.records.models import FurtherEvaluation
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.runners.gpu import lent
from goalgrid.runners.launch import shared_folder
from goalgrid.runners.launch.halving import is_rung
from goalgrid.runners.launch.jobs import Job
from goalgrid.runners.training.inputs import content_of
from goalgrid.runners.training.progress import drop_weights
from goalgrid.runners.trial import evaluations, retries
from goalgrid.runners.trial.events import Event, Listener
from goalgrid.runners.trial.retries import Decision
from goalgrid.runners.trial.run import Judgement, run_trial
from goalgrid.runners.trial.stopping import Stop

PROGRAM = provenance.program_fingerprint()
"""Fingerprint of the sources as imported by this process; later edits of the files do not affect it."""

LOOK_SECONDS = 0.25
"""Seconds between two checks for a stop request while a process waits to report."""


class Refused(UserError):
    """This process refuses the job: it has different code or data than the launch, or a broken GPU."""


class DeviceFailed(UserError):
    """The GPU failed and is unusable until this process ends."""


def check(job: Job) -> None:
    """Compare code and data with those of the launch, and GPUs with those allocated; raise Refused if they differ."""
    if job.launched.code not in ("", PROGRAM):
        raise Refused("its code differs from that of this launch. Install the same version on every node")
    if job.machine.gpu and (why := lent.broken()):
        raise Refused(why)
    expected = dict(job.launched.data)
    for settings in job.trials:
        name, extra = settings.dataset.name, settings.objective.columns
        key, machine = DataKey.of(settings.dataset, settings.model, extra), job.machine.reading(name, extra)
        with suppress(DataError):  # the trial's failure, with its class
            fingerprint_here = content_of(settings.dataset, settings.model.image, machine).fingerprint
            if fingerprint_here != expected.get(key, fingerprint_here):
                where = f"{name!r} under {job.machine.root(name)}"
                raise Refused(f"the data of {where} have changed since this launch began")


def work(job: Job, report: Listener, stop: Stop, *, node: str = "", judge: Judgement | None = None) -> None:
    """Make an attempt at each of a job's trials in this process, in order, until the process is asked to stop.

    If `node` (a Ray node id) is given, all output goes to the attempts' logs. `judge` judges trials with an
    early-stopping rule.

    Raises:
        Refused: its code or data differ from those of the launch; no attempt was made.
        DeviceFailed: this process can no longer use its GPU. The attempt has ended; another process continues.
    """
    home, where = job.home, {"launch": job.launched.name, "node": node, "launch_id": job.launched.launch_id}
    try:
        shared_folder.wait_for(home, job.launched.mark, job.launched.patience)
    except UserError as error:
        for trial_id in job.ids:
            report(Event(trial_id, "failed", message=f"{Failure.STORAGE}: {error}"))
        return
    check(job)
    if job.machine.device.type == "cuda":  # jobs of a reused process may have different shares
        torch.cuda.set_per_process_memory_fraction(1.0 if alone(job) else job.request.memory)
    for number, (trial_id, settings) in enumerate(zip(job.ids, job.trials, strict=True)):
        stop.look()
        if stop.asked():
            return
        folder = home.trial(trial_id)
        if why := folder.unreadable():
            report(Event(trial_id, "failed", message=f"{Failure.STORAGE}: {why}"))
            continue
        if job.protocols:
            _evaluate(job, number, report)
            continue
        if job.is_stopped(trial_id):
            continue  # by an attempt of this launch, before its process died
        if any(parent in job.ids and not home.trial(parent).is_done() for parent in settings.parents):
            continue  # a parent failed and reported that; this trial stays planned
        if job.tried and len(folder.attempts()) > job.tried[number] and not decision(job, trial_id).policy.at_once:
            continue  # an attempt of this round failed; the next attempt waits for the next round
        before, ruled = folder.latest(), judge if trial_id in job.halvings else None
        cadence = job.launched.cadence
        run_trial(settings, folder, report, job.machine, **where, cadence=cadence, stop=stop, judge=ruled)
        if folder.is_done() and trial_id in job.dropping:
            drop_weights(folder)
        if (latest := folder.latest()) and latest != before and latest.failure() is Failure.DEVICE:
            raise DeviceFailed(f"{trial_id}: {latest.message()}. This process can no longer use its GPU")
        job.machine.release()


def _evaluate(job: Job, number: int, report: Listener) -> None:
    """Evaluate a finished trial on a data set by the protocols that are still missing.

    A failure is only a warning; the next launch tries again. Since Ray restarts jobs whose process died, a file marks
    that this launch began the evaluation.
    """
    folder, settings = job.home.trial(job.ids[number]), job.trials[number]
    now = dict(job.launched.data).get(DataKey.of(settings.dataset, settings.model), "")
    protocols = [name for name in job.protocols[number] if not FurtherEvaluation.of_now(folder.evaluation(name), now)]
    if not protocols or not folder.is_done():
        return
    begun, problem = folder.evaluations / f"{protocols[0]}.begun", "its process died"
    if readable_text(begun) != job.launched.name:
        try:
            write_text(begun, job.launched.name, durable=False)
            with global_state.restored():
                evaluations.evaluate(settings, folder, protocols, job.machine)
            problem = ""
        except BaseException as error:  # any error is this evaluation's failure, not the grid's
            if plugins.is_interrupt(error):
                raise
            problem = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {said_by(error)}"
        begun.unlink(missing_ok=True)
    if problem:
        report(Event(folder.trial_id, "warning", message=f"not evaluated by {' and '.join(protocols)}: {problem}"))
    elif folder.trial_id in job.dropping and folder.trial_id not in job.ids[number + 1 :]:
        drop_weights(folder)
    report(Event(folder.trial_id, "done"))
    job.machine.release()


class JobThread:
    """Runs a job (given as JSON) in a thread on a node (given by Ray's id).

    Raises UserError if a plugin cannot be imported here.
    """

    def __init__(self, content: str, node: str) -> None:
        job = Job.from_json(content)
        self._node = node
        self._stop = Stop(job.home.stop_request(job.launched.name))
        self._events = queue.SimpleQueue[Event]()
        self._latest = dict[str, Any]()
        """Row of the latest epoch of its trials: `trial`, `epoch` and the metrics."""
        self._error: BaseException | None = None
        self._refusal_sent = False
        self._awaits = self._asked = False
        """Whether the job waits for a verdict, and whether the driver has received the epoch to judge."""
        self._answered = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(job,), name="job", daemon=True)
        self._thread.start()

    def report(self, seconds: float) -> dict[str, Any]:
        """Return all events since the last call, as JSON; batched, since each result is expensive for Tune.

        It waits up to `seconds` for the job's end, an epoch to judge, or a stop request. The other keys are for
        user-defined Tune callbacks and loggers: the latest epoch's `trial`, `epoch`, validation metrics and training
        means, and in `epochs` all epochs since the last call. There are no test metrics, so that nothing is selected by
        them. A process that refuses the job reports its node and the reason before it ends.
        """
        if self._asked:  # the driver asks for more after it has judged
            self._awaits = False
            self._answered.set()
        until = time.monotonic() + seconds
        self._thread.join(min(seconds, LOOK_SECONDS))
        while self.live() and not self._awaits and not self._stop.asked() and (rest := until - time.monotonic()) > 0:
            self._thread.join(min(rest, LOOK_SECONDS))
        self._asked = self._awaits  # its epoch is among the events
        over, refusal = not self.live(), ""
        events = [asdict(self._events.get()) for _ in range(self._events.qsize())]
        ended = [event for event in events if event["kind"] == "epoch"]
        epochs = [{"trial": event["trial_id"], "epoch": event["epoch"], **event["metrics"]} for event in ended]
        self._latest = epochs[-1] if epochs else self._latest
        if over and isinstance(self._error, Refused) and not self._refusal_sent:
            self._refusal_sent, refusal = True, json.dumps([self._node, str(self._error)])
        elif over and not events and self._error:
            if isinstance(self._error, DeviceFailed):
                os._exit(1)  # every further call to its GPU fails, even a release of memory
            raise self._error
        done = over and not self._error
        return {**self._latest, "epochs": epochs, "events": json.dumps(events), "refusal": refusal, "done": done}

    def live(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ask the trial to write a checkpoint and end, since this node is being preempted."""
        self._stop.ask()

    def _judged(self, job: Job, trial_id: str, epoch: int, metrics: Mapping[str, float]) -> dict[str, Any]:
        """Return the driver's verdict on an epoch; waits for it at the rungs of the early-stopping rule."""
        if is_rung(job.halvings[trial_id], epoch):
            self._answered.clear()
            self._awaits = True
            while not self._answered.wait(LOOK_SECONDS) and not self._stop.asked():
                continue
        attempt = job.home.trial(trial_id).latest()
        return read_json(attempt.verdict) if attempt else {}

    def _work(self, job: Job) -> None:
        try:
            work(job, self._events.put, self._stop, node=self._node, judge=partial(self._judged, job))
            if self._stop.asked() and not self._stop.asked_everywhere():
                raise RuntimeError("its node is being preempted; the trial resumes elsewhere")
        except BaseException as error:
            self._error = error


def decision(job: Job, trial_id: str) -> Decision:
    """Decide whether and how a trial of the job is retried."""
    return retries.decision(job.home.trial(trial_id), job.launched.name)


def retryable(job: Job) -> Job | None:
    """Return the job with the trials to retry: those not done, stopped, given up here, or held by another process.

    Trials that another launch gave up, e.g. on a broken host, are retried here.
    """
    home, ids = job.home, list[str]()
    for trial_id, settings in zip(job.ids, job.trials, strict=True):
        lost = [parent for parent in settings.parents if parent in job.ids and parent not in ids]
        orphan = any(not home.trial(parent).is_done() for parent in lost)
        state = home.trial(trial_id).state()
        worth = not job.is_stopped(trial_id) and (state is not State.FAILED or not decision(job, trial_id).given_up)
        if state not in (State.DONE, State.RUNNING) and worth and not orphan:
            ids.append(trial_id)
    return job.only(ids) if ids else None


def attempt_count(job: Job) -> int:
    """Return the number of attempts that this launch made at the job's trials."""
    attempts = (attempt for trial_id in job.ids for attempt in job.home.trial(trial_id).attempts())
    return sum(attempt.launch() == job.launched.name for attempt in attempts)


def live(job: Job) -> bool:
    """Return whether a trial of the job is being trained."""
    return any(job.home.trial(trial_id).state() is State.RUNNING for trial_id in job.ids)


def alone(job: Job) -> bool:
    """Return whether the next attempt must run alone on the machine."""
    return any(decision(job, trial_id).policy.alone for trial_id in job.ids)


def pause(job: Job) -> float:
    """Return the seconds to wait before the next attempt."""
    return max(decision(job, trial_id).wait for trial_id in job.ids)
