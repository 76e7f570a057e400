"""Prefetching: the next batches are read while the network processes the current one."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Argument = TypeVar("Argument")
Made = TypeVar("Made")

AHEAD = 2
"""Number of results computed in parallel: while one is assembled, the images of the next are decoded."""


def ahead(make: Callable[[Argument], Made], items: Sequence[Argument]) -> Iterator[Made]:
    """Yield `make(item)` for each item, in order, while threads compute the next ones.

    If `make` raises an error, it is raised when its item is due.
    """
    if len(items) < 2:  # there is no next item, and a thread takes longer to start than many batches to read
        yield from map(make, items)
        return
    with ThreadPoolExecutor(AHEAD, thread_name_prefix="ahead") as pool:
        pending = deque(pool.submit(make, item) for item in items[:AHEAD])
        for item in items[AHEAD:]:
            ready = pending.popleft()
            pending.append(pool.submit(make, item))
            yield ready.result()
        for ready in pending:
            yield ready.result()
