"""What the death of a job's process means: the cause for the attempt that it was making, and when to end the launch."""

from collections.abc import Callable, Mapping
from typing import Any

from grid.store.attempts import Attempt
from grid.store.failures import Failure
from runners.launch import worker
from runners.launch.jobs import Job
from runners.trial.events import Event, Listener

IN_VAIN = 8
"""How many processes in a row may die before they begin a trial; a later death is the trial's failure."""


class Deaths:
    """Passes on the events of all trials, and ends attempts of dead processes.

    Args:
        pass_on: hears every event.
        alive: whether a node, by its id, is part of the cluster and answers.
        gone: whether the process of a lease is known to be dead.
    """

    def __init__(
        self, pass_on: Listener, *, alive: Callable[[str | None], bool], gone: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        self._pass_on, self._alive, self._gone = pass_on, alive, gone
        self._over = set[str]()
        """Ids of trials reported as done or failed."""
        self._buried = set[Attempt]()
        self._vain = 0
        """Deaths of processes in a row without an event of a trial in between."""

    def report(self, event: Event) -> None:
        self._vain = 0
        if event.kind in ("done", "failed"):
            self._over.add(event.trial_id)
        self._pass_on(event)

    def bury(self, job: Job, error: str) -> str:
        """End the attempt of the job's dead process. Returns why the launch is to end; empty: it goes on.

        Args:
            error: what the driver knows of the death; its last line is shown.
        """
        self._vain += 1
        for trial_id in job.ids:  # a trial done before the death may not have been reported
            if trial_id not in self._over and job.home.trial(trial_id).is_done():
                self.report(Event(trial_id, "done"))
        if found := worker.bury(job, lambda attempt: self._cause(attempt, error), self._buried):
            self._buried.add(found[0])
            self.report(found[1])
        if self._vain <= IN_VAIN:
            return ""
        last = error.strip().splitlines()[-1:] or ["without a word"]
        return f"its processes died {self._vain} times before they began a trial: {last[0]}"

    def _cause(self, attempt: Attempt, error: str) -> tuple[Failure, str]:
        lease = attempt.content()
        if "OutOfMemoryError" in error:
            return Failure.OUT_OF_MEMORY, f"Ray ended its process on {lease.get('host')}: the node ran out of memory"
        after = f"after step {lease.get('step', 0):,}"
        if not self._alive(lease.get("node")):
            return Failure.NODE_LOST, f"node {lease.get('host')} is gone, {after}"
        if not self._gone(lease):
            return Failure.NODE_LOST, f"Ray lost its process on {lease.get('host')}, {after}"
        return Failure.KILLED, f"its process {lease.get('pid')} on {lease.get('host')} died"
