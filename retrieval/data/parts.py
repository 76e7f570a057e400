"""One form of a data set, raw images or features, as a check sees it: sizes, problems, files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
from jaxtyping import Int

from goalgrid.grid.catalog import Dataset
from goalgrid.grid.errors.wording import counted
from goalgrid.retrieval.splits.problems import Problem

CheckProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much is done, and how much there is to do."""


@dataclass(frozen=True)
class SplitSize:
    """Images and captions of one split, and how many captions an image has."""

    images: int
    captions: int
    least: int
    most: int

    @property
    def mean(self) -> float:
        return self.captions / self.images if self.images else 0.0

    @classmethod
    def of(cls, image_of_text: Int[np.ndarray, " t"], images: int) -> "SplitSize":
        per_image = np.bincount(image_of_text, minlength=images) if images else np.zeros(1, dtype=int)
        return cls(images, len(image_of_text), int(per_image.min()), int(per_image.max()))


@dataclass
class Part:
    """One form of a data set under one root."""

    format: str
    path: Path
    sizes: dict[str, SplitSize] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """By split: shape and type of its features, or what its images look like."""
    files: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    fingerprint: str = ""
    noun: str = "image"
    """What a caption describes."""

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(path.stat().st_size for path in self.files if path.exists())


def overlaps(keys: Mapping[str, Sequence[str]], place: str, what: str) -> list[Problem]:
    """The same image in two splits."""
    problems = []
    for (one, first), (other, second) in combinations(keys.items(), 2):
        both = sorted(set(first) & set(second))
        if both:
            named = f"{one} and {other} share {counted(len(both), what)}, the first is {both[0]}"
            fix = f"A model must not train on what tests it: take each {what} out of all splits but one."
            problems.append(Problem(place, named, fix, "leak" if (one, other) == ("train", "test") else "note"))
    return problems


def counts(part: Part, official: Dataset) -> list[Problem]:
    """Splits that are not as large as the data set's own."""
    problems = []
    for split, expected in official.splits.items():
        size = part.sizes.get(split)
        if size is None or not size.images:
            continue
        if size.images == expected.images and size.captions in (expected.captions, *expected.also):
            continue
        missing = next((p.missing for p in official.partial if (p.split, p.images) == (split, size.images)), "")
        whole = f"officially {expected.images:,} with {expected.captions:,}"
        what = f"{counted(size.images, part.noun)} with {size.captions:,} captions; {whole}"
        fix = (
            f"What is missing: {missing}." if missing else "Take the split whole, or give your own subset another name."
        )
        problems.append(Problem(f"{split} split of {part.path}", what, fix))
    return problems
