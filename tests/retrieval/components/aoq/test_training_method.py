"""Offline negatives in a training: ranker, candidates and training as one grid, and the batches that bring them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.identity import derived_seed
from goalgrid.grid.objectives import resolve
from goalgrid.grid.settings import ObjectiveSettings, TrialSettings
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results.records import record
from goalgrid.retrieval.components.aoq.candidates import Candidates
from goalgrid.retrieval.components.aoq.training_method import OfflineNegatives, ranked_by
from goalgrid.retrieval.components.training_method import Around
from goalgrid.retrieval.scorers.sets import TokenSets
from goalgrid.runners.training import checkpoints
from goalgrid.runners.training.embedding import embedded
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.progress import best_of
from goalgrid.runners.training.trainer import Trainer
from goalgrid.runners.trial.loaded_model import LoadedModel, ranker
from tests.conftest import SMALL, Goalgrid

WORDS = (
    "--set",
    'objectives=["aoq"]',
    "--set",
    "seeds=[0]",
    "--set",
    "train.ranker=cnn-bow",
    "--set",
    "train.epochs=1",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, goalgrid: Goalgrid) -> Path:
    """A ranker and a training that it ranks for, done by one command."""
    folder = tmp_path_factory.mktemp("aoq")
    finished = goalgrid("run", "demo", "--here", "--mlflow-uri", "", *SMALL, *WORDS, runs=folder)
    assert finished.returncode == 0, finished.stderr
    return folder


def of_objective(runs: Path, objective: str) -> TrialFolder:
    return next(folder for folder in Home(runs).trials() if f"_{objective}_" in folder.trial_id)


def test_one_grid_ranks_and_trains_and_its_record_names_the_ranker(runs: Path, goalgrid: Goalgrid) -> None:
    by, trained = of_objective(runs, "triplet-hn"), of_objective(runs, "aoq")
    assert (
        TrialSettings.model_validate_json(record.collect([trained.record])["settings"][0].as_py()).ranker == by.trial_id
    )
    assert goalgrid("status", "demo", *SMALL, *WORDS, runs=runs).returncode == 0
    (folder,) = Home(runs).features.glob(f"negatives-{by.trial_id}-*")
    i2t, t2i = (np.load(folder / f"{name}.npy") for name in ("i2t", "t2i"))
    assert (i2t.shape, t2i.shape) == ((1_000, 2_000), (5_000, 400))
    loaded = LoadedModel.of_trial(by, Machine())
    image, text, owners = embedded(loaded.model, loaded.settings, loaded.inputs, "train")
    assert isinstance(image, torch.Tensor)
    assert isinstance(text, torch.Tensor)
    sim = (image @ text.T).numpy()
    for row in (0, 500, 999):
        others = sim[row, owners != row]
        np.testing.assert_allclose(sim[row, i2t[row]], np.sort(others)[::-1][:2000], atol=1e-5)
    for column in (0, 4999):
        assert owners[column] not in t2i[column]


def test_the_training_learns_from_what_its_ranker_ranked_and_says_from_which_weights(
    runs: Path, tmp_path: Path
) -> None:
    by, trained = of_objective(runs, "triplet-hn"), of_objective(runs, "aoq")
    (row,) = record.collect([trained.record]).to_pylist()
    settings = TrialSettings.model_validate_json(row["settings"])
    machine = Machine(features=Home(runs).features)
    inputs = prepare(settings, machine)
    around = Around(None, machine.features, lambda name: ranker(Home(runs).trial(name).path, machine))
    ranked = ranked_by(by.trial_id, inputs.pairs, around)
    logged = {}
    plain = settings.model_copy(
        update={"objective": ObjectiveSettings(name="triplet-hn", parameters=resolve("triplet-hn"))}
    )
    for name, own in (("with", settings), ("without", plain)):
        (tmp_path / name).mkdir()
        trainer = Trainer(own, replace(inputs, prepared={"offline": ranked}), TrialFolder(tmp_path / name))
        trainer.fit()
        logged[name] = trainer.progress.rows[0]
    own = {entry["name"]: entry["value"] for entry in row["history"]}
    assert {name: own[name] for name in ("loss", "val_rsum")} == pytest.approx(
        {name: logged["with"][name] for name in ("loss", "val_rsum")}
    )
    assert own["loss"] > 1.05 * logged["without"]["loss"]
    mark = checkpoints.checksum(by.best_checkpoint)
    assert json.loads(row["environment"])["negatives"] == mark
    assert best_of(trained, torch.device("cpu"))["sources"]["negatives"] == mark


@pytest.mark.parametrize("recipe", ["cnn-bow", "bfan-equal-tiny", "saf-tiny"])
def test_a_batch_brings_its_offline_negatives_and_their_scores(recipe: str) -> None:
    words = [word for word in (*SMALL, *WORDS) if word != "--set"]
    words += [f'recipes=["{recipe}"]', "train.batch_size=12", "model.dim=8", "train.ranker=cnn-bow"]
    settings = trials_of(expand(load("demo", words)))[-1].settings
    inputs = prepare(settings, Machine())
    owners, rng = inputs.pairs.train.image_of_text, np.random.default_rng(0)
    counts = len(inputs.pairs.train.images), len(owners)
    captions = rng.integers(counts[1], size=(counts[0], 20))
    images = rng.integers(counts[0], size=(counts[1], 4))
    offline = Candidates(captions, images, owners, "these")
    learner = Learner(settings, replace(inputs, prepared={"offline": offline}))
    (method,) = learner.methods
    assert isinstance(method, OfflineNegatives)
    epoch = learner.begin(0)
    (_, batch), (place, later) = next(epoch.since(0)), next(epoch.since(2))
    third = [batch for _, batch in zip(range(3), epoch.since(0), strict=False)][2][1]
    assert place == 2
    assert all(one.equal(other) for one, other in ((later.images, third.images), (later.tokens[0], third.tokens[0])))
    pairs = [epoch.rows[0].numpy(), batch.owners.numpy()]
    seed = derived_seed(settings, "negatives of epoch 0")
    wanted = np.concatenate([pairs[1], *offline.draw(pairs[1], pairs[0], seed)[0]])
    assert batch.images.equal(inputs.pairs.train.images.gather(wanted, epoch.views))
    with torch.no_grad():
        image, text = learner.model.embed_images(batch.images), learner.model.embed_texts(*batch.tokens)
        found = method.scores(learner.model.scorer, image, text, 12)
        if recipe == "saf-tiny":  # its scores in training depend on the batch
            assert found.shape == (2, 12, 2)
            return
        whole = image @ text.T if isinstance(image, torch.Tensor) else learner.model.scores(image, text)
        for i in range(12):
            expected = [[whole[i, 12 + i], whole[12 + i, 12 + i]], [whole[12 + i, i], whole[24 + i, 24 + i]]]
            torch.testing.assert_close(found[:, i], torch.tensor(expected))
        assert isinstance(image, torch.Tensor | TokenSets)
        loss = learner.objective.from_similarity(whole[:12, :12], batch.owners, extra={"offline": found})
    torch.testing.assert_close(learner.gradient(batch, 0.0)["loss"], loss)


def test_candidates_of_another_split_are_one_message_before_the_training(
    goalgrid: Goalgrid, few_pictures: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine" / "aoq").mkdir(parents=True)
    (tmp_path / "mine" / "precomp").symlink_to(few_pictures / "precomp")
    for name, rows in (("i2t", 30), ("t2i", 150)):
        np.save(tmp_path / "mine" / "aoq" / f"{name}_others.npy", np.zeros((rows, 9), int))
    words = ("recipes=fc-bow", "objectives=aoq", "seeds=0", "dataset.candidates=aoq", "datasets=mine", "train.epochs=1")
    overrides = [word for setting in words for word in ("--set", setting)]
    refused = goalgrid("run", "flickr8k", *overrides, "--root", f"mine={tmp_path / 'mine'}", "--here", runs=tmp_path)
    assert refused.returncode == 2
    assert (
        "i2t_others.npy has candidates for 30 rows; the training split has 40. Is it from another split?"
        in refused.stderr
    )
    assert not (tmp_path / "trials").exists()
