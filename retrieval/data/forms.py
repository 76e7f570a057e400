"""Forms of data that components add to images and features, e.g. videos. No form imports torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from goalgrid.grid.catalog import Dataset
from goalgrid.grid.errors import counted
from goalgrid.grid.settings import components
from goalgrid.grid.settings.components import PartRead
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.splits.pairs import Listing, Pairs
from goalgrid.retrieval.splits.problems import Problem

if TYPE_CHECKING:
    from goalgrid.retrieval.data.content import Stamp


READ_AS = {
    "turned": "rotated according to EXIF",
    "transparent": "with transparent parts, shown as white",
    "scaled": "scaled to 8 bits by the range of values",
}
"""Descriptions of the ways of reading an image that differ from Pillow's plain conversion to RGB."""
CheckProgress = Callable[[str, int, int], None]
"""Callback for progress: takes the current activity, the amount done and the total amount."""


@dataclass(frozen=True)
class SplitSize:
    """Number of images and captions of one split, and the minimum and maximum number of captions per image."""

    images: int
    captions: int
    least: int
    most: int

    @property
    def mean(self) -> float:
        return self.captions / self.images if self.images else 0.0

    @classmethod
    def of(cls, listing: Listing[Any]) -> "SplitSize":
        images = len(listing.images)
        per_image = np.bincount(listing.image_of_text, minlength=images) if images else np.zeros(1, dtype=int)
        return cls(images, len(listing.captions), int(per_image.min()), int(per_image.max()))


@dataclass
class Part:
    """One form of a data set found under a root, e.g. raw images or precomputed features."""

    format: str
    path: Path
    sizes: dict[str, SplitSize] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """By split: shape and type of its features, or a description of its images."""
    files: list[FileSlice] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    read_as: dict[str, int] = field(default_factory=dict)
    """Number of images per kind of `READ_AS`."""
    fingerprint: str = ""
    noun: str = "image"
    """Noun for what a caption describes."""
    captions: dict[str, list[str]] = field(default_factory=dict)
    """Captions by split."""
    words: str = ""
    """Vocabulary size of the training captions, and the share of the other splits' words not in it, as text."""

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(file.bytes for file in self.files if file.path.exists())

    def lines(self) -> list[str]:
        text = [f"{self.format}: {self.path}"]
        for split, size in self.sizes.items():
            spread = f"{size.least} / {size.mean:.2f} / {size.most} per {self.noun} (min / mean / max)"
            note = f"; {self.notes[split]}" if split in self.notes else ""
            text.append(f"  {split:6}{size.images:>8,} {self.noun}s{size.captions:>9,} captions, {spread}{note}")
        text += [f"  {self.words}"] if self.words else []
        text += [
            f"  {counted(self.read_as[how], 'picture')} {so}" for how, so in READ_AS.items() if how in self.read_as
        ]
        mark = f", fingerprint {self.fingerprint}" if self.fingerprint else ""
        return [*text, f"  {self.bytes / 1e6:,.1f} MB on disk{mark}"]

    def to_dict(self) -> dict[str, Any]:
        splits = {
            split: {
                "images": size.images,
                "captions": size.captions,
                "captions_per_image": {"min": size.least, "mean": size.mean, "max": size.most},
                "features": self.notes.get(split),
            }
            for split, size in self.sizes.items()
        }
        fingerprint = self.fingerprint or None
        named = {"format": self.format, "path": str(self.path), "splits": splits}
        read = {"words": self.words or None, "read_as": self.read_as}
        return {**named, "bytes": self.bytes, "fingerprint": fingerprint, **read}


class Summed(NamedTuple):
    """Content of a copy of a data set, hashed for its fingerprint.

    Args:
        marks: by split, a hash of the data that take the place of images.
        problems: leaks, notes and remarks.
        read_as: number of images per kind of `READ_AS`.
        repeats: by split, how often each image's row is repeated, see `Rows.repeats`.
    """

    marks: dict[str, str]
    listings: Mapping[str, Listing[Any]]
    problems: Sequence[Problem]
    read_as: Mapping[str, int] = MappingProxyType({})
    repeats: Mapping[str, Sequence[int]] = MappingProxyType({})


@dataclass(frozen=True)
class Form:
    """A form of data: functions to find it under a root, read it and check it.

    `check`, `load` and `summed` raise DataError.

    Args:
        noun: what a caption describes, e.g. "video".
        title: name of the form in reports.
        recipes: examples of recipes that read it.
        expected: files by which a folder is recognised as having this form.
        shown_by: a shipped data set of this form, whose folder layout serves as an example.
        has_features: returns whether there are features of this form under a root.
        begun: returns whether there are any files of this form under a root.
        check: checks that everything a model reads is there.
        load: opens the data that a model reads; takes the possible names of the test split.
        summed: hashes the content of a copy, and adds the files it reads to the stamp.
        faults: reports all problems of a copy.
    """

    noun: str
    title: str
    recipes: str
    expected: str
    shown_by: str
    has_features: Callable[[Path], bool]
    begun: Callable[[Path], bool]
    check: Callable[[Path, Sequence[Any]], None]
    load: Callable[[Path, Sequence[str], Sequence[Any]], Pairs]
    summed: "Callable[[Path, Sequence[str], Stamp], Summed]"
    faults: Callable[[Path, Dataset, CheckProgress], Part]


def forms() -> list[Form]:
    return [components.loaded(one.data) for one in components.registered().values() if one.data]


def form_of(reads: Sequence[PartRead]) -> Form:
    form: Form = components.loaded(components.registered()[reads[0].part].data)
    return form
