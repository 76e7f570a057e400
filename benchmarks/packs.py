"""Packs beside the same trainer, one trial after another: 45 small trials, GOAL's matrix with 3 seeds, and `demo`.

    python benchmarks/packs.py [--demo EPOCHS]

Steps are timed in turn, one of the pack and one of each of the matrix's 15 trials alone, counted three times; in one
thread, CPU time, medians. A trial of hidden size H has a GRU of H units on word vectors of H values, and a linear map
on 64 features of an image; captions have 6 to 19 words.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import numpy as np
import torch

from grid.encoders import FeatureSettings, GruSettings, ModelSettings
from grid.expansion import expand, trials_of
from grid.gridfile import load
from grid.home import Home, TrialFolder
from grid.settings import TrialSettings
from objectives.stacked import StackedObjective
from retrieval.data import Pairs, Split
from runners.inputs import Inputs, batches
from runners.machine import Machine
from runners.packed_trials import run_pack
from runners.packs import Pack, Sums
from runners.progress import Progress
from runners.stacks import Member
from runners.trainer import Hooks, Trainer
from runners.trial import run_trial

NEVER_SLOWER = 0.95
SIZES = ((16, 16, 15.0), (32, 32, 5.0), (64, 32, 3.0), (128, 64, NEVER_SLOWER))
"""Hidden size, pairs of a batch, goal."""

FEATURES = 64
WORDS = 400


class Vectors:
    """Random feature vectors as the images of a split."""

    def __init__(self, count: int) -> None:
        self.values = torch.randn(count, FEATURES, generator=torch.Generator().manual_seed(count))

    @property
    def shape(self) -> tuple[int, ...]:
        return (FEATURES,)

    def __len__(self) -> int:
        return len(self.values)

    def gather(self, rows: np.ndarray, draw: int | None = None) -> torch.Tensor:
        return self.values[torch.from_numpy(rows)]

    def fingerprint(self) -> str:
        return "random"


def split(images: int) -> Split:
    """Images with five captions of 6 to 20 random words each."""
    rng = np.random.default_rng(images)
    captions = [" ".join(f"w{word}" for word in rng.integers(0, WORDS, rng.integers(6, 20))) for _ in range(5 * images)]
    return Split(Vectors(images), captions, np.repeat(np.arange(images), 5))


def settings_of(hidden: int, batch: int) -> list[TrialSettings]:
    """45 trials of this size."""
    image = FeatureSettings(encoder="linear")
    model = ModelSettings(image=image, text=GruSettings(encoder="gru", word_dim=hidden), dim=hidden)
    trials = trials_of(expand(load("demo", [f"train.batch_size={batch}"])))
    return [trial.settings.model_copy(update={"model": model}) for trial in trials]


def step_times(hidden: int, batch: int, repeats: int) -> tuple[float, float]:
    """CPU seconds of a step of 45 trials one after another, and packed."""
    trials = settings_of(hidden, batch)
    pairs, machine = Pairs(split(400), split(40), split(40)), Machine()
    inputs = Inputs.prepare(pairs, trials[0].dataset, trials[0].model.text, device=machine.device, places={})
    with tempfile.TemporaryDirectory() as name:
        folder = TrialFolder(Path(name))
        members = [Member(each, Progress(each.train, folder, inputs.device), Hooks()) for each in trials]
        pack = Pack(members, inputs, lambda member, error: print(error))
        pack._activate(pack.members)
        singles = [Trainer(each, inputs, folder) for each in trials[:15]]
        objective = StackedObjective(pack._objectives, batch)
        sums = Sums(pack._active, inputs.device)
        for model in [stack.model for stack in pack._stacks] + [single.model for single in singles]:
            model.train()
        read = [[batch for _, batch in batches(s.members[0].settings, inputs, 0).since(0)] for s in pack._stacks]
        alone, together = [], []
        for place in range(repeats + 2):
            started = time.process_time()
            pack._step(objective, [each[place] for each in read], 1.0, sums)
            together.append(time.process_time() - started)
            started = time.process_time()
            for single in singles:
                single._step(single.objective, read[0][place], 1.0)
            alone.append((time.process_time() - started) * len(trials) / len(singles))
    return median(alone[2:]), median(together[2:])


def demo(epochs: int) -> tuple[float, float]:
    """Seconds of the whole `demo` grid in this process, from data to records: one trial after another, and packed."""
    trials = trials_of(expand(load("demo", [f"train.epochs={epochs}"])))
    seconds = []
    for packs in (False, True):
        with tempfile.TemporaryDirectory() as name:
            pairs = [(trial.settings, Home(Path(name)).trial(trial.id)) for trial in trials]
            started = time.perf_counter()
            if packs:
                run_pack(pairs, lambda event: None, Machine())
            else:
                for settings, folder in pairs:
                    run_trial(settings, folder, lambda event: None, Machine())
            assert all(folder.done.exists() for _, folder in pairs)
            seconds.append(time.perf_counter() - started)
    return seconds[0], seconds[1]


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=12, help="timed steps")
    parser.add_argument("--demo", type=int, default=0, metavar="EPOCHS", help="also the whole demo grid")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    measuring.begin("torch", note="1 thread")
    for hidden, batch, goal in SIZES:
        alone, together = step_times(hidden, batch, given.repeats)
        measuring.show(
            [
                measuring.row(
                    f"a step of 45 trials, hidden {hidden}, batch {batch}",
                    f"{1e3 * together:.1f} ms packed",
                    peer=f"{1e3 * alone:.0f} ms, one after another",
                    **_against(alone / together, goal),
                )
            ]
        )
    if given.demo:
        alone, together = demo(given.demo)
        what = f"`demo` in one process, 45 trials of {given.demo} epochs"
        ratio = _against(alone / together, NEVER_SLOWER)
        measuring.show(
            [measuring.row(what, f"{together:.0f} s packed", peer=f"{alone:.0f} s, one after another", **ratio)]
        )


def _against(ratio: float, goal: float) -> dict[str, Any]:
    return {"ratio": f"{ratio:.1f}x", "goal": f">= {goal:g}x", "met": ratio >= goal}


if __name__ == "__main__":
    main(sys.argv[1:])
