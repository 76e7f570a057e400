"""Which nodes of a cluster may do jobs: none with other code or data, and for a while none on which trials only die."""

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from goalgrid.grid.store.attempts import Attempt

ROW = 3
"""So many attempts in a row, not all at one trial, die on a node that finishes none: it is set aside."""

PAUSE_SECONDS = 300.0
"""How long a node is set aside before one trial tries it again; each further time is twice as long."""

ROOM_SECONDS = 10.0
"""How long that trial waits for room on the node; then it goes wherever there is room."""

_ID = "ray.io/node-id"


@dataclass
class _Aside:
    """A node that is set aside.

    Args:
        pause: for how many seconds.
        due: when, by the clock, a trial is to try it.
        tried: whether one was sent there since.
    """

    pause: float
    due: float
    tried: bool = False
    room_until: float = math.inf
    """When the trial that is to try it waits for room there no longer."""


class Nodes:
    """The nodes of a launch, by Ray's ids.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget all: another launch begins."""
        self.refusing = set[str]()
        """Nodes with other code or data, which get no job of this launch."""
        self._aside = dict[str, _Aside]()
        self._deaths = defaultdict[str, list[Attempt]](list)
        """Attempts that died on a node since it last finished a trial."""
        self._to_try = list[str]()
        self._stale = False

    def avoided(self) -> set[str]:
        """Nodes that get no job now."""
        return self.refusing | set(self._aside)

    def suspects(self) -> set[str]:
        """Nodes on which an attempt died since they last finished a trial."""
        return set(self._deaths) | set(self._aside)

    def refuse(self, node: str) -> bool:
        """Give a node with other code or data no job of this launch; returns whether that is new."""
        new = node not in self.refusing
        self.refusing.add(node)
        self._stale |= new
        return new

    def died(self, node: str, attempt: Attempt, *, spare: Callable[[str], bool]) -> list[Attempt]:
        """Note that an attempt died on a node. Returns the attempts that the node is to blame for, if any is.

        Args:
            spare: whether the launch can do without this node; otherwise it is not set aside.
        """
        deaths = self._deaths[node]
        deaths.append(attempt)
        if aside := self._aside.get(node):
            aside.pause *= 1 + aside.tried
        elif len(deaths) < ROW or len({death.folder for death in deaths}) == 1 or not spare(node):
            return []
        else:
            aside = _Aside(PAUSE_SECONDS, 0.0)
        self._aside[node] = _Aside(aside.pause, self._clock() + aside.pause)
        self._stale = True
        blamed = deaths.copy()
        deaths.clear()
        return blamed

    def pause(self, node: str) -> float:
        """Seconds for which a node that was set aside gets no job."""
        return self._aside[node].pause

    def finished(self, node: str) -> None:
        """Note that a node finished a trial: it is sound."""
        self._deaths.pop(node, None)
        self._stale |= self._aside.pop(node, None) is not None

    def changed(self) -> bool:
        """Whether room that was asked for, and is not granted yet, is to be asked for anew; True once a change."""
        now = self._clock()
        for node, aside in self._aside.items():
            if now >= aside.due:
                aside.due = now + aside.pause
                self._to_try.append(node)
                self._stale = True
            if now >= aside.room_until:
                aside.room_until, self._stale = math.inf, True
        changed, self._stale = self._stale, False
        return changed

    def selector(self) -> dict[str, str]:
        """Labels of the nodes that the next job may go to, for Ray; of one job, those of a node to be tried again."""
        while self._to_try:
            node = self._to_try.pop()
            if aside := self._aside.get(node):
                aside.tried, aside.room_until = True, self._clock() + ROOM_SECONDS
                return {_ID: f"in({node})"}
        avoided = self.avoided()
        return {_ID: f"!in({','.join(sorted(avoided))})"} if avoided else {}
