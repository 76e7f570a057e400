"""Packs beside the same trainer, one trial after another: 45 small trials, GOAL's matrix with 3 seeds, and `demo`.

    python benchmarks/packs.py [--demo EPOCHS]

Steps are timed in turn, one of the pack and one of each of the matrix's 15 trials alone, counted three times; in one
thread, CPU time, medians. A trial of hidden size H has a GRU of H units on word vectors of H values, and a linear map
on 64 features of an image; captions have 6 to 19 words. `gpu.py` measures one such size on a GPU.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
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
from retrieval.data import WHOLE, Pairs, Split
from runners.inputs import Batch, Inputs, batches
from runners.machine import Machine
from runners.packed_trials import run_pack
from runners.packs import Pack, Sums
from runners.progress import Progress
from runners.stacks import Member
from runners.trainer import Hooks, Trainer
from runners.trial import run_trial

NEVER_SLOWER = 0.95
SEEDS = 3


@dataclass(frozen=True)
class Size:
    """What 45 trials are made of.

    Args:
        hidden: units of the GRU, and dimensions of the embedding.
        batch: pairs.
        word: values of a word vector.
        features: values of an image.
        words: of the vocabulary.
        images: to train on; a tenth as many to validate and to test on.
    """

    hidden: int
    batch: int
    word: int
    features: int = 64
    words: int = 400
    images: int = 400


SIZES = (
    (Size(16, 16, 16), 15.0),
    (Size(32, 32, 32), 5.0),
    (Size(64, 32, 64), 3.0),
    (Size(128, 64, 128), NEVER_SLOWER),
)
"""Each with its goal."""


class Vectors:
    """Random feature vectors as the images of a split."""

    def __init__(self, count: int, width: int) -> None:
        self.values = torch.randn(count, width, generator=torch.Generator().manual_seed(count))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.values.shape[1],)

    def __len__(self) -> int:
        return len(self.values)

    def gather(self, rows: np.ndarray, draw: int | None = None, part: slice = WHOLE) -> torch.Tensor:
        return self.values[torch.from_numpy(rows[part])]

    def fingerprint(self) -> str:
        return "random"


def split(images: int, size: Size) -> Split:
    """Images with five captions of 6 to 20 random words each."""
    rng = np.random.default_rng(images)
    captions = [
        " ".join(f"w{word}" for word in rng.integers(0, size.words, rng.integers(6, 20))) for _ in range(5 * images)
    ]
    return Split(Vectors(images, size.features), captions, np.repeat(np.arange(images), 5))


def settings_of(size: Size) -> list[TrialSettings]:
    """45 trials of this size, of one epoch."""
    image = FeatureSettings(encoder="linear")
    model = ModelSettings(image=image, text=GruSettings(encoder="gru", word_dim=size.word), dim=size.hidden)
    trials = trials_of(expand(load("demo", [f"train.batch_size={size.batch}", "train.epochs=1"])))
    return [trial.settings.model_copy(update={"model": model}) for trial in trials]


def inputs_of(size: Size, device: str = "cpu") -> Inputs:
    """What they read."""
    one, pairs = settings_of(size)[0], Pairs(*(split(size.images // part, size) for part in (1, 10, 10)))
    return Inputs.prepare(pairs, one.dataset, one.model.text, device=torch.device(device), places={})


class Stepping:
    """The 45 trials of a size as a pack whose steps can be taken one by one, in a folder that is thrown away."""

    def __init__(self, size: Size, inputs: Inputs, folder: TrialFolder) -> None:
        trials = settings_of(size)
        members = [Member(each, Progress(each.train, folder, inputs.device), Hooks()) for each in trials]
        self.pack = Pack(members, inputs, lambda member, error: print(error))
        self.pack._activate(self.pack.members)
        self.objective = StackedObjective(self.pack._objectives, size.batch)
        self.sums = Sums(self.pack._active, inputs.device)
        for stack in self.pack._stacks:
            stack.model.train()

    def step(self, read: Sequence[Batch]) -> None:
        """One of all trials, on a batch for each seed."""
        self.pack._step(self.objective, read, 1.0, self.sums)


def step_times(size: Size, repeats: int) -> tuple[float, float]:
    """CPU seconds of a step of 45 trials one after another, and packed."""
    trials, inputs = settings_of(size), inputs_of(size)
    with tempfile.TemporaryDirectory() as name:
        folder = TrialFolder(Path(name))
        pack = Stepping(size, inputs, folder)
        singles = [Trainer(each, inputs, folder) for each in trials[:15]]
        for single in singles:
            single.model.train()
        read = [[batch for _, batch in batches(one, inputs, 0).since(0)] for one in trials[:: len(trials) // SEEDS]]
        alone, together = [], []
        for place in range(repeats + 2):
            together.append(measuring.seconds(lambda: pack.step([each[place] for each in read])))  # noqa: B023
            taken = measuring.seconds(
                lambda: [single._step(read[0][place], 0.0) for single in singles]  # noqa: B023
            )
            alone.append(taken * len(trials) / len(singles))
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
    for size, goal in SIZES:
        alone, together = step_times(size, given.repeats)
        measuring.show(
            [
                measuring.row(
                    f"a step of 45 trials, hidden {size.hidden}, batch {size.batch}",
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
