"""A trial's folder that cannot be listed, a colleague's or on a failing disk: it is named, and all others are shown."""

import errno
import json
import os
import shutil

import pytest

from goalgrid.grid.store.home import Home

from ..failing_disk.commands import Call, Commands, Fault
from .conftest import PAIR

HALF = f".last.ckpt.{'0a1b2c3d' * 4}"
"""A file that a killed process had begun to write."""


def closed_by(number: int, pair: Home) -> Fault:
    """Of the folder of one of two finished trials, every call of the system fails."""
    calls = Call.LIST | Call.STAT | Call.OPEN | Call.CREATE
    return Fault(pair.trials()[0].path, calls, number, inside=True)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, ("status", "demo")),
        (errno.ESTALE, ("status", "demo")),
        (errno.EIO, ("status", "demo")),
        (errno.EACCES, ("plan", "demo", *PAIR)),
        (errno.ESTALE, ("table", "demo")),
        (errno.EIO, ("effects", "demo")),
        (errno.ESTALE, ("prune",)),
    ],
)
def test_the_trial_is_named_and_the_others_are_shown(
    number: int, words: tuple[str, ...], pair: Home, commands: Commands
) -> None:
    """What reads a folder tells the numbers apart in one place, so each verb meets one of them."""
    closed = closed_by(number, pair)
    ended = commands(*words, runs=pair.path, fault=closed)
    assert "Traceback" not in ended.stderr
    said = ended.stdout + ended.stderr
    assert ended.returncode == (3 if words[0] == "status" else 0), said
    if words[0] in ("status", "plan"):
        assert "1 done, 1 unreadable" in said
    if words[0] == "status":
        assert f"{closed.below}; ask the owner for read access" in said
    if words[0] == "table":
        assert "1 trial unreadable" in said


@pytest.mark.parametrize("number", [errno.EACCES, errno.ESTALE])
def test_run_waits_for_it_then_calls_it_a_fault_of_the_storage(number: int, pair: Home, commands: Commands) -> None:
    closed = closed_by(number, pair)
    words = ("run", "demo", *PAIR, "--set", "reliability.folder_seconds=0.5", "--here", "--mlflow-uri", "")
    ended = commands(*words, runs=pair.path, fault=closed)
    assert ended.returncode == 3, ended.stderr
    assert f"storage: {os.strerror(closed.number)}: {closed.below}" in ended.stderr
    assert "2 trials: 1 done, 1 unreadable" in ended.stderr
    found = json.loads(commands("status", "demo", "--json", runs=pair.path, fault=closed).stdout)
    assert list(found["unreadable"]) == [closed.below.name]


def test_the_end_of_a_failed_trials_attempt_costs_no_other_trial(pair: Home, commands: Commands) -> None:
    failed = pair.trials()[0]
    for path in (failed.done, failed.record):
        path.unlink()
    failed.error.write_text("it failed")
    end = failed.attempts()[0].end
    ended = commands("status", "demo", runs=pair.path, fault=Fault(end, Call.STAT, errno.ESTALE))
    assert "1 done, 1 failed" in ended.stdout, ended.stderr


def test_a_disk_that_fails_below_all_trials_is_one_message(pair: Home, commands: Commands) -> None:
    grids = pair.path / "grids"
    ended = commands("status", "demo", runs=pair.path, fault=Fault(grids, Call.STAT | Call.LIST, errno.EIO))
    assert ended.returncode == 3
    assert (
        ended.stderr
        == f"error: Input/output error: {grids}. Fix the disk problem, then run the same command again to continue.\n"
    )
    assert commands("status", "demo", runs=pair.path).returncode == 0


def test_records_that_cannot_be_read_leave_tables_and_plan(pair: Home, commands: Commands) -> None:
    fault = Fault(pair.trials_folder, Call.READ, errno.EIO)
    planned = commands("plan", "demo", *PAIR, runs=pair.path, fault=fault)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "2 x done" in planned.stdout


def test_a_trials_folder_that_is_a_link_to_itself_is_unreadable(pair: Home, commands: Commands) -> None:
    folder = pair.trials()[0].path
    shutil.rmtree(folder)
    folder.symlink_to(folder)
    ended = commands("status", "demo", runs=pair.path)
    assert (ended.returncode, ended.stderr) == (3, "")
    assert "1 done, 1 unreadable" in ended.stdout


def test_a_full_disk_below_mlflow_is_a_warning_without_a_traceback(pair: Home, commands: Commands) -> None:
    grid = str(pair.grid("demo").grid)
    assert "copying 2 trials" in commands("run", grid, "--here", runs=pair.path).stderr
    pair.grid("demo").mirrored.unlink()
    pair.trials()[0].done.write_text("retrained\n")
    ended = commands("run", grid, "--here", runs=pair.path, fault=Fault(pair.mlflow, Call.CREATE, errno.ENOSPC))
    assert ended.returncode == 0
    assert "MLflow at" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("after", range(6))
def test_prune_takes_no_trial_of_a_grid_whose_list_cannot_be_read_any_more(
    after: int, pair: Home, commands: Commands
) -> None:
    for folder in pair.trials():
        folder.done.unlink()  # a trial that is not done is taken unless a grid names it
    ended = commands("prune", "--yes", runs=pair.path, fault=Fault(pair.path / "grids", Call.READ, errno.ESTALE, after))
    assert "Traceback" not in ended.stderr
    assert len(pair.trials()) == 2, ended.stdout


def test_an_attempt_that_cannot_remove_what_was_half_written_has_ended(pair: Home, commands: Commands) -> None:
    folder = pair.trials()[0]
    folder.done.unlink()
    (folder.path / HALF).touch()
    fault = Fault(folder.path / HALF, Call.UNLINK, errno.ESTALE)
    words = ("run", "demo", *PAIR, "--here", "--mlflow-uri", "")
    ended = commands(*words, runs=pair.path, fault=fault)
    assert ended.returncode == 4, ended.stderr
    assert "1 x storage" in ended.stderr
    assert commands(*words, runs=pair.path).returncode == 0


def test_an_attempt_begins_though_what_was_written_beside_its_lease_cannot_be_removed(
    pair: Home, commands: Commands
) -> None:
    folder = pair.trials()[0]
    folder.done.unlink()
    fault = Fault(folder.attempts_folder, Call.UNLINK, errno.EROFS, lasting=False, inside=True)
    ended = commands("run", "demo", *PAIR, "--here", "--mlflow-uri", "", runs=pair.path, fault=fault)
    assert ended.returncode == 0, ended.stderr
    assert "2 done" in ended.stderr
