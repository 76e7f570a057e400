"""Ensembles: their numbers are those of the mean of the members' scores; they wait, go on, and name who failed."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.protocols import PROTOCOLS, Protocol
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.inspection.trial_figures import EXAMPLES
from goalgrid.results.records import record
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.runners.training import checkpoints
from goalgrid.runners.training.embedding import embedded, scored
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.learner import model_of
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.ensemble import Ensemble
from goalgrid.runners.trial.loaded_model import LoadedModel
from tests.conftest import Goalgrid

from ...conftest import swapped

GRID = """
name = "pair"
datasets = "few"
data.few.root = "ROOT"
recipes = "both"
objectives = "unified"
seeds = 0
[recipe.both]
ensemble = ["words", "cells"]
[recipe.words]
extends = "cnn-bow"
model.dim = 32
model.image.size = 16
train = { epochs = 2, batch_size = 50 }
[recipe.cells]
extends = "scan-t2i-tiny"
model.dim = 16
model.image.size = 16
train = { epochs = 1, batch_size = 50 }
"""


@pytest.fixture(scope="module")
def runs(few_pictures: Path, tmp_path_factory: pytest.TempPathFactory, goalgrid: Goalgrid) -> Path:
    """An ensemble of a model of vectors and a model of sets, which are not named in its grid, trained."""
    folder = tmp_path_factory.mktemp("ensemble")
    (folder / "pair.toml").write_text(swapped(GRID, "ROOT", str(few_pictures)))
    finished = goalgrid("run", str(folder / "pair.toml"), "--here", "--mlflow-uri", "", runs=folder)
    assert finished.returncode == 0, finished.stderr
    return folder


@pytest.fixture(scope="module")
def machine(few_pictures: Path) -> Machine:
    return Machine(roots=(("few", str(few_pictures)),))


def of_recipe(runs: Path, recipe: str) -> TrialFolder:
    return next(folder for folder in Home(runs).trials() if f"_{recipe}_" in folder.trial_id)


def remove(folder: TrialFolder) -> None:
    folder.done.unlink()
    folder.record.unlink()


def test_its_metrics_are_those_of_the_mean_of_the_members_scores(runs: Path, machine: Machine) -> None:
    members = [LoadedModel.of_trial(of_recipe(runs, recipe), machine) for recipe in ("words", "cells")]
    matrices = []
    for member in members:
        image, text, owners = embedded(member.model, member.settings, member.inputs, "test")
        with torch.inference_mode():
            matrices.append(scored(member.model, image, text).numpy())
    mean = (matrices[0] + matrices[1]) / 2
    right = owners == np.arange(len(mean))[:, None]
    best = np.where(right, mean, -np.inf).max(1, keepdims=True)
    own = mean[owners, np.arange(len(owners))]
    i2t, t2i = (~right & (mean > best)).sum(1), (~right & (mean > own)).sum(0)
    (row,) = record.collect([of_recipe(runs, "both").record]).to_pylist()
    assert row["test_i2t_ranks"] == pytest.approx(i2t, abs=1)  # ties of rounding
    assert row["test_t2i_ranks"] == pytest.approx(t2i, abs=1)
    for name, ranks in (("i2t", i2t), ("t2i", t2i)):
        for k in (1, 5, 10):
            assert row[f"test_{name}_r{k}"] == pytest.approx(100 * (ranks < k).mean(), abs=0.05)


def test_its_record_says_that_it_trained_nothing(runs: Path) -> None:
    (row,) = record.collect([of_recipe(runs, "both").record]).to_pylist()
    assert (row["epochs"], row["steps"], row["selected_epoch"], row["history"]) == (0, 0, 0, [])
    assert row["val_rsum"] > 0
    assert TrialSettings.model_validate_json(row["settings"]).ensemble == tuple(
        of_recipe(runs, recipe).trial_id for recipe in ("words", "cells")
    )


@pytest.mark.gate
def test_every_verb_takes_it(runs: Path, goalgrid: Goalgrid) -> None:
    assert "pair: 3 trials in 1 chain: 3 done" in goalgrid("status", "pair", runs=runs).stdout
    planned = goalgrid("plan", str(runs / "pair.toml"), "--force", runs=runs)
    assert "1 x both on few, each after its words and cells: trains nothing" in planned.stdout
    assert "cells on few: from 1 finished trial" in planned.stdout
    assert "both on few: not known" not in planned.stdout
    shown = goalgrid("table", "pair", "--metric", "parameters", "--format", "csv", runs=runs).stdout
    sizes = {row["recipe"]: float(row["mean"]) for row in csv.DictReader(shown.splitlines())}
    assert sizes["both"] == pytest.approx(sizes["words"] + sizes["cells"])
    alone = goalgrid("evaluate", "--trial", of_recipe(runs, "both").trial_id, runs=runs)
    assert f"is an ensemble: it has no weights. Evaluate its members: --trial {of_recipe(runs, 'words').trial_id}" in (
        alone.stderr
    )
    of_sets = ("evaluate", "--trial", of_recipe(runs, "cells").trial_id, "--embeddings", str(runs / "sets.npz"))
    assert "the record of this trial matches these numbers" in goalgrid(*of_sets, runs=runs).stdout
    with np.load(runs / "sets.npz") as held:
        assert held["images"].shape[1:] == (4, 16)
        assert held["texts"].shape == (held["text_sizes"].sum(), 16)
    page = goalgrid("report", "pair", "--output", str(runs / "page.html"), runs=runs)
    assert page.returncode == 0, page.stderr
    text = (runs / "page.html").read_text(encoding="utf-8")
    assert text.count(f"<figcaption>{of_recipe(runs, 'cells').trial_id}, ") == EXAMPLES
    assert len(text) < 3_000_000
    assert "Attention is not drawn" not in text


@pytest.mark.slow
def test_one_that_was_cut_off_after_its_first_member_goes_on(runs: Path, goalgrid: Goalgrid) -> None:
    both, cells = of_recipe(runs, "both"), of_recipe(runs, "cells")
    before = record.collect([both.record]).to_pylist()[0]["test_rsum"]
    remove(both)
    remove(cells)
    again = goalgrid("resume", "pair", "--here", "--mlflow-uri", "", runs=runs)
    assert again.returncode == 0, again.stderr
    assert len(of_recipe(runs, "words").attempts()) == 1
    assert record.collect([both.record]).to_pylist()[0]["test_rsum"] == before


def test_a_member_that_failed_is_named(few_pictures: Path, goalgrid: Goalgrid, tmp_path: Path) -> None:
    broken = swapped(
        swapped(GRID, "ROOT", str(few_pictures)), "epochs = 1,", 'epochs = 1, lr = 1e38, optimizer = "adam",'
    )
    (tmp_path / "pair.toml").write_text(broken)
    failed = goalgrid("run", str(tmp_path / "pair.toml"), "--here", "--mlflow-uri", "", runs=tmp_path)
    assert failed.returncode == 4
    both, cells = "few_both_unified_s0", "few_cells_unified_s0"
    (line,) = [line for line in failed.stderr.splitlines() + failed.stdout.splitlines() if "waiting for trials" in line]
    assert both in line
    assert cells in line


def test_a_member_without_its_weights_is_told(runs: Path, machine: Machine) -> None:
    cells = of_recipe(runs, "cells")
    kept = cells.best_checkpoint.rename(runs / "kept")
    with pytest.raises(UserError, match=r"best checkpoint .* cannot be read"):
        LoadedModel.of_trial(cells, machine)
    kept.rename(cells.best_checkpoint)


def test_a_member_that_was_trained_on_other_data_is_told(runs: Path, machine: Machine) -> None:
    cells = of_recipe(runs, "cells")
    kept = cells.best_checkpoint.read_bytes()
    content = checkpoints.load(cells.best_checkpoint, torch.device("cpu"))
    checkpoints.save(cells.best_checkpoint, {**content, "sources": {**content["sources"], "data": "2:other"}})
    with pytest.raises(UserError, match=rf"{cells.trial_id} was trained on data that have changed since \(2:other"):
        Ensemble.load([of_recipe(runs, "words"), cells], machine, lambda: None)
    cells.best_checkpoint.write_bytes(kept)


def flipped(content: bytes) -> bytes:
    """With one flipped bit, in the word `the`."""
    place = content.index(b'"the"') + 1
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def resized(content: bytes) -> bytes:
    """Settings with images of another size, whose model has the same weights."""
    settings = json.loads(content)
    settings["model"]["image"]["size"] = 24
    return json.dumps(settings).encode()


@pytest.mark.parametrize(("name", "change", "said"), [
    ("vocabulary.json", flipped, r"the vocabulary .*{id}/vocabulary.json does not match the record of the trial: its"),
    ("settings.json", resized, r"the settings .*{id}/settings.json does not match .* differ: model.image.size\."),
])  # fmt: skip
def test_a_member_whose_files_were_changed_is_told(
    runs: Path, machine: Machine, name: str, change: Callable[[bytes], bytes], said: str
) -> None:
    words, cells = of_recipe(runs, "words"), of_recipe(runs, "cells")
    kept = (words.path / name).read_bytes()
    (words.path / name).write_bytes(change(kept))
    with pytest.raises(UserError, match=said.format(id=words.trial_id) + ".*goalgrid run GRID --force --only FILTER"):
        Ensemble.load([words, cells], machine, lambda: None)
    (words.path / name).write_bytes(kept)


def test_a_changed_member_fails_the_ensemble_and_no_record_is_written(runs: Path, goalgrid: Goalgrid) -> None:
    both, words = of_recipe(runs, "both"), of_recipe(runs, "words")
    files = {path: path.read_bytes() for path in (both.done, both.record, words.vocabulary)}
    words.vocabulary.write_bytes(flipped(files[words.vocabulary]))
    remove(both)
    failed = goalgrid("resume", "pair", "--here", "--mlflow-uri", "", runs=runs)
    assert failed.returncode == 4
    assert f"{words.trial_id}/vocabulary.json does not match the record of the trial" in failed.stderr
    assert not both.record.exists()
    both.error.unlink()
    for path, content in files.items():
        path.write_bytes(content)


def test_a_member_of_an_earlier_version_is_compared_by_its_numbers(
    runs: Path, machine: Machine, tmp_path: Path
) -> None:
    """Its record and its checkpoint have no digest of the words."""
    folder = TrialFolder(
        Path(shutil.copytree(of_recipe(runs, "words").path, tmp_path / of_recipe(runs, "words").trial_id))
    )
    (row,) = record.collect([folder.record]).to_pylist()
    environment = json.loads(row["environment"])
    assert environment.pop("vocabulary")
    record.write(folder.record, row | {"environment": json.dumps(environment)})
    content = checkpoints.load(folder.best_checkpoint, torch.device("cpu"))
    assert content.pop("vocabulary")
    checkpoints.save(folder.best_checkpoint, content)
    ensemble = Ensemble.load([folder], machine, lambda: None)
    assert ensemble.evaluate("val").metrics()["rsum"] == row["val_rsum"]
    words = json.loads(folder.vocabulary.read_text())
    folder.vocabulary.write_text(json.dumps([*words[:2], *words[:1:-1]]))
    with pytest.raises(
        UserError, match=rf"trial {folder.trial_id} .*its files give .*rsum [\d.]+ instead of {row['val_rsum']:.2f}"
    ):
        Ensemble.load([folder], machine, lambda: None).evaluate("val")


def of_features_and_of_pictures(root: Path) -> Ensemble:
    """The mean of two models as they start."""
    found = []
    for recipe in (("fc-bow",), ("cnn-bow", "model.image.size=16")):
        overrides = [f'recipes=["{recipe[0]}"]', 'datasets=["few"]', "model.dim=8", 'objectives=["adopt"]', *recipe[1:]]
        settings = trials_of(expand(load("demo", [f'data.few.root="{root}"', *overrides])))[0].settings
        inputs = prepare(settings, Machine(roots=(("few", str(root)),)))
        found.append(LoadedModel(model_of(settings, inputs), settings, inputs))
    return Ensemble(found)


def test_a_fold_is_ranked_by_the_mean_of_the_members_scores(few_pictures: Path) -> None:
    ensemble = of_features_and_of_pictures(few_pictures)
    image, text, owners = ensemble._embedded("test")
    found, matrices = ensemble._ranked(image, text, owners, fold=4), []
    for member, *parts in zip(ensemble.members, image.parts, text.parts, strict=True):
        with torch.inference_mode():
            matrices.append(scored(member.model, *parts).numpy())
    mean = (matrices[0] + matrices[1]) / 2
    for start in (0, 4, 8):
        texts = np.flatnonzero(owners // 4 == start // 4)
        block, own = mean[start : start + 4, texts], owners[texts] - start
        ranks = [(block[:, column] > block[row, column]).sum() for column, row in enumerate(own)]
        assert found.t2i[texts].tolist() == ranks
        best = [(block[row] > block[row, own == row].max()).sum() for row in range(4)]
        assert found.i2t[start : start + 4].tolist() == best


def test_a_protocol_with_folds_has_their_ranks_and_one_without_has_those_of_the_whole_split(
    few_pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROTOCOLS, "few-in-fours", Protocol(12, 4))
    ensemble = of_features_and_of_pictures(few_pictures)
    by_protocol = ensemble.by_protocols(["few", "few-in-fours"])
    parts = ensemble._embedded("test")
    for name, fold in (("few", None), ("few-in-fours", 4)):
        assert by_protocol[name].t2i.tolist() == ensemble._ranked(*parts, fold=fold).t2i.tolist(), name
    assert by_protocol["few"].t2i.max() > 3 >= by_protocol["few-in-fours"].t2i.max()


def test_members_that_read_the_items_in_another_order_are_told(few_pictures: Path, tmp_path: Path) -> None:
    """Features of the same photographs, of which the last two have changed places; and of one photograph less."""
    assert len(of_features_and_of_pictures(few_pictures).evaluate("test").i2t) == 12
    for name, rows, said in (
        (
            "turned",
            [*range(10), 11, 10],
            r"caption 51 is '.*' of image 11 for fc-bow, and '.*' of image 11 for cnn-bow",
        ),
        ("short", list(range(11)), "55 captions for fc-bow, 60 for cnn-bow"),
    ):
        root = shutil.copytree(few_pictures, tmp_path / name)
        features, captions = root / "precomp" / "test_ims.npy", root / "precomp" / "test_caps.txt"
        lines = captions.read_text(encoding="utf-8").splitlines()
        captions.write_text("\n".join(line for row in rows for line in lines[5 * row : 5 * row + 5]) + "\n")
        np.save(features, np.load(features)[rows])
        ids = root / "precomp" / "test_ids.txt"
        ids.write_text("\n".join(ids.read_text().splitlines()[row] for row in rows) + "\n")
        with pytest.raises(DataError, match=rf"of the test split, or in a different order: {said}.*id_mapping\.json"):
            of_features_and_of_pictures(root).evaluate("test")
