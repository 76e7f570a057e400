"""A grid whose data change: trials of other data are not shown and do not count as done, and nothing is mixed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home, State
from goalgrid.reports.tables import NothingDone
from goalgrid.results.records import provenance
from goalgrid.retrieval.data.check import check
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.run import run_trial
from goalgrid.runners.trial.stopping import Stop

from .conftest import Verb, grid_state

TINY = (
    "--set", 'recipes=["fc-bow"]', "--set", 'objectives=["con_con"]', "--set", "seeds=[0]", "--set", "train.epochs=2",
    "--set", "train.batch_size=20", "--set", "name=demo", "--set", 'datasets=["few"]', "--mlflow-uri", "", "--here",
)  # fmt: skip


@pytest.fixture
def root(few_pictures: Path, tmp_path: Path) -> Path:
    """A copy of a few real features and captions, to be changed."""
    return Path(shutil.copytree(few_pictures, tmp_path / "few"))


@pytest.fixture
def home(root: Path, tmp_path: Path, verb: Verb) -> Home:
    """A finished trial on these data."""
    home = Home(tmp_path / "runs")
    assert verb("run", "demo", *TINY, "--root", str(root), runs=home).exit_code == 0
    return home


def edit_a_caption(root: Path) -> None:
    path = root / "precomp" / "test_caps.txt"
    path.write_text(path.read_text().replace("a", "o", 1))


def change_a_feature(root: Path) -> None:
    features = np.load(root / "precomp" / "test_ims.npy")
    features[3, 0] += 1
    np.save(root / "precomp" / "test_ims.npy", features)


@pytest.mark.parametrize("change", [edit_a_caption, change_a_feature])
def test_trials_of_other_data_are_left_out_until_they_are_trained_anew(
    change: Callable[[Path], None], home: Home, root: Path, tmp_path: Path, verb: Verb
) -> None:
    again, (before,) = ("run", "demo", *TINY, "--root", str(root)), grid_state(home).trials
    assert verb(*again, runs=home).exit_code == 0
    change(root)
    refused = verb(*again, runs=home)
    assert refused.exit_code == 3
    assert refused.stdout == ""
    assert (
        "trained on data that has changed since; not shown in tables. Retrain with: goalgrid resume demo --stale"
        in (refused.stderr)
    )
    status = verb("status", "demo", runs=home)
    assert status.exit_code == 3
    assert "stale: 1 of 1 done, data: trained on data that changed since: 2:" in status.stdout
    told = verb("plan", "demo", *TINY[:-3], "--root", str(root), runs=home).stdout
    assert "1 x done, stale: data" in told
    assert "costs      nothing without --stale: 1 trial trained on data that has changed since" in told
    for words in (("table", "demo"), ("effects", "demo"), ("figures", "demo", "-o", str(tmp_path / "pictures"))):
        with pytest.raises(NothingDone, match="all 1 trial that are done were trained on data that changed"):
            verb(*words, runs=home)
    assert verb("export", "demo", str(tmp_path / "export"), runs=home).exit_code == 0
    assert len(pd.read_parquet(tmp_path / "export" / "records.parquet")) == 0

    assert verb(*again, "--stale", runs=home).exit_code == 0
    assert verb("table", "demo", runs=home).exit_code == 0
    assert len(list(home.replaced.glob(f"{before.id}-*"))) == 1


def test_other_data_under_another_root_are_other_data(home: Home, root: Path, tmp_path: Path, verb: Verb) -> None:
    other = Path(shutil.copytree(root, tmp_path / "other"))
    assert verb("run", "demo", *TINY, "--root", str(other), runs=home).exit_code == 0, "a copy is the same data"
    edit_a_caption(other)
    assert verb("run", "demo", *TINY, "--root", str(other), runs=home).exit_code == 3
    assert verb("run", "demo", *TINY, "--root", str(root), runs=home).exit_code == 0


def test_without_the_data_on_this_machine_records_are_shown(home: Home, root: Path, verb: Verb) -> None:
    shown = verb("table", "demo", runs=home).stdout
    root.rename(root.with_name("away"))
    assert verb("table", "demo", runs=home).stdout == shown
    assert verb("status", "demo", runs=home).exit_code == 0


def spoil(root: Path) -> None:
    features = np.load(root / "precomp" / "train_ims.npy")
    features[5] = np.nan
    np.save(root / "precomp" / "train_ims.npy", features)


def remove_all(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (spoil, r"train_ims\.npy: row 5 contains NaN"),
        (remove_all, "no train_ims.npy under"),
        (shutil.rmtree, "no folder"),
    ],
)
def test_data_that_cannot_be_read_are_an_error_of_plan_and_run(
    damage: Callable[[Path], None], said: str, home: Home, root: Path, verb: Verb
) -> None:
    damage(root)
    for words in (("plan", "demo", *TINY[:-3]), ("run", "demo", *TINY)):
        with pytest.raises(UserError, match=said):
            verb(*words, "--root", str(root), runs=home)


def test_status_says_that_data_cannot_be_compared(home: Home, root: Path, verb: Verb) -> None:
    spoil(root)
    assert "data of few cannot be compared: " in verb("status", "demo", runs=home).stdout


def test_plan_counts_the_steps_of_the_data_here(root: Path, tmp_path: Path, verb: Verb) -> None:
    small = (*TINY[:10], "--set", 'datasets=["few"]', "--root", str(root))
    told = json.loads(verb("plan", "demo", *small, "--json", runs=Home(tmp_path / "runs")).stdout)
    assert [work["steps"] for work in told["work"]] == [40 * 5 // 20]


@pytest.mark.parametrize("what", ["data", "code"])
def test_a_trial_that_stopped_on_other_data_or_code_starts_anew(
    what: str, root: Path, home: Home, tmp_path: Path
) -> None:
    (trial,) = grid_state(home).trials
    machine, folder, stop = Machine(roots=(("few", str(root)),)), Home(tmp_path / "cut").trial(trial.id), Stop()

    def stop_after_an_epoch(event: object) -> None:
        if getattr(event, "kind", "") == "epoch":
            stop.ask()

    assert run_trial(trial.settings, folder, stop_after_an_epoch, machine, stop=stop) is State.INTERRUPTED
    if what == "data":
        change_a_feature(root)
        edit_a_caption(root)
    else:
        forget_the_code(folder.last_checkpoint)
    said: list[str] = []
    state = run_trial(trial.settings, folder, lambda event: said.append(event.message), machine, launch="two")
    assert state is State.DONE
    (kept,) = (tmp_path / "cut" / "replaced").iterdir()
    assert sorted(path.name for path in kept.iterdir()) == ["best.ckpt", "history.jsonl", "last.ckpt"]
    (told,) = [message for message in said if "starts from scratch" in message]
    assert f"other {what} (" in told
    assert str(kept) in told
    assert "starts from scratch" in folder.attempts()[-1].log.read_text()
    fresh = Home(tmp_path / "fresh").trial(trial.id)
    assert run_trial(trial.settings, fresh, lambda event: None, machine) is State.DONE
    ours, theirs = (pd.read_parquet(found.record) for found in (folder, fresh))
    columns = [name for name in ours if name.startswith(("val_", "test_", "selected", "data_"))]
    assert ours[columns].astype(str).equals(theirs[columns].astype(str))


def forget_the_code(path: Path) -> None:
    """Write into a checkpoint that other code made it."""
    import torch

    from goalgrid.runners.training import checkpoints

    content = checkpoints.load(path, torch.device("cpu"))
    content["sources"]["code"] = provenance.versioned("other")
    checkpoints.save(path, content)


def leak(root: Path) -> None:
    """Let a test image stand in the training split too, and leave a caption blank."""
    folder = root / "precomp"
    ids = (folder / "test_ids.txt").read_text().splitlines()
    train = (folder / "train_ids.txt").read_text().splitlines()
    (folder / "train_ids.txt").write_text("\n".join([ids[0], *train[1:]]) + "\n")
    captions = (folder / "train_caps.txt").read_text().splitlines()
    (folder / "train_caps.txt").write_text("\n".join(["", *captions[1:]]) + "\n")


def test_a_leak_into_test_is_refused_unless_allowed_and_then_recorded(root: Path, tmp_path: Path, verb: Verb) -> None:
    leak(root)
    home, words = Home(tmp_path / "runs"), ("run", "demo", *TINY, "--root", str(root))
    with pytest.raises(UserError, match=r"train and test share 1 image id.*--allow-leak"):
        verb(*words, runs=home)
    allowed = verb(*words, "--allow-leak", runs=home)
    assert allowed.exit_code == 0
    assert "warning: " in allowed.stderr
    assert "1 caption is empty: number 1" in allowed.stderr
    (trial,) = grid_state(home).trials
    (environment,) = pd.read_parquet(home.trial(trial.id).record)["environment"]
    blank, leaked = sorted(json.loads(environment)["data_problems"], key=len)
    assert "1 caption is empty" in blank
    assert "train and test share 1 image id" in leaked


def test_an_allowed_leak_is_in_the_caption_of_every_table(root: Path, tmp_path: Path, verb: Verb) -> None:
    for path in (root / "precomp").glob("dev_*"):
        shutil.copy(path, path.with_name(path.name.replace("dev", "test")))
    home, words = Home(tmp_path / "runs"), ("run", "demo", *TINY, "--root", str(root))
    with pytest.raises(UserError, match=r"val and test share 12 images.*train.selection = \"last\".*--allow-leak"):
        verb(*words, runs=home)
    said = "Trained with --allow-leak: val and test share 12 images (few)."
    assert said in " ".join(verb(*words, "--allow-leak", runs=home).stdout.split())
    for form in ("markdown", "html"):
        assert said in verb("table", "demo", "--format", form, runs=home).stdout, form
    assert said.replace("--", "-{}-") in verb("table", "demo", "--format", "latex", runs=home).stdout
    (trial,) = grid_state(home).trials
    (environment,) = pd.read_parquet(home.trial(trial.id).record)["environment"]
    assert {kind for kind, _ in json.loads(environment)["leaks"]} == {"tested validation"}


def test_zeros_and_files_that_are_not_read_are_said_by_plan_and_run(root: Path, tmp_path: Path, verb: Verb) -> None:
    folder, home = root / "precomp", Home(tmp_path / "runs")
    array = np.load(folder / "train_ims.npy")
    array[[3, 8]] = 0
    np.save(folder / "train_ims.npy", array)
    for path in folder.glob("test_*"):
        shutil.copy(path, path.with_name(path.name.replace("test", "testall")))
    zeros, unread = (
        f"{folder}/train_ims.npy: rows 3, 8 contain zeros only",
        f"{folder}/testall_*: these files are not read",
    )
    planned = verb("plan", "demo", *TINY[:-3], "--root", str(root), runs=home).stdout
    launched = verb("run", "demo", *TINY, "--root", str(root), runs=home).stderr
    checked = check("few", root).lines()
    for said, words in ((zeros, ("- ", "warning: ")), (unread, ("note: ", "note: "))):
        assert any(line.startswith(f"{words[0]}{said}") for line in checked)
        assert f"{words[1]}{said}" in launched
        assert said in planned


def test_a_part_of_an_official_split_is_said_in_plan_launch_record_and_paper_table(tmp_path: Path, verb: Verb) -> None:
    root, home = tmp_path / "f30k", Home(tmp_path / "runs")
    root.mkdir()
    for split, count in {"train": 40, "dev": 1014, "test": 1000}.items():
        np.save(root / f"{split}_ims.npy", np.random.default_rng(count).random((count, 2, 4), np.float32))
        captions = [f"{split} {row} a dog {row % 7}" for row in range(5 * count)]
        (root / f"{split}_caps.txt").write_text("\n".join(captions) + "\n")
    words = ["selhn-table1", "--root", str(root), "--only", "recipe=vse-fc objective=selhn seed=0"]
    words += ["--set", "train.epochs=1", "--set", "model.dim=4", "--set", "train.batch_size=20"]
    part = "40 images with 200 captions; officially 29,000 with 145,000"
    assert f"train split of 'flickr30k': {part}\n" in verb("plan", *words, runs=home).stdout
    launched = verb("run", *words, "--mlflow-uri", "", "--here", runs=home)
    assert f"warning: train split of 'flickr30k': {part}\n" in launched.stderr
    assert launched.stderr.count("officially") == 1, "the other splits are whole"
    table = verb("table", "--paper", "selhn-table1", "--format", "csv", runs=home).stdout
    assert f"train split: {part}" in table


def test_other_words_in_a_vocabulary_of_the_same_name_are_other_data(root: Path, tmp_path: Path, verb: Verb) -> None:
    images = json.loads((root / "dataset.json").read_text())["images"]
    used = {word for image in images for sentence in image["sentences"] for word in sentence["tokens"]}
    words = {word: index for index, word in enumerate(["<pad>", "<start>", "<end>", "<unk>", *sorted(used)])}
    file, home = root / "peer.json", Home(tmp_path / "runs")
    file.write_text(json.dumps({"word2idx": words}))
    grid = (*TINY, "--set", "dataset.vocabulary=peer.json", "--root", str(root))
    assert verb("run", "demo", *grid, runs=home).exit_code == 0
    assert verb("run", "demo", *grid, runs=home).exit_code == 0
    file.write_text(json.dumps({"word2idx": {**words, "submarine": len(words)}}))
    refused = verb("run", "demo", *grid, runs=home)
    assert refused.exit_code == 3
    assert "data that has changed since" in refused.stderr
