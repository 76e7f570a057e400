"""Status: what failed and what helps, what runs and how far, what is stale, what left the grid."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from goalgrid.cli.next_steps import shell, worded
from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.files import write_json_lines
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.grid.store.saved_grid import save_grid
from goalgrid.results.records import record
from goalgrid.results.records.provenance import versioned
from goalgrid.runners.trial.retries import POLICY
from goalgrid.state import status, status_lines
from goalgrid.state.grid_state import GridState, NothingDone

from ...conftest import SMALL
from ...states import attempt, fail, interrupt
from ..conftest import PAIR, Verb, grid_state

SEEDS = [word for word in PAIR if word != "--set" and not word.startswith("seeds")]


def planned(home: Home, seeds: int) -> GridState:
    """The grid of the two trials with so many seeds, saved but not run."""
    grid = load("demo", [*SEEDS, f"seeds={list(range(seeds))}"])
    found = GridState.of(grid, home)
    save_grid(grid, found.trials, home)
    return GridState.of(grid, home)


def test_failures_are_grouped_by_class_then_by_message(tmp_path: Path) -> None:
    found = planned(Home(tmp_path), seeds=3)
    messages = ["no memory for 400 bytes", "no memory for 512 bytes", "the GPU is full"]
    for trial, message in zip(found.trials, messages, strict=False):
        fail(found.folder(trial), Failure.OUT_OF_MEMORY, message)
    fail(found.folder(found.trials[0]), Failure.OUT_OF_MEMORY, messages[0])
    fail(found.folder(found.trials[3]), Failure.NON_FINITE, "the loss became nan")
    lines = [worded(note) for note in status_lines.failure_lines(grid_state(Home(tmp_path)))]
    heads = [line for line in lines if line.startswith("failed: ")]
    assert [head.split(". ")[0] for head in heads] == [
        "failed: 3 x out-of-memory (4 attempts)",
        "failed: 1 x non-finite (1 attempt)",
    ]
    assert POLICY[Failure.NON_FINITE].advice[1:] in heads[1]
    assert [line.strip() for line in lines if " x " in line and line not in heads] == [
        "2 x no memory for 400 bytes",
        "1 x the GPU is full",
        "1 x the loss became nan",
    ]
    logs = [Path(line.split()[1]) for line in lines if "log:" in line]
    assert logs[0] == found.folder(found.trials[0]).attempts_folder / "002.log"
    assert all(log.exists() for log in logs)


def test_faulty_data_are_checked_by_a_command_with_their_name_and_folder(tmp_path: Path) -> None:
    grid = load("flickr8k", ["seeds=0", "objectives=con_con"], roots=[str(tmp_path / "my photos")])
    found = GridState.of(grid, Home(tmp_path))
    save_grid(grid, found.trials, found.home)
    fail(found.folder(found.trials[0]), Failure.DATA, "no such picture")
    (head, *_) = status_lines.failure_lines(GridState.of(grid, found.home))
    assert worded(head).endswith(f"goalgrid data check flickr8k --root '{tmp_path}/my photos'.")


def test_the_command_that_is_named_runs_one_failed_trial_alone(pair: Home, verb: Verb) -> None:
    folder = pair.trials()[0]
    fail(folder, Failure.KILLED, "its process is gone")
    (alike,) = status.failures(grid_state(pair))
    words = shell(alike.alone).split("'")
    assert words[0] == "goalgrid resume demo --only "
    assert words[2] == f" --here --runs {pair.path}"
    finished = verb("resume", "demo", "--only", words[1], "--here", "--mlflow-uri", "", runs=pair)
    assert "training 1" in finished.stderr
    assert folder.done.exists()


def test_a_filter_selects_by_failure_and_by_state(tmp_path: Path) -> None:
    found = planned(Home(tmp_path), seeds=3)
    fail(found.folder(found.trials[0]), Failure.OUT_OF_MEMORY, "full")
    fail(found.folder(found.trials[1]), Failure.BUG, "wrong")
    interrupt(found.folder(found.trials[2]), epoch=0, step=3)
    after = grid_state(Home(tmp_path))
    assert after.selected("failure=out-of-memory") == [found.trials[0]]
    assert after.selected("failure=*") == found.trials[:2]
    assert after.selected("state=interrupted") == [found.trials[2]]
    with pytest.raises(UserError, match="names none"):
        after.selected("failure=killed")


def test_running_trials_are_told_in_a_line_a_host(tmp_path: Path) -> None:
    found = planned(Home(tmp_path), seeds=3)
    for place, trial in enumerate(found.trials):
        elsewhere = {"machine": "other", "host": "node-2"} if place > 3 else {"host": "node-1"}
        attempt(found.folder(trial), step=10 * place, **elsewhere)
    lines = status_lines.running_lines(grid_state(Home(tmp_path)))
    assert lines == ["running: 4 (node-1: step 0, 10, 20, 30 of 20)", "running: 2 (node-2: step 40, 50 of 20)"]
    told = status.to_dict(grid_state(Home(tmp_path)))["running"]
    assert told[1] == {
        "trial": found.trials[1].id, "host": "node-1", "step": 10, "steps": 20, "epoch": 0, "epochs": 2,
    }  # fmt: skip


def test_many_running_trials_are_told_by_their_range(tmp_path: Path) -> None:
    found = planned(Home(tmp_path), seeds=3)
    for place, trial in enumerate(found.trials):
        attempt(found.folder(trial), step=place, host="node")
    assert status_lines.running_lines(grid_state(Home(tmp_path))) == ["running: 6 (node: step 0 to 5 of 20)"]


def test_json_carries_everything(pair: Home, verb: Verb) -> None:
    fail(pair.trials()[0], Failure.BUG, "wrong")
    finished = verb("status", "demo", "--json", runs=pair)
    told = json.loads(finished.stdout)
    assert finished.exit_code == 4
    (failed,) = told["failed"]
    assert (failed["class"], failed["message"], failed["attempts"]) == ("bug", "wrong", 2)
    assert failed["trials"] == [pair.trials()[0].trial_id]
    assert failed["alone"].startswith("goalgrid resume demo")
    assert set(told) >= {"states", "running", "collapsed", "stale", "left"}


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"\xff\xfe{}", b'{"epoch": 1, "st', b"[1]\n7\n{}"])
def test_a_damaged_history_of_an_unfinished_trial_ends_no_command(damage: bytes, pair: Home, verb: Verb) -> None:
    folder = pair.trials()[0]
    interrupt(folder, epoch=1, step=25)
    folder.history.write_bytes(damage)
    assert verb("status", "demo", runs=pair).exit_code == 3
    assert "1 x interrupted" in verb("plan", "demo", *PAIR, runs=pair).stdout


def test_a_record_that_cannot_be_read_costs_its_own_trial(pair: Home, verb: Verb) -> None:
    damaged, whole = pair.trials()[:2]
    damaged.record.write_bytes(damaged.record.read_bytes()[:-100])
    told = verb("status", "demo", runs=pair)
    assert told.exit_code == 3
    assert (
        f"stale: 1 of 2 done, record: the record {damaged.record} cannot be read: its checksum is wrong" in told.stdout
    )
    assert "retrain them: goalgrid resume demo --stale" in told.stdout
    shown = verb("table", "demo", runs=pair)
    assert f"left out: the record {damaged.record} cannot be read" in shown.stderr
    assert "1 of 2 cells are missing (--): 1 trial with a record" in shown.stdout
    anew = verb("run", "demo", *PAIR, "--stale", "--here", "--mlflow-uri", "", runs=pair)
    assert anew.exit_code == 0
    assert "training 1, 1 of them from scratch" in anew.stderr
    assert whole.done.exists()


def test_a_trial_at_chance_level_is_collapsed_and_a_trial_that_learns_is_not(pair: Home, verb: Verb) -> None:
    first, second = pair.trials()
    change(first, val_rsum=12.8)  # 2 x (1 + 5 + 10) of 250 images, in percent: chance's own mean
    change(second, val_rsum=230.0)
    told = verb("status", "demo", runs=pair).stdout
    assert "collapsed: 1 of 2 done perform at chance level on the validation split, where chance reaches" in told
    assert f" an rsum of up to 22: {first.trial_id}\n" in told
    assert told.count("collapsed") == 1
    rows = list(second.rows())
    write_json_lines(second.history, [*rows[:-1], {**rows[-1], "val_chance": 600.0}])
    told = verb("status", "demo", runs=pair).stdout
    assert "chance reaches an rsum of up to 600, the maximum: use more validation images: " in told


def test_what_a_grid_cannot_show_is_said_with_the_reason_and_no_command_that_would_fail(pair: Home, verb: Verb) -> None:
    first = pair.trials()[0].trial_id
    with pytest.raises(UserError, match=r"Trials with attention: none; [^ ]+ .*") as told:
        verb("figures", "demo", "attention", runs=pair)
    with pytest.raises(UserError) as of_one:
        verb("figures", "demo", "attention", "--trial", first, runs=pair)
    assert str(of_one.value).partition(" Trials with")[0].partition(" ")[2].rstrip(".") in str(told.value)
    with pytest.raises(UserError, match=r"To add it to \[evaluate\]: .*evaluate\.datasets=\[\"flickr30k\"\]"):
        verb("table", "demo", "--on", "flickr30k", runs=pair)
    with pytest.raises(UserError, match=r"trains on 'shapes', which is shown by default; leave this option out"):
        verb("table", "demo", "--on", "shapes", runs=pair)
    with pytest.raises(UserError) as unknown:
        verb("table", "demo", "--on", "flickr9k", runs=pair)
    assert "To add it" not in str(unknown.value)


def test_a_table_says_where_all_trials_failed_or_no_record_can_be_read(pair: Home, verb: Verb) -> None:
    for folder in pair.trials():
        folder.record.write_bytes(b"PAR1 cut off")
    with pytest.raises(NothingDone, match=r"no record can be read \(2 trials: 2 done\)\. For.* goalgrid status demo"):
        verb("table", "demo", runs=pair)
    for folder in pair.trials():
        fail(folder, Failure.NON_FINITE, "the loss became nan")
    with pytest.raises(NothingDone, match=r"no trial is done \(2 trials: 2 failed\)\. For.* goalgrid status demo"):
        verb("table", "demo", runs=pair)


def test_a_trial_that_has_learnt_nothing_is_collapsed(tmp_path: Path, verb: Verb) -> None:
    home = Home(tmp_path)
    still = ("--set", 'objectives=["con_con"]', "--set", "seeds=[0]", *SMALL, "--set", "train.lr=1e-12")
    ran = verb("run", "demo", *still, "--here", "--mlflow-uri", "", runs=home)
    (lost,) = grid_state(home).trials
    assert list(status.collapsed(grid_state(home))) == [lost.id]
    assert "collapsed: 1 of 1 done perform at chance level" in ran.stderr
    way_out = (
        "  may help: warm up with all negatives, as the hardest may collapse all embeddings: train.warmup_epochs = 1"
    )
    lines = ran.stderr.splitlines()
    named = next(place for place, line in enumerate(lines) if line.endswith(lost.id))
    assert lines[named + 1].startswith("  may help: more images: shapes trains on ")
    assert lines[named + 2 : named + 4] == [way_out, "  may help: another learning rate: train.lr"]


def change(folder: TrialFolder, **columns: str | float) -> None:
    """Write other values into a record."""
    (row,) = pq.ParquetFile(folder.record).read().to_pylist()
    record.write(folder.record, row | columns)


def test_stale_trials_are_named_by_what_changed(pair: Home, verb: Verb) -> None:
    first, second = pair.trials()
    old = json.dumps({"versions": {"torch": "1.0"}, "python": "3.0"})
    change(first, code_fingerprint=versioned("other"), environment=old)
    by_run = "1 trial trained with older code; old results kept. Retrain with: goalgrid resume demo --stale"
    assert any(worded(note).startswith(by_run) for note in status_lines.ended(grid_state(pair)))
    change(second, data_fingerprint="2:other")
    told = verb("status", "demo", runs=pair).stdout
    assert "stale: 1 of 2 done, trained with older code" in told
    assert "stale: 1 of 2 done, environment: torch 1.0 -> " in told
    assert "note: 1 done with other versions, without effect on results: python 3.0 -> " in told
    assert "stale: 1 of 2 done, data: trained on data that changed since: 2:other -> " in told
    assert "retrain them: goalgrid resume demo --stale" in told
    (ids,) = json.loads(verb("status", "demo", "--json", runs=pair).stdout)["stale"]["code"].values()
    assert ids == [first.trial_id]


def test_a_record_from_before_says_that_the_way_of_telling_changed(pair: Home, verb: Verb) -> None:
    change(pair.trials()[0], code_fingerprint="0123456789abcdef")
    told = verb("status", "demo", runs=pair).stdout
    assert "stale: 1 of 2 done, recorded by a version that compared code differently" in told


def test_what_was_just_trained_is_not_stale(pair: Home) -> None:
    assert grid_state(pair).stale == {}


def test_without_a_grid_all_grids_that_ran_are_listed(pair: Home, tmp_path: Path, verb: Verb) -> None:
    save_grid(load("demo", ["name='other'", "seeds=[5]"]), GridState.of(load("demo", ["seeds=[5]"]), pair).trials, pair)
    told = verb("status", runs=pair)
    assert told.exit_code == 0
    lines = told.stdout.splitlines()
    assert lines[:2] == ["demo: 2 trials: 2 done", "other: 15 trials: 15 planned"]
    assert lines[2] == f"details of one grid: goalgrid status GRID --runs {pair.path}"
    content = json.loads(verb("status", "--json", runs=pair).stdout)
    assert {name: {s: n for s, n in states.items() if n} for name, states in content.items()} == {
        "demo": {"done": 2},
        "other": {"planned": 15},
    }
    empty = verb("status", runs=Home(tmp_path / "none")).stdout
    assert (
        empty
        == f"no grid has run under {tmp_path / 'none'} yet. Start one: goalgrid run demo --runs {tmp_path / 'none'}\n"
    )


def test_a_finished_run_ends_with_its_files_and_the_next_commands(pair: Home, verb: Verb) -> None:
    *_, written, report, table, figures = verb(
        "run", "demo", *PAIR, "--here", "--mlflow-uri", "", runs=pair
    ).stderr.splitlines()
    folder = pair.grid("demo")
    assert written == f"written: {folder.tables} (Parquet, LaTeX, Markdown, ...) and {folder.results}. Next:"
    assert folder.results.exists()
    assert {path.suffix for path in folder.tables.iterdir()} >= {".parquet", ".tex", ".md"}
    for line, command in ((report, "report demo"), (figures, "figures demo")):
        assert line.startswith(f"  goalgrid {command} --runs {pair.path} ")
    assert table.startswith(f"  goalgrid table demo --runs {pair.path} --output table.tex ")
