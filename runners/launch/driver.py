"""The driver interface, which runs the jobs of a launch, and the driver that runs them in this process."""

import faulthandler
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from goalgrid.grid.errors import HostFault, UserError
from goalgrid.grid.resources import cpus_here
from goalgrid.grid.select import Halving
from goalgrid.grid.store.attempts import Attempt
from goalgrid.runners.gpu import lent
from goalgrid.runners.gpu.memory_probe import apart
from goalgrid.runners.launch.halving import Judge
from goalgrid.runners.launch.jobs import Job, Request
from goalgrid.runners.launch.worker import work
from goalgrid.runners.trial.events import Listener
from goalgrid.runners.trial.stopping import INCOMPLETE, Stop

Spread = Callable[[Sequence[Any]], Iterator[tuple[Any, Any]]]
"""Function that yields each item with its result, in any order."""


@dataclass(frozen=True)
class Capacity:
    """The resources of each node, by Ray's resource names."""

    nodes: tuple[Mapping[str, float], ...]

    @property
    def gpus(self) -> int:
        return int(sum(node.get("GPU", 0) for node in self.nodes))

    def fits(self, request: Request) -> bool:
        """Return whether a node has all resources that a job requests."""
        amounts = request.resources.items()
        return any(all(node.get(name, 0) >= amount - 1e-9 for name, amount in amounts) for node in self.nodes)

    def largest(self, request: Request) -> Mapping[str, float]:
        """Return the resources of the node that comes closest to a job's request."""

        def near(node: Mapping[str, float]) -> tuple[float, ...]:
            enough = sum(node.get(name, 0) >= amount for name, amount in request.resources.items())
            return enough, node.get("GPU", 0), node.get("CPU", 0)

        return max(self.nodes, key=near)


class Driver:
    """Runs jobs and forwards the events of their trials; this driver runs them one by one without Ray (`--here`).

    `halvings` has the early-stopping rules by trial id, including trials of the same cells that are not launched.
    """

    def __init__(self, stop: Stop, halvings: Mapping[str, Halving] = {}) -> None:
        self.stop, self.halvings = stop, halvings

    def capacity(self) -> Capacity:
        return Capacity(({"CPU": cpus_here(), "GPU": torch.cuda.device_count()},))

    def check(self, jobs: Sequence[Job]) -> list[str]:
        """Check that nodes see runs folder, data and weights, and have the same code and plugins; else UserError.

        Returns a warning about each excluded node, if the jobs fit on the others. This driver only checks that the GPUs
        allocated by Slurm work, if jobs use GPUs; else it raises HostFault, since another host may have working GPUs.
        """
        if all(job.machine.resources.gpu == 0 for job in jobs):
            return []
        if why := lent.broken():
            host = os.environ.get("SLURMD_NODENAME", "NODE")
            kind = HostFault if torch.backends.cuda.is_built() else UserError  # without CUDA, no host sees a GPU
            raise kind(f"{why}. Exclude this node: sbatch --exclude={host}. Or train on CPUs: --set resources.gpu=0.")
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> None:
        """Wait until the driver, if it starts in the background, can run jobs; raise UserError if it did not start."""

    def run(self, jobs: Sequence[Job], report: Listener, *, limit: int | None) -> None:
        """Run these jobs, `limit` at a time (None: as many as fit), until all have ended or were asked to end."""
        judge = Judge(self.halvings, jobs[0].home, {trial_id for job in jobs for trial_id in job.ids})
        for job in jobs:
            work(job, report, self.stop, judge=judge)

    def on_gpus(self, custom: Collection[str], function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a function in a separate process on each node with these resources and a free GPU; return results."""
        return [apart(function, *arguments)]

    def spread(self, custom: Collection[str], begin: Callable[..., Any], *arguments: Any) -> Spread | None:
        """Start a process per GPU, and return a function that maps items over them; None: compute in this process.

        Each process calls `begin` with the arguments and its number of CPUs, and applies the function it returns.
        """
        return None

    def kill(self, attempt: Attempt) -> None:
        """Kill the process that makes this attempt; its traceback is written to the attempt's log."""
        with attempt.log.open("a", encoding="utf-8") as log:
            faulthandler.dump_traceback(log)
        os._exit(INCOMPLETE)


def check_room(jobs: Sequence[Job], capacity: Capacity, *, custom: bool = True) -> None:
    """Check that every job fits on a node, with or without custom resources; raise UserError for one that does not."""
    asked = max((job.machine.resources.gpu or 0 for job in jobs), default=0)
    if asked and not capacity.gpus:
        raise UserError(
            f"resources.gpu = {asked:g}, but there is no GPU. Remove it to use GPUs only if there are any, "
            "or set it to 0 to train on CPUs: --set resources.gpu=0."
        )
    for request in dict.fromkeys(job.request if custom else replace(job.request, custom=()) for job in jobs):
        if not capacity.fits(request):
            resources, largest = request.resources, capacity.largest(request)
            needed = " and ".join(f"{amount:,.12g} {name}" for name, amount in resources.items())
            available = " and ".join(f"{largest.get(name, 0):,.12g} {name}" for name in resources)
            nowhere = ", ".join(name for name, _ in request.custom if not any(name in node for node in capacity.nodes))
            helps = "Request less in [resources], or add a larger node."
            if nowhere:
                helps = f"resources.custom must name resources of nodes in the Ray cluster; no node has {nowhere}."
            raise UserError(f"a job requests {needed}, but the largest node has {available}. {helps}")
