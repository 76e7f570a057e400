"""The start and the end of a replica's process: it hears the first replica's orders, and ends with it.

`replicas` starts it with the descriptor of its end of a connection, over which come the user's own files first, and
then orders.
"""

import faulthandler
import os
import pickle
import queue
import signal
import threading
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from grid.uses import activate, uses_of
from runners.training.replica_process import follow


def main(descriptor: int) -> None:
    """Follow the orders that come over a connection; errors are sent back over it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the first replica hears them, and needs this one for its checkpoint
    faulthandler.enable()
    connection: Connection[Any, Any] = Connection(descriptor)
    uses = connection.recv()
    orders = queue.SimpleQueue[tuple[Any, ...]]()
    threading.Thread(target=_listen, args=(connection, orders), name="orders", daemon=True).start()
    try:
        activate(uses_of(uses))
        follow(orders.get, connection.send)
    except BaseException as error:
        error.add_note("In a replica:\n" + "".join(traceback.format_exception(error)))
        with suppress(OSError):
            connection.send(_portable(error))
        os._exit(1)  # the others wait in an exchange until this one is gone
    os._exit(0)


def _listen(connection: "Connection[Any, Any]", orders: "queue.SimpleQueue[tuple[Any, ...]]") -> None:
    """Queue the orders of the first replica; end this process, wherever it waits, once that one is gone."""
    with suppress(EOFError, OSError):
        while True:
            orders.put(connection.recv())
    os._exit(0)


def _portable(error: BaseException) -> Exception:
    """The error, or a copy with the same message if it cannot be pickled."""
    with suppress(Exception):
        copy = pickle.loads(pickle.dumps(error))
        if isinstance(copy, Exception):
            return copy
    return RuntimeError("".join(traceback.format_exception_only(error)).strip())
