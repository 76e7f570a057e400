"""A launch: trains trials through a driver, shows the live matrix, and copies results to trackers."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from goalgrid.grid.expansion import Cell, Trial, dropping
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.messages import tell, warn
from goalgrid.grid.select import Halving
from goalgrid.grid.store.attempts import Attempt, Failure
from goalgrid.grid.store.home import Home, State
from goalgrid.results.records.record_cache import Copying
from goalgrid.runners.gpu import memory_probe
from goalgrid.runners.launch import LaunchOptions, shared_folder, worker
from goalgrid.runners.launch.driver import Driver, check_room
from goalgrid.runners.launch.feature_extraction import check_inputs, compute_features
from goalgrid.runners.launch.jobs import Job, Launched, evaluating, jobs_for, machine_for, samples, with_share
from goalgrid.runners.training.progress import Cadence
from goalgrid.runners.trial import archive, lease
from goalgrid.runners.trial.events import Event, Listener
from goalgrid.runners.trial.stopping import Interrupts, Stop
from goalgrid.runners.watching.live_matrix import Board, Display
from goalgrid.runners.watching.mirror import Mirror, Tracker
from goalgrid.runners.watching.notify import Notify
from goalgrid.runners.watching.view import View

_HERE = threading.Lock()
"""Held while this process trains, since torch's random states and settings are global to the process."""


@dataclass(frozen=True)
class Share:
    """A grid's share of a launch.

    Args:
        ids: ids of the grid's trials.
        launch_id: id of the kept launch of this grid; empty if it is not kept.
        trackers: trackers that the trials are copied to.
    """

    ids: frozenset[str]
    launch_id: str = ""
    trackers: Sequence[Tracker] = ()


