"""Work one step ahead: the next batch is read while the network is busy with this one."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def ahead(make: Callable[[Item], Made], items: Sequence[Item]) -> Iterator[Made]:
    """What `make` gives for each item, in order; the next one is being made while the caller uses this one.

    An error of `make` reaches the caller at its item.
    """
    if len(items) < 2:  # nothing to be ahead of, and a thread to start takes longer than many a batch
        yield from map(make, items)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        pending = None
        for item in items:
            following = pool.submit(make, item)
            if pending is not None:
                yield pending.result()
            pending = following
        if pending is not None:
            yield pending.result()
