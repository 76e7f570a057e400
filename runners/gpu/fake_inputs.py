"""Images and captions with shapes and without content, for a model without data."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from goalgrid.grid.settings import TrialSettings
from goalgrid.retrieval.data.content import Content
from goalgrid.retrieval.encoders.pretrained import Places
from goalgrid.retrieval.splits.pairs import WHOLE, Pairs, Split
from goalgrid.retrieval.words.tokens import Tokens
from goalgrid.runners.gpu.trace import Trace
from goalgrid.runners.training import companions
from goalgrid.runners.training.inputs import Inputs


@dataclass(frozen=True)
class Shapes:
    """The shapes of a data set, as a model reads it.

    Args:
        image: shape of an image as the model reads it.
        words: size of the vocabulary, or width of the caption features.
        typical, longest: words or pieces of a caption: the mean, and the mean of the batch of the longest captions.
        images, texts: of the largest split that is evaluated.
        captions: indices, or the `output` of a frozen network.
    """

    image: tuple[int, ...]
    words: int
    typical: int
    longest: int
    images: int
    texts: int = 0
    captions: Literal["indices", "states", "projected"] = "indices"


class Blank:
    """Images of this shape, without content."""

    def __init__(self, shape: tuple[int, ...], count: int) -> None:
        self.shape, self.count = shape, count

    def __len__(self) -> int:
        return self.count

    def gather(self, rows: np.ndarray, draw: int | None = None, part: slice = WHOLE) -> Tensor:
        raise NotImplementedError("images without content are never read")


class Indices:
    """A vocabulary that has a size and no words."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


def inputs(shapes: Shapes, settings: TrialSettings, places: Places) -> Inputs:
    """A data set of these shapes, with stand-ins for the inputs that companions prepare."""
    batch, reader = settings.train.batch_size, Indices(shapes.words)
    split = Split(Blank(shapes.image, batch), [""] * batch, np.arange(batch))
    tokens = Tokens(torch.ones(batch, 1, dtype=torch.int64), torch.ones(batch, dtype=torch.int64))
    pairs, device, content = Pairs(split, split, split), torch.device("cpu"), Content("", "", ())
    given: Any = reader
    prepared = companions.prepared(settings, lambda kind: kind.rehearsal(pairs))
    return Inputs(pairs, given, {"train": tokens}, device, places, content, prepared)


def around(length: int, count: int) -> np.ndarray:
    """Lengths between 0.7 and 1.3 times the given one."""
    return np.linspace(0.7 * length, 1.3 * length, count).round().astype(np.int64).clip(min=1)


def images(shapes: Shapes, count: int, mode: AbstractContextManager[Any], trace: Trace) -> Tensor:
    """So many images on the device."""
    with mode:
        batch = torch.zeros((count, *shapes.image), dtype=torch.uint8 if len(shapes.image) == 3 else torch.float32)
    trace.hold(batch)
    return batch


def captions(
    shapes: Shapes, lengths: np.ndarray, mode: AbstractContextManager[Any], trace: Trace
) -> tuple[Tensor, Tensor]:
    """Indices or features without values, and real lengths: the host branches on them."""
    count, longest, width = len(lengths), int(lengths.max()), shapes.words
    shape = {"indices": (count, longest), "states": (count, longest, width), "projected": (count, width)}
    with mode:
        texts = torch.zeros(
            shape[shapes.captions], dtype=torch.int64 if shapes.captions == "indices" else torch.float16
        )
    trace.hold(texts)
    return texts, torch.from_numpy(lengths)
