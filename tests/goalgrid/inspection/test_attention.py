"""Attention as a picture: of a trial, an image and a caption that the user names."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from goalgrid.grid.settings.image_views import View
from goalgrid.grid.store.home import Home
from goalgrid.inspection.trial_figures import attention_of
from goalgrid.retrieval.data import shapes
from goalgrid.retrieval.data.photographs import Photographs, cells
from goalgrid.state.grid_state import GridState
from goalgrid.state.named_grids import recall
from tests.conftest import Goalgrid

from ...conftest import swapped

GRID = """
name = "looking"
datasets = "few"
recipes = ["scan-t2i", "fc-bow", "scan", "read"]
objectives = "infonce"
seeds = [0, 1]
set = { "model.dim" = 8, "train.epochs" = 1, "train.batch_size" = 200 }
data.few.root = "ROOT"
[recipe.read]
extends = "scan-t2i"
[recipe.read.model.text]
encoder = "transformer"
pooling = "none"
weights = "random"
prompt = "the picture shows"
[recipe.read.model.text.architecture]
model_type = "bert"
hidden_size = 8
num_hidden_layers = 1
num_attention_heads = 2
intermediate_size = 8
"""


@pytest.fixture(scope="module")
def runs(few_pictures: Path, tmp_path_factory: pytest.TempPathFactory, goalgrid: Goalgrid) -> Path:
    """A model of sets and a model of single vectors, trained on features with photographs and boxes beside them."""
    folder = tmp_path_factory.mktemp("looking")
    root = Path(shutil.copytree(few_pictures, folder / "few"))
    np.save(root / "precomp" / "test_boxes.npy", np.tile(cells(9), (12, 1, 1)).astype(np.float32))
    (folder / "looking.toml").write_text(swapped(GRID, "ROOT", str(root)))
    for recipe in ("scan-t2i", "fc-bow", "read"):
        only = f"recipe={recipe} seed=0"
        finished = goalgrid(
            "run", str(folder / "looking.toml"), "--only", only, "--here", "--mlflow-uri", "", runs=folder
        )
        assert (folder / "trials").exists(), finished.stderr
    return folder


def trial_of(runs: Path, recipe: str, seed: int = 0) -> str:
    grid_state = GridState.of(recall("looking", Home(runs)), Home(runs))
    return next(trial.id for trial in grid_state.trials if f"few_{recipe}_infonce_s{seed}" in trial.id)


@pytest.mark.gate
def test_a_figure_shows_the_photograph_its_boxes_and_the_weights_of_the_words(runs: Path, goalgrid: Goalgrid) -> None:
    trial = trial_of(runs, "scan-t2i")
    grid_state = GridState.of(recall("looking", Home(runs)), Home(runs))
    found = attention_of(grid_state, trial, "", "2")
    names = sorted(path.name for path in (runs / "few" / "images").iterdir())
    assert found.image in names
    assert attention_of(grid_state, trial_of(runs, "read"), "", "2").words[1:4] == ("the", "picture", "shows")
    assert (found.words[0], found.words[-1]) == ("<start>", "<end>")
    assert found.weights["t2i"].shape == (len(found.words), 9)
    assert found.weights["t2i"].sum(1) == pytest.approx(1, abs=1e-5)
    assert found.picture is not None
    assert found.boxes is not None
    assert max(found.picture.shape) <= 320
    words = ("figures", "looking", "attention", "--trial", trial, "--image", found.image, "--format", "svg")
    finished = goalgrid(*words, "--caption", "a $red$ circle", "-o", str(runs / "out"), runs=runs)
    assert finished.returncode == 0, finished.stderr
    (path,) = (runs / "out").iterdir()
    assert path.name.startswith(f"attention-{trial}-{Path(found.image).stem}-a-red-circle")
    assert path.stat().st_size < 1_000_000


def test_what_cannot_be_drawn_is_one_message(runs: Path, goalgrid: Goalgrid) -> None:
    trial, vectors, later = trial_of(runs, "scan-t2i"), trial_of(runs, "fc-bow"), trial_of(runs, "scan-t2i", 1)
    for words, message in (
        (
            (),
            f"the trial to show attention of. Trials with attention: {trial}, {trial_of(runs, 'read')}.",
        ),
        (("--trial", trial[:-1]), f"Did you mean '{trial}'?"),
        (("--trial", vectors), "scores single vectors, so it has no attention between"),
        (("--trial", later), "is planned, not done"),
        (("--trial", trial_of(runs, "scan")), "is an ensemble, which has no weights"),
        (("--trial", trial, "--image", "dog.jpg"), "unknown image 'dog.jpg'"),
        (("--trial", trial, "--caption", "7"), "has no caption 7. Its captions: 1: "),
        (("--trial", trial, "--caption", "zzz qqq"), "caption 'zzz qqq' has no word in "),
        (("--trial", trial, "--caption=--5"), "caption '--5' has no word in "),
        (("--trial", trial, "--caption", "²"), "caption '²' has no word in "),
    ):
        finished = goalgrid("figures", "looking", "attention", *words, runs=runs)
        assert finished.returncode == 2
        assert message in finished.stderr
    alone = goalgrid("figures", "looking", "matrix", "--trial", trial, runs=runs)
    assert "apply to attention" in alone.stderr
    boxes = runs / "few" / "precomp" / "test_boxes.npy"
    right = np.load(boxes)
    for wrong, message in (
        (right[:, :4], r"expected floats of shape (12, 9, 4)"),
        (right * 2, "box 1 of row 0 is [0.6"),
    ):
        np.save(boxes, wrong)
        assert message in goalgrid("figures", "looking", "attention", "--trial", trial, runs=runs).stderr
    np.save(boxes, right)


@pytest.mark.parametrize("recipe", ["fc-bow", "scan-t2i"])
def test_first_answers_hold_the_right_one_where_the_recorded_rank_says_so(runs: Path, recipe: str) -> None:
    from goalgrid.results.records import record
    from goalgrid.runners.launch.jobs import machine_for
    from goalgrid.runners.trial.inspection import TrialRetrieval

    grid_state = GridState.of(recall("looking", Home(runs)), Home(runs))
    trial = next(trial for trial in grid_state.trials if trial.id == trial_of(runs, recipe))
    found = TrialRetrieval(grid_state.folder(trial), machine_for(grid_state.grid, grid_state.home, gpu=False))
    (row,) = record.collect([grid_state.folder(trial).record]).to_pylist()
    for image, rank in enumerate(row["test_i2t_ranks"]):
        hits = [row["test_image_of_text"][text] == image for text in found.first("i2t", image)]
        assert (hits.index(True) if True in hits else 5) == min(rank, 5)
    for text, rank in enumerate(row["test_t2i_ranks"]):
        hits = [image == row["test_image_of_text"][text] for image in found.first("t2i", text)]
        assert (hits.index(True) if True in hits else 5) == min(rank, 5)


def test_pictures_of_a_frozen_network_are_those_of_the_embedded_data() -> None:
    view = View(16, "square")
    pixels = shapes.load(view).test
    features = replace(pixels, images=np.zeros((len(pixels.images), 4), dtype=np.float32))
    shown = Photographs(features, "shapes", None, view, regions=1).of(3).picture
    assert shown is not None
    assert shown.shape == (16, 16, 3)
    assert (shown.transpose(2, 0, 1) == pixels.images.gather(np.array([3]))[0].numpy()).all()


@pytest.mark.gate
def test_examples_are_a_figure_and_a_section_of_the_report(runs: Path, goalgrid: Goalgrid) -> None:
    trial = trial_of(runs, "fc-bow")
    finished = goalgrid("figures", "looking", "examples", "--trial", trial, "-o", str(runs / "examples"), runs=runs)
    assert finished.returncode == 0, finished.stderr
    assert (runs / "examples" / f"examples-{trial}.png").stat().st_size < 2_000_000
    assert goalgrid("report", "looking", "--examples", trial, "-o", str(runs / "r.html"), runs=runs).returncode == 0
    page = (runs / "r.html").read_text(encoding="utf-8")
    assert '<section id="examples">' in page
    assert f"queries of {trial} with their first answers" in page
    for words, message in (
        (
            (),
            f"Trials with examples: {trial_of(runs, 'scan-t2i')}, {trial}, ",
        ),
        (("--trial", trial_of(runs, "fc-bow", 1)), "is planned, not done"),
        (("--trial", trial_of(runs, "scan")), "is an ensemble, which has no weights"),
    ):
        wrong = goalgrid("figures", "looking", "examples", *words, runs=runs)
        assert (wrong.returncode, message in wrong.stderr) == (2, True), wrong.stderr
    record = Home(runs).trial(trial).record
    whole = record.read_bytes()
    record.write_bytes(whole[:300])
    wrong = goalgrid("figures", "looking", "examples", "--trial", trial, runs=runs)
    assert (wrong.returncode, f"the record {record} cannot be read" in wrong.stderr) == (2, True), wrong.stderr
    record.write_bytes(whole)
