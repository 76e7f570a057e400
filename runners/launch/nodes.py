"""The nodes of a launch: which of them get jobs, and why processes died there."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from goalgrid.grid.store.attempts import Attempt, Failure
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.runners.launch.jobs import Job
from goalgrid.runners.trial import lease, retries
from goalgrid.runners.trial.events import Event, Listener

ROW = 3
"""A node is paused after this many deaths in a row, of more than one trial, without a finished trial."""

PAUSE_SECONDS = 300.0
"""Seconds for which a node is paused; doubles with each further death there."""

IN_VAIN = 8
"""Maximum number of processes in a row that may die before they begin a trial."""


class Nodes:
    """The nodes of a launch, keyed by Ray node id."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget everything, for a new launch."""
        self.refusing = set[str]()
        """Nodes with different code or data, which get no job of this launch."""
        self.pauses = dict[str, float]()
        """Duration in seconds of each node's last pause."""
        self._until = dict[str, float]()
        """Time until which each node is paused."""
        self._deaths = defaultdict[str, list[Attempt]](list)
        """Attempts that died on each node since it last finished a trial."""
        self._before = set[str]()
        """The avoided nodes at the last call of `changed`."""

    def avoided(self) -> set[str]:
        """Return the nodes that currently get no jobs."""
        return self.refusing | {node for node, until in self._until.items() if self._clock() < until}

    def died(self, node: str, attempt: Attempt, *, spare: Callable[[str], bool]) -> list[Attempt]:
        """Record a death on a node, and pause the node if the launch can `spare` it; return the deaths it caused."""
        deaths = self._deaths[node]
        deaths.append(attempt)
        if node not in self.pauses:
            if len(deaths) < ROW or len({death.folder for death in deaths}) == 1 or not spare(node):
                return []
            self.pauses[node] = PAUSE_SECONDS
        elif node not in self.avoided():  # a death of what ran there before says nothing new
            self.pauses[node] *= 2
        self._until[node] = self._clock() + self.pauses[node]
        return self._deaths.pop(node)

    def finished(self, node: str) -> None:
        """Record that a node finished a trial, so it is healthy."""
        for by_node in (self._deaths, self.pauses, self._until):
            by_node.pop(node, None)

    def changed(self) -> bool:
        """Return whether to repeat pending resource requests; True once after each change of the avoided nodes."""
        before, self._before = self._before, self.avoided()
        return before != self._before

    def selector(self) -> dict[str, str]:
        """Return Ray's label selector for the nodes that the next job may run on."""
        avoided = self.avoided()
        return {"ray.io/node-id": f"!in({','.join(sorted(avoided))})"} if avoided else {}


@dataclass
class Deaths:
    """Forwards the events of all trials, and ends attempts of dead processes."""

    home: Home
    pass_on: Listener
    nodes: Nodes
    alive: Callable[[str | None], bool]
    """Function that returns whether the node with this id is part of the cluster and answers."""
    gone: Callable[[Mapping[str, Any]], bool]
    """Function that returns whether the process of a lease is known to be dead."""
    spare: Callable[[str], bool]
    """Function that returns whether the launch can do without a node."""
    _over: set[str] = field(default_factory=set)
    """Ids of trials reported as done or failed."""
    _ended: set[Attempt] = field(default_factory=set)
    """Attempts that already ended by the death of their process."""
    _vain: int = 0
    """Number of processes in a row that died without reporting an event."""
    _warned_of: set[str] = field(default_factory=set)

    def report(self, event: Event) -> None:
        self._vain = 0
        if event.kind in ("done", "failed"):
            self._over.add(event.trial_id)
        if event.kind == "done" and (attempt := self.home.trial(event.trial_id).latest()):
            self.nodes.finished(attempt.content().get("node", ""))
        self.pass_on(event)

    def process_died(self, job: Job, error: str) -> str:
        """End the attempt of a process that died of this error; return why the launch must end, or an empty text."""
        self._vain += 1
        for trial_id in job.ids:  # a trial done before the death may not have been reported
            if trial_id not in self._over and job.home.trial(trial_id).is_done():
                self.report(Event(trial_id, "done"))
        latest = [(folder, it) for folder in map(job.home.trial, job.ids) if (it := folder.latest())]
        new = [(of, it) for of, it in latest if it not in self._ended and it.launch() == job.launched.name]
        cut_off = [(of, it) for of, it in new if it.outcome() in (None, Failure.TIMEOUT) and not of.is_done()]
        if cut_off:  # only the watchdog writes an end before the death
            self._end(*cut_off[0], error)
        else:  # it ended by itself
            for _, attempt in new:
                if attempt.failure() is Failure.DEVICE:
                    self._ended.add(attempt)
                    self._blame_node(attempt, attempt.message())
        if self._vain <= IN_VAIN:
            return ""
        last = error.strip().splitlines()[-1:] or ["no message"]
        why = f"{last[0].rstrip('.')} (see dmesg: the system may have killed them because memory ran out)"
        return f"its processes died {self._vain} times before they began a trial: {why}"

    def _end(self, folder: TrialFolder, attempt: Attempt, error: str) -> None:
        """End an attempt that was interrupted by the death of its process."""
        self._ended.add(attempt)
        lease.end(attempt, *self._cause(attempt, error))
        over = retries.given_up(folder, attempt.launch())
        message = f"{attempt.outcome()}: {attempt.message()}"
        self.report(Event(folder.trial_id, "failed" if over else "retry", message=message))

    def _cause(self, attempt: Attempt, error: str) -> tuple[Failure, str]:
        content = attempt.content()
        if "OutOfMemoryError" in error:
            return Failure.OUT_OF_MEMORY, f"Ray ended its process on {content.get('host')}: the node ran out of memory"
        after = f"after step {content.get('step', 0):,}"
        if not self.alive(content.get("node")):
            return Failure.NODE_LOST, f"node {content.get('host')} is gone, {after}"
        if not self.gone(content):
            return Failure.NODE_LOST, f"Ray lost its process on {content.get('host')}, {after}"
        message = f"its process {content.get('pid')} on {content.get('host')} died"
        return (Failure.SICK_NODE if self._blame_node(attempt, message) else Failure.KILLED), message

    def _blame_node(self, attempt: Attempt, message: str) -> bool:
        """Return whether the node is to blame for a death; if so, pause the node and warn once."""
        content = attempt.content()
        node, name = str(content.get("node")), content.get("host")
        blamed = self.nodes.died(node, attempt, spare=self.spare)
        for death in blamed:
            if death.end.exists():
                retries.blame_node(death)
        if blamed and node not in self._warned_of:
            self._warned_of.add(node)
            why = f"{ROW} attempts in a row died there and none finished ({message})"
            minutes = f"{self.nodes.pauses[node] / 60:g} minutes"
            warning = f"node {name} is paused for {minutes}: {why}. These do not count as attempts of their trials"
            self.pass_on(Event(attempt.folder.parent.name, "warning", message=warning))
        return bool(blamed)
