"""Whether a pack pays: a few steps both ways, measured once for its like on this kind of machine, and remembered."""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median

from grid.errors import UserError
from grid.files import write_json
from grid.home import Home, TrialFolder
from grid.settings import TrialSettings
from runners.inputs import prepare
from runners.machine import Machine
from runners.packs import Pack, alike
from runners.progress import Progress
from runners.stacks import Member
from runners.trainer import Hooks, Preempted, Trainer

STEPS = 9
WARMING = 4
"""First steps, which take longer and are not counted: memory is new to the process, and kernels are chosen."""

WORTHWHILE = 1.5
"""The least gain for which trials are packed. What many small steps share, other workers' packs take from caches and
memory: two packs of `demo`, each 1.3 times as fast by itself, came out even with single trials."""


def gain(home: Home, trials: Sequence[TrialSettings], machine: Machine) -> float:
    """How many times faster these trials' steps are side by side than one after the other.

    Measured once in a runs folder for all that are alike: whether a trial is packed may change its last bits, so a
    later launch, of fewer of them, has to decide alike.

    Raises:
        UserError: the data cannot be used.
    """
    kept = remembered(home, trials[0], machine)
    if kept.exists():
        return float(json.loads(kept.read_text(encoding="utf-8"))["gain"])
    measured = measure(trials, machine)
    with suppress(UserError):  # a disk that is full now costs another measurement
        write_json(kept, {"gain": measured, "recipe": trials[0].recipe, "trials": len(trials)}, durable=False)
    return measured


def remembered(home: Home, settings: TrialSettings, machine: Machine) -> Path:
    """Where it stands what trials like this one gain on this kind of machine."""
    return home.pack(f"{alike(settings)}-{machine.device.type}-{machine.threads}")


def measure(trials: Sequence[TrialSettings], machine: Machine) -> float:
    """The same, measured now: in CPU time where one thread computes, as other workers begin at the same moment."""
    inputs = prepare(trials[0], machine)
    clock = time.process_time if machine.device.type == "cpu" and machine.threads == 1 else time.monotonic
    with tempfile.TemporaryDirectory(prefix="goalgrid-pack-") as name:
        folders = [TrialFolder(Path(name) / str(place)) for place in range(len(trials) + 1)]

        def alone(hooks: Hooks) -> None:
            Trainer(trials[0], inputs, folders[-1], hooks=hooks).fit()

        def together(hooks: Hooks) -> None:
            members = [
                Member(settings, Progress(settings.train, folder, inputs.device), Hooks() if place else hooks)
                for place, (settings, folder) in enumerate(zip(trials, folders[:-1], strict=True))
            ]
            Pack(members, inputs, lambda member, error: None).fit()

        return len(trials) * _pace(alone, clock) / _pace(together, clock)


def _pace(train: Callable[[Hooks], None], clock: Callable[[], float]) -> float:
    """Seconds of a step."""
    times: list[float] = []

    def beat(step: int) -> bool:
        if step >= len(times):
            times.append(clock())
        return step >= STEPS + WARMING

    with suppress(Preempted):
        train(Hooks(begin=lambda step: times.append(clock()), beat=beat))
    return median([after - before for before, after in pairwise(times)][WARMING:])
