"""A job in a thread of its process."""

import json
from pathlib import Path

from goalgrid.runners.launch.job_thread import JobThread

from .test_worker import job


def test_a_report_waits_for_the_end_of_the_job_and_has_all_its_events(tmp_path: Path) -> None:
    """Tune asks for the next report at once: one that did not wait would keep a CPU busy."""
    report = JobThread(job(tmp_path, "train.epochs=1").to_json(), "node").report(seconds=300)
    assert report["done"]
    kinds = [event["kind"] for event in json.loads(report["events"])]
    assert (kinds[0], kinds[-1]) == ("started", "done")
