"""What poolings learnt: trials keep it, `figures GRID pooling` draws it; each number against a literal computation."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.results.figures import FIGURES, Study
from goalgrid.results.records import checksummed
from goalgrid.results.records.scores import Scores
from goalgrid.retrieval.encoders.image import Cnn
from goalgrid.retrieval.encoders.pooling import AdPool, Gpo
from goalgrid.retrieval.encoders.text import Bow
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.loaded_model import LoadedModel

from ...conftest import SMALL, Goalgrid, made_once

POOLED = (
    *SMALL, "--set", 'objectives=["con_con"]', "--set", "seeds=[0,1]", "--set", "train.epochs=1",
    "--set", "model.image.pooling=gpo", "--set", "model.text.pooling=adpool", "--set", "dataset.val_images=20",
)  # fmt: skip


@pytest.fixture(scope="module")
def home(goalgrid: Goalgrid, tmp_path_factory: pytest.TempPathFactory) -> Home:
    def train(folder: Path) -> None:
        finished = goalgrid("run", "demo", "--here", "--mlflow-uri", "", *POOLED, runs=folder)
        assert finished.returncode == 0, finished.stderr

    return Home(made_once("pooled", tmp_path_factory, train))


@pytest.fixture(scope="module")
def study(home: Home) -> Study:
    cells = expand(load("demo", [word for word in POOLED if word != "--set"]))
    (found,) = FIGURES["pooling"].gather(Study.read(cells, Scores.read(cells, home), home))
    return found


def literal(pool: AdPool, members: Tensor) -> tuple[list[float], float]:
    """theta and the share of the token level of one set (n, d) without padding."""
    columns = [members[:, j].tolist() for j in range(members.shape[1])]
    ordered = torch.tensor([sorted(column, reverse=True) for column in columns]).T
    exponentials = [math.exp(float(pool.weigh(row))) for row in ordered]
    theta = [value / sum(exponentials) for value in exponentials]
    token = sum(weight * row for weight, row in zip(theta, ordered, strict=True))
    soft = torch.tensor([sum(x * math.exp(x) for x in c) / sum(math.exp(x) for x in c) for c in columns])
    assert pool.balance is not None
    both = [math.exp(float(pool.balance(level))) for level in (token, soft)]
    return theta, both[0] / sum(both)


@torch.no_grad()
def test_a_trial_keeps_the_mean_theta_and_balance_of_its_selected_checkpoint(home: Home, study: Study) -> None:
    (name,) = study.part.cells
    folder = home.trial(study.trials(name)[0])
    loaded = LoadedModel.of_trial(folder, Machine())
    image, text = loaded.model.image, loaded.model.text
    assert isinstance(image, Cnn) and isinstance(text, Bow)  # noqa: PT018
    assert isinstance(image.pool, Gpo) and isinstance(text.pool, AdPool)  # noqa: PT018
    kept = pq.read_table(folder.pooling).to_pydict()

    captions = loaded.inputs.pairs.val.first(20)[1]
    found = []
    for row in captions.tolist():
        ids, lengths = loaded.inputs.tokens["val"].gather(torch.tensor([row]))
        found.append(literal(text.pool, text.embed(ids[0, : lengths[0]])))
    longest = max(len(theta) for theta, _ in found)
    means = [sum(theta[k] for theta, _ in found if k < len(theta)) / len(found) for k in range(longest)]
    assert [value for value in kept["theta_text"] if value] == pytest.approx(means, rel=1e-4)
    assert kept["balance_text"][0] == pytest.approx(sum(share for _, share in found) / len(found), rel=1e-4)

    cells = [value for value in kept["theta_image"] if value is not None]
    assert cells == pytest.approx(image.pool.weights(len(cells))[-1].tolist(), rel=1e-4)
    assert sum(cells) == pytest.approx(1, abs=1e-5)
    assert "balance_image" not in kept  # GPO has no levels


def test_the_figure_shows_means_and_deviations_over_seeds(study: Study) -> None:
    drawn = FIGURES["pooling"].draw(study)
    assert drawn
    (name,) = study.part.cells
    kept = [pq.read_table(study.home.trial(trial).pooling).to_pydict() for trial in study.trials(name)]
    image, text, balance = drawn.axes
    for axes, modality in ((image, "image"), (text, "text")):
        values = np.array([[v for v in own[f"theta_{modality}"] if v is not None] for own in kept])
        (line,) = axes.lines
        assert list(line.get_xdata()) == list(range(1, values.shape[1] + 1))
        np.testing.assert_allclose(line.get_ydata(), values.mean(0))
        band = axes.collections[0].get_paths()[0].vertices
        assert np.max(band[:, 1]) == pytest.approx((values.mean(0) + values.std(0, ddof=1)).max())
    balances = [own["balance_text"][0] for own in kept]
    mean, *_, trials = balance.lines
    assert list(mean.get_ydata()) == pytest.approx([np.mean(balances)])
    assert list(trials.get_ydata()) == balances


def test_of_a_pooling_without_levels_no_balance_is_drawn(study: Study, tmp_path: Path) -> None:
    home, (name,) = Home(Path(shutil.copytree(study.home.path, tmp_path / "runs"))), study.part.cells
    for trial in study.trials(name):
        table = checksummed.read(home.trial(trial).pooling)
        checksummed.write(home.trial(trial).pooling, table.drop_columns(["balance_text"]))
    drawn = FIGURES["pooling"].draw(replace(study, home=home))
    assert drawn
    assert [axes.get_visible() for axes in drawn.axes] == [True, True, False]


def test_a_pooling_without_weights_draws_nothing(trained: Home) -> None:
    cells = expand(load("demo", [word for word in SMALL if word != "--set"]))
    studies = FIGURES["pooling"].gather(Study.read(cells, Scores.read(cells, trained), trained))
    assert [FIGURES["pooling"].draw(study) for study in studies] == [None]
