"""The process of a replica: follows commands over its connection to rank 0, and ends when rank 0 ends."""

import faulthandler
import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from goalgrid.grid.identity import derived_seed
from goalgrid.grid.settings import TrialSettings
from goalgrid.runners.training import checkpoints, exchange
from goalgrid.runners.training.embedding import embedded
from goalgrid.runners.training.inputs import prepare
from goalgrid.runners.training.learner import Learner


def main(descriptor: int) -> None:
    """Follow the commands received over a connection; errors are sent back."""
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
        os._exit(1)  # the others wait in a collective until this process is gone
    os._exit(0)


def follow(next_order: Callable[[], tuple[Any, ...]], answer: Callable[[Any], None]) -> None:
    """Prepare the data, join the process group, load the state of rank 0, and follow its commands to the end."""
    _, rank, text, machine = next_order()
    settings = TrialSettings.model_validate_json(text, context=machine.catalog.context)
    machine.begin()
    if machine.device.type == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())  # over gloo, replicas may share a GPU
    inputs = prepare(settings, machine)
    learner, device = Learner(settings, inputs), inputs.device
    answer("ready")
    _, meeting = next_order()
    learner.group = exchange.init(rank, machine.resources.replicas, Path(meeting), device, machine.resources.exchange)
    _, state, random, step = next_order()
    learner.load(checkpoints.loaded(state, device))
    if random is None:
        checkpoints.seed_all(derived_seed(settings, f"dropout of replica {rank} from step {step}"), device)
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
            case ("validate",):
                if learner.model.scorer is None:  # sets are embedded where they are scored
                    embedded(learner.model, settings, inputs, "val", learner.group)
            case ("random",):
                answer(checkpoints.dumped(checkpoints.random_states(device)))
            case ("end",):
                exchange.destroy()
                return


def _listen(connection: "Connection[Any, Any]", orders: "queue.SimpleQueue[tuple[Any, ...]]") -> None:
    """Queue the commands of rank 0; end this process, even if it is blocked, once rank 0 is gone."""
    with suppress(EOFError, OSError):
        while True:
            orders.put(connection.recv())
    os._exit(0)


def _portable(error: BaseException) -> Exception:
    """Return the error, or a picklable copy with the same message."""
    with suppress(Exception):
        copy = pickle.loads(pickle.dumps(error))
        if isinstance(copy, Exception):
            return copy
    return RuntimeError("".join(traceback.format_exception_only(error)).strip())
