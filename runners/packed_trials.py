"""Several trials from start to record, side by side: what runners/trial.py is to one of them."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from grid.home import State, TrialFolder
from grid.settings import TrialSettings
from runners.attempts import Origin
from runners.events import Report
from runners.inputs import Inputs
from runners.machine import Machine
from runners.packs import Pack
from runners.progress import Cadence, Progress
from runners.stacks import Member
from runners.stopping import Stop
from runners.trial import Running, begin, protocols_of


def run_pack(
    trials: Sequence[tuple[TrialSettings, TrialFolder]],
    report: Report,
    machine: Machine,
    *,
    origin: Origin = Origin(),  # noqa: B008
    cadence: Cadence = Cadence(),  # noqa: B008
    stop: Stop | None = None,
) -> None:
    """Make one attempt at each of these trials, side by side: `run_trial` for all of them at once.

    What the process prints goes to the log of the first one. Which worker of a launch begins that one has them all;
    another leaves them to it.

    Args:
        trials: of the same settings but objective and seed.
    """
    with ExitStack() as holds:
        begun = list[Running]()
        for settings, folder in trials:
            own = replace(origin, capture=origin.capture and not begun)
            running = begin(settings, folder, report, machine, holds, origin=own, stop=stop or Stop())
            if isinstance(running, Running):
                begun.append(running)
            elif (
                not begun and running is State.RUNNING and (holder := folder.latest()) and holder.made_by(origin.launch)
            ):
                return
        _train_together(begun, cadence)


def _train_together(begun: Sequence[Running], cadence: Cadence) -> None:
    running = dict[Member, Running]()
    inputs: Inputs | None = None
    for one in begun:
        try:
            inputs = one.start()
        except Exception as error:
            one.ended(error)
            continue
        one.hold.log(f"packed with {len(begun) - 1} others; what the process prints is in the log of the first")
        progress = Progress(one.settings.train, one.folder, inputs.device, one.hooks.warn)
        running[Member(one.settings, progress, one.hooks)] = one
    if inputs is None:
        return
    left = dict(running)

    def leave(member: Member, error: Exception) -> None:
        left.pop(member).ended(error)

    pack = Pack(list(running), inputs, leave, cadence)
    try:
        pack.fit()
        if not pack.members:
            return
        ranks = pack.by_protocols(protocols_of(pack.settings))
    except Exception as error:  # of what they share
        for one in left.values():
            one.ended(error)
        return
    for member, one in list(left.items()):
        try:
            one.finish(member.progress, inputs, ranks[one.folder.trial_id])
        except Exception as error:
            leave(member, error)
