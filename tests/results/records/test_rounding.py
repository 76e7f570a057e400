"""Rounding: as a reader rounds by hand, and the same for equal means, whatever floats they are sums of."""

from decimal import ROUND_HALF_UP, Decimal
from statistics import fmean

from hypothesis import given
from hypothesis import strategies as st

from goalgrid.results.records.rounding import rounded, written
from goalgrid.results.records.scores import Score, best
from goalgrid.results.reference.matching import Difference
from goalgrid.results.reference.reading import Printed

TENTHS = st.integers(0, 1000)


@given(TENTHS, TENTHS)
def test_means_of_two_seeds_round_as_exact_decimals(a: int, b: int) -> None:
    exact = Decimal(a + b) / 20
    shown = float(exact.quantize(Decimal("0.1"), ROUND_HALF_UP))
    assert rounded(fmean([a / 10, b / 10])) == shown
    assert Score((a / 10, b / 10), expected=2).text.startswith(f"{shown:.1f} ±")


def test_equal_means_of_other_seeds_tie_and_read_alike() -> None:
    pairs = [(a / 10, (301 - a) / 10) for a in range(100, 150)]
    scores = [Score(pair, expected=2) for pair in pairs]
    assert best(scores) == set(range(len(scores)))
    assert {score.text.split(" ±")[0] for score in scores} == {"15.1"}


def test_differences_round_the_same_way() -> None:
    for pair in [(10.1, 10.2), (10.0, 10.3)]:
        assert Difference(Score(pair, expected=2), Printed("10.0")).text == "+0.2"


def test_halves_move_away_from_zero_and_nothing_is_minus_zero() -> None:
    assert [written(value, sign="+") for value in (0.05, -0.05, -0.0499, 0.0)] == ["+0.1", "-0.1", "+0.0", "+0.0"]
