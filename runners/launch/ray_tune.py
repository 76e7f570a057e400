"""The Ray Tune driver: each job is a Tune trial, named by the job's id. Only `ray_*` modules import Ray.

Every launch uses a new `Tuner` with a new name. Its return value is ignored: the files on disk show what is done.
"""

import os

os.environ.update({
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "1e9",  # nothing restores what Tune knows of all trials
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "PL_DISABLE_FORK": "1",  # as Tune sets it in its processes
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # else Ray prints pages about lost nodes on stdout
})  # fmt: skip

import json
import logging
import shutil
import signal
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

warnings.filterwarnings("ignore", "IProgress not found")
logging.getLogger("ray.widgets").setLevel(logging.CRITICAL)  # in a notebook, they ask for widgets that we do not use

import ray
from ray import tune
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.util.placement_group import placement_group

from goalgrid.grid.errors import HostFault, Incomplete, UserError, in_short
from goalgrid.grid.groups import grouped
from goalgrid.grid.select import Halving
from goalgrid.grid.store import processes
from goalgrid.grid.store.attempts import Attempt
from goalgrid.grid.store.files import write_json
from goalgrid.runners.launch import shared_folder, worker
from goalgrid.runners.launch.driver import Capacity, Driver, Spread
from goalgrid.runners.launch.halving import Judge
from goalgrid.runners.launch.jobs import Job, Request, in_turn, requests_for
from goalgrid.runners.launch.nodes import Deaths, Nodes
from goalgrid.runners.launch.ray_head import head_watched
from goalgrid.runners.launch.ray_nodes import HEAD_SECONDS, capacity_without, join, nodes_with, on_node, spread, start
from goalgrid.runners.launch.ray_private import PARTS, replace
from goalgrid.runners.launch.ray_private import losses as losses
from goalgrid.runners.trial.events import Event, Listener
from goalgrid.runners.trial.stopping import Stop, listen

# to count callbacks, Tune would import all installed trackers
replace("ray.air._internal.usage.tag_callbacks", lambda callbacks: False)

KILL_SECONDS = 30.0
"""Timeout in seconds for a node to kill a process."""

ASK_SECONDS = 5.0
"""Timeout in seconds for a node to answer whether a process is running there."""

REPORT_SECONDS = 0.25
"""Minimum seconds between two reports of a job: the refresh interval of the live matrix."""

REPORTS = 200
"""Maximum reports per second of all jobs, so that the driver has time for other work."""

PENDING = 16
"""Number of jobs for which Ray reserves resources in advance; more would be slow, and start jobs out of order."""

ELSEWHERE = "GOALGRID_ELSEWHERE"
"""Environment variable, set in a batch job that can continue on another host; the launch then ends by a HostFault."""

NODES = Nodes()
"""The nodes of the launch. It is a global because Tune pickles everything else that a job's resources refer to, so the
driver would see a copy."""


