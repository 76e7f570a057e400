"""Prune: it shows, asks, removes what nobody names, and never what is in use or out of the runs folder."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import Home
from goalgrid.state import prune

from ...states import attempt, fail
from ..conftest import Verb

OLD = time.time() - 2 * prune.OLD
HALF = f".record.parquet.{'0a1b2c3d' * 4}"


@pytest.fixture
def littered(pair: Home) -> Home:
    """Beside two trials of a grid: one that no grid names, and every kind of rubbish."""
    fail(pair.trial("stranger"), Failure.BUG, "wrong")
    kept = pair.trials()[0]
    (kept.path / "last.corrupt").write_bytes(b"x" * 1000)
    for name, when in ((HALF, OLD), (f".history.jsonl.{'4e5f6071' * 4}", time.time())):
        (kept.path / name).write_text("half")
        os.utime(kept.path / name, (when, when))
    (pair.replaced / "some-trial-20260101").mkdir(parents=True)
    (pair.replaced / "some-trial-20260101" / "best.ckpt").write_bytes(b"x" * 5000)
    for trial in ("stranger", kept.trial_id):
        (pair.features / f"negatives-{trial}-0a1b2c3d4e5f").mkdir(parents=True)
    return pair


def names(home: Home) -> set[str]:
    """What lies in the trash."""
    return {path.name for path in home.trash.glob("*/*")}


def found(home: Home) -> dict[str, str]:
    return {item.path.name: item.what for item in prune.rubbish(home).items}


RUBBISH = {
    "stranger": "trial",
    "last.corrupt": "corrupt",
    HALF: "half-written",
    "some-trial-20260101": "replaced",
    "negatives-stranger-0a1b2c3d4e5f": "candidates",
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
    assert "removed: 5 of 5" in removed.stderr
    assert found(littered) == {}
    assert names(littered) == {"stranger", "some-trial-20260101"}
    gone = {path.name for path in before if not path.exists()}
    assert gone == {"last.corrupt", HALF}
    assert verb("status", "demo", runs=littered).exit_code == 0


def test_without_a_terminal_and_without_yes_it_refuses(littered: Home, verb: Verb) -> None:
    with pytest.raises(UserError, match="goalgrid prune --yes"):
        verb("prune", runs=littered)
    assert found(littered) == RUBBISH


def test_a_trial_that_is_being_trained_is_left_with_the_reason(littered: Home, verb: Verb) -> None:
    attempt(littered.trial("stranger"))
    assert "left: trials/stranger: it is being trained" in verb("prune", "--yes", runs=littered).stdout
    assert littered.trial("stranger").path.exists()


def test_an_attempt_that_begins_after_it_looked_is_left_alone(littered: Home) -> None:
    looked = prune.rubbish(littered)
    attempt(littered.trial("stranger"))
    removed = prune.remove(looked, littered)
    assert littered.trial("stranger").latest()
    assert littered.trial("stranger").path in removed.skipped
    assert len(removed.items) == 4


def test_a_runs_folder_without_a_grid_is_refused(tmp_path: Path, verb: Verb) -> None:
    fail(Home(tmp_path).trial("one"), Failure.BUG, "wrong")
    with pytest.raises(UserError, match="all would be removed"):
        verb("prune", "--yes", runs=Home(tmp_path))
    assert Home(tmp_path).trial("one").path.exists()


def test_a_grid_that_does_not_say_its_trials_is_refused(littered: Home, verb: Verb) -> None:
    trials, whole = littered.grid("demo").trials, littered.grid("demo").trials.read_bytes()
    for damaged in (None, b"", b"\0" * 90, b"\xff\xfe\n", b"\n\n", whole[:-5]):
        trials.unlink() if damaged is None else trials.write_bytes(damaged)
        with pytest.raises(UserError, match=r"trials\.txt is missing or damaged. To rewrite it: goalgrid resume demo"):
            verb("prune", "--yes", "--done", runs=littered)
    assert verb("resume", "demo", "--mlflow-uri", "", runs=littered).exit_code == 0
    assert trials.read_bytes() == whole
    littered.grid("demo").imported.write_bytes(b"half a na")
    with pytest.raises(UserError, match=r"imported\.txt is missing or damaged. .*: goalgrid evaluate FILE --into demo"):
        verb("prune", "--yes", "--done", runs=littered)


def test_no_name_and_no_link_leads_out_of_the_runs_folder(littered: Home, tmp_path: Path, verb: Verb) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "last.corrupt").write_text("mine")
    (littered.path / "trials" / "linked").symlink_to(outside)
    told = verb("prune", "--yes", runs=littered).stdout
    assert "left: trials/linked: it is a link; remove it by hand" in told
    assert (outside / "last.corrupt").exists()


def test_a_finished_trial_is_no_rubbish_unless_that_is_asked_for(pair: Home, verb: Verb) -> None:
    first, second = pair.trials()
    pair.grid("demo").trials.write_text(f"{second.trial_id}\n")
    shutil.copytree(first.path, pair.replaced / "earlier")
    told = verb("prune", "--yes", runs=pair)
    assert "nothing to remove" in told.stdout
    ask = f"goalgrid prune --done --runs {pair.path}"
    assert f"left: 2 finished trials of no grid; to remove finished trials, too: {ask}" in told.stdout
    record = first.record.read_bytes()
    assert "removed: 2 of 2" in verb("prune", "--done", "--yes", runs=pair).stderr
    (kept,) = pair.trash.glob(f"*/{first.trial_id}")
    assert (kept / "record.parquet").read_bytes() == record
    kept.rename(first.path)  # this is how a trial is taken back
    assert verb("table", "demo", runs=pair).exit_code == 0


def test_only_emptying_the_trash_frees_the_disk(littered: Home, verb: Verb) -> None:
    verb("prune", "--yes", runs=littered)
    shown = json.loads(verb("prune", "--empty", "--json", runs=littered).stdout)
    assert {item["what"] for item in shown["items"]} == {"trash"}
    assert shown["bytes"] >= 5000
    with pytest.raises(UserError, match="goalgrid prune --empty --yes --runs"):
        verb("prune", "--empty", runs=littered)
    assert names(littered)
    verb("prune", "--empty", "--yes", runs=littered)
    assert not littered.trash.exists()
    assert len(littered.trials()) == 2
    outside = littered.path.parent / "outside"
    (outside / "when" / "mine").mkdir(parents=True)
    littered.trash.symlink_to(outside)
    assert prune.trash(littered).items == []


def test_the_trials_of_a_grid_are_its_lines_whatever_their_names(littered: Home) -> None:
    """An earlier version took names with blanks."""
    fail(littered.trial("my data_cnn-bow_con_con_s0-0"), Failure.BUG, "wrong")
    with littered.grid("demo").trials.open("a") as trials:
        trials.write("my data_cnn-bow_con_con_s0-0\n")
    assert found(littered) == RUBBISH


def test_sizes_are_in_the_largest_unit_that_they_fill() -> None:
    assert [prune.size(count) for count in (1_500, 2_500_000, 3_000_000_000)] == ["1.5 kB", "2.5 MB", "3.0 GB"]


def test_what_others_made_stays_however_it_is_named(pair: Home, verb: Verb) -> None:
    """An editor's swap file, a project's settings, folders of one's own: hidden, old, or named much like ours."""
    trial = pair.trials()[0].path
    hidden = [
        place / name
        for place in (pair.path, pair.grid("demo").path, trial, trial / "attempts")
        for name in (".env.local", ".pre-commit-config.yaml", ".notes.md.swp", ".record.parquet.abc", ".a.json.tmp")
    ]
    named = [
        trial / "notes" / "last.corrupt", trial / "data.corrupt", pair.grid("demo").path / "last.corrupt",
        pair.features / "negatives-mine" / "rows.npy", pair.trials_folder / "my-analysis" / "plot.py",
        pair.trials_folder / ".merged-by-hand" / "x.txt", pair.trash / "keep" / "me" / "y.txt",
    ]  # fmt: skip
    for path in (*hidden, *named):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine", encoding="utf-8")
        os.utime(path, (OLD, OLD))
        os.utime(path.parent, (OLD, OLD))
    told = verb("prune", "--yes", "--done", runs=pair).stdout
    assert "nothing to remove" in told
    assert "left: trials/my-analysis: it does not contain a trial; remove it by hand" in told
    assert "nothing to remove" in verb("prune", "--yes", "--empty", runs=pair).stdout
    ours = trial / HALF
    ours.write_text("half")
    os.utime(ours, (OLD, OLD))
    assert verb("prune", "--yes", runs=pair).exit_code == 0
    assert not ours.exists()
    (trial / "done").unlink()
    assert verb("resume", "demo", "--here", "--mlflow-uri", "", runs=pair).exit_code == 0
    assert {path: path.read_text() for path in (*hidden, *named)} == dict.fromkeys((*hidden, *named), "mine")