@dataclass(frozen=True)
class Launch:
    """A launch of trials, with its options, driver and observers.

    Args:
        shares: shares of the grids that train together; jobs of earlier grids start first.
        view: shows the matrix and progress bars.
        notify: notified of the first failed trial.
        name: unique name, by which leases identify their launch.
    """

    home: Home
    options: LaunchOptions
    shares: Sequence[Share] = ()
    view: View = View()  # noqa: RUF009
    notify: Notify | None = None
    name: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}")

    def run(
        self,
        grid: Grid,
        cells: Sequence[Cell],
        trials: Sequence[Trial],
        retrained: Sequence[str] = (),
        *,
        evaluated: Sequence[Trial] = (),
        checked: Callable[[], None] = lambda: None,
        halvings: Mapping[str, Halving] = {},
        known: Mapping[str, State] = {},
    ) -> int:
        """Train these trials, or raise a UserError before any starts; return the signal that interrupted it, or 0.

        Args:
            evaluated: trials to evaluate by [evaluate], once all are trained.
            checked: called after all checks have passed and before the first write.
            retrained: ids of trials to retrain, parents first; their folders are archived before any trial starts.
            halvings: early-stopping rules by trial id, including trials that are not trained now, since trials are
                compared with all of their cell that reached a rung. Trials that were stopped are not trained.
            known: states by trial id where they differ from those of the folders, e.g. diverged search trials.
        """
        name = self.name
        stop = Stop(self.home.stop_request(name))
        driver = self._driver(stop, grid.reliability.grace_seconds, halvings)
        planned = dict.fromkeys(retrained, State.PLANNED)
        states = {t.id: self.home.trial(t.id).state() for cell in cells for t in cell.trials} | dict(known)
        board = Board(
            cells, states | planned, {trial.id for trial in trials}, stopping=stop.asked,
            history=lambda trial_id: self.home.trial(trial_id).rows(), search_seeds=grid.search_seeds,
        )  # fmt: skip
        turn = _HERE if self.options.here else nullcontext()
        with Interrupts(stop, warn) as interrupts, turn, Display(board, self.view) as display:
            address = self.options.address
            board.phase = "reading the data" if address is None else f"connecting to Ray at {address}"
            jobs = self._checked_jobs(driver, grid, trials, evaluated, name)
            going = dropping(grid, cells)
            trained = going.difference(trial.id for trial in evaluated)  # the others go after their evaluation
            jobs = [replace(job, dropping=(going if job.protocols else trained).intersection(job.ids)) for job in jobs]
            checked()
            with driver:
                jobs = self._sized_jobs(driver, grid, jobs, display)
                for trial_id in reversed(retrained):  # children first: no trial stays whose parent is gone
                    archive.replace(self.home, trial_id)
                self._train(driver, grid, name, jobs, interrupts, display)
        return interrupts.heard

    def _checked_jobs(
        self, driver: Driver, grid: Grid, trials: Sequence[Trial], evaluated: Sequence[Trial], name: str
    ) -> list[Job]:
        """Build the jobs of the launch, and check resources, nodes, data and weights."""
        capacity = driver.capacity()
        cadence = Cadence(grid.reliability.checkpoint_steps, grid.reliability.checkpoint_minutes)
        patience = grid.reliability.folder_seconds
        launched = Launched(name, shared_folder.mark(self.home), patience, cadence, worker.PROGRAM)
        of = partial(jobs_for, grid, home=self.home, gpus=capacity.gpus, launched=launched)
        jobs = [*of(trials), *(further for job in of(evaluated) for further in evaluating(job, grid.evaluate))]
        check_room(jobs, capacity, custom=not self.options.here)
        if capacity.gpus and grid.resources.idle:
            warn(grid.resources.idle)
        for line in driver.check(jobs):
            warn(line)
        chooses, allow_leak = grid.select is not None, self.options.allow_leak
        data = check_inputs(jobs, allow_leak=allow_leak, chooses=chooses, warn=_tell)
        launched, rules = replace(launched, data=data), driver.halvings
        jobs = [replace(j, launched=launched, halvings={i: rules[i] for i in j.ids if i in rules}) for j in jobs]
        return [self._placed(job) for job in jobs]

    def _placed(self, job: Job) -> Job:
        """Return the job with the launch id and place of its grid."""
        for place, share in enumerate(self.shares):
            if job.id in share.ids:
                return replace(job, place=place, launched=replace(job.launched, launch_id=share.launch_id))
        return job

    def _sized_jobs(self, driver: Driver, grid: Grid, jobs: Sequence[Job], display: Display) -> list[Job]:
        """Compute features of frozen backbones, and return the jobs with the GPU shares that they need."""
        display.board.phase = "running frozen backbones"
        custom = list(grid.resources.custom)
        compute_features(jobs, self.view, partial(driver.spread, custom))
        display.board.phase = "measuring the memory that trials need on a GPU"
        on_gpus, machine = partial(driver.on_gpus, custom), machine_for(grid, self.home, gpu=True)
        needs = memory_probe.needs_of(samples(jobs), machine, on_gpus, self.home, warn)
        return [with_share(job, needs) for job in jobs]

    def _train(
        self, driver: Driver, grid: Grid, name: str, jobs: Sequence[Job], interrupts: Interrupts, display: Display
    ) -> None:
        """Run the jobs, and copy all trials to the trackers."""
        mirrors = [(share.ids, Mirror(tracker, warn)) for share in self.shares for tracker in share.trackers]
        try:
            for ids, mirror in mirrors:  # trials that an earlier launch did not copy
                for trial_id in display.board.trials.keys() & ids:
                    mirror.sync(self.home.trial(trial_id))
            display.board.phase = "" if self.options.here else "starting Ray"
            driver.wait()
            with Copying(self.home) as copying:
                interrupts.soften()
                display.board.phase = "starting the first worker"
                with _watched(display.board, self.home, name, 60 * grid.reliability.stall_minutes, driver.kill):
                    report = partial(self._report, display, copying, mirrors, set())
                    further = [job for job in jobs if job.protocols]
                    training = [job for job in jobs if not job.protocols]
                    _rounds(driver, training, report, grid.resources.concurrency)
                    if further and not driver.stop.asked():
                        driver.run(further, report, limit=grid.resources.concurrency)
        finally:
            for _, mirror in mirrors:
                mirror.close()

    def _report(
        self,
        display: Display,
        copying: Copying,
        mirrors: Sequence[tuple[frozenset[str], Mirror]],
        busy: set[str],
        event: Event,
    ) -> None:
        """Forward an event to the display, the copy of records and the trackers; `busy` only once per trial."""
        if event.kind == "busy":
            if event.trial_id in busy:
                return
            busy.add(event.trial_id)
        searched = display.board.searched(event.trial_id)
        if searched and event.kind == "failed" and self.home.trial(event.trial_id).failure() is Failure.NON_FINITE:
            event = replace(event, kind="diverged")
        display(event)
        if event.kind == "done":
            copying.note(self.home.trial(event.trial_id).record)
        if self.notify and event.kind == "failed":
            self.notify.failed(f"{event.trial_id}: {event.message}", display.board.sums())
        for ids, mirror in mirrors if event.kind != "step" else ():
            if event.trial_id in ids:
                mirror.sync(self.home.trial(event.trial_id))

    def _driver(self, stop: Stop, grace: float, halvings: Mapping[str, Halving]) -> Driver:
        if self.options.here:
            return Driver(stop, halvings)
        from goalgrid.runners.launch.ray_tune import RayTune, losses

        for loss in losses():
            warn(loss)
        return RayTune(stop, address=self.options.address, grace=grace, warn=self._warn_last, halvings=halvings)

    def _warn_last(self, message: str) -> None:
        """Print a warning just before the process ends, although the live display is running."""
        self.view.restore()
        warn(message)


