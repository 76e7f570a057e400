"""How a verb that changes nothing ends."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Within the block, Ctrl-C and SIGTERM end the process, with exit code 0.

    A KeyboardInterrupt would wait for threads that read results, which takes longer than a user waits. Python also
    drops an exception that a signal raises within a finaliser.
    """
    before = {number: signal.signal(number, lambda *_: os._exit(0)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
