"""Why trials have no record: the reason that a trial's folder gives, and how a caption counts reasons."""

from collections import Counter
from collections.abc import Iterable

from goalgrid.grid.store.home import Home, State, TrialFolder

NEVER_RUN = "never run"
OTHER_DATA = "trained on other data than are here now"
UNREADABLE = "with a record that cannot be read"


def states(ids: Iterable[str], home: Home) -> dict[str, State]:
    """State of the trials that were started, by id.

    The folder of all trials is listed once, so that only started trials cost a look into their own folder.
    """
    standing = home.standing()
    return {trial_id: home.trial(trial_id).state() for trial_id in ids if trial_id in standing}


def reason(folder: TrialFolder, state: State) -> str:
    """Why a trial in this state has no record: `running`, `interrupted`, `failed (out-of-memory)`, `never run`."""
    if state is State.PLANNED:
        return NEVER_RUN
    failure = folder.failure() if state is State.FAILED else None
    return f"{state} ({failure})" if failure else str(state)


def counted_reasons(reasons: Iterable[str]) -> str:
    """How often each reason holds, the most frequent first.

    >>> counted_reasons(["failed (killed)", NEVER_RUN, "failed (killed)"])
    '2 trials failed (killed), 1 never run'
    """
    counts = Counter(reasons).most_common()
    nouns = [f" trial{'s' * (number > 1)}" if place == 0 else "" for place, (_, number) in enumerate(counts)]
    return ", ".join(f"{number}{noun} {reason}" for (reason, number), noun in zip(counts, nouns, strict=True))
