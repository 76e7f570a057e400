"""The analysis of variance equals statsmodels' and literal sums."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from goalgrid.results.analysis.factors import PAIR, TRIPLET, factors_of
from goalgrid.results.statistics.anova import anova, anova_of_printed
from goalgrid.results.statistics.pairs import ahead

RNG = np.random.default_rng(11)
MATRIX = RNG.normal(size=(5, 3, 4)) + np.arange(5)[:, None, None] + 2 * RNG.normal(size=4)
LEVELS = {PAIR: tuple("abcde"), TRIPLET: tuple("xyz")}


def test_sums_of_squares_are_the_literal_ones() -> None:
    y, n = MATRIX, MATRIX.shape[2]
    pair, triplet, seed, every = y.mean((1, 2)), y.mean((0, 2)), y.mean((0, 1)), y.mean()
    sums = {"pair": 0.0, "triplet": 0.0, "both": 0.0, "seed": 0.0, "error": 0.0}
    for i, j, s in itertools.product(*map(range, y.shape)):
        cell = y[i, j].mean()
        sums["pair"] += (pair[i] - every) ** 2
        sums["triplet"] += (triplet[j] - every) ** 2
        sums["both"] += (cell - pair[i] - triplet[j] + every) ** 2
        sums["seed"] += (seed[s] - every) ** 2
        sums["error"] += (y[i, j, s] - cell - seed[s] + every) ** 2
    found = anova(y, LEVELS)
    total = sum(sums.values())
    assert total == pytest.approx(((y - every) ** 2).sum())
    assert [effect.squares for effect in found.effects] == pytest.approx([sums["pair"], sums["triplet"], sums["both"]])
    assert (found.seeds, found.error) == pytest.approx((sums["seed"] / total, sums["error"] / total))
    assert [effect.freedom for effect in found.effects] == [4, 2, 8]
    assert found.freedom == 14 * (n - 1)
    mean_square = sums["error"] / found.freedom
    assert found.effects[0].f == pytest.approx(sums["pair"] / 4 / mean_square)
    assert found.effects[0].p == pytest.approx(stats.f.sf(found.effects[0].f, 4, found.freedom))
    assert found.effects[0].partial_eta2 == pytest.approx(sums["pair"] / (sums["pair"] + sums["error"]))
    assert found.effects[0].omega2 == pytest.approx((sums["pair"] - 4 * mean_square) / (total + mean_square))


def of_statsmodels(formula: str, rows: list[dict[str, float]]) -> pd.DataFrame:
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    table: pd.DataFrame = anova_lm(ols(formula, pd.DataFrame(rows)).fit(), typ=2)
    return table


@settings(max_examples=10)
@given(st.integers(2, 5), st.integers(2, 3), st.integers(2, 4), st.integers(0, 999))
def test_it_is_statsmodels_analysis_of_variance(pairs: int, triplets: int, seeds: int, seed: int) -> None:
    draws = np.random.default_rng(seed)
    y = draws.normal(size=(pairs, triplets, seeds)) + np.arange(pairs)[:, None, None] + draws.normal(size=seeds)
    rows = [{"p": i, "t": j, "s": s, "y": y[i, j, s]} for i, j, s in itertools.product(*map(range, y.shape))]
    theirs = of_statsmodels("y ~ C(p) * C(t) + C(s)", rows)
    found = anova(y, {"p": tuple(map(str, range(pairs))), "t": tuple(map(str, range(triplets)))})
    for effect, name in zip(found.effects, ("C(p)", "C(t)", "C(p):C(t)"), strict=True):
        own = (effect.squares, effect.freedom, effect.f, effect.p)
        assert own == pytest.approx(tuple(theirs.loc[name, ["sum_sq", "df", "F", "PR(>F)"]]))
    assert found.freedom == theirs.loc["Residual", "df"]
    assert found.seeds == pytest.approx(theirs.loc["C(s)", "sum_sq"] / theirs["sum_sq"].sum())


def test_of_means_and_deviations_it_is_statsmodels_without_seeds() -> None:
    y = MATRIX[:, :, :3]
    rows = [{"p": i, "t": j, "y": y[i, j, s]} for i, j, s in itertools.product(*map(range, y.shape))]
    theirs = of_statsmodels("y ~ C(p) * C(t)", rows)
    found = anova_of_printed(y.mean(2), y.std(2, ddof=1), 3, LEVELS)
    for effect, name in zip(found.effects, ("C(p)", "C(t)", "C(p):C(t)"), strict=True):
        own = (effect.squares, effect.freedom, effect.f, effect.p)
        assert own == pytest.approx(tuple(theirs.loc[name, ["sum_sq", "df", "F", "PR(>F)"]]))
    assert found.freedom == theirs.loc["Residual", "df"]
    assert math.isnan(found.seeds)
    level, within = found.factors[0].levels[0], theirs.loc["Residual", "sum_sq"] / 30
    low, high = stats.t.interval(0.95, 30, y[0].mean(), math.sqrt(within / 9))
    assert (level.interval.low, level.interval.high) == pytest.approx((low, high))


def test_one_factor_of_two_levels_is_the_paired_t_test() -> None:
    y = RNG.normal(size=(2, 6)) + RNG.normal(size=6)
    (effect,) = anova(y, {"objective": ("a", "b")}).effects
    t, p = stats.ttest_rel(*y)
    assert (effect.f, effect.p) == pytest.approx((t**2, p))


@settings(max_examples=10)
@given(st.lists(st.floats(-30, 30), min_size=4, max_size=4))
def test_what_a_seed_adds_to_all_cells_changes_no_test(shift: list[float]) -> None:
    moved = anova(MATRIX + np.array(shift), LEVELS).effects
    assert [effect.f for effect in moved] == pytest.approx([effect.f for effect in anova(MATRIX, LEVELS).effects])


@settings(max_examples=10)
@given(st.integers(2, 3), st.integers(2, 3), st.integers(2, 3), st.integers(2, 4))
def test_shares_of_any_number_of_factors_sum_to_one(a: int, b: int, c: int, n: int) -> None:
    y = np.random.default_rng(a + b + c + n).normal(size=(a, b, c, n))
    found = anova(y, {name: tuple(map(str, range(size))) for name, size in zip("abc", (a, b, c), strict=True)})
    assert len(found.effects) == 7
    assert sum(effect.share for effect in found.effects) + found.seeds + found.error == pytest.approx(1)
    assert sum(effect.freedom for effect in found.effects) == a * b * c - 1


def test_one_seed_is_described_and_not_tested() -> None:
    found = anova(MATRIX[..., :1], LEVELS)
    assert sum(effect.share for effect in found.effects) == pytest.approx(1)
    assert all(math.isnan(effect.p) for effect in found.effects)
    assert math.isnan(found.factors[0].levels[0].interval.low)


@pytest.mark.parametrize("value", [1.0, 0.2, 1 / 3])
def test_cells_that_are_all_equal_have_no_effect(value: float) -> None:
    found = anova(np.full((2, 2, 3), value), {"a": ("1", "2"), "b": ("1", "2")})
    assert all(math.isnan(effect.p) and math.isnan(effect.share) for effect in found.effects)


def test_marginal_means_are_means_of_means_and_hold_for_new_seeds() -> None:
    level = anova(MATRIX, LEVELS).factors[0].levels[2]
    by_seed = MATRIX[2].mean(axis=0)
    assert level.mean == pytest.approx(MATRIX[2].mean())
    low, high = stats.t.interval(0.95, 3, by_seed.mean(), stats.sem(by_seed))
    assert (level.interval.low, level.interval.high) == pytest.approx((low, high))


def test_a_complete_part_of_the_matrix_has_two_factors() -> None:
    factors, order = factors_of({name: (name,) for name in ("sig_cir", "con_con", "sig_con", "con_cir")})
    assert factors == {PAIR: ("con", "sig"), TRIPLET: ("con", "cir")}
    assert order == ["con_con", "con_cir", "sig_con", "sig_cir"]


def test_other_objectives_are_one_factor() -> None:
    assert factors_of({name: (name,) for name in ("con_con", "unified", "selhn")})[0] == {
        "objective": ("con_con", "unified", "selhn")
    }
    assert factors_of({name: (name,) for name in ("con_con", "sig_cir")})[0] == {"objective": ("con_con", "sig_cir")}
    assert factors_of({name: (name,) for name in ("con_con", "sig_con")})[0] == {PAIR: ("con", "sig")}


def test_a_swept_axis_is_a_factor_where_it_is_crossed_with_the_objective() -> None:
    places = {f"{o}{t}": (o, t) for o in ("con_cir", "sig_cir") for t in ("1", "10")}
    assert list(factors_of(places, ["objective.tau"])[0]) == [PAIR, "objective.tau"]
    del places["sig_cir10"]
    assert list(factors_of(places, ["objective.tau"])[0]) == ["cell"]


def test_levels_are_told_apart_by_their_means_in_each_seed() -> None:
    """Of two levels by scipy's paired t test, of more by the verdicts on the rows of their means."""
    y = MATRIX[:2] * [[[1.0]], [[0.2]]]
    for shift in np.linspace(-3, 3, 25):
        moved = y + shift * np.array([0, 1])[:, None, None]
        theirs = stats.ttest_rel(moved[1].mean(0), moved[0].mean(0))
        low, high = anova(moved, {PAIR: ("a", "b"), TRIPLET: tuple("xyz")}).factors[0].levels
        told = theirs.pvalue < 0.05
        assert low.above == (("b",) if told and theirs.statistic < 0 else ())
        assert high.above == (("a",) if told and theirs.statistic > 0 else ())
    verdicts = ahead(MATRIX.mean(1))
    assert verdicts is not None
    pairs, _ = anova(MATRIX, LEVELS).factors
    for place, level in enumerate(pairs.levels):
        assert level.above == tuple(name for other, name in enumerate("abcde") if verdicts[other, place])
    assert pairs.levels[4].above


