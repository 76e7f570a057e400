"""Objectives, training step, evaluation and the memory probe on a GPU: `python benchmarks/gpu.py`, 8 minutes.

Times are between CUDA events, medians, after everything before has ended. Objectives: as `objectives.py`. The step:
VSE++'s heads, a GRU of 1,024 units and a linear map on 2,048 values of an image, batches of 128. "tuned" is that step
written for speed: VSE++'s hinge, fused Adam, clipping, batches pinned and read ahead, and nothing that waits for the
GPU. Beside it stands the trainer's step, reading included. Evaluation: as `evaluation.py`, both tile sizes. Memory: the
probe's prediction for one trial, from three steps on the longest captions, beside the peak of a whole epoch.

`--device cpu --small` runs the same code in less than a minute, to see that it runs: its figures say nothing.
"""

import argparse
import gc
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import evaluation
import measuring
import numpy as np
import torch
from torch import nn

from benchmarks import objectives as cells
from grid.expansion import expand, trials_of
from grid.gridfile import load
from grid.objectives.goal_matrix import GOAL
from grid.settings import TrialSettings
from grid.settings.encoders import FeatureSettings, GruSettings
from grid.settings.model import ModelSettings
from grid.store.gpu_needs import MARGIN
from grid.store.home import TrialFolder
from retrieval.data.content import Content
from retrieval.model import Vse
from retrieval.splits.pairs import WHOLE as ALL
from retrieval.splits.pairs import Pairs, Split
from runners.gpu import memory_probe
from runners.training.inputs import Batch, Inputs, batches
from runners.training.learner import optimizer
from runners.training.machine import Machine
from runners.training.trainer import Trainer


