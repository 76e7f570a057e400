"""Verdicts on pairs of cells equal literal loops and scipy's tests, and hold whatever the order and the units."""

import itertools
import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from goalgrid.results.reference.reading import results_of
from goalgrid.results.statistics import pairs
from goalgrid.results.statistics.significance import LEVEL

RNG = np.random.default_rng(5)
GOAL = np.maximum([r.value.std for r in results_of("goal-table4-coco") if r.metric == "t2i_r1"][:15], 0.05)
"""Spreads of 15 cells as GOAL Table 4 prints them."""
TABLES = st.tuples(st.integers(2, 7), st.integers(2, 6), st.integers(0, 999))


def table(cells: int, seeds: int, seed: int) -> pairs.Array:
    """Cells two points apart that spread unequally, with what seeds add to all of them."""
    draw = np.random.default_rng(seed)
    own = draw.uniform(0.2, 2.0, (cells, 1)) * draw.normal(size=(cells, seeds))
    return own + 2 * np.arange(cells)[:, None] + 5 * draw.normal(size=seeds)


def literal_spreads(y: list[list[float]]) -> list[float]:
    k, n = len(y), len(y[0])
    rest = [[row[s] - statistics.fmean(other[s] for other in y) for s in range(n)] for row in y]
    return [statistics.variance(row) * k / (k - 1) for row in rest]


def literal_lead(means: list[float], squares: list[float], i: int, j: int) -> float:
    return (means[j] - means[i]) / math.sqrt(squares[i] + squares[j])


@given(TABLES)
def test_spreads_and_leads_are_the_literal_ones(drawn: tuple[int, int, int]) -> None:
    y = table(*drawn)
    k, n = y.shape
    spreads, means = literal_spreads(y.tolist()), [statistics.fmean(row) for row in y.tolist()]
    assert pairs.spreads(y) == pytest.approx(spreads)
    leads = pairs.leads(y)
    for i, j in itertools.permutations(range(k), 2):
        assert leads[i, j] == pytest.approx(literal_lead(means, [v / n for v in spreads], i, j))
    assert not leads.diagonal().any()


@pytest.mark.parametrize("spread", [[1.0, 1.0, 1.0], [0.04, 1.0, 9.0, 1.0]])
def test_the_critical_lead_is_that_of_the_literal_bootstraps(spread: list[float]) -> None:
    """Equal cells of these spreads, drawn as whole tables and as means with spreads of their own: the larger share."""
    n, k, draw, draws = 4, len(spread), random.Random(2), 2000
    critical, beyond = pairs.critical(np.array(spread), n), [0, 0]
    for _ in range(draws):
        y = [[draw.gauss(0, math.sqrt(v)) for _ in range(n)] for v in spread]
        means, drawn = [statistics.fmean(row) for row in y], [v / n for v in literal_spreads(y)]
        apart = [draw.gauss(0, math.sqrt(v / n)) for v in spread]
        own = [v / n * sum(draw.gauss(0, 1) ** 2 for _ in range(n - 1)) / (n - 1) for v in spread]
        for way, (of_means, squares) in enumerate([(means, drawn), (apart, own)]):
            largest = max(literal_lead(of_means, squares, i, j) for i, j in itertools.permutations(range(k), 2))
            beyond[way] += largest > critical
    assert max(beyond) / draws == pytest.approx(LEVEL, abs=0.02)  # four standard errors of 2,000 draws


