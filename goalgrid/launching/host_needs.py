"""Estimate from the plan the CPUs and memory a Slurm host needs for a grid's trials, and how many GPUs will be busy."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import chains
from goalgrid.planning.costs import Span, needs_of, total
from goalgrid.planning.decisions import Choice, decide, to_replace
from goalgrid.planning.device_cost import device_cost
from goalgrid.planning.division import Division
from goalgrid.planning.machine_use import GpuMachine, MachineUse
from goalgrid.runners.gpu.cards import CARDS, Card, card
from goalgrid.state.grid_state import GridState

MOST = 32
"""Maximum number of CPUs that a job requests per GPU; few nodes have more."""

ASSUMED = "a100-80"
"""The GPU assumed for CPU and memory estimates if none is named or measured."""

LAUNCH = 0.9e9
"""Bytes of host memory of goalgrid and Ray, without a trial."""
PROCESS = {False: 0.5e9, True: 3e9}
"""Bytes of host memory of a process that trains a small model, on a CPU and (True) with CUDA."""
MARGIN = 1.5
"""Safety factor on memory: with too little a job is killed, with too much it only waits a little longer."""


@dataclass(frozen=True)
class HostNeeds:
    """CPUs, memory and GPUs of a host that trials of a grid need.

    Args:
        cpus: CPUs per trial.
        sharing: number of trials that keep a GPU busy; None: unknown.
        bytes: bytes of host memory per trial.
        use: the use of the GPUs; jobs of unknown duration are taken to be equally long.
        named: whether the user named the type of GPU.
        note: source of the figures, for the user; empty if the GPU was named or measured.
    """

    cpus: int
    sharing: int | None
    bytes: float
    use: MachineUse
    named: bool = False
    note: str = ""

    def memory(self, jobs: int) -> str:
        """Return the memory of a host with `jobs` concurrent jobs in Slurm's format, e.g. `24G`."""
        return f"{math.ceil(MARGIN * (LAUNCH + jobs * self.bytes) / 2**30)}G"


def at_work(needs: Sequence[HostNeeds], tasks: int) -> list[str]:
    """Report how many GPUs will be busy for grids that train together, with time and price if their type is named.

    `tasks`: number of concurrent Slurm tasks, each of which starts as many jobs as a grid allows.
    """
    first, jobs = needs[0].use, [job for need in needs for job in need.use.jobs]
    if not jobs or not first.rented.gpus:
        return []
    room, limit = min(need.use.division.room for need in needs), first.division.limit
    alike = [Span(1, 1)] * len(jobs) if any(need.sharing is None for need in needs) else jobs
    division = replace(first.division, room=room, limit=limit and limit * tasks)
    use = replace(first, division=division, jobs=alike, once=total(need.use.once for need in needs))
    if needs[0].named:
        return use.lines()
    return [f"{use.busy} of {use.rented.all_gpus} GPUs will be busy; {enough}"] if (enough := use.enough()) else []


def most(needs: Sequence[HostNeeds]) -> HostNeeds:
    """Return the largest needs over all grids of a job."""
    sharing = [need.sharing for need in needs if need.sharing is not None]
    return replace(
        needs[0],
        cpus=max(need.cpus for need in needs),
        sharing=max(sharing) if len(sharing) == len(needs) else None,
        bytes=max(need.bytes for need in needs),
    )


def needs_of_host(
    grid_state: GridState,
    choice: Choice,
    device: str,
    gpus: int,
    hosts: int = 1,
    hourly: float | None = None,
    *,
    without: Collection[str] = (),
) -> HostNeeds:
    """Return what the trials that a run would train need of a host, or defaults if the plan has no estimate for them.

    Args:
        device: the type of its GPUs; empty: the one on which trials were measured, or the `ASSUMED` one.
        gpus: GPUs per host; 0: trials train on CPUs.
        hosts: number of hosts among which the trials are divided.
        hourly: the price of one GPU-hour.
        without: ids of trials that another grid trains.

    Raises UserError if the GPU's name is unknown, or if there is no estimate for a GPU that the user named.
    """
    grid, decisions = grid_state.grid, decide(grid_state, choice)
    resources, known = grid.resources, _card(device) if device else _measured_on(grid_state)
    trials = [*(decision.trial for decision in decisions if decision.starts), *grid_state.pending(choice.only)]
    trials = [trial for trial in trials if trial.id not in without]
    share = max(resources.gpus(grid.catalog.recipe(name).gpu) for name in grid.recipes) or 1.0
    rented = GpuMachine(known or CARDS[ASSUMED], hourly, gpus, hosts=hosts)
    use = MachineUse(rented, Division.of(resources, int(1 / share)), [Span(1, 1)] * len(chains(trials)))
    plain = HostNeeds(resources.cpus, None, PROCESS[gpus > 0], use, named=bool(device))
    if not trials or (not device and all(catalog.described(name).embedded for name in grid.datasets)):
        return plain
    try:
        cost = device_cost(grid_state, trials, to_replace(decisions), rented)
    except UserError as error:
        if device:
            raise
        return replace(plain, note=f"CPUs and memory of a trial are unknown: {error}")
    if not gpus:
        return replace(plain, bytes=plain.bytes + cost.host_bytes + cost.device_bytes)
    sharing, cpus = cost.feeding
    sharing = min(sharing, MOST // resources.cpu or 1)
    cpus, note = max(min(cpus, MOST // sharing), resources.cpu), ""
    if not known:
        note = f"CPUs and memory are estimated for an {ASSUMED}; name your GPU, e.g. --device h100"
    if not device and "cpu" in resources.model_fields_set:
        cpus = resources.cpu
    division = replace(cost.division, room=min(cost.division.room, sharing))
    use = replace(cost.machine or use, division=division)
    return HostNeeds(cpus, sharing, plain.bytes + cost.host_bytes, use, bool(device), note)


def _card(device: str) -> Card:
    known = card(device)
    if not known.bandwidth:
        raise UserError(
            f"--device {device!r} gives only a memory size. To estimate CPUs, name the GPU, e.g. --device h100."
        )
    return known


def _measured_on(grid_state: GridState) -> Card | None:
    """Return the GPU on which the memory of the grid's trials was measured, if its type is known."""
    names = [need.device for need in needs_of(grid_state, grid_state.trials).values()]
    return next((known for known in CARDS.values() if known.says and any(known.says in name for name in names)), None)