@dataclass(frozen=True)
class Size:
    """What a trial is made of.

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


WHOLE = {
    "batches": (128, 1024, 4096),
    "size": Size(hidden=1024, batch=128, word=300, features=2048, words=10_000, images=4000),
    "images": 5000,
    "steps": 20,
    "rounds": 7,
}
SMALL = {
    "batches": (32,),
    "size": Size(hidden=16, batch=32, word=16, images=100),
    "images": 200,
    "steps": 2,
    "rounds": 2,
}


class Vectors:
    """Random feature vectors as the images of a split."""

    def __init__(self, count: int, width: int) -> None:
        self.values = torch.randn(count, width, generator=torch.Generator().manual_seed(count))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.values.shape[1],)

    def __len__(self) -> int:
        return len(self.values)

    def gather(self, rows: np.ndarray, draw: int | None = None, part: slice = ALL) -> torch.Tensor:
        return self.values[torch.from_numpy(rows[part])]


def split(images: int, size: Size) -> Split:
    """Images with five captions of 6 to 19 random words each."""
    rng = np.random.default_rng(images)
    captions = [
        " ".join(f"w{word}" for word in rng.integers(0, size.words, rng.integers(6, 20))) for _ in range(5 * images)
    ]
    return Split(Vectors(images, size.features), captions, np.repeat(np.arange(images), 5))


def settings_of(size: Size) -> TrialSettings:
    """A trial of this size, of one epoch."""
    image = FeatureSettings(encoder="linear")
    model = ModelSettings(image=image, text=GruSettings(encoder="gru", word_dim=size.word), dim=size.hidden)
    trials = trials_of(expand(load("demo", [f"train.batch_size={size.batch}", "train.epochs=1"])))
    return trials[0].settings.model_copy(update={"model": model})


def inputs_of(size: Size, device: str) -> Inputs:
    """What it reads."""
    settings, pairs = settings_of(size), Pairs(*(split(size.images // part, size) for part in (1, 10, 10)))
    held = Content("random", "random", ())
    return Inputs.prepare(pairs, settings.dataset, settings.model.text, held, Machine(gpu=device == "cuda"))


def objective_rows(batch: int, device: str, rounds: int) -> list[str]:
    """Cells beside the hinge; and what they take beyond their inputs."""
    selected = {name: case for name, case in cells.cases(list(GOAL)).items() if not name.startswith("PML")}
    rows = cells.table(batch, cells.measure(selected, batch, device, rounds))
    if device == "cpu":  # there, a fresh process each: `objectives.py` measures it
        return rows
    peer = f"{cells.peak_megabytes(cells.HINGE, batch, device):.1f} MB, {cells.HINGE}"
    used = {name: cells.peak_megabytes(name, batch, device) for name in ("con_con", "sig-ms_cir")}
    return [
        *rows,
        *(measuring.row(f"{name}, {batch}: memory", f"{value:.1f} MB", peer=peer) for name, value in used.items()),
    ]


def reading(settings: TrialSettings, inputs: Inputs) -> Iterator[Batch]:
    """Batch after batch, each read while the one before is learnt from."""
    for epoch in count():
        for _, batch in batches(settings, inputs, epoch).since(0):
            yield batch


def tuned(settings: TrialSettings, inputs: Inputs) -> Callable[[], None]:
    """The next step of one trial, as one would write it for speed."""
    device, read = inputs.device, reading(settings, inputs)
    shape, words = inputs.pairs.train.images.shape, len(inputs.reader)
    model = Vse(settings.model, shape, words, seed=0).to(device).train()
    adam = optimizer(model.groups(), settings.train)

    def step() -> None:
        images, tokens, _ = next(read).on(device)
        loss = cells.hinge(model.embed_images(images), model.embed_texts(*tokens))
        adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.train.clip_norm)
        adam.step()

    return step


def trained(settings: TrialSettings, inputs: Inputs, folder: TrialFolder) -> Callable[[], None]:
    """The next step of the trainer."""
    trainer, read = Trainer(settings, inputs, folder), reading(settings, inputs)
    trainer.model.train()
    return lambda: trainer._step(next(read), 0.0) and None


def cost(make: Callable[[], Callable[[], None]], device: str, steps: int, rounds: int) -> tuple[float, float]:
    """Seconds of a step, median of rounds of so many, and the most megabytes that its tensors take."""
    found: list[float] = []

    def run() -> None:
        step = make()

        def several() -> None:
            for _ in range(steps):
                step()

        several()  # moments, and kernels that are chosen at first
        found.extend(measuring.seconds(several, device) / steps for _ in range(rounds))

    gc.collect()
    peak = measuring.peak_megabytes(run, device)
    return statistics.median(found), peak


def step_rows(size: Size, device: str, steps: int, rounds: int) -> list[str]:
    inputs, settings = inputs_of(size, device), settings_of(size)
    with tempfile.TemporaryDirectory() as name:
        alone, alone_peak = cost(lambda: tuned(settings, inputs), device, steps, rounds)
        ours, ours_peak = cost(lambda: trained(settings, inputs, TrialFolder(Path(name))), device, steps, rounds)
    return [
        measuring.row(
            f"the trainer's step, hidden {size.hidden}, batch {size.batch}",
            f"{1e3 * ours:.2f} ms and {ours_peak:.0f} MB",
            peer=f"{1e3 * alone:.2f} ms and {alone_peak:.0f} MB, a tuned step",
            ratio=f"{ours / alone:.2f}",
        )
    ]


def evaluation_rows(images: int, device: str, rounds: int) -> list[str]:
    image, text = evaluation.embeddings(images, device)
    rows, size = [], f"{images:,} x {evaluation.EACH * images:,}"
    for chunk in (evaluation.CHUNK, 1024):
        times, peak, _ = evaluation.beside_product(image, text, rounds, chunk)
        product, ours = times[evaluation.PRODUCT], times[evaluation.OURS]
        within, what = ours / product, f"{size}, {chunk:,} images at a time"
        goal = chunk == evaluation.CHUNK
        rows.append(
            measuring.row(
                f"ranks, {what}",
                f"{1e3 * ours:.1f} ms and {peak:.0f} MB",
                limit=f"{1e3 * product:.1f} ms, the bare product",
                ratio=f"{within:.2f}",
                goal=f"<= {evaluation.WITHIN}" if goal else "",
                met=within <= evaluation.WITHIN if goal else None,
            )
        )
    return rows


def memory_rows(size: Size, device: str) -> list[str]:
    """The probe's prediction for a trial beside what an epoch of it takes."""
    inputs, settings = inputs_of(size, device), settings_of(size)
    peak_of = memory_probe.peak_of if device == "cuda" else lambda work: 2**20 * measuring.peak_megabytes(work)
    few = memory_probe.longest(inputs, memory_probe.STEPS * size.batch)
    predicted = peak_of(partial(memory_probe.train, memory_probe.heavy(settings), few))
    real = peak_of(partial(memory_probe.train, settings, inputs))
    within = real / max(predicted, 1)
    return [
        measuring.row(
            "memory of a trial",
            f"{predicted / 2**20:.0f} MB, as the probe predicts",
            limit=f"{real / 2**20:.0f} MB, the peak of an epoch and its tests",
            ratio=f"{within:.2f} of it",
            goal=f"<= {MARGIN}",
            met=within <= MARGIN,
        )
    ]


def main() -> None:
    """Measure and print tables for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU that torch sees; `--device cpu --small` runs the same code, for no figures")
    torch.set_num_threads(1)
    chosen = SMALL if given.small else WHOLE
    measuring.begin("torch", note=torch.cuda.get_device_name() if given.device == "cuda" else "")
    for batch in chosen["batches"]:
        measuring.show(objective_rows(batch, given.device, chosen["rounds"]))
    measuring.show(step_rows(chosen["size"], given.device, chosen["steps"], chosen["rounds"]))
    measuring.show(evaluation_rows(chosen["images"], given.device, chosen["rounds"]))
    measuring.show(memory_rows(chosen["size"], given.device))


if __name__ == "__main__":
    main()
