"""Work one step ahead: the next batch is read while the network is busy with this one."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Argument = TypeVar("Argument")
Made = TypeVar("Made")


def ahead(make: Callable[[Argument], Made], items: Sequence[Argument]) -> Iterator[Made]:
    """`make(item)` for each item, in order; a thread makes the next result while the caller uses this one.

    The caller meets an error of `make` at the item that caused it.
    """
    if len(items) < 2:  # there is no next item, and a thread takes longer to start than many batches to read
        yield from map(make, items)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as pool:
        pending = pool.submit(make, items[0])
        for item in items[1:]:
            ready, pending = pending, pool.submit(make, item)
            yield ready.result()
        yield pending.result()