def test_levels_of_printed_means_are_told_apart_by_the_spreads_of_their_own_cells() -> None:
    """Two levels of one cell are nearly Welch's test; a level that spreads widely does not hide that others differ."""
    for shift in np.linspace(0, 6, 25):
        means, deviations = np.array([0.0, shift]), np.array([0.5, 2.0])
        p = stats.ttest_ind_from_stats(0.0, 0.5, 5, shift, 2.0, 5, equal_var=False).pvalue
        (factor,) = anova_of_printed(means, deviations, 5, {"objective": ("a", "b")}).factors
        if abs(p - 0.05) > 0.015:
            assert factor.levels[1].above == (("a",) if p < 0.05 else ())
    means, deviations = np.array([[0.0, 0.2], [2.0, 2.2], [1.0, 1.2]]), np.array([[0.1, 0.1], [0.1, 0.1], [9.0, 9.0]])
    factor = anova_of_printed(means, deviations, 5, {"p": ("a", "b", "wild"), "t": ("x", "y")}).factors[0]
    assert [level.above for level in factor.levels] == [(), ("a",), ()]


def test_without_a_spread_or_with_one_seed_no_levels_are_told_apart() -> None:
    for found in (
        anova(MATRIX[..., :1], LEVELS),
        anova_of_printed(np.eye(2), np.zeros((2, 2)), 3, {"p": tuple("ab"), "t": tuple("xy")}),
    ):
        assert {level.above for factor in found.factors for level in factor.levels} == {None}