class RayTune(Driver):
    """Runs jobs as trials of a `Tuner`, on a cluster or on a Ray instance started for this launch (loopback only).

    Args:
        address: address of a running Ray cluster (`auto`, `HOST:PORT`); None: start Ray here.
        grace: seconds that running trials have to write a checkpoint once they are asked to stop.
        warn: called with the reason when this process ends itself.
        callbacks: user-defined Ray Tune callbacks and loggers, for which each job is a trial.
    """

    def __init__(
        self,
        stop: Stop,
        *,
        address: str | None,
        grace: float,
        warn: Callable[[str], None],
        callbacks: Sequence[tune.Callback] = (),
        halvings: Mapping[str, Halving] = {},
    ) -> None:
        super().__init__(stop, halvings)
        self.address, self.grace, self.warn = address, grace, warn
        self.callbacks = list(callbacks)
        self.left_out = set[str]()
        """Nodes that failed the initial check."""
        self.results: tune.ResultGrid | None = None
        """Tune's results of the jobs that ran last, with their last metrics; the files on disk are authoritative."""

    def capacity(self) -> Capacity:
        if self.address is None:
            return super().capacity()
        self._connect()
        return Capacity(tuple(node["Resources"] for node in nodes_with()))

    def check(self, jobs: Sequence[Job]) -> list[str]:
        if self.address is None or not jobs:
            return super().check(jobs)
        nodes = nodes_with(["CPU"])
        problems = {node["NodeID"]: why for node, why in zip(nodes, _problems(nodes, jobs), strict=True) if why}
        rest = capacity_without(problems)
        spared = all(rest.fits(job.request) for job in jobs)
        lines = list[str]()
        for node in nodes:
            if why := problems.get(node["NodeID"]):
                name = f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                if not spared:
                    raise UserError(f"{name}: {why}")
                lines.append(f"{name} gets no jobs: {why}")
        self.left_out = set(problems)
        return lines

    def on_gpus(self, custom: Collection[str], function: Callable[..., Any], *arguments: Any) -> list[Any]:
        if self.address is None:
            return super().on_gpus(custom, function, *arguments)
        self.wait()
        options = {"num_gpus": 1, "max_calls": 1}  # the process, and what it holds of the GPU, ends with the call
        nodes = [node for node in nodes_with(["GPU", *custom]) if node["NodeID"] not in NODES.refusing]
        returned: list[Any] = ray.get([on_node(node["NodeID"], function, *arguments, **options) for node in nodes])
        return returned

    def spread(self, custom: Collection[str], begin: Callable[..., Any], *arguments: Any) -> Spread | None:
        self.wait()
        return spread(custom, NODES.refusing, begin, *arguments)

    def __enter__(self) -> Self:
        """Start Ray in a background thread, since this takes seconds of mostly waiting."""
        NODES.reset()
        NODES.refusing |= self.left_out
        self._starter = ThreadPoolExecutor(1, "ray-start")  # Ray's processes are killed when the thread ends
        self._started = self._starter.submit(self._connect)
        return self

    def __exit__(self, *_: object) -> None:
        wait([self._started])
        ray.shutdown()
        self._starter.shutdown()

    def wait(self) -> None:
        self._started.result()

    def run(self, jobs: Sequence[Job], report: Listener, *, limit: int | None) -> None:
        self.wait()
        scratch = tempfile.mkdtemp(prefix="goalgrid-ray-")
        judge = Judge(self.halvings, jobs[0].home, {trial_id for job in jobs for trial_id in job.ids})
        observer = _Observer(jobs, report, judge, self.stop, self.grace)
        try:
            watched = head_watched(
                ray.get_runtime_context().gcs_address,
                self.stop,
                patience=HEAD_SECONDS[self.address is None],
                grace=self.grace,
                live=observer.live,
                warn=self.warn,
            )
            with watched, _inherited_environment() if self.address is None else nullcontext():
                self.results = _tuner(jobs, observer, self.callbacks, scratch, limit).fit()
        except Exception as error:
            if not self.stop.asked():
                raise Incomplete(
                    f"Ray failed: {in_short(error, 500)}. Run the same command again to continue."
                ) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        if observer.hopeless:
            kind = HostFault if ELSEWHERE in os.environ else Incomplete
            raise kind(f"Ray failed: {observer.hopeless}. Run the same command again to continue.")

    def kill(self, attempt: Attempt) -> None:
        lease = attempt.content()
        if lease["machine"] == processes.machine():
            processes.kill(lease["pid"], lease["started"])
        else:
            with suppress(ray.exceptions.RayError):  # the node is gone, and Ray restarts the job
                ray.get(on_node(lease["node"], processes.kill, lease["pid"], lease["started"]), timeout=KILL_SECONDS)

    def _connect(self) -> None:
        if ray.is_initialized():
            return
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL, "configure_logging": True}
        if self.address is None:
            start(self.grace, **quiet)
        else:
            join(self.address, **quiet)


def _problems(nodes: Sequence[Mapping[str, Any]], jobs: Sequence[Job]) -> Iterator[str]:
    """Yield for each node its problem with the code, folders or data of the jobs, or an empty text."""
    launched, machines = jobs[0].launched, {job.machine for job in jobs}
    paths = sorted({folder for machine in machines for _, folder in (*machine.roots, *machine.weights)})
    home, uses = str(jobs[0].home.path), jobs[0].machine.uses
    arguments = home, launched.mark, paths, launched.patience, launched.code, uses
    for reply in [on_node(node["NodeID"], shared_folder.problem_here, *arguments) for node in nodes]:
        try:
            yield str(ray.get(reply))
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            yield f"the program cannot run there: {reason}. Install the same version on every node."


@contextmanager
def _inherited_environment() -> Iterator[None]:
    """Let Tune's processes inherit the environment of this process, which started Ray.

    Tune sets variables for its processes, even if the values are unchanged; Ray then starts new processes instead of
    using idle ones.
    """
    variables = {name: part for name, part in PARTS.items() if ".class_cache." in name}
    try:
        for name, part in variables.items():
            replace(name, type(part)())
        yield
    finally:
        for name, part in variables.items():
            replace(name, part)


