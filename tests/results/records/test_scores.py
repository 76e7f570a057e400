"""Scores: the arithmetic of a cell, and what it shows."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalgrid.grid.errors import UserError
from goalgrid.results.records.scores import Score, best, refuse_mixed_data

PERCENT = st.floats(0, 100)


@given(st.lists(PERCENT, min_size=2, max_size=9))
def test_mean_and_sample_std_equal_numpy(values: list[float]) -> None:
    score = Score(tuple(values), expected=len(values))
    assert score.mean == pytest.approx(np.mean(values))
    assert score.std == pytest.approx(np.std(values, ddof=1), abs=1e-9)


def test_one_seed_has_no_spread() -> None:
    assert Score((51.24,), expected=1).text == "51.2"
    assert math.isnan(Score((51.24,), expected=1).std)


def test_missing_seeds_are_counted_in_the_cell() -> None:
    assert Score((50.0, 52.0), expected=3).text == "51.0 ± 1.4 (2/3)"
    assert Score((), expected=3).text == "--"


def test_all_that_tie_as_shown_are_best() -> None:
    scores = [Score((v,), expected=1) for v in (63.14, 63.06, 62.9)] + [Score((), expected=1)]
    assert best(scores) == {0, 1}
    assert best(scores, lowest=True) == {2}
    assert best([Score((), expected=1)]) == set()


@given(st.lists(PERCENT, min_size=1))
def test_the_best_are_shown_alike_and_none_is_shown_better(values: list[float]) -> None:
    scores = [Score((v,), expected=1) for v in values]
    places = best(scores)
    assert len({scores[place].text for place in places}) == 1
    assert max(score.shown for score in scores) == scores[next(iter(places))].shown


def test_different_data_never_share_a_table() -> None:
    common = {"dataset": "coco", "recipe": "vsepp-r152"}
    rows = [{**common, "data_fingerprint": mark, "trial_id": f"t{mark}"} for mark in "aab"]
    with pytest.raises(UserError, match=r"saw different data.*ta \(a\), tb \(b\)"):
        refuse_mixed_data(rows)
