"""The trial that the blocks of `gpu.py` train: its sizes, its random data, its steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.image_encoders import FeatureSettings
from goalgrid.grid.settings.model import ModelSettings
from goalgrid.grid.settings.text_encoders import GruSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.retrieval.data.content import Content
from goalgrid.retrieval.splits.pairs import WHOLE as ALL
from goalgrid.retrieval.splits.pairs import Pairs, Split
from goalgrid.runners.training.inputs import Batch, Inputs, batches, read_captions
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.trainer import Trainer


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


WHOLE: dict[str, Any] = {
    "batches": (128, 1024, 4096),
    "size": Size(hidden=1024, batch=128, word=300, features=2048, words=10_000, images=4000),
    "images": 5000,
    "steps": 20,
    "rounds": 7,
}

SMALL: dict[str, Any] = {
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
    held, machine = Content("random", "random", ()), Machine(gpu=device == "cuda")
    reader, tokens = read_captions(pairs, settings.dataset, settings.model.text, machine)
    return Inputs(pairs, reader, tokens, machine.device, {}, held, layout=machine.layout, graphs=machine.graphs)


def one_of(size: Size, device: str) -> tuple[TrialSettings, Inputs]:
    """A trial of this size, and what it reads."""
    return settings_of(size), inputs_of(size, device)


def reading(settings: TrialSettings, inputs: Inputs) -> Iterator[Batch]:
    """Batch after batch, each read while the one before is learnt from."""
    for epoch in count():
        for _, batch in batches(settings, inputs, epoch).since(0):
            yield batch


def trained(settings: TrialSettings, inputs: Inputs, folder: TrialFolder) -> Callable[[], None]:
    """The next step of the trainer."""
    trainer, read = Trainer(settings, inputs, folder), reading(settings, inputs)
    trainer.model.train()
    return lambda: trainer._step(next(read), 0.0) and None
