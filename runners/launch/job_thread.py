"""A job in a thread of its process; the main thread handles signals and reports events."""

import json
import os
import queue
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from goalgrid.runners.launch import worker
from goalgrid.runners.launch.jobs import Job
from goalgrid.runners.trial.events import Event
from goalgrid.runners.trial.stopping import Stop


class JobThread:
    """Runs a job, given as JSON.

    Args:
        node: Ray's id of the node, for leases and refusals.

    Raises:
        UserError: a file of the user does not import here.
    """

    def __init__(self, content: str, node: str) -> None:
        job = Job.from_json(content)
        self._node = node
        self._stop = Stop(job.home.stop_request(job.launched.name))
        self._events = queue.SimpleQueue[Event]()
        self._error: BaseException | None = None
        self._refusal_sent = False
        self._thread = threading.Thread(target=self._work, args=(job,), name="job", daemon=True)
        self._thread.start()

    def report(self, seconds: float) -> dict[str, Any]:
        """Events since the last call, together as JSON: a result costs Tune more than a short trial takes.

        A process that refuses the job gives its node and the reason, before it ends.

        Args:
            seconds: to wait for the job's end.
        """
        self._thread.join(seconds)
        over, refusal, events = not self.live(), "", list[dict[str, Any]]()
        with suppress(queue.Empty):
            while True:
                events.append(asdict(self._events.get_nowait()))
        if over and isinstance(self._error, worker.Refused) and not self._refusal_sent:
            self._refusal_sent, refusal = True, json.dumps([self._node, str(self._error)])
        elif over and not events and self._error:
            if isinstance(self._error, worker.DeviceFailed):
                os._exit(1)  # every further call to its GPU fails, even a release of memory
            raise self._error
        return {"events": json.dumps(events), "refusal": refusal, "done": over and not self._error}

    def live(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ask the trial for a checkpoint and its end, since this node is being taken away."""
        self._stop.ask()

    def _work(self, job: Job) -> None:
        try:
            worker.work(job, self._events.put, self._stop, node=self._node, capture=True)
            if self._stop.asked() and not self._stop.asked_everywhere():
                raise RuntimeError("its node is being taken away; it goes on elsewhere")
        except BaseException as error:
            self._error = error
