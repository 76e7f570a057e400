"""Settings of a grid's run (resources, reliability, budget), which do not change trial ids."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, StrictBool, model_validator

from goalgrid.grid.settings.base import Gpus, Settings, Unit
from goalgrid.grid.settings.components import REPLICAS, Component


def cpus_here(groups: Path = Path("/sys/fs/cgroup"), member: Path = Path("/proc/self/cgroup")) -> int:
    """Count the CPUs that this process may use, given its affinity and the quotas of its control groups (containers).

    Args:
        groups: mount point of the control groups.
        member: the file that lists the control groups of this process.
    """
    counts = [len(os.sched_getaffinity(0))]
    names = [line.split(":", 2)[2].strip("/") for line in member.read_text().splitlines()] if member.exists() else []
    places = {place for name in names for place in (Path(name), *Path(name).parents)}
    for folder in [mount / place for mount in (groups, groups / "cpu") for place in places]:
        for files in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):  # versions 2 and 1
            with suppress(OSError, ValueError):  # another version; "max": no quota
                quota, period = " ".join((folder / file).read_text() for file in files).split()
                counts.append(int(quota) // int(period))
    return max(1, min(count for count in counts if count >= 0))


class Resources(Settings):
    """[resources]: the resources of a job."""

    cpu: Annotated[PositiveInt, Unit("CPUs")] = Field(
        default=1,
        description="CPUs and threads of each training process; when training on CPUs, the number changes the last "
        "digits",
    )
    gpu: Annotated[Gpus | None, Unit("GPUs")] = Field(
        default=None,
        description="fraction of one GPU, or whole number of GPUs, that each job requires; none: the fraction "
        "measured by "
        "the memory probe, or CPUs on a machine without GPUs",
    )
    replicas: Annotated[PositiveInt, Unit("processes")] = Field(
        default=1,
        description="data-parallel processes per trial, each with a part of every batch, `cpu` CPUs and its own GPU; "
        "they "
        "compute the gradient of the whole batch, so a trial may need more memory than one GPU has",
    )
    exchange: Literal["gloo"] | None = Field(
        default=None,
        description="communication backend of replicas. gloo: through host memory (slower), so replicas may share a "
        "GPU; "
        "none: nccl between GPUs, gloo between CPUs",
    )
    custom: dict[str, PositiveFloat] = Field(
        default={},
        description="custom Ray resources that each job requires, by the names under which nodes declare them, e.g. "
        '`"accelerator_type:A100" = 0.001`',
    )
    concurrency: Annotated[PositiveInt | None, Unit("jobs")] = Field(
        default=None, description="maximum number of concurrent jobs; none: as many as the CPUs and GPUs allow"
    )
    workers: Annotated[PositiveInt | None, Unit("threads")] = Field(
        default=None, description="threads per training process that decode pictures; none: as many as `cpu`"
    )
    channels_last: StrictBool = Field(
        default=False,
        description="use the channels-last memory format for convolutions on a GPU; changes the last digits, but not "
        "trial ids",
    )
    cudnn_benchmark: StrictBool = Field(
        default=False,
        description="let cuDNN benchmark its algorithms for each shape and use the fastest, which may differ from "
        "run to "
        "run; changes the last digits, but not trial ids",
    )
    cuda_graphs: StrictBool = Field(
        default=True,
        description="run the kernels of an objective as one CUDA graph on a GPU, for batches of up to 1,024 pairs; "
        "changes "
        "neither results nor trial ids",
    )
    features: str | None = Field(
        default=None, description="cache folder for features of frozen backbones; none: `features` in the runs folder"
    )

    @model_validator(mode="after")
    def _a_gpu_each(self) -> "Resources":
        if self.replicas > 1 and not self.exchange and self.gpu not in (None, 0, self.replicas):
            raise ValueError(
                f"gpu = {self.gpu:g} conflicts with replicas = {self.replicas}, which have a GPU each. "
                f"Leave gpu out, or give {self.replicas}; 0 trains on CPUs; "
                'exchange = "gloo" lets them share a GPU.'
            )
        return self

    @property
    def components(self) -> dict[str, Component]:
        """The components that these resources add to every trial, keyed by their label for messages."""
        return {f"resources.replicas = {self.replicas}": REPLICAS} if self.replicas > 1 else {}

    @property
    def cpus(self) -> int:
        return self.cpu * self.replicas

    @property
    def shares_gpus(self) -> bool:
        """Whether a trial gets the fraction of a GPU that its memory needs, because no number is set."""
        return self.gpu is None and self.replicas == 1

    @property
    def threads(self) -> int:
        """Number of threads per training process that decode pictures."""
        return self.workers or self.cpu

    @property
    def idle(self) -> str:
        """A warning if a job requests GPUs that no process uses; else an empty string."""
        if self.replicas > 1 or (self.gpu or 0) <= 1:
            return ""
        return (
            f"resources.gpu = {self.gpu:g} with replicas = 1: a process trains on one GPU, so the others of each job "
            f"are idle. resources.replicas = {self.gpu:g} uses them all."
        )

    def gpus(self, share: float) -> float:
        """Return the number of GPUs that a job requests if there are any; `share`: the fraction its recipe needs."""
        if self.replicas > 1 and self.exchange:
            return 1.0 if self.gpu is None else self.gpu
        if self.replicas > 1:
            return 0.0 if self.gpu == 0 else float(self.replicas)
        return share if self.gpu is None else self.gpu


class Reliability(Settings):
    """[reliability]: checkpoint intervals, timeouts, and which files to keep."""

    checkpoint_minutes: Annotated[PositiveFloat | None, Unit("minutes")] = Field(
        default=10, description="time between checkpoints; every epoch also ends with a checkpoint"
    )
    checkpoint_steps: Annotated[PositiveInt | None, Unit("steps")] = Field(
        default=None, description="steps between checkpoints; none: only checkpoint_minutes decides"
    )
    stall_minutes: Annotated[PositiveFloat, Unit("minutes")] = Field(
        default=30, description="time without progress after which a trial is killed and retried"
    )
    grace_seconds: Annotated[NonNegativeFloat, Unit("seconds")] = Field(
        default=25,
        description="time that running trials get to write checkpoints when a launch is asked to end (SIGTERM, Ctrl-C)",
    )
    folder_seconds: Annotated[NonNegativeFloat, Unit("seconds")] = Field(
        default=60, description="time that a node waits for a shared folder to appear"
    )
    keep: Literal["weights", "record"] = Field(
        default="weights",
        description="files of a finished trial to keep. weights: all files, including the best weights; record: only "
        "record, history and log, unless another trial of the grid starts from it, is ranked by it or averages it",
    )


UNTIL_RESOLVED = "until resolved"
"""The value of `seeds` in a grid with a budget."""


class Budget(Settings):
    """[budget]: limits on the seeds of a grid with seeds = "until resolved"."""

    seeds: Annotated[int, Field(ge=4, le=1000), Unit("seeds")] = Field(
        default=10,
        description="maximum number of seeds per cell; every cell gets 3, and cells that compete for the best get more",
    )
    difference: Annotated[NonNegativeFloat, Unit("percent points")] = Field(
        default=0.5, description="smallest difference between cells that must be resolved"
    )
    metric: Literal["r1", "r5", "r10", "rsum"] = Field(
        default="r1", description="metric by which cells are compared: a recall averaged over both directions, or rsum"
    )
