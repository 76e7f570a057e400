"""No shipped recipe without a test that trains it, or that trains a recipe with the same parts."""

from fnmatch import filter as matching
from pathlib import Path

import pytest

from goalgrid.grid import catalog
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from tests.conftest import ROOT, Goalgrid
from tests.networks import WORDS, save

from .test_recipes import FEATURES, RAW

EVERY = catalog.names("recipes")
NETWORKS = {
    "butd/resnet-101": ("resnet", 64),
    "google/vit-base-patch16-224": ("vit", 224),
    "google-bert/bert-base-uncased": ("bert", 64),
    "openai/clip-vit-base-patch32": ("clip-read", 224),
    "openai/clip-vit-large-patch14-336": ("clip-read", 336),
    "google/siglip-base-patch16-224": ("siglip", 224),
}
"""Which tiny network stands for each published one, and the side of the pictures that it takes, in pixels."""

SMALL = ["train.epochs=1", "model.dim=32"]
TRAINED = {
    "poolings": (["vse-2ad-bigru", "vse-2ad-fc*"], SMALL),
    "ensembles": (["vse-2ad-rg*", "vse-inf-rg*"], SMALL),
    "clip": (["clip-ft", "clip-vit-*", "clip-zero-shot", "siglip-vit-b16"], ["model.dim=16"]),
    "attention": (["scan", "scan-avg", "bfan", "sgraf"], SMALL),
    "tiny": (["*-tiny", "*-tiny-ft"], []),
    "own": (["cnn-*", "fc-*", "frozen-bow"], SMALL),
    "added": (["*"], SMALL),
}
"""Patterns of recipes that are trained together, and what makes them small; "added": all that no other group has."""

BY_OTHERS = {
    "tests/goalgrid/test_recipes.py::test_every_published_recipe_trains_two_epochs_and_is_evaluated": [*RAW, *FEATURES],
    "tests/goalgrid/test_tiny_papers.py::test_all_systems_land_in_one_table": ["ce-tiny", "mmt-tiny"],
}
"""The recipes that other tests train."""

STANDS_FOR = {
    "ce-tiny": ["ce"],
    "mmt-tiny": ["mmt"],
    "xvlm-tiny": ["xvlm", "xvlm-f30k", "xvlm-zero-shot"],
    "scan": ["scan-coco"],
    "scan-avg": ["scan-avg-coco"],
    "bfan": ["bfan-coco"],
    "sgraf": ["sgraf-coco"],
    "vsrn-ensemble": ["vsrn-ensemble-coco"],
}
"""The recipes that no test trains, by the recipe that is trained in their place; with their members."""

PARTS = {"encoder", "head", "output", "pooling", "kind", "direction", "focal", "networks"}
"""Last names of the settings that choose the parts of a model."""


def of(group: str) -> list[str]:
    """The recipes of a group but those that other tests train."""
    others = {name for names in BY_OTHERS.values() for name in names}
    if group == "added":
        earlier = [name for other in TRAINED if other != group for name in of(other)]
        stands_for = [name for names in STANDS_FOR.values() for name in names]
        others = {own for name in (*others, *earlier, *stands_for) for own in catalog.SHIPPED.lineage(name)}
    return [name for pattern in TRAINED[group][0] for name in matching(EVERY, pattern) if name not in others]


def parts(name: str) -> dict[str, object]:
    found = {key: value for key, value in catalog.SHIPPED.settings(name).items() if key.rpartition(".")[2] in PARTS}
    return {**found, "members": len(catalog.recipe(name).ensemble)}


def test_no_recipe_is_without_a_test_that_trains_it() -> None:
    trained = {name: "here" for group in TRAINED for name in of(group)}
    trained |= {name: test for test, names in BY_OTHERS.items() for name in names}
    trained = {member: test for name, test in trained.items() for member in catalog.SHIPPED.lineage(name)}
    for stand_in, names in STANDS_FOR.items():
        for name in names:
            assert parts(name) == parts(stand_in), f"{stand_in} has other parts than {name}"
            ours, theirs = catalog.SHIPPED.lineage(stand_in), catalog.SHIPPED.lineage(name)
            trained |= {recipe: trained[own] for recipe, own in zip(theirs, ours, strict=True)}
    missing = [name for name in EVERY if name not in trained]
    assert not missing, f"no test trains {missing}: name each in TRAINED, BY_OTHERS or STANDS_FOR"
    for test in BY_OTHERS:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("group", TRAINED)
def test_a_group_of_recipes_is_trained_and_evaluated(
    group: str, goalgrid: Goalgrid, few_pictures: Path, tmp_path: Path
) -> None:
    recipes, small = of(group), TRAINED[group][1]
    if not recipes:
        pytest.skip("every recipe is in another group")
    settings = ["objectives=triplet-hn", "seeds=0", f"recipes={recipes}", *small]
    words = [word for setting in (*settings, "datasets=few", "name=few") for word in ("--set", setting)]
    captions = " ".join(path.read_text() for path in few_pictures.glob("precomp/*_caps.txt"))
    known = list(dict.fromkeys([*WORDS, *captions.lower().replace(",", " ,").split()]))
    for name, (kind, size) in NETWORKS.items():
        folder = tmp_path / kind / str(size)
        if not folder.exists():
            save(folder, kind, size=size, words=known)
        words += ["--weights", f"{name}={folder}"]
    words += ["--root", f"few={few_pictures}", "--here", "--mlflow-uri", ""]
    finished = goalgrid("run", "flickr8k", *words, runs=tmp_path)
    assert finished.returncode == 0, finished.stderr
    rows = record.collect(Home(tmp_path).path.glob("trials/*/record.parquet")).to_pylist()
    assert {row["recipe"] for row in rows} == {own for name in recipes for own in catalog.SHIPPED.lineage(name)}
    assert all(row["test_rsum"] > 0 for row in rows)
