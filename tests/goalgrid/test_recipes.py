"""Published recipes from the command line, on real photographs and features, with tiny networks for theirs."""

import shutil
from pathlib import Path

import pytest

from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from tests.conftest import Goalgrid
from tests.networks import save

RAW = ["vsepp-r152-ft", "vsepp-vit-b16-ft", "vse-inf-wsl"]
FEATURES = ["vse-inf-butd", "vse-inf-butd-bigru", "vsepp-butd", "vse-fc", "vse-mlp", "rvse-mlp", "rvsepp"]
FEATURES += ["scan-i2t", "saf-tiny"]
NETWORKS = {
    "microsoft/resnet-152": "resnet",
    "timm/resnext101_32x8d.fb_wsl_ig1b_ft_in1k": "resnet",
    "google/vit-base-patch16-224": "vit",
    "google-bert/bert-base-uncased": "bert",
}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options that say where the tiny stand-ins lie."""
    folders = {name: save(tmp_path_factory.mktemp(kind), kind, size=224) for name, kind in NETWORKS.items()}
    return [word for name, folder in folders.items() for word in ("--weights", f"{name}={folder}")]


@pytest.mark.parametrize(
    "recipes",
    [pytest.param(RAW, marks=pytest.mark.gate), pytest.param(FEATURES, marks=pytest.mark.gate), ["vse-2ad"]],
    ids=["raw", "features", "one"],
)
def test_every_published_recipe_trains_two_epochs_and_is_evaluated(
    recipes: list[str], weights: list[str], goalgrid: Goalgrid, few_pictures: Path, tmp_path: Path
) -> None:
    """The recipes as they are, sizes of images, crops and schedules included, in a small space with tiny networks."""
    settings = ["objectives=['triplet-hn']", "seeds=[0]", f"recipes={recipes}", "train.epochs=2", "model.dim=64"]
    overrides = [word for setting in settings for word in ("--set", setting)]
    root = ["--set", 'datasets=["few"]', "--root", f"few={few_pictures}"]
    here = ("--here", "--mlflow-uri", "")
    finished = goalgrid("run", "flickr8k", *overrides, *root, *weights, *here, runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    table = record.collect(Home(tmp_path).path.glob("trials/*/record.parquet")).to_pylist()
    expected = {*recipes, *(name.removesuffix("-ft") for name in recipes)}
    assert {row["recipe"] for row in table} == expected
    for row in table:
        assert row["epochs"] == 2
        assert row["test_rsum"] > 0


@pytest.mark.slow
def test_a_chained_grid_trains_parents_first_and_its_rows_stand_side_by_side(
    goalgrid: Goalgrid, tmp_path: Path
) -> None:
    """Two objectives, two seeds: eight trials in four chains, through Ray."""
    settings = [
        'recipes=["vsepp-r152-tiny-ft"]', 'objectives=["con_con","sig-ms_cir"]', "train.epochs=1",
        "train.batch_size=500", "model.image.size=32", "model.dim=16", "seeds=[0,1]",
    ]  # fmt: skip
    overrides = [word for setting in settings for word in ("--set", setting)]
    finished = goalgrid("run", "demo", *overrides, runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "vsepp-r152-tiny on shapes" in finished.stdout
    assert "vsepp-r152-tiny-ft on shapes" in finished.stdout
    home = Home(tmp_path)
    rows = {row["trial_id"]: row for row in record.collect(home.path.glob("trials/*/record.parquet")).to_pylist()}
    children = [row for row in rows.values() if row["starts_from"]]
    assert len(rows) == 8
    assert len(children) == 4
    for child in children:
        parent = rows[child["starts_from"]]
        assert parent["finished_at"] <= child["finished_at"]
        assert (parent["objective"], parent["seed"]) == (child["objective"], child["seed"])
    assert len(list(home.features.iterdir())) == 1


def test_a_child_waits_for_a_parent_that_failed(goalgrid: Goalgrid, tmp_path: Path) -> None:
    """A learning rate that overflows fails the parent; the child is not tried, and the exit code says failed."""
    settings = [
        'recipes=["vsepp-r152-tiny-ft"]', 'objectives=["con_con"]', "seeds=[0]", "train.epochs=1", "train.lr=1e38",
        "model.image.size=32", "model.dim=16",
    ]  # fmt: skip
    overrides = [word for setting in settings for word in ("--set", setting)]
    finished = goalgrid("run", "demo", *overrides, "--here", "--mlflow-uri", "", runs=tmp_path)
    assert finished.returncode == 4, finished.stderr
    assert "2 trials in 1 chain: 1 failed, 1 planned" in finished.stderr


def test_weights_that_are_not_there_are_one_message(goalgrid: Goalgrid, few_pictures: Path, tmp_path: Path) -> None:
    missing = ["--weights", f"microsoft/resnet-152={tmp_path / 'none'}", "--root", f"few={few_pictures}"]
    overrides = ["--set", 'recipes=["vsepp-r152"]', "--set", 'datasets=["few"]']
    finished = goalgrid("run", "flickr8k", *overrides, *missing, "--here", runs=tmp_path)
    assert finished.returncode == 2
    assert "no config.json in" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_features_can_be_computed_ahead_and_are_found(goalgrid: Goalgrid, tmp_path: Path) -> None:
    settings = ['recipes=["vsepp-r152-tiny"]', "model.image.size=32", "model.image.crops=1"]
    overrides = [word for setting in settings for word in ("--set", setting)]
    finished = goalgrid("data", "features", "demo", *overrides, runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "features of shapes by random: 1,750 views" in finished.stdout
    file = next(Home(tmp_path).features.glob("shapes-resnet-*/train.npy"))
    written = file.stat().st_mtime_ns
    again = goalgrid("data", "features", "demo", *overrides, runs=tmp_path)
    assert "1,750 views" in again.stdout
    assert file.stat().st_mtime_ns == written
    none = goalgrid("data", "features", "demo", "--set", 'recipes=["cnn-bow"]', runs=tmp_path)
    assert none.returncode == 0
    assert "no recipe has a frozen network" in none.stderr


@pytest.mark.slow
def test_the_demo_learns_from_features_that_are_computed_once_and_raises_no_alarm(
    goalgrid: Goalgrid, tmp_path: Path
) -> None:
    """The first and the last objective of the matrix; chance is an R@1 of 0.2."""
    settings = ("name=demo", 'objectives=["con_con","sig-ms_cir"]', "seeds=[0]")
    some = (*(word for setting in settings for word in ("--set", setting)), "--here", "--mlflow-uri", "")
    finished = goalgrid("run", "demo", *some, runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.count("features of shapes by random: 1,750 views") == 1
    assert "released variant of the objectives" in finished.stdout
    rows = record.collect(Home(tmp_path).path.glob("trials/*/record.parquet")).to_pylist()
    assert len(rows) == 2
    assert all(min(row["test_i2t_r1"], row["test_t2i_r1"]) >= 10 for row in rows)
    assert goalgrid("status", "demo", runs=tmp_path).stdout == "demo: 2 trials: 2 done\n"


@pytest.mark.slow
def test_a_grid_of_models_of_sets_ends_in_its_table_with_ensembles(
    goalgrid: Goalgrid, few_pictures: Path, tmp_path: Path
) -> None:
    settings = ["objectives=['unified']", "seeds=[0]", "train.epochs=1", "model.dim=32", 'datasets=["few"]']
    overrides = [word for setting in [*settings, "name=unified-table7"] for word in ("--set", setting)]
    root = ["--root", f"few={few_pictures}"]
    finished = goalgrid("run", "unified-table7", *overrides, *root, "--here", "--mlflow-uri", "", runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "8 trials in 4 chains: 8 done" in finished.stderr + finished.stdout
    table = goalgrid("table", "unified-table7", runs=tmp_path).stdout
    for recipe in ("scan-i2t-avg", "scan-t2i", "bfan-equal", "bfan-prob", "bfan", "sgr", "saf", "sgraf"):
        assert recipe in table


@pytest.mark.slow
def test_a_grid_of_models_of_sets_stands_beside_the_numbers_of_its_paper(
    goalgrid: Goalgrid, few_pictures: Path, flickr8k: Path, tmp_path: Path
) -> None:
    """With the test images of Flickr8k in the place of Flickr30K's, whose protocol demands as many."""
    root = Path(shutil.copytree(few_pictures / "precomp", tmp_path / "f30k_precomp"))
    for name in ("ims.npy", "ids.txt"):
        shutil.copyfile(flickr8k / "precomp" / f"test_{name}", root / f"test_{name}")
    captions = (flickr8k / "precomp" / "test_caps.txt").read_text(encoding="utf-8").splitlines()
    (root / "test_caps.txt").write_text("".join(f"a {caption}\n" for caption in captions), encoding="utf-8")
    settings = [
        'recipes=["scan-t2i"]', "objectives=unified", "seeds=[0]", "train.epochs=1", "model.dim=8",
    ]  # fmt: skip
    overrides = [word for setting in [*settings, "name=unified-table7"] for word in ("--set", setting)]
    words = ("--root", str(tmp_path), "--here", "--mlflow-uri", "", "--allow-leak")
    finished = goalgrid("run", "unified-table7", *overrides, *words, runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    table = goalgrid("table", "unified-table7", "--against", "paper", "--format", "markdown", runs=tmp_path)
    assert table.returncode == 0, table.stderr
    assert "70.7" in table.stdout
    assert "Difference: ours - paper" in table.stdout


def test_clip_trains_on_cached_features_of_photographs_and_captions(
    goalgrid: Goalgrid, few_pictures: Path, tmp_path: Path
) -> None:
    """Beside CLIP as it is, which trains nothing, has a record, and is evaluated again from its own weights."""
    recipes = "recipes=['clip-tiny', 'clip-zero-shot-tiny', 'siglip-tiny']"
    settings = ["objectives=['siglip']", "seeds=[0]", recipes]
    overrides = [word for setting in settings for word in ("--set", setting)]
    root = ["--set", 'datasets=["few"]', "--root", f"few={few_pictures}"]
    finished = goalgrid("run", "flickr8k", *overrides, *root, "--here", "--mlflow-uri", "", runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    rows = record.collect(Home(tmp_path).path.glob("trials/*/record.parquet")).to_pylist()
    assert {row["recipe"]: row["epochs"] for row in rows} == {
        "clip-tiny": 4, "clip-zero-shot-tiny": 0, "siglip-tiny": 4,
    }  # fmt: skip
    assert len(list(tmp_path.glob("features/few-clip_vision_model-*/train.npy"))) == 1
    assert len(list(tmp_path.glob("features/few-clip_text_model-*/train.npy"))) == 2, "with the prompt, and without"
    trial = next(row["trial_id"] for row in rows if not row["epochs"])
    assert "record of this trial matches these numbers" in goalgrid("evaluate", "--trial", trial, runs=tmp_path).stdout
    refused = goalgrid("gradients", "--trial", trial, runs=tmp_path)
    assert f"trial {trial}: its model has no trainable weights, so there are no gradients" in refused.stderr
