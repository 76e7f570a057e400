"""What every annotation format gives: one entry an image. Names in it are untrusted until they were located."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Annotation:
    """One image with its captions, as the annotations name it.

    Args:
        split: train, val or test.
        names: of its file, below some image folder; the first that exists counts.
        place: where the entry stands, for messages.
    """

    split: str
    names: tuple[str, ...]
    captions: tuple[str, ...]
    place: str


def grouped(captions: Sequence[str], keys: Sequence[str]) -> dict[str, list[str]]:
    """Captions by the key of their image, both in the order of first appearance."""
    by_key: dict[str, list[str]] = {}
    for key, caption in zip(keys, captions, strict=True):
        by_key.setdefault(key, []).append(caption)
    return by_key


def owners(entries: Sequence[Annotation]) -> Int[np.ndarray, " t"]:
    """Which entry each caption describes, where captions stand in the entries' order."""
    return np.repeat(np.arange(len(entries)), [len(entry.captions) for entry in entries])
