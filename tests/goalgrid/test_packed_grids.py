"""Packs as a user meets them: through Ray, killed, gone on with, and seen in MLflow."""

import os
import signal
from pathlib import Path

import pandas as pd
import pytest

from grid.expansion import expand, trials_of
from grid.files import write_json
from grid.gridfile import load
from grid.home import Home, State
from results.comparison import differences
from runners.fusing import remembered
from runners.jobs import jobs_for

from ..conftest import SMALL
from .processes import pid_of, running, start, wait_until

PACK = ("--set", 'objectives=["con_con","sig-ms_cir","lin_nca","sig_con"]', "--set", "seeds=[0]", *SMALL)
RUN = ("run", "demo", *PACK, "--set", "train.epochs=12")
OVERRIDES = [word for word in RUN[2:] if word != "--set"]


def packing(home: Home) -> Home:
    """A runs folder that remembers that packs pay, whatever a few steps would show at this moment."""
    grid = load("demo", OVERRIDES)
    job = jobs_for(grid, trials_of(expand(grid)), home, gpus=0)[0]
    write_json(remembered(home, job.trials[0], job.machine), {"gain": 2.0})
    return home


def outcomes(home: Home) -> list[list[str | None]]:
    return [[attempt.outcome() for attempt in folder.attempts()] for folder in home.trials()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow and its dependencies warn of themselves
def test_a_pack_whose_process_is_killed_goes_on_elsewhere_and_ends_the_same(tmp_path: Path) -> None:
    calm, wild = packing(Home(tmp_path / "calm")), packing(Home(tmp_path / "wild"))
    undisturbed = start(*RUN, runs=calm.path)
    _, talk = undisturbed.communicate(timeout=240)
    assert undisturbed.returncode == 0, talk
    assert talk.count("done ") == 4  # a line a trial, packed or not

    disturbed = start(*RUN, "--mlflow-uri", "", runs=wild.path)
    wait_until(lambda: len(running(wild)) == 4, disturbed)
    assert len({pid_of(folder) for folder in running(wild)}) == 1
    os.kill(pid_of(running(wild)[0]), signal.SIGKILL)
    _, talk = disturbed.communicate(timeout=240)
    assert disturbed.returncode == 0, talk
    assert outcomes(wild) == [["killed", "done"]] * 4
    assert all(folder.state() is State.DONE for folder in wild.trials())
    for home in (calm, wild):
        assert {pd.read_parquet(folder.record)["packed"][0] for folder in home.trials()} == {4}
    assert differences(expand(load("demo", OVERRIDES)), calm, wild) == []

    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{calm.mlflow}")
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert {len(client.get_metric_history(run.info.run_id, "val_rsum")) for run in runs} == {12}
    assert len(runs) == 4
