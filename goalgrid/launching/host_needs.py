"""What the trials of a grid need of a Slurm host, and how many of a job's GPUs work, by the plan."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import chains
from goalgrid.plan.costs import Span, needs_of
from goalgrid.plan.decisions import Choice, decide, to_replace
from goalgrid.plan.device_costs import DeviceCost, device_cost
from goalgrid.plan.division import Division, enough_words
from goalgrid.plan.taken import Rented
from goalgrid.reading.overview import Overview
from goalgrid.runners.gpu.cards import CARDS, Card, card

MOST = 32
"""CPUs that a job asks for beside a GPU, at most: few nodes have more of them for each GPU."""

ASSUMED = "a100-80"
"""The GPU for which CPUs and memory are counted where none is named or measured."""

LAUNCH = 0.9e9
"""Bytes of host memory of goalgrid and Ray, without a trial."""
PROCESS = {False: 0.5e9, True: 3e9}
"""Bytes of host memory of a process that trains a small model, on a CPU and (True) with CUDA."""
MARGIN = 1.5
"""Factor on the memory that is counted: with too little a job is killed, with too much it waits a little longer."""


@dataclass(frozen=True)
class HostNeeds:
    """What trials of a grid need of a host.

    Args:
        cpus: of each trial.
        sharing: trials that keep a GPU busy; None: not known.
        bytes: of host memory of a trial.
        jobs: GPU seconds of each job; all alike where they are not known.
        note: where the figures come from, for a user; empty: from what the user named or measured.
        cost: what the trials take of the GPU for which they are planned; None: they are not.
        named: whether the user named that GPU.
    """

    cpus: int
    sharing: int | None
    bytes: float
    division: Division
    jobs: Sequence[Span]
    note: str = ""
    cost: DeviceCost | None = None
    named: bool = False

    def memory(self, jobs: int) -> str:
        """Return the memory of a host with so many jobs at a time, as Slurm takes it.

        >>> HostNeeds(1, None, 0.5e9, Division(), []).memory(8)
        '7G'
        """
        return f"{math.ceil(MARGIN * (LAUNCH + jobs * self.bytes) / 2**30)}G"

    def at_work(self, gpus: int, hosts: int, *, tasks: int) -> list[str]:
        """Return how many of the GPUs work; with the time and the price if their type is named, else if some idle.

        Args:
            gpus: of each host.
            hosts: of all tasks, each of which starts as many jobs at a time as the grid allows.
        """
        limit = self.division.limit
        division = replace(self.division, limit=limit and limit * tasks)
        if self.cost and self.named:
            return replace(self.cost, division=division).on_machine()
        fewer = division.as_fast(self.jobs, gpus, hosts)
        if fewer >= gpus * hosts:
            return []
        busy = division.busy(self.jobs, gpus, hosts)
        return [f"{busy} of {gpus * hosts} GPUs work; {enough_words(fewer, gpus, hosts, len(self.jobs))}"]


def most(needs: Sequence[HostNeeds]) -> HostNeeds:
    """What grids need that one job trains one after the other."""
    sharing = [need.sharing for need in needs if need.sharing is not None]
    return replace(
        needs[0],
        cpus=max(need.cpus for need in needs),
        sharing=max(sharing) if len(sharing) == len(needs) else None,
        bytes=max(need.bytes for need in needs),
    )


def needs_of_host(
    overview: Overview, choice: Choice, device: str, gpus: int, hosts: int = 1, hourly: float | None = None
) -> HostNeeds:
    """What the trials that a run would train need of a host; by constants where the plan does not know their model.

    Args:
        device: the type of its GPUs; empty: as measured, else assumed.
        gpus: of each host; 0: trials train on CPUs.
        hosts: among which the trials are divided.
        hourly: the price of an hour on a GPU.

    UserError: the GPU is not known by its name, or the plan does not know what a trial takes of a GPU that is named.
    """
    grid, decisions = overview.grid, decide(overview, choice)
    resources, known = grid.resources, _card(device) if device else _measured_on(overview)
    trials = [*(decision.trial for decision in decisions if decision.starts), *overview.pending(choice.only)]
    share = max(resources.gpus(catalog.recipe(name).gpu) for name in grid.recipes) or 1.0
    plain = HostNeeds(
        resources.cpus,
        None,
        PROCESS[gpus > 0],
        Division.of(resources, int(1 / share)),
        [Span(1, 1)] * len(chains(trials)),
    )
    if not trials or (not device and all(catalog.described(name).embedded for name in grid.datasets)):
        return plain
    try:
        cost = device_cost(
            overview, trials, to_replace(decisions), Rented(known or CARDS[ASSUMED], hourly, gpus, hosts=hosts)
        )
    except UserError as error:
        if device:
            raise
        return replace(plain, note=f"CPUs and memory of a trial are not known: {error}")
    host = max(taken.host for taken in cost.taken.values())
    if not gpus:
        return replace(plain, bytes=plain.bytes + host + max(taken.need.alone for taken in cost.taken.values()))
    sharing, cpus = cost.feeding
    sharing = min(sharing, MOST // resources.cpu or 1)
    cpus, note = max(min(cpus, MOST // sharing), resources.cpu), ""
    if not known:
        note = f"CPUs and memory are those of an {ASSUMED}; name your GPU: --device h100"
    if not device and "cpu" in resources.model_fields_set:
        cpus = resources.cpu
    division = replace(cost.division, room=min(cost.division.room, sharing))
    return HostNeeds(cpus, sharing, plain.bytes + host, division, cost.jobs, note, cost, named=bool(device))


def _card(device: str) -> Card:
    known = card(device)
    if not known.bandwidth:
        raise UserError(f"--device {device!r} says what fits, not what feeds it. Name the GPU, e.g. --device h100.")
    return known


def _measured_on(overview: Overview) -> Card | None:
    """The GPU on which the memory of the grid's trials was measured, if it is known by its name."""
    names = [need.device for need in needs_of(overview, overview.trials).values()]
    return next((known for known in CARDS.values() if known.says and any(known.says in name for name in names)), None)
