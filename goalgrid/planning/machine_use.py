"""Estimate how jobs use the GPUs that a user asks about: how many work, the wall time and the price."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from goalgrid.grid.errors import counted
from goalgrid.planning.costs import CLOCK, Span
from goalgrid.planning.division import Division, enough_words, of_hosts
from goalgrid.runners.gpu.cards import Card


@dataclass(frozen=True)
class GpuMachine:
    """A type of GPU that the user asks about, and the machine that contains it."""

    card: Card
    hourly: float | None = None
    """Price of one GPU-hour."""
    gpus: int = 0
    """Number of GPUs in the machine; 0: the user asks about no machine."""
    cores: int | None = None
    """CPU cores of the machine."""
    hosts: int = 1
    """Number of such machines."""

    @property
    def all_gpus(self) -> int:
        return self.gpus * self.hosts

    def price(self, seconds: Span) -> str:
        """Return `, 3.4 to 5.6 at 2 per GPU-hour`; empty without a price."""
        if not self.hourly:
            return ""
        price = seconds * (self.hourly / 3600)
        per = f"at {self.hourly:g} per GPU-hour"
        if price.most < 0.01:
            return f", less than 0.01 {per}"
        return f", at most {Span(price.most, price.most).text(per)}" if price.least < 0.01 else f", {price.text(per)}"

    def jobs(self, together: int, cpus: int) -> int:
        """Return the number of concurrent trials per GPU, limited by memory (`together`) and by CPUs."""
        return max(1, min(together, self.cores // (self.gpus * cpus)) if self.cores else together)

    def threads(self, jobs: int, workers: int) -> int:
        """Return the number of decoding threads per GPU."""
        return min(jobs * workers, max(1, self.cores // self.gpus)) if self.cores else jobs * workers

    def fed_by(self, threads: int, jobs: int) -> str:
        """Say how to get `threads` decoding threads per GPU."""
        if self.cores and threads > self.cores // self.gpus:
            return f"it needs {threads} cores per GPU"
        return f"set resources.cpu = {math.ceil(threads / jobs)}"


@dataclass(frozen=True)
class MachineUse:
    """The jobs of a launch on rented GPUs.

    Args:
        jobs: GPU seconds of each job, as for `Division.clock`.
        once: seconds of work done once, before any job.
    """

    rented: GpuMachine
    division: Division
    jobs: Sequence[Span]
    once: Span = Span(0, 0)  # noqa: RUF009

    @property
    def clock(self) -> Span:
        """Return the wall time of all jobs, in seconds."""
        return self._clock_on(self.rented.all_gpus)

    @property
    def busy(self) -> int:
        """Return how many of the GPUs get jobs."""
        return self.division.busy(self.jobs, self.rented.gpus, self.rented.hosts)

    @property
    def as_fast(self) -> int:
        """Return the least number of GPUs on which all jobs end as early."""
        return self.division.as_fast(self.jobs, self.rented.gpus, self.rented.hosts)

    def lines(self) -> list[str]:
        """Report wall time and price on these GPUs, and on fewer GPUs if these are as fast."""
        rented, clock = self.rented, self.clock
        where = counted(rented.all_gpus, "GPU") + of_hosts(rented.gpus, rented.hosts)
        where += f" and {counted(rented.cores, 'core')}{' each' * (rented.hosts > 1)}" if rented.cores else ""
        idle = f", {self.busy} of them busy" if self.busy < rented.all_gpus else ""
        lines = [f"on {where}{idle}: {clock.scaled(CLOCK)} wall-clock{rented.price(clock * rented.all_gpus)}"]
        if enough := self.enough():
            lines.append(enough + rented.price(self._clock_on(self.as_fast) * self.as_fast))
        return lines

    def enough(self) -> str:
        """Say on how few GPUs the jobs are as fast; empty if all are needed."""
        fewer = self.as_fast
        if fewer >= self.rented.all_gpus:
            return ""
        return enough_words(fewer, self.rented.gpus, self.rented.hosts, len(self.jobs))

    def _clock_on(self, gpus: int) -> Span:
        """Return the wall time in seconds on `gpus` GPUs; frozen networks first run on all of them."""
        hosts = self.rented.hosts if gpus == self.rented.all_gpus else 1
        return self.division.clock(self.jobs, gpus // hosts, hosts) + self.once * (1 / gpus)
