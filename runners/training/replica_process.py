"""The process of a replica: does what the first replica commands, and ends with it.

Started by `replicas` as `python -m runners.training.replica_process DESCRIPTOR`: the descriptor of its end of a
connection.
"""

import faulthandler
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from grid.identity import derived_seed
from runners.training import checkpoints, collectives
from runners.training.inputs import prepare
from runners.training.learner import Learner


def follow(next_order: Callable[[], tuple[Any, ...]], answer: Callable[[Any], None]) -> None:
    """Prepare the data, connect to the others, load the state of the first replica, and train as it commands."""
    _, rank, settings, machine = next_order()
    torch.set_num_threads(machine.threads)
    if machine.device.type == "cuda":
        torch.cuda.set_device(rank)
    inputs = prepare(settings, machine)
    learner, device = Learner(settings, inputs), inputs.device
    answer("ready")
    _, meeting = next_order()
    learner.exchange = collectives.meet(rank, machine.replicas, Path(meeting), device)
    _, state, random, step = next_order()
    learner.load(checkpoints.loaded(state, device))
    if random is None:
        torch.manual_seed(derived_seed(settings, f"dropout of replica {rank} from step {step}"))
    else:
        checkpoints.restore_random_states(checkpoints.loaded(random, device), device)
    while True:
        match next_order():
            case "epoch", number, batch:
                epoch = learner.begin(number)
                steps = epoch.since(batch)
            case ("step",):
                place, read = next(steps)
                learner.gradient(read, place / len(epoch))
                learner.optimizer.step()
            case ("random",):
                answer(bytes(checkpoints.dumped(checkpoints.random_states(device))))


def main(descriptor: int) -> None:
    """Follow the orders that come over a connection; errors are sent back over it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the first replica hears them, and needs this one for its checkpoint
    faulthandler.enable()
    connection: Connection[Any, Any] = Connection(descriptor)
    orders = queue.SimpleQueue[tuple[Any, ...]]()
    threading.Thread(target=_listen, args=(connection, orders), name="orders", daemon=True).start()
    try:
        follow(orders.get, connection.send)
    except BaseException as error:
        error.add_note("In a replica:\n" + "".join(traceback.format_exception(error)))
        with suppress(OSError):
            connection.send(_portable(error))
    os._exit(1)  # the others wait in an exchange until this one is gone


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


if __name__ == "__main__":
    main(int(sys.argv[1]))
