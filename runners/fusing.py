"""Whether a pack pays: a few steps both ways, measured once for its like on this kind of machine, and remembered."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median

from filelock import FileLock

from grid.files import create_json
from grid.home import Home, TrialFolder
from grid.settings import TrialSettings
from runners.inputs import batches, prepare
from runners.machine import Machine
from runners.packs import Pack, alike
from runners.progress import Progress
from runners.stacks import Member
from runners.trainer import Hooks, Preempted, Trainer

SECONDS, STEPS = 1.5, 4
"""What is measured of each way: steps for so long, but at least so many."""

TURN = Path(tempfile.gettempdir()) / f"goalgrid-measuring-{os.getuid()}.lock"
"""Held by the one process of this machine that measures: side by side, several would slow one another down."""

SHORT = 20.0
"""Seconds of training one after the other, below which a pack gains less than it takes to measure it."""

WORTHWHILE = {"cpu": 0.75, "cuda": 1.5}
"""The least gain for which trials are packed. Where several workers compute on one machine, single trials are more in
one another's way than packs: those of `demo` gain 0.8 to 1.2 here and 1.28 two at a time, those of fc-bow 0.6 to 0.7
here and 0.8 there. On a GPU, several single trials fill it better than the one that is measured: a guess, as yet."""


def pays(home: Home, trials: Sequence[TrialSettings], machine: Machine) -> bool:
    """Whether these trials are trained side by side.

    Raises:
        UserError: the data cannot be used.
    """
    return gain(home, trials, machine) >= WORTHWHILE[machine.device.type]


def gain(home: Home, trials: Sequence[TrialSettings], machine: Machine) -> float:
    """How many times faster these trials' steps are side by side than one after the other.

    Measured once in a runs folder for all that are alike: whether a trial is packed may change its last bits, so a
    later launch, of fewer of them, has to decide alike. Where that cannot be kept, it is measured again.

    Raises:
        UserError: the data cannot be used.
    """
    kept = remembered(home, trials[0], machine)
    with suppress(FileNotFoundError):
        return _read(kept)
    with FileLock(TURN):
        with suppress(FileNotFoundError):  # measured while this one waited
            return _read(kept)
        measured = measure(trials, machine)
        with suppress(OSError):
            kept.parent.mkdir(exist_ok=True)
            if not create_json(kept, {"gain": measured, "recipe": trials[0].recipe, "trials": len(trials)}):
                return _read(kept)  # another node was first
        return measured


def remembered(home: Home, settings: TrialSettings, machine: Machine) -> Path:
    """Where it stands what trials like this one gain on this kind of machine."""
    return home.pack(f"{alike(settings)}-{machine.device.type}-{machine.threads}")


def _read(kept: Path) -> float:
    return float(json.loads(kept.read_text(encoding="utf-8"))["gain"])


def measure(trials: Sequence[TrialSettings], machine: Machine) -> float:
    """The same, measured now: in this thread's CPU time where it computes alone, as others begin at the same moment.

    0 where all of them together take less long than it is worth to find out.
    """
    inputs = prepare(trials[0], machine)
    clock = time.thread_time if machine.device.type == "cpu" and machine.threads == 1 else time.monotonic
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

        pace = _pace(alone, clock)
        steps = trials[0].train.epochs * len(batches(trials[0], inputs, 0))
        if steps * pace * len(trials) < SHORT:
            return 0.0
        return len(trials) * pace / _pace(together, clock)


def _pace(train: Callable[[Hooks], None], clock: Callable[[], float]) -> float:
    """Seconds of a step: the median of the later half, as the first find memory that is new to the process."""
    times: list[float] = []

    def beat(step: int) -> bool:
        if step >= len(times):
            times.append(clock())
        return step >= STEPS and times[-1] - times[0] > SECONDS

    with suppress(Preempted):
        train(Hooks(begin=lambda step: times.append(clock()), beat=beat))
    return median([after - before for before, after in pairwise(times)][(len(times) - 1) // 2 :])
