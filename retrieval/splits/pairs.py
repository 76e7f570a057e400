"""Common interface of all data sets: images, captions, and which image each caption describes."""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from goalgrid.grid.errors import UserError

if TYPE_CHECKING:  # verbs that read annotations load no torch
    from torch import Tensor


class DataError(UserError):
    """Error in the user's copy of a data set; the message says what is wrong, in which file, and how to fix it."""


Items = TypeVar("Items", bound=Sized)

WHOLE = slice(None)
"""Slice that selects the whole batch."""


@runtime_checkable
class Images(Protocol):
    """The images of one split, read by index: pixels as uint8 (3, h, w), or features as float (d) or (n, d)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image."""

    def __len__(self) -> int: ...

    def gather(self, rows: Int[np.ndarray, " b"], draw: int | None = None, part: slice = WHOLE) -> "Tensor":
        """Return the images of a batch, (b, *shape), or of a part of it, with the same views as in the whole batch.

        `draw` seeds the random views of a training batch; without it, the evaluation views are returned. Raises
        DataError if an image is missing or unreadable, or features are not finite.
        """


@dataclass(frozen=True, eq=False)
class Listing(Generic[Items]):
    """One split: images with any number of captions each. `images` may be files, names or rows until opened."""

    images: Items
    captions: list[str]
    image_of_text: Int[np.ndarray, " t"]
    """Row of the image that each caption describes."""
    ids: Int[np.ndarray, " t"] | None = None
    """COCO annotation id of each caption; None if unknown."""
    values: Mapping[str, Float[np.ndarray, " t"]] = field(default_factory=dict)
    """By column: the value per caption that an objective reads."""

    @classmethod
    def of(
        cls, images: Items, captions: Sequence[Sequence[str]], ids: Sequence[Sequence[int]] = ()
    ) -> "Listing[Items]":
        """Build a split from the captions of each image; ids are kept only if every caption has one."""
        counts = np.array([len(texts) for texts in captions], dtype=np.int64)
        every = np.array([key for keys in ids for key in keys], dtype=np.int64)
        texts = [text for texts in captions for text in texts]
        owners = np.repeat(np.arange(len(counts)), counts)
        return cls(images, texts, owners, every if len(every) == len(texts) else None)


@dataclass(frozen=True, eq=False)
class Split(Listing[Images]):
    """A split whose images are open for reading."""

    matched: Bool[np.ndarray, " t"] | None = None
    """Whether each caption still describes its image after `shuffled`; None if all do."""

    def shuffled(self, share: float, seed: int) -> "Split":
        """Return the split with label noise: for a random share of the captions, the images are shuffled among them.

        A few captions keep their image by chance. With the same seed, a larger share includes a smaller one's captions.
        """
        random = np.random.default_rng(seed)
        rows = random.permutation(len(self.captions))[: round(share * len(self.captions))]
        owners = self.image_of_text.copy()
        owners[rows] = random.permutation(owners[rows])
        return replace(self, image_of_text=owners, matched=owners == self.image_of_text)

    def first(self, images: int | None) -> tuple[int, Int[np.ndarray, " t"]]:
        """Return the number of the first images (at most `images`, default: all), and the rows of their captions."""
        count = len(self.images) if images is None else min(images, len(self.images))
        return count, np.flatnonzero(self.image_of_text < count)


@dataclass(frozen=True, eq=False)
class Pairs:
    """A data set: three disjoint splits."""

    train: Split
    val: Split
    test: Split

    @property
    def splits(self) -> dict[str, Split]:
        return {"train": self.train, "val": self.val, "test": self.test}


def check_sizes(name: str, sizes: Mapping[str, tuple[int, int]]) -> None:
    """Raise a DataError if a split has no images or no captions, or the training split has a single pair.

    `sizes`: by split, the numbers of images and captions.
    """
    for split_name, (images, captions) in sizes.items():
        if not images or not captions:
            raise DataError(f"the {split_name} split of {name} is empty: {images} images, {captions} captions.")
    if sizes["train"][1] < 2:
        raise DataError(f"the train split of {name} has only one pair, so there are no negatives.")
