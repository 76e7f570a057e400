"""How jobs use the GPUs that a user asks about: how many work, the time on the clock and the price."""

from collections.abc import Sequence
from dataclasses import dataclass

from goalgrid.grid.errors import counted
from goalgrid.planning.costs import CLOCK, Span
from goalgrid.planning.division import Division, enough_words, of_hosts
from goalgrid.planning.estimate import GpuMachine


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
        """Seconds until all is done."""
        return self._clock_on(self.rented.all_gpus)

    @property
    def busy(self) -> int:
        """How many of the GPUs get jobs."""
        return self.division.busy(self.jobs, self.rented.gpus, self.rented.hosts)

    @property
    def as_fast(self) -> int:
        """The least number of GPUs on which all is done as early."""
        return self.division.as_fast(self.jobs, self.rented.gpus, self.rented.hosts)

    def lines(self) -> list[str]:
        """The time and the price on these GPUs, and on fewer that are as fast."""
        rented, clock = self.rented, self.clock
        where = counted(rented.all_gpus, "GPU") + of_hosts(rented.gpus, rented.hosts)
        where += f" and {counted(rented.cores, 'core')}{' each' * (rented.hosts > 1)}" if rented.cores else ""
        idle = f", of which {self.busy} work" if self.busy < rented.all_gpus else ""
        lines = [f"on {where}{idle}: {clock.scaled(CLOCK)} on the clock{rented.price(clock * rented.all_gpus)}"]
        if enough := self.enough():
            lines.append(enough + rented.price(self._clock_on(self.as_fast) * self.as_fast))
        return lines

    def enough(self) -> str:
        """Say on how many GPUs the jobs are as fast; empty if on no fewer than these."""
        fewer = self.as_fast
        if fewer >= self.rented.all_gpus:
            return ""
        return enough_words(fewer, self.rented.gpus, self.rented.hosts, len(self.jobs))

    def _clock_on(self, gpus: int) -> Span:
        """Seconds on so many GPUs, of the rented hosts if these are all; frozen networks run on all of them first."""
        hosts = self.rented.hosts if gpus == self.rented.all_gpus else 1
        return self.division.clock(self.jobs, gpus // hosts, hosts) + self.once * (1 / gpus)
