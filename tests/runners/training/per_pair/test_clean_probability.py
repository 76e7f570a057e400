"""The mixture that tells clean pairs from mismatched pairs by their losses, against loops over the losses."""

import math

import numpy as np
import pytest

from runners.training.per_pair.clean_probability import SPREAD, STEPS, STILL, auc, clean_probability


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
    for _ in range(STEPS):
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
        if abs(bound - before) < STILL:
            break
        before = bound
    lower = means.index(min(means))
    return [shares_of(value)[lower] / sum(shares_of(value)) for value in x]


def test_the_probability_equals_the_literal_mixture_and_orders_two_heaps() -> None:
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.normal(0.3, 0.1, 60), rng.normal(1.2, 0.2, 40)])
    found = clean_probability(losses)
    assert found.tolist() == pytest.approx(literal(losses.tolist()), abs=1e-6)
    assert auc(found, np.arange(100) < 60) > 0.99


@pytest.mark.parametrize("loss", [0.0, 0.7, math.nan])
def test_pairs_with_one_loss_are_all_clean(loss: float) -> None:
    assert clean_probability(np.full(8, loss)).tolist() == [1.0] * 8
