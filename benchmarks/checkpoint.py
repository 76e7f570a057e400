"""What a training step waits for its checkpoint: `python benchmarks/checkpoint.py [--megabytes 629]`.

The checkpoint has a model's weights and Adam's two moments of them, in 160 layers; with it, the weights as the best so
far. Ours takes a copy of the state and lets a thread hash and write it; the peer does all of that before it goes on, as
`torch.save` into memory, SHA-256, write and fsync do. Seconds of the clock, CPU seconds of the thread that trains and
of all threads, and peaks of memory above the state. The first checkpoint takes new memory for its copy and waits
longer; it is left out. The exit code is 1 if a goal is missed.
"""

import argparse
import hashlib
import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measuring
import torch

from goalgrid.grid.settings import TrainSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.progress import Progress

LAYERS = 160


def state_of(megabytes: int) -> dict[str, Any]:
    """A state of so many megabytes: weights, and two moments of each."""
    size = megabytes * 10**6 // (4 * 3 * LAYERS)
    model, first, second = ({f"layer{n}": torch.randn(size) for n in range(LAYERS)} for _ in range(3))
    moments = {n: {"exp_avg": first[name], "exp_avg_sq": second[name]} for n, name in enumerate(model)}
    return {"model": model, "optimizer": {"state": moments}}


def at_once(folder: Path, state: dict[str, Any]) -> None:
    """Both files, each serialised in memory, hashed, written and flushed."""
    for name, content in (("best", {"model": state["model"]}), ("last", state)):
        buffer = io.BytesIO()
        torch.save(content, buffer)
        hashlib.sha256(buffer.getbuffer()).hexdigest()
        with (folder / name).open("wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())


def waits(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock and CPU seconds of this thread."""
    clock, cpu = time.perf_counter(), time.thread_time()
    work()
    return time.perf_counter() - clock, time.thread_time() - cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=629)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    Machine().begin()  # as a training process keeps its memory
    state = state_of(given.megabytes)
    measuring.begin("torch", note=f"load {os.getloadavg()[0]:.0f}")
    pairs = list[tuple[tuple[float, float], tuple[float, float]]]()
    with tempfile.TemporaryDirectory(prefix="goalgrid-checkpoint-") as name:
        folder = Path(name)
        progress = Progress(TrainSettings(epochs=1), TrialFolder(folder), torch.device("cpu"), {})
        best = {"model": state["model"]}
        peaks = [measuring.peak_megabytes(work) for work in _whole(progress, folder, state, best)]
        for _ in range(given.rounds):
            before = waits(lambda: at_once(folder, state))
            ours = waits(lambda: progress.save(state, best))
            progress.writer.wait()
            pairs.append((ours, before))
        cpu = [measuring.cpu_seconds(work) for work in _whole(progress, folder, state, best)]
    (clock, own), (clock_before, cpu_before) = (
        [statistics.median(pair[side][kind] for pair in pairs) for kind in (0, 1)] for side in (0, 1)
    )
    ratio = statistics.median(ours[0] / before[0] for ours, before in pairs)
    size = f"a checkpoint of {given.megabytes} MB and its best weights"
    measuring.show(
        [
            measuring.row(
                f"{size}: seconds that the step waits, by the clock",
                f"{clock:.2f}",
                peer=f"{clock_before:.2f}",
                ratio=f"{ratio:.3f}",
                goal="<= 0.1",
                met=ratio <= 0.1,
            ),
            measuring.row("CPU seconds of the thread that trains", f"{own:.2f}", peer=f"{cpu_before:.2f}"),
            measuring.row("CPU seconds of all threads", f"{cpu[0]:.2f}", peer=f"{cpu[1]:.2f}"),
            measuring.row(
                "most memory above the state, MB",
                f"{peaks[0]:.0f}",
                peer=f"{peaks[1]:.0f}",
                goal="<= 1.1 x the checkpoint",
                met=peaks[0] <= 1.1 * given.megabytes,
            ),
        ]
    )
    return int(ratio > 0.1 or peaks[0] > 1.1 * given.megabytes)


def _whole(
    progress: Progress, folder: Path, state: dict[str, Any], best: dict[str, Any]
) -> tuple[Callable[[], None], Callable[[], None]]:
    def ours() -> None:
        progress.save(state, best)
        progress.writer.wait()

    return ours, lambda: at_once(folder, state)


if __name__ == "__main__":
    raise SystemExit(main())
