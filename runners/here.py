"""The in-process driver (`--here`): the same jobs one after the other, without Ray. For debugging, and for tests."""

from collections.abc import Sequence

from runners.events import Report
from runners.jobs import Job


class Here:
    """Runs each job in this process."""

    def run(self, jobs: Sequence[Job], report: Report) -> None:
        for job in jobs:
            job.run(report)
