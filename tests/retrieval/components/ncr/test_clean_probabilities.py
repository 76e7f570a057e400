"""The mixture that tells clean pairs from mismatched pairs by their losses, against loops over the losses."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.settings.image_views import View
from goalgrid.objectives.assisted import pair_losses
from goalgrid.retrieval.components.ncr.clean_probabilities import SPREAD, CleanProbabilities, clean_probability
from goalgrid.retrieval.data import shapes


def literal(losses: list[float]) -> list[float]:
    """The posterior of the lower of two Gaussians, by expectation and maximisation, pair by pair."""

    def shares_of(value: float) -> list[float]:
        """Density of each component at a value, times its weight."""
        return [
            weights[k]
            * math.exp(-((value - means[k]) ** 2) / (2 * variances[k]))
            / math.sqrt(2 * math.pi * variances[k])
            for k in (0, 1)
        ]

    least, most = min(losses), max(losses)
    x = [(loss - least) / (most - least) for loss in losses]
    mean = float(np.mean(x))
    weights, means = [0.5, 0.5], [float(np.quantile(x, 0.25)), float(np.quantile(x, 0.75))]
    variances = [sum((value - mean) ** 2 for value in x) / len(x) + SPREAD] * 2
    before = -math.inf
    for _ in range(100):
        shares, bound = [], 0.0
        for value in x:
            parts = shares_of(value)
            bound += math.log(sum(parts)) / len(x)
            shares.append([part / sum(parts) for part in parts])
        for k in (0, 1):
            total = sum(share[k] for share in shares)
            weights[k] = total / len(x)
            means[k] = sum(share[k] * value for share, value in zip(shares, x, strict=True)) / total
            spread = sum(share[k] * (value - means[k]) ** 2 for share, value in zip(shares, x, strict=True)) / total
            variances[k] = spread + SPREAD
        if abs(bound - before) < 1e-5:
            break
        before = bound
    lower = means.index(min(means))
    return [shares_of(value)[lower] / sum(shares_of(value)) for value in x]


def test_the_probability_equals_the_literal_mixture_and_orders_two_heaps() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.normal(0.3, 0.1, 60), rng.normal(1.2, 0.2, 40)])
    found = clean_probability(losses)
    assert found.tolist() == pytest.approx(literal(losses.tolist()), abs=1e-6)
    assert roc_auc_score(np.arange(100) < 60, found) > 0.99
    assert SPREAD == 5e-4, "NCR's reg_covar"


def test_as_released_the_mixture_is_that_of_ncrs_code_and_no_other() -> None:
    from sklearn.mixture import GaussianMixture

    rng = np.random.default_rng(1)
    losses = np.concatenate([rng.gamma(1.0, 0.2, 700), rng.normal(0.9, 0.4, 300)])
    scaled = ((losses - losses.min()) / (losses.max() - losses.min()))[:, None]
    mixture = GaussianMixture(n_components=2, max_iter=10, tol=1e-2, reg_covar=5e-4, random_state=3).fit(scaled)
    expected = mixture.predict_proba(scaled)[:, mixture.means_.argmin()]
    found = clean_probability(losses, 3, "k-means")
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-9)
    assert np.abs(found - clean_probability(losses)).max() > 0.1  # which stops where it is still


@pytest.mark.parametrize(("name", "variant", "mixture"), [
    ("ncr", "paper", "quartiles"),
    ("ncr", "released", "k-means"),
    ("unified-adaptive", "released", "quartiles"),
])  # fmt: skip
def test_the_variant_chooses_the_mixture(name: str, variant: str, mixture: str) -> None:
    given = [f'objectives=["{name}"]', f"objective.variant={variant}", "train.warmup_epochs=1"]
    whole = shapes.load(View(32))
    pairs = replace(whole, train=replace(whole.train, captions=whole.train.captions[:200], matched=None))
    clean = CleanProbabilities(trials_of(expand(load("demo", given)))[0].settings, pairs, torch.device("cpu"))
    order, rows = (lambda epoch: torch.arange(200)), torch.arange(200)
    sim = torch.randn(200, 200, generator=torch.Generator().manual_seed(0))
    clean.begin(0, order)
    assert clean.batch(rows.numpy(), rows, 0, 0).values is None
    clean.on_scores(0, sim)
    clean.begin(1, order)
    found = clean.batch(rows.numpy(), rows, 0, 0).values
    assert found is not None
    expected = clean_probability(pair_losses(sim, margin=0.2).double().numpy(), 0, mixture)
    assert found[0].tolist() == pytest.approx(expected.tolist(), abs=1e-4)


def test_what_is_logged_is_of_the_pairs_that_the_epoch_reads() -> None:
    """With dataset.train_images or one caption an image, the other captions have no estimate."""
    from sklearn.metrics import roc_auc_score

    given = ['objectives=["ncr"]', "train.warmup_epochs=1"]
    whole = shapes.load(View(32))
    matched, train = np.arange(200) % 2 == 0, whole.train
    train = replace(train, captions=train.captions[:200], image_of_text=train.image_of_text[:200], matched=matched)
    pairs = replace(whole, train=train)
    clean = CleanProbabilities(trials_of(expand(load("demo", given)))[0].settings, pairs, torch.device("cpu"))
    rows = torch.arange(40, 80)
    clean.begin(0, lambda epoch: rows.flip(0))
    clean.on_scores(0, torch.randn(40, 40, generator=torch.Generator().manual_seed(0)))
    clean.begin(1, lambda epoch: rows.flip(0))
    values = clean.values[0, rows]
    assert clean.report() == {
        "clean": pytest.approx(float(values.mean())),
        "clean_auc": pytest.approx(roc_auc_score(matched[40:80], values.numpy())),
    }
    assert float(clean.values.mean()) > float(values.mean())


@pytest.mark.parametrize("mixture", ["quartiles", "k-means"])
@pytest.mark.parametrize("loss", [0.0, 0.7, math.nan])
def test_pairs_with_one_loss_are_all_clean(loss: float, mixture: str) -> None:
    assert clean_probability(np.full(8, loss), 0, mixture).tolist() == [1.0] * 8
