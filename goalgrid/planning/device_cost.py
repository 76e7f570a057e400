"""The hook `device_cost`: memory and hours on a GPU that need not be here, by the folder `planning/gpu`, if present."""

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
    """What the trials of a grid take of a GPU."""

    @property
    def rented(self) -> GpuMachine: ...

    @property
    def division(self) -> Division: ...

    @property
    def machine(self) -> MachineUse | None:
        """How the GPUs of the machine are used; None: not known, or the user asks about no machine."""

    @property
    def feeding(self) -> tuple[int, int]:
        """Trials that keep a GPU busy, and CPUs per trial to decode its pictures."""

    @property
    def host_bytes(self) -> float:
        """Most bytes of host memory of a trial, in addition to its process."""

    @property
    def device_bytes(self) -> float:
        """Most bytes of a trial's tensors on the GPU."""

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
    """Return what trials take of a GPU.

    Args:
        replaced: ids of the trials to train from scratch.
        jobs: most jobs at a time; None: as the grid says.

    Raises:
        UserError: an architecture of weights is not known, or this installation has no estimates for a GPU.
    """
    if find_spec(FOLDER) is None:
        raise UserError(
            f"no estimate for {rented.card.name}: {FOLDER.replace('.', '/')} is missing here. "
            "Install all of goalgrid, or leave out --device."
        )
    cost: DeviceCost = resolve_name(HOOK)(grid_state, trials, replaced, rented, jobs=jobs)
    return cost
