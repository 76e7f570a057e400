"""Batches are made ahead of their use: two at a time, in their order, with each error at its own place."""

from threading import Barrier

import pytest

from goalgrid.retrieval.prefetch import ahead


def test_two_results_are_made_at_a_time_and_come_in_order() -> None:
    both = Barrier(2)

    def make(item: int) -> int:
        both.wait(timeout=20)  # breaks unless another result is made meanwhile
        return item * item

    assert list(ahead(make, range(6))) == [0, 1, 4, 9, 16, 25]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_an_error_comes_at_the_item_that_caused_it(count: int) -> None:
    made = ahead(lambda item: 1 // item, range(count, -1, -1))
    assert [next(made) for _ in range(count)] == [1 // item for item in range(count, 0, -1)]
    with pytest.raises(ZeroDivisionError):
        next(made)
