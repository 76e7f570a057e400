"""Which queries are shown, by hand."""

import numpy as np

from goalgrid.results.analysis.queries import example_queries

OWN = {
    "i2t": np.array([[0, 9, 7, 0, 50], [0, 8, 7, 3, 60]]),
    "t2i": np.array([[4, 4, 4], [4, 4, 4]]),
}
OTHERS = {
    "triplet": {"i2t": np.array([[5, 0, 1, 0, 0], [9, 0, 0, 0, 0]]), "t2i": np.array([[0, 0, 0], [0, 0, 0]])},
    "selhn": {"i2t": np.array([[30, 0, 0, 0, 1], [6, 0, 0, 0, 0]]), "t2i": np.array([[0, 0, 0], [0, 0, 0]])},
}


def test_found_missed_and_what_another_objective_alone_finds_are_chosen() -> None:
    found = [(query.direction, query.row, query.why) for query in example_queries("unified", OWN, OTHERS)]
    assert found == [
        ("i2t", 0, "found first by all 2 seeds"),
        ("i2t", 4, "missed by all 2 seeds: the best rank is 51"),
        ("i2t", 1, "missed by all 2 seeds: the best rank is 9"),
        ("i2t", 0, "every seed of unified finds it first, every seed of selhn misses it"),
        ("i2t", 1, "every seed of triplet finds it first, every seed of unified misses it"),
    ]


def test_one_seed_alone_is_enough_and_one_query_that_it_finds() -> None:
    (query,) = example_queries("unified", {"i2t": np.array([[0, 2, 0]])}, {})
    assert query.why == "found first by its seed"


def test_a_mean_place_that_ends_in_a_half_is_shown_as_it_is() -> None:
    first, second = example_queries("unified", {"i2t": np.array([[0.5, 0, 7.5]])}, {})
    assert (first.row, second.why) == (1, "missed by its seed: the best rank is 8.5")
