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
    """A type of GPU that a user asks about, and the machine that has it."""

    card: Card
    hourly: float | None = None
    """The price of an hour on a GPU."""
    gpus: int = 0
    """Number in the machine; 0: the user asks about no machine."""
    cores: int | None = None
    """CPU cores of the machine."""
    hosts: int = 1
    """Number of such machines."""

    @property
    def all_gpus(self) -> int:
        return self.gpus * self.hosts

    def price(self, seconds: Span) -> str:
        """Return `, 3.4 to 5.6 at 2 an hour`; empty without a price."""
        if not self.hourly:
            return ""
        price = seconds * (self.hourly / 3600)
        per = f"at {self.hourly:g} an hour"
        if price.most < 0.01:
            return f", less than 0.01 {per}"
        return f", at most {Span(price.most, price.most).text(per)}" if price.least < 0.01 else f", {price.text(per)}"

    def jobs(self, together: int, cpus: int) -> int:
        """Return how many trials run on a GPU at a time: as many as have room, and CPUs."""
        return max(1, min(together, self.cores // (self.gpus * cpus)) if self.cores else together)

    def threads(self, jobs: int, workers: int) -> int:
        """Return how many threads decode for a GPU."""
        return min(jobs * workers, max(1, self.cores // self.gpus)) if self.cores else jobs * workers

    def fed_by(self, threads: int, jobs: int) -> str:
        """Say what allows `threads` to decode for a GPU."""
        if self.cores and threads > self.cores // self.gpus:
            return f"it needs {threads} cores a GPU"
        return f"set resources.cpu = {math.ceil(threads / jobs)}"


@dataclass(frozen=True)
class MachineUse:
    """The jobs of a launch on rented GPUs.

    Args:
        jobs: GPU seconds of each, as `Division.clock` takes them.
        once: seconds of what is done once, before any job.
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
        """Say the time and the price on these GPUs, and on fewer that are as fast."""
        rented, clock = self.rented, self.clock
        where = counted(rented.all_gpus, "GPU") + of_hosts(rented.gpus, rented.hosts)
        where += f" and {counted(rented.cores, 'core')}{' each' * (rented.hosts > 1)}" if rented.cores else ""
        idle = f", of which {self.busy} work" if self.busy < rented.all_gpus else ""
        lines = [f"on {where}{idle}: {clock.scaled(CLOCK)} on the clock{rented.price(clock * rented.all_gpus)}"]
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
        """Return the seconds on `gpus`, of all hosts if these are all; frozen networks run on all of them first."""
        hosts = self.rented.hosts if gpus == self.rented.all_gpus else 1
        return self.division.clock(self.jobs, gpus // hosts, hosts) + self.once * (1 / gpus)
