"""Training and evaluation of models with scorers of sets: what is refused, and that a resumed trial is the same."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.retrieval.components.video.networks import Mixture
from goalgrid.retrieval.model import DualEncoder
from goalgrid.retrieval.own_networks import OwnScorer
from goalgrid.retrieval.scorers.cross_attention import Bfan, Scan
from goalgrid.retrieval.scorers.sets import TokenSets
from goalgrid.retrieval.scorers.similarity import Saf, Sgr
from goalgrid.runners.training.embedding import ranked
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.progress import Cadence
from goalgrid.runners.training.trainer import Hooks, Preempted, Trainer
from goalgrid.runners.trial.ensemble import Ensemble, Joint
from goalgrid.runners.trial.loaded_model import LoadedModel

SMALL = ("datasets=few", "objectives=con_con", "model.dim=8", "model.text.word_dim=8", "train.batch_size=80")


def settings_of(root: Path, recipe: str, *overrides: str) -> TrialSettings:
    words = [f'data.few.root="{root}"', f"recipes={recipe}", *SMALL, "train.epochs=2", *overrides]
    return trials_of(expand(load("flickr8k", words)))[0].settings


def machine_of(root: Path) -> Machine:
    return Machine(roots=(("few", str(root)),))


LATE = """import torch
import goalgrid


@goalgrid.scorer("late")
class Late(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.project = torch.nn.Sequential(torch.nn.Linear(dim, dim), torch.nn.Dropout(0.3))

    def forward(self, images, regions, words, lengths):
        return torch.einsum("ind,tmd->it", self.project(images), words) / regions[:, None] / lengths
"""


@pytest.mark.parametrize(
    ("recipe", "overrides"),
    [
        ("scan-t2i", ()),
        ("saf", ("model.scorer.width=8",)),
        ("scan-i2t", ("uses=late.py", "model.scorer.kind=own", "model.scorer.name=late")),
        ("vsrn-tiny", ()),
    ],
    ids=["scan-t2i", "saf", "own", "vsrn"],
)
def test_a_resumed_trial_of_sets_equals_an_uninterrupted_one_to_the_bit(
    tmp_path: Path, few_pictures: Path, recipe: str, overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late.py").write_text(LATE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    settings = settings_of(few_pictures, recipe, *overrides)
    inputs = prepare(settings, machine_of(few_pictures))
    trainers = []
    for name, cut in (("whole", None), ("cut", 4), ("cut", None)):
        folder = TrialFolder(tmp_path / name)
        folder.path.mkdir(exist_ok=True)
        hooks = Hooks(beat=lambda step, cut=cut: step == cut)
        trainer = Trainer(settings, inputs, folder, hooks=hooks, cadence=Cadence(steps=1))
        try:
            trainer.fit()
        except Preempted:
            assert cut
        trainers.append(trainer)
    whole, _, resumed = trainers
    assert whole.progress.step == resumed.progress.step == 6
    ours, theirs = resumed.model.weights(), whole.model.weights()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    one, other = (trainer.by_protocols([settings.dataset.protocol]) for trainer in (whole, resumed))
    for name in one:
        assert np.array_equal(one[name].i2t, other[name].i2t)
        assert np.array_equal(one[name].t2i, other[name].t2i)


def test_images_of_one_vector_are_refused(tmp_path: Path, few_pictures: Path) -> None:
    shutil.copytree(few_pictures / "precomp", tmp_path / "precomp")
    for file in (tmp_path / "precomp").glob("*_ims.npy"):
        np.save(file, np.load(file)[:, 0])
    with pytest.raises(UserError, match=r"scorer 'scan' reads several vectors per image.* have one of 512 values"):
        prepare(settings_of(tmp_path, "scan-t2i"), machine_of(tmp_path))


def test_a_caption_of_no_known_word_is_named(tmp_path: Path, few_pictures: Path) -> None:
    shutil.copytree(few_pictures / "precomp", tmp_path / "precomp")
    file = tmp_path / "precomp" / "test_caps.txt"
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([*lines[:2], "zzz qqq", *lines[3:]]) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"caption 'zzz qqq', number 3 of the test split of 'few', has no known word"):
        prepare(settings_of(tmp_path, "scan-t2i"), machine_of(tmp_path))


def test_scores_of_ce_are_ranked_by_mean_places_alone_and_in_an_ensemble() -> None:
    """Two equal videos share the first place, as a whole, in folds and in an ensemble; no scorer of images ranks so."""
    vectors = torch.eye(3)[[0, 0, 1, 2]][:, None]
    sets = TokenSets(vectors, torch.ones(4, dtype=torch.long), torch.ones(4, 1))
    model = DualEncoder(catalog.recipe("ce-tiny").model, (1,), 12, seed=0)
    whole, owners = [0.5, 0.5, 0, 0], np.arange(4)
    found = ranked(model, sets, sets, owners)
    assert (found.i2t.tolist(), found.t2i.tolist()) == (whole, whole)
    ensemble: Any = Ensemble([LoadedModel(model, None, None)] * 2)  # type: ignore[arg-type]
    both = ensemble._ranked(Joint((sets, sets)), Joint((sets, sets)), owners)
    assert (both.i2t.tolist(), both.t2i.tolist()) == (whole, whole)
    folds = ranked(model, sets, sets, owners, fold=2)
    assert folds.i2t.tolist() == whole
    assert [scorer for scorer in (Mixture, Scan, Bfan, Sgr, Saf, OwnScorer) if scorer.mean_places] == [Mixture]
