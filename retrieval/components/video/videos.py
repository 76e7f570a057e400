"""Videos of a split, read by index; each video is one vector with the inputs from all experts."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.retrieval.components.video.expert_files import Expert
from goalgrid.retrieval.components.video.settings import ExpertRead
from goalgrid.retrieval.splits.pairs import WHOLE, DataError


class Videos:
    """The videos of one split; `reads` and `experts` list the experts in the same order."""

    def __init__(self, names: Sequence[str], reads: Sequence[ExpertRead], experts: Sequence[Expert]) -> None:
        self.names, self.reads, self.experts = names, reads, experts
        self._spans = [expert.spans_of(names) for expert in experts]

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(read.values for read in self.reads),)

    def __len__(self) -> int:
        return len(self.names)

    def gather(
        self, rows: Int[np.ndarray, " b"], draw: int | None = None, part: slice = WHOLE
    ) -> Float[Tensor, "p values"]:
        """Return the model's input for these videos (split it by `unpacked`); zeros for missing vectors.

        `draw` seeds the random sample of vectors for a training batch; without it, the sample is the same each time.
        """
        places = range(len(rows))[part]
        batch = np.zeros((len(places), *self.shape), np.float32)
        for target, place in zip(batch, places, strict=True):
            seed = (int(rows[place]),) if draw is None else (draw, place)
            begin = 0
            for read, expert, spans in zip(self.reads, self.experts, self._spans, strict=True):
                first, count = spans[rows[place]].tolist()
                _fill(target[begin : begin + read.values], read, expert, slice(first, first + count), seed)
                begin += read.values
        if not np.isfinite(batch).all():
            bad = self.names[int(rows[places[int((~np.isfinite(batch).all(1)).argmax())]])]
            raise DataError(f"features of video {bad!r} contain NaN or infinity. Extract them again.")
        return torch.from_numpy(batch)


def _fill(target: np.ndarray, read: ExpertRead, expert: Expert, span: slice, seed: tuple[int, ...]) -> None:
    vectors = expert.array[span]
    if not len(vectors):
        target[-1] = -1
        return
    rows = target[: read.rows * read.width].reshape(read.rows, read.width)
    times = target[read.rows * read.width : -1]
    times[:] = -1
    if read.whole != "none":
        rows[0] = vectors.mean(0, dtype=np.float32) if read.whole == "mean" else vectors.max(0)
    taken = np.arange(min(len(vectors), read.tokens))
    if read.sampled and len(vectors) > read.tokens:
        taken = np.sort(np.random.default_rng(seed).choice(len(vectors), read.tokens, replace=False))
    begin = read.rows - read.tokens
    rows[begin : begin + len(taken)] = vectors[taken]
    if expert.times is not None:
        times[begin : begin + len(taken)] = expert.times[span][taken]
    target[-1] = len(taken)


class Unpacked(NamedTuple):
    """The model's input from one expert, for a batch of videos.

    Args:
        vectors: the whole video's vector, if the model reads one; then the tokens, then zero padding.
        times: seconds; negative if unknown.
        tokens: number of tokens; -1 if the expert saw nothing.
    """

    vectors: Float[Tensor, "b n d"]
    times: Float[Tensor, "b n"]
    tokens: Float[Tensor, " b"]


def unpacked(reads: Sequence[ExpertRead], videos: Float[Tensor, "b values"]) -> Iterator[Unpacked]:
    for read, part in zip(reads, videos.split([read.values for read in reads], dim=1), strict=True):
        vectors, times, count = part.split([read.rows * read.width, read.rows, 1], dim=1)
        yield Unpacked(vectors.unflatten(1, (read.rows, read.width)), times, count[:, 0])