def _tell(text: str, kind: str) -> None:
    tell(text, kind=kind)


@contextmanager
def _watched(board: Board, home: Home, launch: str, seconds: float, kill: Callable[[Attempt], None]) -> Iterator[None]:
    """Watchdog thread for the with-block: kills trials of a launch that make no progress for `seconds`.

    It checks progress instead of heartbeats, since a process with a stuck trainer still renews its lease. It uses this
    process's monotonic clock, so changing a machine's clock has no effect.
    """
    over, seen = threading.Event(), dict[Attempt, tuple[object, float]]()  # progress, and when it was first seen

    def watch() -> None:
        while not over.wait(seconds / 8):
            running = [name for name, trial in board.trials.items() if trial.state is State.RUNNING]
            for attempt in filter(None, (home.trial(name).latest() for name in running)):
                content, now = attempt.content(), time.monotonic()
                if attempt.end.exists() or content.get("launch") != launch:
                    continue
                progress = content.get("progress")
                if seen.setdefault(attempt, (progress, now))[0] != progress:
                    seen[attempt] = progress, now
                elif now - seen[attempt][1] > seconds:
                    message = f"no progress for {seconds / 60:g} minutes, after step {content.get('step', 0):,}"
                    if lease.end(attempt, Failure.TIMEOUT, message):
                        kill(attempt)

    thread = threading.Thread(target=watch, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _rounds(driver: Driver, jobs: Sequence[Job], report: Listener, limit: int | None) -> None:
    """Run the jobs, `limit` at a time; repeat with trials to retry until a round makes no attempt.

    Jobs that ran out of memory are retried alone on the machine. Trials held by other processes are checked again after
    each round, since such a process may have left them unfinished.
    """
    waiting = [job.only(job.ids) for job in jobs]
    while waiting and not driver.stop.asked():
        before = sum(map(worker.attempt_count, jobs))
        single, together = list[Job](), list[Job]()
        for job in waiting:
            (single if worker.alone(job) else together).append(job)
        if together:
            driver.run(together, report, limit=limit)
        if single and not driver.stop.asked():
            driver.run(single, report, limit=1)
        if sum(map(worker.attempt_count, jobs)) == before:
            return
        waiting = [rest for job in jobs if (rest := worker.retryable(job))]
        until = time.monotonic() + max(map(worker.pause, waiting), default=0.0)
        while time.monotonic() < until and not driver.stop.asked():
            time.sleep(0.1)
