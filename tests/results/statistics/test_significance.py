"""Statistics equal scipy's, statsmodels', or slow literal versions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import DescrStatsW

from goalgrid.results.statistics import significance as own

VALUES = st.lists(st.floats(-50, 50).map(lambda x: round(x, 3)), min_size=2, max_size=8)
RNG = np.random.default_rng(7)


@given(VALUES)
def test_the_t_interval_is_scipys(values: list[float]) -> None:
    interval = own.t_interval(values)
    if np.ptp(values) > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
        assert (interval.low, interval.high) == pytest.approx((low, high))
    else:
        assert math.isnan(interval.low)


def test_the_bootstrap_is_scipys() -> None:
    values = RNG.exponential(size=40)
    interval = own.bootstrap_interval(values)
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=own.DRAWS, method="BCa", rng=np.random.default_rng(0)
    ).confidence_interval
    assert (interval.low, interval.high) == pytest.approx((theirs.low, theirs.high))


def test_the_bootstrap_gives_the_same_interval_twice() -> None:
    values = RNG.normal(size=30)
    assert own.bootstrap_interval(values) == own.bootstrap_interval(values)
    assert own.bootstrap_interval([1.0] * 9) == own.Interval(1.0, 1.0)


@given(VALUES)
def test_the_paired_t_test_is_scipys(values: list[float]) -> None:
    if np.std(values) > 1e-6:
        assert own.paired_t(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-6)
    else:
        assert math.isnan(own.paired_t(values))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=14))
def test_holm_is_the_literal_step_down(p: list[float]) -> None:
    adjusted = own.holm(p)
    running = 0.0
    for rank, place in enumerate(sorted(range(len(p)), key=lambda place: p[place])):
        running = max(running, min(1.0, (len(p) - rank) * p[place]))
        assert adjusted[place] == pytest.approx(running)
    assert all(adjusted >= np.array(p) - 1e-12)


@given(VALUES)
def test_the_paired_t_test_and_its_interval_are_statsmodels(values: list[float]) -> None:
    if np.std(values) > 1e-6:
        theirs = DescrStatsW(values)
        interval = own.t_interval(values)
        assert own.paired_t(values) == pytest.approx(theirs.ttest_mean(0)[1], rel=1e-6)
        assert (interval.low, interval.high) == pytest.approx(theirs.tconfint_mean())


@given(st.integers(2, 20), st.floats(0.05, 1.2))
def test_power_is_statsmodels(n: int, difference: float) -> None:
    assert own.power(difference, 1.0, n) == pytest.approx(TTestPower().power(difference, n, 0.05), abs=1e-6)


@settings(max_examples=20)
@given(st.floats(0.25, 4))
def test_the_seeds_needed_are_statsmodels_rounded_up(std: float) -> None:
    n = TTestPower().solve_power(0.5 / std, power=0.8, alpha=0.05)
    assert own.seeds_needed(0.5, std) in {max(2, math.ceil(n - 1e-6)), max(2, math.ceil(n + 1e-6))}


def test_power_is_the_share_of_simulated_experiments_that_find_the_difference() -> None:
    d = RNG.normal(0.8, 1.0, (20_000, 10))
    found = stats.ttest_1samp(d, 0, axis=1).pvalue < 0.05
    assert own.power(0.8, 1.0, 10) == pytest.approx(found.mean(), abs=0.01)


@given(st.floats(0.05, 5))
def test_the_seeds_needed_are_the_fewest(std: float) -> None:
    n = own.seeds_needed(0.5, std)
    assert n is not None
    assert own.power(0.5, std, n) >= 0.8
    assert n == 2 or own.power(0.5, std, n - 1) < 0.8


def test_too_many_seeds_are_none() -> None:
    assert own.seeds_needed(0.5, 50.0) is None
    assert own.seeds_needed(0.5, math.nan) is None
    assert own.seeds_needed(0.5, 0.0) is None


def test_the_true_std_lies_within_its_factors_as_often_as_promised() -> None:
    found = RNG.normal(size=(20_000, 5)).std(axis=1, ddof=1)
    factors = own.std_factors(5)
    assert np.mean((found * factors.low < 1) & (found * factors.high > 1)) == pytest.approx(0.95, abs=0.01)


def test_a_test_that_cannot_be_made_does_not_count_among_holms() -> None:
    assert own.holm([0.01, math.nan, 0.03])[[0, 2]].tolist() == [0.02, 0.03]
    assert np.isnan(own.holm([0.01, math.nan])[1])
