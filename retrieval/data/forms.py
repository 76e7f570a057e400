"""Forms of data, in addition to images and their features, that a component brings. No form loads torch."""

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
    "turned": "turned as EXIF says",
    "transparent": "with transparent parts, seen as white",
    "scaled": "scaled to 8 bits by the range of its values",
}
"""How a picture is read where that is not what Pillow converts its file to, in words."""
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
    def of(cls, listing: Listing[Any]) -> "SplitSize":
        images = len(listing.images)
        per_image = np.bincount(listing.image_of_text, minlength=images) if images else np.zeros(1, dtype=int)
        return cls(images, len(listing.captions), int(per_image.min()), int(per_image.max()))


@dataclass
class Part:
    """One form of a data set under one root."""

    format: str
    path: Path
    sizes: dict[str, SplitSize] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """By split: shape and type of its features, or what its images look like."""
    files: list[FileSlice] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    read_as: dict[str, int] = field(default_factory=dict)
    """How many pictures are read in which way of `READ_AS`."""
    fingerprint: str = ""
    noun: str = "image"
    """Noun for what a caption describes."""
    captions: dict[str, list[str]] = field(default_factory=dict)
    """By split."""
    words: str = ""
    """How many words the training captions have, and how many of the other splits' words are not among them."""

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
    """Content of a copy of a data set, summed for its fingerprint.

    Args:
        marks: by split: a fingerprint of what replaces the images.
        problems: leaks, notes and remarks.
        read_as: how many pictures are read in which way of `READ_AS`.
        repeats: by split: how often each image's row is repeated, as `Rows.repeats`.
    """

    marks: dict[str, str]
    listings: Mapping[str, Listing[Any]]
    problems: Sequence[Problem]
    read_as: Mapping[str, int] = MappingProxyType({})
    repeats: Mapping[str, Sequence[int]] = MappingProxyType({})


@dataclass(frozen=True)
class Form:
    """A form of data: how to find it under a root, read and check it. `check`, `load` and `summed` raise DataError.

    Args:
        noun: what a caption describes.
        title: the form, for a user, as a check reports it.
        recipes: some recipes that read it.
        expected: which files say that a folder has this form.
        shown_by: a shipped data set of this form, whose trees show how a folder may look.
        has_features: whether there are features of this form under a root.
        begun: whether anything of this form is there.
        check: whether all that a model reads is there.
        load: opens the data, of these test splits, for what a model reads.
        summed: what a copy holds; the files that were read go into the stamp.
        faults: everything that is wrong with a copy.
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
