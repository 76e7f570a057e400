"""The run of a grid: resources of a job, handling of failures, budget of seeds; never identity."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, StrictBool, model_validator

from goalgrid.grid.settings.base import Gpus, Settings, Unit
from goalgrid.grid.settings.components import REPLICAS, Component


def cpus_here(groups: Path = Path("/sys/fs/cgroup"), member: Path = Path("/proc/self/cgroup")) -> int:
    """Count the CPUs that this process may use: by its affinity, and by quotas of its control groups (containers).

    Control groups are mounted at `groups`; the file `member` names those of this process.
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
        description="CPUs and threads of each training process; on CPUs, their number changes the last digits",
    )
    gpu: Annotated[Gpus | None, Unit("GPUs")] = Field(
        default=None,
        description="share of one GPU, or a whole number of GPUs, that every job requires; none: the share that the "
        "memory probe measured, or CPUs on a machine without GPUs",
    )
    replicas: Annotated[PositiveInt, Unit("processes")] = Field(
        default=1,
        description="processes that train one trial together, each with a part of every batch, `cpu` CPUs and its own "
        "GPU; they compute the gradient of the whole batch, so the trial may need more memory than one GPU has",
    )
    exchange: Literal["gloo"] | None = Field(
        default=None,
        description="gloo: replicas exchange through host memory (slower) and may share a GPU; none: nccl between "
        "GPUs, gloo between CPUs",
    )
    custom: dict[str, PositiveFloat] = Field(
        default={},
        description="custom Ray resources that every job requires, by the names that nodes give them, e.g. "
        '`"accelerator_type:A100" = 0.001`',
    )
    concurrency: Annotated[PositiveInt | None, Unit("jobs")] = Field(
        default=None, description="jobs that run at once; none: as many as fit the CPUs and GPUs"
    )
    workers: Annotated[PositiveInt | None, Unit("threads")] = Field(
        default=None, description="threads that decode pictures, in each training process; none: as many as `cpu`"
    )
    channels_last: StrictBool = Field(
        default=False,
        description="keep convolutions in channels-last memory format on a GPU; last digits change, ids do not",
    )
    cudnn_benchmark: StrictBool = Field(
        default=False,
        description="let cuDNN time its algorithms for each shape on a GPU and take the fastest, which may differ from "
        "run to run; last digits change, trial ids do not",
    )
    cuda_graphs: StrictBool = Field(
        default=True,
        description="launch all kernels of an objective at once on a GPU, as a CUDA graph, in batches of up to 1,024 "
        "pairs; changes neither numbers nor trial ids",
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
        """The components that trainings have by these resources, by what a user calls them."""
        return {f"resources.replicas = {self.replicas}": REPLICAS} if self.replicas > 1 else {}

    @property
    def cpus(self) -> int:
        return self.cpu * self.replicas

    @property
    def shares_gpus(self) -> bool:
        """Whether a trial takes the share of a GPU that its memory needs, and no number that is set."""
        return self.gpu is None and self.replicas == 1

    @property
    def threads(self) -> int:
        """Threads that decode pictures, in each process that trains."""
        return self.workers or self.cpu

    @property
    def idle(self) -> str:
        """A warning about GPUs that a job asks for and no process uses, or an empty string."""
        if self.replicas > 1 or (self.gpu or 0) <= 1:
            return ""
        return (
            f"resources.gpu = {self.gpu:g} with replicas = 1: a process trains on one GPU, so the others of each job "
            f"are idle. resources.replicas = {self.gpu:g} uses them all."
        )

    def gpus(self, share: float) -> float:
        """Return the GPUs that a job asks for if there are any, given the share of a GPU that its recipe needs."""
        if self.replicas > 1 and self.exchange:
            return 1.0 if self.gpu is None else self.gpu
        if self.replicas > 1:
            return 0.0 if self.gpu == 0 else float(self.replicas)
        return share if self.gpu is None else self.gpu


class Reliability(Settings):
    """[reliability]: how much work a failure may cost, and how long to wait."""

    checkpoint_minutes: Annotated[PositiveFloat | None, Unit("minutes")] = Field(
        default=10, description="time between checkpoints; every epoch also ends with a checkpoint"
    )
    checkpoint_steps: Annotated[PositiveInt | None, Unit("steps")] = Field(
        default=None, description="steps between checkpoints; none: by time alone"
    )
    stall_minutes: Annotated[PositiveFloat, Unit("minutes")] = Field(
        default=30, description="time without any progress after which a trial is killed and retried"
    )
    grace_seconds: Annotated[NonNegativeFloat, Unit("seconds")] = Field(
        default=25,
        description="time for running trials to write checkpoints when a launch is asked to end (SIGTERM, Ctrl-C)",
    )
    folder_seconds: Annotated[NonNegativeFloat, Unit("seconds")] = Field(
        default=60, description="how long a node waits for a shared folder to appear"
    )
    keep: Literal["weights", "record"] = Field(
        default="weights",
        description="files to keep of a finished trial; weights: all, with its best weights; record: only record, "
        "history and log, unless another trial of the grid starts from it, is ranked by it or averages it",
    )


UNTIL_RESOLVED = "until resolved"
"""Takes the place of the seeds of a grid with a budget."""


class Budget(Settings):
    """[budget]: how many seeds a grid with seeds = "until resolved" may spend."""

    seeds: Annotated[int, Field(ge=4, le=1000), Unit("seeds")] = Field(
        default=10,
        description="most seeds of a cell; every cell gets 3, and cells that compete for the best get more",
    )
    difference: Annotated[NonNegativeFloat, Unit("percent points")] = Field(
        default=0.5, description="smallest difference between cells that is worth resolving"
    )
    metric: Literal["r1", "r5", "r10", "rsum"] = Field(
        default="r1", description="metric that decides: a recall, averaged over both directions, or rsum"
    )
