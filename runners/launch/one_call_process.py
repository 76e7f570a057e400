"""A process of its own for one call: what it held of a GPU, its context included, is gone afterwards."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns there; it raises here what it raises there."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