def _tuner(
    jobs: Sequence[Job], observer: "_Observer", callbacks: Sequence[tune.Callback], scratch: str, limit: int | None
) -> tune.Tuner:
    """Build a tuner with a trial per job; jobs with different resources alternate, so that they run concurrently."""
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(max(PENDING, 2 * len({job.request for job in jobs})))
    fitting = int(ray.cluster_resources().get("CPU", 0) / min(job.request.cpu for job in jobs))
    seconds = max(REPORT_SECONDS, min(len(jobs), limit or len(jobs), fitting) / REPORTS)
    # Points instead of a grid: Tune copies a whole grid for every trial, which takes minutes for thousands.
    queue = in_turn(jobs)
    requests = _requests(queue, at_once=min(limit or len(jobs), max(fitting, 1)))
    configs = [
        {"job": job.id, "resources": json.dumps(asked.resources), "seconds": seconds, "content": job.to_json()}
        for job, asked in zip(queue, requests, strict=True)
    ]

    def name(trial: Any) -> str:
        return str(trial.config["job"])

    def resources(config: dict[str, Any]) -> tune.PlacementGroupFactory:
        return _WillingNodes([json.loads(config["resources"])])

    return tune.Tuner(
        tune.with_resources(_Process, resources),
        param_space=dict.fromkeys(configs[0], ""),
        tune_config=tune.TuneConfig(
            search_alg=BasicVariantGenerator(points_to_evaluate=configs, max_concurrent=limit or 0),
            num_samples=len(configs),
            reuse_actors=True,
            trial_name_creator=name,
            trial_dirname_creator=name,
        ),
        run_config=tune.RunConfig(
            name=uuid.uuid4().hex,
            storage_path=scratch,
            verbose=0,
            progress_reporter=tune.CLIReporter(),  # says nothing; that of notebooks wipes out what we print
            stop=observer,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            failure_config=tune.FailureConfig(max_failures=-1),  # bounded by the tries of trials, and by `_Observer`
            callbacks=[observer, *callbacks],
        ),
    )


def _requests(jobs: Sequence[Job], at_once: int) -> list[Request]:
    """Return the jobs' requests, per grid, divided among the GPUs of nodes with the custom resources."""
    asked = dict[str, Request]()
    for (_, custom), alike in grouped(((job.place, job.request.custom), job) for job in jobs).items():
        ids = (job.id for job in alike)
        asked |= zip(ids, requests_for(alike, _gpus_with(dict(custom)), at_once=at_once), strict=True)
    return [asked[job.id] for job in jobs]


def _gpus_with(custom: Collection[str]) -> list[int]:
    """Return the number of GPUs of each node that has these resources and gets jobs."""
    nodes = nodes_with(["GPU", *custom])
    return [int(node["Resources"]["GPU"]) for node in nodes if node["NodeID"] not in NODES.avoided()]


class _WillingNodes(tune.PlacementGroupFactory):
    """Resource request of a job, restricted to nodes that get jobs at the time of the request."""

    def to_placement_group(self) -> Any:
        selector = NODES.selector()
        return placement_group(self.bundles, bundle_label_selector=[selector for _ in self.bundles])


_Manager: Any = PARTS.get("ray.tune.execution.tune_controller.PlacementGroupResourceManager", object)


class _Reservations(_Manager):
    """Tune's resource reservations, repeated when the set of nodes that get jobs changes."""

    def update_state(self) -> None:
        super().update_state()
        if NODES.changed():
            waiting = (self._request_to_staged_pgs, self._request_to_ready_pgs)
            requests = [request for by_request in waiting for request, groups in by_request.items() for _ in groups]
            for request in requests:
                self.cancel_resource_request(request)
            for request in requests:
                self.request_resources(request)


replace("ray.tune.execution.tune_controller.PlacementGroupResourceManager", _Reservations)


class _Process(tune.Trainable):
    """A Ray process that runs one job after another."""

    job: worker.JobThread | None

    def setup(self, config: dict[str, Any]) -> None:
        self.terminate_ray = listen(signal.SIGTERM, self._terminate)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # processes of our own Ray begin with it blocked
        self.reset_config(config)

    def reset_config(self, config: dict[str, Any]) -> bool:
        self.content, self.seconds, self.job = config["content"], config["seconds"], None
        return True

    def step(self) -> dict[str, Any]:
        if self.job is None:  # not in `setup`: until the first step, Tune may give the job to another process
            self.job = worker.JobThread(self.content, ray.get_runtime_context().get_node_id())
        return self.job.report(self.seconds)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        """Handle preemption of the node: ask the trial for a checkpoint; without a trial, end like Ray does."""
        if self.job and self.job.live():
            self.job.stop()
        elif callable(self.terminate_ray):
            self.terminate_ray(number, frame)


