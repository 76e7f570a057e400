"""Seeds until resolved: intervals as scipy gives them, what ends a contest, and that no look is ever taken back."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from results.statistics.resolving import FIRST, PAIRED, TUKEY, resolve
from results.statistics.significance import LEVEL

BUDGET = 6
LOOKS = BUDGET - FIRST + 1


def test_the_paired_interval_is_scipys_at_the_level_of_all_looks_and_pairs() -> None:
    d = np.array([1.0, 1.2, 0.9])
    low = stats.ttest_1samp(d, 0).confidence_interval(1 - PAIRED * LEVEL / LOOKS)[0]
    assert low > 0
    for shift, out in ((low - 1e-6, ("b",)), (low + 1e-6, ())):
        found = resolve({"a": list(d - shift), "b": [0.0, 0.0, 0.0]}, budget=BUDGET, difference=0.0)
        assert found.out == out


def test_tukeys_interval_takes_its_error_from_the_first_seeds_of_all_cells() -> None:
    generator = np.random.default_rng(0)
    y = generator.normal(size=(8, FIRST))
    nearest = str(1 + int(y[1:].mean(1).argmax()))
    y[0] = y[int(nearest)] + np.array([0.8, -0.8, 0.0])  # their own spread is less than the pooled one
    rest = y - y.mean(1, keepdims=True) - y.mean(0) + y.mean()
    error = math.sqrt((rest**2).sum() / (7 * 2))
    width = stats.studentized_range.ppf(1 - TUKEY * LEVEL / LOOKS, 8, 7 * 2) * error / math.sqrt(FIRST)
    for above, out in ((width + 1e-6, True), (width - 1e-6, False)):
        values = {str(row): list(own + above * (row == 0)) for row, own in enumerate(y)}
        assert (nearest in resolve(values, budget=BUDGET, difference=0.0).out) == out


@pytest.mark.parametrize(
    ("b", "state", "seeds"),
    [
        ([0.0, 0.3, 0.1], "resolved", {"a": 3, "b": 3}),  # b is out
        ([20.0, 20.2, 20.1], "resolved", {"a": 3, "b": 3}),  # alike to less than the difference
        ([20.0, 23.0, 17.0], "open", {"a": 4, "b": 4}),
        ([20.0, 23.0, 17.0, 22.0, 18.0, 21.0], "spent", {"a": 6, "b": 6}),
        ([20.0, 21.0], "open", {"a": 3, "b": 3}),
        ([0.0, 0.0, 0.0], "open", {"a": 4, "b": 4}),  # equal differences prove nothing
    ],
)
def test_a_contest_ends_when_cells_part_or_are_alike_or_seeds_are_spent(
    b: list[float], state: str, seeds: dict[str, int]
) -> None:
    a = [20.0, 20.1, 20.2, 20.3, 20.0, 20.1] if b[0] or b[1] else [20.0] * 3
    found = resolve({"a": a, "b": b}, budget=BUDGET, difference=3.0)
    assert (found.state, found.seeds) == (state, seeds)
    assert found.out == (("b",) if b == [0.0, 0.3, 0.1] else ())


def test_more_seeds_take_no_look_back() -> None:
    generator = np.random.default_rng(1)
    y = 0.4 * np.arange(6)[:, None] + 0.3 * generator.normal(size=(6, BUDGET))
    ends = [
        resolve({str(row): list(own[:n]) for row, own in enumerate(y)}, budget=BUDGET, difference=0.1)
        for n in range(FIRST, BUDGET + 1)
    ]
    assert ends[-1].out
    for earlier, later in itertools.pairwise(ends):
        assert later.out[: len(earlier.out)] == earlier.out
        assert all(later.seeds[name] == earlier.seeds[name] for name in earlier.out)
