"""The papers' last systems in tiny form: a single grid, trained through Ray, and its table.

Videos; AOQ's chain of ranker, candidates and training; models of regions, grid and patches, fused in each of COCO's
five folds; NCR's twins and Meta-SPN on noisy pairs.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from tests.conftest import Goalgrid
from tests.retrieval.components.video import made

pytestmark = pytest.mark.slow

GRID = """
name = "tiny"
datasets = ["mine", "few", "coco"]
recipes = ["ce-tiny", "mmt-tiny", "bfan-tiny", "fc-bow", "vse-2ad-rgp-tiny"]
objectives = ["unified", "aoq", "ncr", "meta-spn", "adopt"]
seeds = 0
exclude = [
    { dataset = "mine", recipe = "[!cm]*" },
    { dataset = "mine", objective = "[!u]*" },
    { dataset = "few", recipe = "[cmv]*" },
    { dataset = "few", recipe = "bfan*", objective = "[!a]*" },
    { dataset = "few", recipe = "fc-bow", objective = "aoq" },
    { dataset = "few", objective = "unified" },
    { dataset = "few", objective = "adopt" },
    { dataset = "coco", recipe = "[!v]*" },
    { dataset = "coco", objective = "[!a]*" },
    { dataset = "coco", objective = "aoq" },
    { objective = "[!n]*", "model.networks" = "twins" },
    { objective = "ncr", "model.networks" = "single" },
]
[set]
dataset.min_count = 1
dataset.noise = 0.4
model.dim = 16
train.epochs = 2
train.batch_size = 50
train.warmup_epochs = 1
train.ranker = "fc-bow"
[sweep]
model.networks = ["single", "twins"]
[data]
"""
TEST_IMAGES = 5000
"""COCO's, as its protocols demand."""


def write_coco(root: Path, few: Path) -> None:
    """A few small pictures with their features, of which each stands for many test images."""
    content = json.loads((few / "dataset.json").read_text(encoding="utf-8"))
    by_split = {split: [one for one in content["images"] if one["split"] == split] for split in ("train", "val")}
    tests = [by_split["train"][place % 40] for place in range(TEST_IMAGES)]
    by_split["test"] = [{**one, "split": "test", "sentences": one["sentences"][:1]} for one in tests]
    (root / "precomp").mkdir(parents=True)
    (root / "images").mkdir()
    for place, entry in enumerate(by_split["train"]):
        Image.open(few / "images" / entry["filename"]).resize((32, 32)).save(root / f"{place}.png")
    features = np.random.default_rng(0).normal(size=(40, 2, 8)).astype(np.float16)
    entries = []
    for split, file in (("train", "train"), ("val", "dev"), ("test", "testall")):
        captions = [sentence["raw"] for entry in by_split[split] for sentence in entry["sentences"]]
        (root / "precomp" / f"{file}_caps.txt").write_text("\n".join(captions) + "\n", encoding="utf-8")
        rows = [place % 40 for place in range(len(by_split[split]))]
        np.save(root / "precomp" / f"{file}_ims.npy", features[rows])
        for place, entry in enumerate(by_split[split]):
            name = f"{split}{place}.png"
            os.link(root / f"{rows[place]}.png", root / "images" / name)
            entries.append({**entry, "filename": name})
    (root / "dataset.json").write_text(json.dumps({"images": entries}), encoding="utf-8")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, goalgrid: Goalgrid, few_pictures: Path) -> Path:
    """The runs folder of the grid."""
    folder = tmp_path_factory.mktemp("tiny")
    made.write(folder / "mine", made.TINY)
    write_coco(folder / "coco", few_pictures)
    roots = {"mine": folder / "mine", "few": few_pictures, "coco": folder / "coco"}
    places = [f'{name}.root = "{root}"\n' for name, root in roots.items()]
    (folder / "tiny.toml").write_text(GRID + "".join(places))
    finished = goalgrid("run", str(folder / "tiny.toml"), "--mlflow-uri", "", "--allow-leak", runs=folder)
    assert finished.returncode == 0, finished.stderr
    return folder


def rows_of(runs: Path, recipe: str, objective: str = "*") -> list[dict[str, Any]]:
    """The records of a recipe."""
    rows: list[dict[str, Any]] = record.collect(
        Home(runs).path.glob(f"trials/*_{recipe}_{objective}_s0-*/*.parquet")
    ).to_pylist()
    return rows


def test_all_systems_land_in_one_table(runs: Path, goalgrid: Goalgrid) -> None:
    assert "tiny: 12 trials in 6 chains: 12 done" in goalgrid("status", "tiny", runs=runs).stdout
    table = goalgrid("table", "tiny", runs=runs).stdout
    shown = ["ce-tiny, unified", "mmt-tiny, unified", "bfan-tiny, aoq", "fc-bow, meta-spn", "fc-bow, ncr"]
    for label in (*shown, *(f"vse-2ad-{kind}tiny, adopt" for kind in ("", "grid-", "patch-", "rgp-"))):
        assert label in table


def test_an_ensemble_learnt_from_what_a_ranker_of_its_grid_found(runs: Path) -> None:
    [ranker] = rows_of(runs, "fc-bow", "triplet-hn")
    for recipe in ("bfan-equal-tiny", "bfan-prob-tiny"):
        [row] = rows_of(runs, recipe)
        assert json.loads(row["settings"])["ranker"] == ranker["trial_id"]
        assert json.loads(row["environment"])["negatives"]


def test_regions_grid_and_patches_are_fused_in_each_fold(runs: Path, goalgrid: Goalgrid) -> None:
    [row] = rows_of(runs, "vse-2ad-rgp-tiny")
    by_folds = dict(row["other_metrics"])
    for name in ("i2t_medr", "t2i_medr"):
        assert 1 <= by_folds[f"coco-5x1k/{name}"] < row[f"test_{name}"] / 2, "a fold has a fifth of the wrong answers"
    assert "coco-5x1k" in goalgrid("table", "tiny", "--protocol", "coco-5x1k", runs=runs).stdout


def test_twins_and_learnt_weights_train_on_noisy_pairs(runs: Path) -> None:
    [twins], [weights] = rows_of(runs, "fc-bow", "ncr"), rows_of(runs, "fc-bow", "meta-spn")
    assert {entry["name"] for entry in twins["history"]} >= {"clean", "clean_auc"}
    assert json.loads(weights["environment"])["validation_images_that_select"] == 6
