"""Prune: it shows, asks, removes what nobody names, and never what is in use or out of the runs folder."""

import json
import os
import time
from pathlib import Path

import pytest

from goalgrid.planning import prune
from grid.errors import UserError
from grid.store.failures import Failure
from grid.store.home import Home

from ...states import attempt, fail
from ..conftest import Verb

OLD = time.time() - 2 * prune.OLD


@pytest.fixture
def littered(pair: Home) -> Home:
    """Beside two trials of a grid: one that no grid names, and every kind of rubbish."""
    fail(pair.trial("stranger"), Failure.BUG, "wrong")
    kept = pair.trials()[0]
    (kept.path / "last.corrupt").write_bytes(b"x" * 1000)
    for name, when in ((".record.parquet.abc", OLD), (".history.jsonl.def", time.time())):
        (kept.path / name).write_text("half")
        os.utime(kept.path / name, (when, when))
    pair.stop_request("gone").parent.mkdir()
    pair.stop_request("gone").write_text("")
    (pair.path / "trials" / ".other.removed-1").mkdir()
    (pair.replaced / "some-trial-20260101").mkdir(parents=True)
    (pair.replaced / "some-trial-20260101" / "best.ckpt").write_bytes(b"x" * 5000)
    return pair


def found(home: Home) -> dict[str, str]:
    return {item.path.name: item.what for item in prune.rubbish(home).items}


RUBBISH = {
    "stranger": "trial",
    "last.corrupt": "corrupt",
    ".record.parquet.abc": "half-written",
    "gone.stop": "stop request",
    "some-trial-20260101": "replaced",
    ".other.removed-1": "half-removed",
}


def test_it_finds_what_nobody_names_and_nothing_else(littered: Home) -> None:
    assert found(littered) == RUBBISH


def test_it_shows_each_with_its_state_and_size_and_the_total(littered: Home, verb: Verb) -> None:
    told = json.loads(verb("prune", "--json", runs=littered).stdout)
    by_name = {Path(item["path"]).name: item for item in told["items"]}
    assert by_name["stranger"]["detail"] == "failed"
    assert by_name["some-trial-20260101"]["bytes"] == 5000
    assert told["bytes"] == sum(item["bytes"] for item in told["items"])
    assert found(littered) == RUBBISH


def test_yes_removes_it_and_leaves_the_grid_whole(littered: Home, verb: Verb) -> None:
    before = {path for folder in littered.trials() for path in folder.path.rglob("*") if folder.done.exists()}
    removed = verb("prune", "--yes", runs=littered)
    assert "removed: 6 of 6" in removed.stderr
    assert found(littered) == {}
    gone = {path.name for path in before if not path.exists()}
    assert gone == {"last.corrupt", ".record.parquet.abc"}
    assert verb("status", "demo", runs=littered).exit_code == 0


def test_without_a_terminal_and_without_yes_it_refuses(littered: Home, verb: Verb) -> None:
    with pytest.raises(UserError, match="goalgrid prune --yes"):
        verb("prune", runs=littered)
    assert found(littered) == RUBBISH


def test_a_trial_that_is_being_trained_is_left_with_the_reason(littered: Home, verb: Verb) -> None:
    attempt(littered.trial("stranger"))
    littered.stop_request("a-launch").write_text("")
    assert "left: trials/stranger: it is being trained" in verb("prune", "--yes", runs=littered).stdout
    assert littered.trial("stranger").path.exists()
    assert littered.stop_request("a-launch").exists()


def test_an_attempt_that_begins_after_it_looked_is_left_alone(littered: Home) -> None:
    looked = prune.rubbish(littered)
    attempt(littered.trial("stranger"))
    removed = prune.remove(looked)
    assert littered.trial("stranger").latest()
    assert littered.trial("stranger").path in removed.left
    assert len(removed.items) == 5


def test_a_runs_folder_without_a_grid_is_refused(tmp_path: Path, verb: Verb) -> None:
    fail(Home(tmp_path).trial("one"), Failure.BUG, "wrong")
    with pytest.raises(UserError, match="all would go"):
        verb("prune", "--yes", runs=Home(tmp_path))
    assert Home(tmp_path).trial("one").path.exists()


def test_a_grid_that_does_not_say_its_trials_is_refused(littered: Home, verb: Verb) -> None:
    littered.grid("demo").trials.unlink()
    with pytest.raises(UserError, match=r"trials\.txt is missing"):
        verb("prune", "--yes", runs=littered)


def test_no_name_and_no_link_leads_out_of_the_runs_folder(littered: Home, tmp_path: Path, verb: Verb) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "last.corrupt").write_text("mine")
    (littered.path / "trials" / "linked").symlink_to(outside)
    littered.grid("demo").former.write_text("../../outside\n")
    told = verb("prune", "--yes", runs=littered).stdout
    assert "left: trials/linked: it is a link; remove it by hand" in told
    assert (outside / "last.corrupt").exists()
    assert "outside" not in verb("status", "demo", runs=littered).stdout