class _Observer(tune.Callback, tune.Stopper):
    """Observes the jobs of a `Tuner` in the driver's process, and ends the `Tuner`.

    It forwards the events of all trials, ends attempts of dead processes, and judges each epoch of trials with an
    early-stopping rule. Tune does not end a job when a rule stops one of its trials, since the job may have others.
    Instead, the job's process waits at each rung until Tune asks for the next result, reads the verdict from the
    attempt, and ends the trial itself.
    """

    def __init__(self, jobs: Sequence[Job], report: Listener, judge: Judge, stop: Stop, grace: float) -> None:
        self.judge, self.stop, self.grace, self._report = judge, stop, grace, report
        self.deaths = Deaths(jobs[0].home, report, NODES, alive=_is_alive, gone=_is_gone, spare=self._spare)
        self.jobs = {job.id: job for job in jobs}
        self.refused = set[str]()
        """Jobs refused by a node, until another process begins them."""
        self.asked: float | None = None
        self.hopeless = ""
        """Why the `Tuner` ends before all jobs have run."""

    def __getstate__(self) -> dict[str, Any]:
        """Pickle nothing: Tune pickles its arguments to restore a run, which is never used."""
        return {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        """Return whether the launch was asked to stop, and no trial is running or the grace period is over."""
        if not self.stop.asked():
            return False
        self.asked = self.asked or time.monotonic()
        return time.monotonic() - self.asked > self.grace or not self.live()

    def live(self) -> bool:
        return any(map(worker.live, self.jobs.values()))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        for row in result["epochs"]:
            verdict = self.judge(row["trial"], row["epoch"], row)
            if verdict and (attempt := self.deaths.home.trial(row["trial"]).latest()):
                with suppress(UserError):  # a full disk stops no trial
                    write_json(attempt.verdict, verdict)
        for content in json.loads(result["events"]):
            self.deaths.report(Event(**content))
        if result.get("refusal"):
            self._refuse(trial, *json.loads(result["refusal"]))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Handle the death of a process; Ray calls this before it restarts the job in another process."""
        job = self.jobs[trial.config["job"]]
        if job.id in self.refused:
            self.refused.discard(job.id)
            return
        error = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
        if why := self.deaths.process_died(job, error):
            self._end(why)
        elif ELSEWHERE in os.environ and not self._room(NODES.avoided()):
            self._end("attempts only die on this host")

    on_trial_recover = on_trial_error

    def _refuse(self, trial: Any, node: str, why: str) -> None:
        """Exclude a node from further jobs, and warn once; end if no other node has the resources."""
        self.refused.add(trial.config["job"])
        if node in NODES.refusing:
            return
        NODES.refusing.add(node)
        name = next((other["NodeManagerHostname"] for other in nodes_with() if other["NodeID"] == node), node)
        self._report(Event(trial.config["job"], "warning", message=f"node {name} gets no jobs: {why}"))
        if not self._room(NODES.refusing):
            self._end(f"no node is left for the jobs; node {name}: {why}")

    def _end(self, why: str) -> None:
        """End the `Tuner` before all jobs have run; running trials write a checkpoint first."""
        self.hopeless = why
        self.stop.ask_everywhere()

    def _room(self, without: Collection[str]) -> bool:
        """Return whether a job fits on one of the other nodes."""
        rest = capacity_without(without)
        return any(rest.fits(job.request) for job in self.jobs.values())

    def _spare(self, node: str) -> bool:
        """Return whether each job by itself fits on some other node."""
        rest = capacity_without({node, *NODES.avoided()})
        return ELSEWHERE in os.environ or all(rest.fits(job.request) for job in self.jobs.values())


def _is_alive(node: str | None) -> bool:
    return node in {other["NodeID"] for other in nodes_with()}


def _is_gone(lease: Mapping[str, Any]) -> bool:
    """Return whether the process of this lease is known to be dead, by asking its machine."""
    if lease["machine"] == processes.machine():
        return processes.started(lease["pid"]) != lease["started"]
    try:
        started = ray.get(on_node(lease["node"], processes.started, lease["pid"]), timeout=ASK_SECONDS)
        return bool(started != lease["started"])
    except ray.exceptions.RayError:  # the driver's own node may have been cut off
        return False