@given(st.integers(2, 8), st.floats(-4, 4), st.integers(0, 999))
def test_of_two_cells_it_is_scipys_paired_t_test(seeds: int, shift: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    y = draw.normal(size=(2, seeds)) * [[0.3], [2.0]] + 5 * draw.normal(size=seeds)
    y[1] += shift
    theirs = stats.ttest_rel(y[1], y[0])
    if abs(theirs.pvalue - LEVEL) > 1e-9:
        found = theirs.pvalue < LEVEL
        expected = [[False, found and theirs.statistic > 0], [found and theirs.statistic < 0, False]]
        verdicts = pairs.ahead(y)
        assert verdicts is not None
        assert verdicts.tolist() == expected


@settings(max_examples=25)
@given(TABLES, st.randoms(use_true_random=False), st.lists(st.floats(-30, 30), min_size=6, max_size=6))
def test_neither_order_nor_units_nor_what_a_seed_adds_changes_a_verdict(
    drawn: tuple[int, int, int], shuffled: random.Random, shift: list[float]
) -> None:
    y = table(*drawn)
    verdicts, order = pairs.ahead(y), shuffled.sample(range(len(y)), len(y))
    assert verdicts is not None
    moved = pairs.ahead(7.5 * y[order] + np.array(shift[: y.shape[1]]))
    assert moved is not None
    assert moved.tolist() == verdicts[np.ix_(order, order)].tolist()


@given(TABLES)
def test_no_two_cells_are_above_each_other_and_the_best_is_below_none(drawn: tuple[int, int, int]) -> None:
    y = table(*drawn)
    verdicts = pairs.ahead(y)
    assert verdicts is not None
    assert not (verdicts & verdicts.T).any()
    assert not verdicts[y.mean(1).argmax()].any()


@pytest.mark.parametrize("spread", [GOAL, np.array([3.0, *[0.2] * 14])], ids=["as-goal-table4", "one-15-times-others"])
def test_equal_cells_that_spread_unequally_are_told_apart_in_one_table_of_twenty(spread: pairs.Array) -> None:
    """At most 5 %, plus what chance adds to 100 tables once in a thousand. One error for all cells has 22 and 28 %."""
    wrong = 0
    for _ in range(100):
        y = spread[:, None] * RNG.normal(size=(15, 5))
        wrong += bool((pairs.leads(y) > pairs.critical(pairs.spreads(y), 5, draws=499)).any())
    assert wrong / 100 <= LEVEL + 3.1 * math.sqrt(LEVEL * (1 - LEVEL) / 100)


def test_cells_without_a_spread_are_not_compared() -> None:
    parallel = np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]])
    assert pairs.ahead(parallel) is None
    two_of_four = np.array([[0.1, 0.2, 0.3], [1.1, 1.2, 1.3], [5.0, 5.3, 5.1], [5.4, 5.1, 5.3]])
    verdicts = pairs.ahead(two_of_four)
    assert verdicts is not None
    assert not (verdicts & ~verdicts.T).all()


def test_more_cells_than_are_drawn_are_told_apart_by_scipys_t_at_the_level_of_all_pairs() -> None:
    y = RNG.normal(size=(pairs.MOST + 1, 9))
    y[0] += 40
    verdicts = pairs.ahead(y)
    assert verdicts is not None
    assert verdicts[1:, 0].all()
    assert not verdicts[:, 1:].any()
    widths = pairs.half_widths(y, LEVEL)[1:, 0]
    k, (one, *others) = len(y), pairs.spreads(y)
    freedom = [8 * (one + v) ** 2 / (one**2 + v**2 + 2 * one * v / (k - 1) ** 2) for v in others]
    p = LEVEL / (k * (k - 1) / 2) / 2
    least = [stats.t.isf(p, f) * math.sqrt((one + v) / 9) for f, v in zip(freedom, others, strict=True)]
    assert (widths >= np.array(least) * (1 - 1e-9)).all()
    assert [pairs.test_of(size) for size in (2, 3, pairs.MOST, k)] == [
        "paired t test", *["Welch's t, parametric bootstrap"] * 2, "Welch's t, Bonferroni",
    ]  # fmt: skip


def test_of_two_independent_means_it_is_nearly_scipys_welch_test() -> None:
    """Both are approximations; they agree but for p within a fifth of the level."""
    one, other = RNG.normal(size=6), 3 * RNG.normal(size=9)
    squares, freedom = np.array([stats.sem(one) ** 2, stats.sem(other) ** 2]), np.array([5.0, 8.0])
    seen = set()
    for shift in np.linspace(-8, 8, 81):
        p = stats.ttest_ind(one, other + shift, equal_var=False).pvalue
        found = pairs.ahead_unpaired(np.array([one.mean(), other.mean() + shift]), squares, freedom)
        if abs(p - LEVEL) > LEVEL / 5:
            assert found.any() == (p < LEVEL)
            seen.add(bool(found.any()))
    assert seen == {True, False}
