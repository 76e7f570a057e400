"""The Ray Tune driver, and the only file that imports Ray.

Ray is handed a fixed list of our jobs and schedules them; every launch is a fresh `Tuner` under a new name, and its
return value is not trusted: what is done stands on the disk. Actors are reused, so that a trial costs no new process.
"""

import os

os.environ.update({
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on any system: one node, bound to loopback
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
})  # fmt: skip

import logging
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from typing import Any

import ray
from ray import tune

from runners.events import Event, Report
from runners.jobs import Job

SLOT = "goalgrid_slot"
"""A resource that bounds concurrency; unlike Tune's own limit it holds for every trial."""

RETRIES = 2
"""For a worker that dies; what a trial itself reports as failed is not retried."""


class RayTune:
    """Runs jobs as trials of one `Tuner`, on a Ray started for this launch and bound to loopback.

    Args:
        slots: jobs at a time.
    """

    def __init__(self, *, cpus: int, gpus: int, slots: int) -> None:
        self.cpus, self.gpus, self.slots = cpus, gpus, slots

    def run(self, jobs: Sequence[Job], report: Report) -> None:
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        ray.init(
            num_cpus=self.cpus,
            num_gpus=self.gpus,
            resources={SLOT: self.slots},
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.CRITICAL,
            configure_logging=True,
        )
        scratch = tempfile.mkdtemp(prefix="goalgrid-ray-")
        try:
            _tuner(jobs, report, scratch).fit()
        finally:
            ray.shutdown()
            shutil.rmtree(scratch, ignore_errors=True)


def _tuner(jobs: Sequence[Job], report: Report, scratch: str) -> tune.Tuner:
    def name(trial: Any) -> str:
        return str(Job.from_json(trial.config["job"]).ids[0])

    return tune.Tuner(
        tune.with_resources(_run_job, _request),
        param_space={"job": tune.grid_search([job.to_json() for job in jobs])},
        tune_config=tune.TuneConfig(reuse_actors=True, trial_name_creator=name, trial_dirname_creator=name),
        run_config=tune.RunConfig(
            name=uuid.uuid4().hex,
            storage_path=scratch,
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=RETRIES),
            callbacks=[_Passing(report)],
        ),
    )


def _run_job(config: dict[str, Any]) -> None:
    """What an actor runs: one job, each event a Tune report."""
    Job.from_json(config["job"]).run(lambda event: tune.report({"event": event.to_dict()}))


def _request(config: dict[str, Any]) -> tune.PlacementGroupFactory:
    job = Job.from_json(config["job"])
    bundle = {"CPU": float(job.cpu), SLOT: 1.0}
    if job.gpu:
        bundle["GPU"] = job.gpu
    return tune.PlacementGroupFactory([bundle])


class _Passing(tune.Callback):
    """Hands the events of all trials to the launch, in the driver's process."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune pickles its callbacks for a restore that we never make."""
        return {}

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if "event" in result:
            self.report(Event(**result["event"]))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        for trial_id in Job.from_json(trial.config["job"]).left():
            self.report(Event(trial_id, "failed", message="its worker process died; the system may be out of memory"))
