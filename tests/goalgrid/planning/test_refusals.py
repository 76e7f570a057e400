"""What `run` refuses before it trains, `plan` refuses in the same words."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home

from ...retrieval.components.video import made
from ...retrieval.packages import write_precomp
from ..conftest import Verb


def features(root: Path) -> None:
    write_precomp(root / "precomp")


def leaking(root: Path) -> None:
    features(root)
    (root / "precomp" / "train_ids.txt").write_text((root / "precomp" / "test_ids.txt").read_text())


def validating_on_test(root: Path) -> None:
    features(root)
    for path in (root / "precomp").glob("dev_*"):
        shutil.copy(path, path.with_name(path.name.replace("dev", "test")))


def videos(root: Path) -> None:
    made.write(root, made.TINY)


def nothing(root: Path) -> None:
    root.mkdir()


def vectors(root: Path) -> None:
    features(root)
    for path in (root / "precomp").glob("*_ims.npy"):
        array = np.load(path)
        np.save(path, array.reshape(len(array), -1)[:, :5])


REFUSALS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "features-of-pictures": (nothing, 'datasets=["shapes"] recipes=["vse-inf-butd-tiny"]', "has images only"),
    "pictures-of-features": (features, 'recipes=["cnn-bow"]', "precomp has features, but this recipe reads images"),
    "sets-of-single-vectors": (vectors, 'recipes=["scan-t2i"]', "scorer 'scan' reads several vectors per image"),
    "images-of-videos": (videos, 'recipes=["fc-bow"]', "has features of videos by experts"),
    "an-expert-that-is-not-there": (videos, 'recipes=["ce"]', "has no expert 'i3d', which the recipe reads"),
    "test-images-that-train": (leaking, 'recipes=["fc-bow"]', "train and test share 6 image ids.* --allow-leak"),
    "test-images-that-validate": (validating_on_test, 'recipes=["fc-bow"]', "val and test share 6 .* --allow-leak"),
    "test-images-that-choose-settings": (
        validating_on_test,
        'recipes=["fc-bow"] train.selection="last" select={over={"train.lr"=[0.1,0.2]}}',
        "val and test share 6 .* --allow-leak",
    ),
    "another-protocol": (features, 'datasets=["flickr8k"] recipes=["fc-bow"]', "protocol 'flickr8k-1k' requires 1,000"),
    "more-images-than-there-are": (
        features,
        'recipes=["fc-bow"] dataset.train_images=7',
        "train split .* has only 6 images",
    ),
    "replicas-of-offline-negatives": (
        features,
        'recipes=["fc-bow"] objectives=["aoq"] train.ranker="fc-bow" resources.replicas=2',
        "needs negatives from outside the batch, which resources.replicas = 2 cannot give",
    ),
    "replicas-of-a-fusion": (
        nothing,
        'datasets=["shapes"] recipes=["xvlm-tiny"] resources.replicas=2',
        "fusion x-vlm needs negatives of a whole batch",
    ),
    "parts-of-batches-for-batch-norms": (
        nothing,
        'datasets=["shapes"] recipes=["cnn-bow"] train.micro_batch=8',
        "train.micro_batch with cnn-bow: batch norms of its model \\(3\\) must see the whole batch",
    ),
}
"""What lies under the root, what a grid sets, and what is said."""


def of_data(root: Path, settings: str) -> list[str]:
    """The grid `demo` with these settings, on the data under this root unless they name shapes."""
    words = ['datasets=["mine"]', 'objectives=["con_con"]', "seeds=[0]", *settings.split()]
    dataset = "" if "shapes" in settings else "flickr8k=" if "flickr8k" in settings else "mine="
    place = ["--root", f"{dataset}{root}"] if dataset else []
    return ["demo", *(word for setting in words for word in ("--set", setting)), *place]


@pytest.mark.parametrize("name", REFUSALS)
def test_plan_refuses_what_run_refuses(name: str, tmp_path: Path, verb: Verb) -> None:
    write, settings, said = REFUSALS[name]
    root, home = tmp_path / "data", Home(tmp_path / "runs")
    write(root)
    grid = of_data(root, settings)
    refused = {}
    for words in (["plan"], ["run", "--dry-run"], ["run", "--here", "--mlflow-uri", ""]):
        with pytest.raises(UserError, match=said) as caught:
            verb(words[0], *grid, *words[1:], runs=home)
        refused[" ".join(words)] = str(caught.value)
    assert len(set(refused.values())) == 1, refused
    assert not home.trials()


def test_replicas_that_outnumber_the_pairs_of_a_batch_are_refused(tmp_path: Path, verb: Verb) -> None:
    """A launch says it, too, where the machine has a CPU for each replica."""
    features(tmp_path / "data")
    grid = of_data(tmp_path / "data", 'recipes=["fc-bow"] train.batch_size=14 resources.replicas=3')
    with pytest.raises(UserError, match=r"the smallest batch of an epoch has 2 pairs \(30"):
        verb("plan", *grid, runs=Home(tmp_path / "runs"))


def test_a_leak_that_is_allowed_is_planned(tmp_path: Path, verb: Verb) -> None:
    leaking(tmp_path / "data")
    grid = ["demo", "--set", 'datasets=["mine"]', "--set", 'recipes=["fc-bow"]', "--root", f"mine={tmp_path / 'data'}"]
    assert "45 x new" in verb("plan", *grid, "--allow-leak", runs=Home(tmp_path / "runs")).stdout


def test_missing_data_are_the_first_thing_that_plan_and_run_say(
    tmp_path: Path, verb: Verb, capfd: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path / "runs")
    lines = verb("plan", "flickr8k", runs=home).stdout.splitlines()
    assert lines[1].startswith("  missing    no root for data set 'flickr8k'. It needs dataset_flickr8k.json")
    planned = json.loads(verb("plan", "flickr8k", "--json", runs=home).stdout)["data_missing"]
    two = "--set", 'datasets=["flickr8k","flickr30k"]'
    both = (
        r"grid 'flickr8k@.*': 2 problems\n  - no root for data set 'flickr8k'.*\n  - no root for data set 'flickr30k'"
    )
    for words, said in ((), re.escape(planned[0])), (two, both):
        with pytest.raises(UserError, match=said):
            verb("run", "flickr8k", *words, "--here", "--mlflow-uri", "", runs=home)
    assert "training" not in capfd.readouterr().err
    assert not home.path.exists()
    evaluated = "--set", 'evaluate.datasets=["flickr30k"]'
    assert "missing    no root for data set 'flickr30k'" in verb("plan", "demo", *evaluated, runs=home).stdout
    assert "missing" not in verb("plan", "demo", runs=home).stdout


def test_validation_that_chooses_nothing_may_be_test(tmp_path: Path, verb: Verb) -> None:
    validating_on_test(tmp_path / "data")
    grid = of_data(tmp_path / "data", 'recipes=["fc-bow"] train.selection="last"')
    assert "val and test share 6 images" in verb("plan", *grid, runs=Home(tmp_path / "runs")).stdout


def test_a_plan_needs_no_data(tmp_path: Path, verb: Verb) -> None:
    assert "trains" in verb("plan", "goal-table5-coco", runs=Home(tmp_path)).stdout
