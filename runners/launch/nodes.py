"""Which nodes of a cluster get jobs: none with other code or data, and for a while none on which all attempts die."""

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from goalgrid.grid.store.attempts import Attempt

ROW = 3
"""Deaths in a row, not all of one trial, after which a node that finishes no trial is set aside."""

PAUSE_SECONDS = 300.0
"""How long a node is set aside before one trial tries it again; each further time is twice as long."""

ROOM_SECONDS = 10.0
"""How long that trial waits for resources of the node; then it goes to any node."""

_ID = "ray.io/node-id"


@dataclass
class _Aside:
    """A node that is set aside.

    Args:
        pause: its length in seconds.
        due: time at which a trial tries the node again.
        tried: whether a trial was sent there since.
    """

    pause: float
    due: float
    tried: bool = False
    room_until: float = math.inf
    """Time at which that trial stops waiting for the node's resources."""


class Nodes:
    """The nodes of a launch, by Ray's ids.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget everything, for a new launch."""
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
        """Note that an attempt died on a node. Returns the attempts whose deaths the node is to blame for.

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
        """Whether pending requests for resources are to be made anew; True once after each change."""
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
        """Ray's labels of the nodes that the next job may run on; if a node is to be tried again, of that node."""
        while self._to_try:
            node = self._to_try.pop()
            if aside := self._aside.get(node):
                aside.tried, aside.room_until = True, self._clock() + ROOM_SECONDS
                return {_ID: f"in({node})"}
        avoided = self.avoided()
        return {_ID: f"!in({','.join(sorted(avoided))})"} if avoided else {}
