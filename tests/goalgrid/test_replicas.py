"""A trial that several processes train together, by the command line."""

import os
import signal
from pathlib import Path

import pandas as pd
import psutil
import pytest

from goalgrid.grid.store.home import Home

from ..conftest import LASTING
from .processes import listening_addresses, pid_of, running, start, wait_until

RUN = (
    "run", "demo", "--here", "--mlflow-uri", "", "--set", 'objectives=["con_con"]', "--set", "seeds=[0]", *LASTING,
    "--set", "train.epochs=4", "--set", "resources.replicas=2", "--set", "reliability.checkpoint_steps=3",
)  # fmt: skip


@pytest.mark.slow
def test_a_trial_whose_replica_is_killed_is_tried_again(tmp_path: Path) -> None:
    """At once, and from its checkpoint; no replica of the first attempt is left, and none listens to other machines."""
    home = Home(tmp_path)
    process = start(*RUN, runs=home.path)
    wait_until(lambda: bool(running(home)), process)
    (folder,) = running(home)
    (replica,) = psutil.Process(pid_of(folder)).children()
    assert listening_addresses(process) == {"127.0.0.1"}
    os.kill(replica.pid, signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == 0, said
    first, second = folder.attempts()
    assert (first.outcome(), second.outcome()) == ("killed", "done")
    assert first.message() == f"ReplicaDied: replica 1 of the training, process {replica.pid}, died: signal SIGKILL"
    assert second.content()["from_step"] >= 3
    assert "2 replicas: this process, and " in second.log.read_text(encoding="utf-8")
    assert pd.read_parquet(folder.record).iloc[0]["replicas"] == 2
