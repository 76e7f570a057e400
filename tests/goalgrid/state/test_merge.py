"""Merge: finished trials of another runs folder are verified, copied whole, and never put over ours."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.files import is_aside
from goalgrid.grid.store.home import Home, State
from goalgrid.results.records import provenance, record
from goalgrid.runners.training import checkpoints
from goalgrid.state import merge

from ...conftest import swapped
from ...states import attempt, interrupt
from ..conftest import Verb
from ..processes import forked


@pytest.fixture
def here(tmp_path: Path) -> Home:
    return Home(tmp_path / "here")


def outcomes(verb: Verb, other: Home, home: Home, *words: str) -> dict[str, str]:
    """The outcome and the reason of each trial by its objective."""
    given = json.loads(verb("merge", str(other.path), *words, "--json", runs=home).stdout)
    return {entry["trial"].split("_s0")[0].removeprefix("shapes_cnn-bow_"): _said(entry) for entry in given}


def _said(entry: dict[str, str]) -> str:
    return f"{entry['outcome']}: {entry['why']}" if entry["why"] else entry["outcome"]


def files(home: Home) -> dict[str, bytes]:
    return {str(path.relative_to(home.path)): path.read_bytes() for path in home.path.rglob("*") if path.is_file()}


def test_a_merge_takes_each_trial_once_and_status_says_from_where(pair: Home, here: Home, verb: Verb) -> None:
    before = files(pair)
    assert outcomes(verb, pair, here, "--dry-run") == {"con_con": "taken", "sig-ms_cir": "taken"}
    assert not here.path.exists()
    assert outcomes(verb, pair, here) == {"con_con": "taken", "sig-ms_cir": "taken"}
    status = verb("status", "demo", runs=here)
    assert "demo: 2 trials: 2 done" in status.stdout
    assert f"merged: 2 trials from {pair.path}" in status.stdout
    assert "stale" not in status.stdout
    taken = files(here)
    assert outcomes(verb, pair, here) == {"con_con": "same", "sig-ms_cir": "same"}
    assert files(here) == taken
    assert files(pair) == before
    assert verb("table", "demo", runs=here).stdout == verb("table", "demo", runs=pair).stdout


@pytest.mark.parametrize("name", ["record.parquet", "settings.json", "history.jsonl", "best.ckpt", "environment.json"])
def test_a_tampered_trial_is_refused(pair: Home, here: Home, verb: Verb, name: str) -> None:
    path = pair.trials()[0].path / name
    content = path.read_bytes()
    place = content.index(b"1", len(content) // 3)
    path.write_bytes(content[:place] + b"2" + content[place + 1 :])
    found = outcomes(verb, pair, here)
    wrong = "checksum is wrong" if name in ("record.parquet", "best.ckpt") else "disagrees with its record"
    assert found["con_con"].startswith("refused: ")
    assert wrong in found["con_con"]
    assert found["sig-ms_cir"] == "taken"
    assert [folder.trial_id for folder in here.trials()] == [pair.trials()[1].trial_id]


def test_a_trial_with_other_words_or_with_weights_of_another_epoch_is_refused(
    pair: Home, here: Home, verb: Verb
) -> None:
    first, second = pair.trials()
    content = first.vocabulary.read_bytes()
    first.vocabulary.write_bytes(content.replace(b'"the"', b'"tha"'))
    held = checkpoints.load(second.best_checkpoint, torch.device("cpu"))
    checkpoints.save(second.best_checkpoint, {**held, "row": {**held["row"], "epoch": 7}})
    found = outcomes(verb, pair, here, "--dry-run")
    assert f"{first.vocabulary} does not match the record of the trial: its digest is" in found["con_con"]
    assert f"{second.best_checkpoint} does not match the record of the trial: it holds epoch 7" in found["sig-ms_cir"]
    checkpoints.save(second.best_checkpoint, {name: held[name] for name in held if name != "row"})
    found = outcomes(verb, pair, here, "--dry-run")
    assert (
        f"{second.best_checkpoint} does not match the record of the trial: it is a checkpoint for resuming"
        in found["sig-ms_cir"]
    )


def test_a_trial_whose_record_notes_more_of_its_data_is_taken(pair: Home, here: Home, verb: Verb) -> None:
    """Offline negatives, or how many validation images select: known once the data are read."""
    first = pair.trials()[0]
    (row,) = record.collect([first.record]).to_pylist()
    noted = json.loads(row["environment"]) | {"negatives": "abc", "validation_images_that_select": 50}
    record.write(first.record, row | {"environment": json.dumps(noted)})
    assert outcomes(verb, pair, here, "--dry-run")["con_con"] == "taken"


def test_other_code_other_data_and_another_identity_are_refused(pair: Home, here: Home, verb: Verb) -> None:
    first, second = pair.trials()
    rows = [record.collect([folder.record]).to_pylist()[0] for folder in (first, second)]
    record.write(first.record, rows[0] | {"code_fingerprint": provenance.versioned("0123456789abcdef")})
    record.write(second.record, rows[1] | {"data_fingerprint": "2:other"})
    found = outcomes(verb, pair, here)
    assert (
        found["con_con"] == "refused: trained with other code than here; with --stale it is taken, and tables mark it"
    )
    assert found["sig-ms_cir"].startswith("refused: trained on data that differs from the data here: 2:other, here 2:")
    assert outcomes(verb, pair, here, "--stale")["con_con"] == "taken"
    assert "1 of 1 trials were trained with older code." in " ".join(verb("table", "demo", runs=here).stdout.split())
    changed = json.loads(rows[1]["settings"])
    changed["train"]["lr"] = 0.5
    record.write(second.record, rows[1] | {"settings": json.dumps(changed)})
    assert (
        "refused: its settings are those of shapes_cnn-bow_sig-ms_cir_s0-" in outcomes(verb, pair, here)["sig-ms_cir"]
    )


def test_what_is_done_or_trained_here_stays_and_what_was_cut_off_makes_room(pair: Home, here: Home, verb: Verb) -> None:
    shutil.copytree(pair.path, here.path)
    first, second = here.trials()
    (row,) = record.collect([first.record]).to_pylist()
    record.write(first.record, row | {"test_rsum": row["test_rsum"] + 1})
    interrupt(second, epoch=1, step=5)
    kept = first.record.read_bytes()
    assert outcomes(verb, pair, here) == {"con_con": "kept: done here with different test_rsum", "sig-ms_cir": "taken"}
    assert first.record.read_bytes() == kept
    assert second.state() is State.DONE
    assert [path.name.rpartition("-")[0] for path in here.replaced.iterdir()] == [second.trial_id]
    second.done.unlink()
    attempt(second)
    assert outcomes(verb, pair, here)["sig-ms_cir"] == "kept: it is being trained here"
    attempt(pair.trials()[1])
    assert outcomes(verb, pair, here)["sig-ms_cir"] == "refused: a process there still holds it"


def test_a_killed_merge_leaves_whole_trials_and_goes_on(pair: Home, here: Home, verb: Verb) -> None:
    (grid,) = merge.grids_of(pair, here, "demo", [], pytest.fail)

    def placed(event: str, arguments: tuple[object, ...]) -> bool:
        return event == "os.rename" and Path(str(arguments[1])).parent == here.trials_folder

    child = forked(lambda: merge.merge(grid, pair, here), placed, 2)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert [folder.state() for folder in here.trials()] == [State.DONE]
    assert len(list(filter(is_aside, here.trials_folder.iterdir()))) == 1
    assert sorted(outcomes(verb, pair, here).values()) == ["same", "taken"]


@pytest.mark.parametrize(
    ("place", "words", "message"),
    [
        ("nothing", [], "no grid has run under"),
        ("runs", ["--grid", "dem"], "unknown grid 'dem' in .* Did you mean 'demo'"),
        ("runs", ["--runs", "."], "is the runs folder to merge into"),
        ("runs", ["--root", "mine=/nowhere"], "--root: folder /nowhere does not exist"),
        ("runs", ["--root", "shapes=/nowhere"], "data set 'shapes' is generated and needs no root"),
    ],
)
def test_a_wrong_merge_is_one_message(
    pair: Home, here: Home, verb: Verb, place: str, words: list[str], message: str
) -> None:
    home, grid = pair if "--runs" in words else here, pair.grid("demo").grid
    if "mine=/nowhere" in words:
        grid.write_text(swapped(grid.read_text(), '"shapes"', '"mine"') + '[data.mine]\nroot = "/x"\n')
    with pytest.raises(UserError, match=message):
        verb(
            "merge", str(pair.path.parent / place), *[word for word in words if word not in ("--runs", ".")], runs=home
        )


def test_each_grid_takes_the_folders_of_its_own_data_sets(pair: Home, here: Home, verb: Verb, tmp_path: Path) -> None:
    demo, mine = (pair.grid(name).grid for name in ("demo", "mine"))
    mine.parent.mkdir()
    text = swapped(swapped(demo.read_text(), '"demo"', '"mine"'), '"shapes"', '"photos"')
    mine.write_text(text + '[data.photos]\nroot = "/nowhere"\n')
    grids = merge.grids_of(pair, here, None, [f"photos={tmp_path}"], pytest.fail)
    assert {grid.name: grid.root("photos") for grid in grids} == {"demo": None, "mine": tmp_path}
    with pytest.raises(UserError, match=r"unknown data set 'photo' in --root photo=/x. Did you mean 'photos'"):
        verb("merge", str(pair.path), "--root", "photo=/x", runs=here)
    assert not here.path.exists()


@pytest.mark.parametrize("words", [(), ("--dry-run",)])
def test_a_trial_without_its_record_is_refused(words: tuple[str, ...], pair: Home, here: Home, verb: Verb) -> None:
    pair.trials()[0].record.unlink()
    assert outcomes(verb, pair, here, *words) == {"con_con": "refused: its record is missing", "sig-ms_cir": "taken"}


@pytest.mark.parametrize(
    "name", ["vocabulary.json", "best.ckpt", "record.parquet", "settings.json", "done", "attempts/001.log"]
)
@pytest.mark.parametrize("kind", ["link", "device", "pipe"])
def test_nothing_but_regular_files_is_read_or_copied(
    kind: str, name: str, pair: Home, here: Home, verb: Verb, tmp_path: Path
) -> None:
    (first, second), secret = pair.trials(), tmp_path / "secret"
    secret.write_text("{}", encoding="utf-8")
    path = first.path / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(secret if kind == "link" else "/dev/zero")
    for words in (("--dry-run",), ()):
        told = outcomes(verb, pair, here, *words)
        assert sorted(told.values()) == [
            f"refused: {name} is {'not a regular file' if kind == 'pipe' else 'a link'}", "taken",
        ]  # fmt: skip
    assert [folder.trial_id for folder in here.trials()] == [second.trial_id]


@pytest.mark.parametrize("name", ["best.ckpt", "done"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_file_that_is_exchanged_after_the_check_is_not_copied(
    kind: str, name: str, pair: Home, here: Home, verb: Verb, tmp_path: Path
) -> None:
    paths, secret = [folder.path / name for folder in pair.trials()], tmp_path / "secret"
    secret.write_text("{}", encoding="utf-8")

    def exchange(event: str, details: tuple[object, ...]) -> None:
        while event == "os.mkdir" and is_aside(Path(str(details[0])).parent) and paths:
            (path := paths.pop()).unlink()
            os.mkfifo(path) if kind == "pipe" else path.symlink_to(secret)

    sys.addaudithook(exchange)
    with pytest.raises(UserError, match="not a regular file" if kind == "pipe" else "symbolic links"):
        verb("merge", str(pair.path), runs=here)
    assert not paths
    assert not here.trials()


def test_a_folder_of_links_is_refused(pair: Home, here: Home, verb: Verb, tmp_path: Path) -> None:
    first, second = pair.trials()
    first.path.rename(tmp_path / first.trial_id)
    first.path.symlink_to(tmp_path / first.trial_id)
    for words in (("--dry-run",), ()):
        assert sorted(outcomes(verb, pair, here, *words).values()) == [
            "refused: its folder is a link out of that runs folder",
            "taken",
        ]
    assert [folder.trial_id for folder in here.trials()] == [second.trial_id]
