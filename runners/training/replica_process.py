"""What a replica's process does: it follows the commands of the first replica. `replica_start` begins it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from grid.identity import derived_seed
from runners.training import checkpoints, collectives
from runners.training.inputs import prepare
from runners.training.learner import Learner


def follow(next_order: Callable[[], tuple[Any, ...]], answer: Callable[[Any], None]) -> None:
    """Prepare the data, connect to the others, load the first replica's state, and train as it commands to the end."""
    _, rank, settings, machine = next_order()
    machine.begin()
    if machine.device.type == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())  # over gloo, replicas may share a GPU
    inputs = prepare(settings, machine)
    learner, device = Learner(settings, inputs), inputs.device
    answer("ready")
    _, meeting = next_order()
    learner.exchange = collectives.meet(rank, machine.replicas, Path(meeting), device, machine.exchange)
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
            case ("end",):
                collectives.part_ways()
                return
