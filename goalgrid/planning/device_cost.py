"""Estimate memory and hours on a GPU you do not have, using the optional folder `planning/gpu`."""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any, Protocol

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Trial
from goalgrid.planning.division import Division
from goalgrid.planning.machine_use import GpuMachine, MachineUse
from goalgrid.state.grid_state import GridState

FOLDER = "goalgrid.planning.gpu"
HOOK = f"{FOLDER}.device_costs:device_cost"


class DeviceCost(Protocol):
    """Memory and time that the trials of a grid need on a GPU."""

    @property
    def rented(self) -> GpuMachine: ...

    @property
    def division(self) -> Division: ...

    @property
    def machine(self) -> MachineUse | None:
        """How the GPUs of the machine are used; None: unknown, or the user asked about no machine."""

    @property
    def feeding(self) -> tuple[int, int]:
        """The number of trials that keep a GPU busy, and the CPUs per trial needed to decode images."""

    @property
    def host_bytes(self) -> float:
        """The largest host memory of a trial in bytes, in addition to its process."""

    @property
    def device_bytes(self) -> float:
        """The largest size in bytes of a trial's tensors on the GPU."""

    def lines(self) -> list[str]:
        """Return the lines of a plan."""

    def to_dict(self) -> dict[str, Any]: ...


def device_cost(
    grid_state: GridState,
    trials: Sequence[Trial],
    replaced: Iterable[str],
    rented: GpuMachine,
    *,
    jobs: int | None = None,
) -> DeviceCost:
    """Estimate the memory and time that trials need on a GPU.

    Args:
        replaced: ids of the trials to retrain from scratch.
        jobs: maximum number of concurrent jobs; None: the grid's setting.

    Raises:
        UserError: if the architecture of some weights is unknown, or this installation lacks `planning/gpu`.
    """
    if find_spec(FOLDER) is None:
        raise UserError(
            f"no estimate for {rented.card.name}: {FOLDER.replace('.', '/')} is missing here. "
            "Install all of goalgrid, or leave out --device."
        )
    cost: DeviceCost = resolve_name(HOOK)(grid_state, trials, replaced, rented, jobs=jobs)
    return cost
