"""Raw images with captions: the annotation format is told by what lies under the root. One file a format."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grid import catalog
from retrieval.data.annotations import coco_captions, karpathy, vse_infinity
from retrieval.data.annotations.entries import SPLITS, Entry, owners
from retrieval.data.annotations.locate import located
from retrieval.data.pairs import DataError, Listing
from retrieval.data.problems import Problem, refuse


@dataclass(frozen=True)
class Format:
    """One way to write annotations: where its file stands, and the entries that it gives."""

    title: str
    find: Callable[[str, Path], Path | None]
    entries: Callable[[Path, Path, Sequence[str], list[Problem]], list[Entry]]


FORMATS = (
    Format("Karpathy's JSON", karpathy.find, karpathy.entries),
    Format("COCO captions with id files", coco_captions.find, coco_captions.entries),
    Format("captions by id, VSE-infinity", vse_infinity.find, vse_infinity.entries),
)
"""The first that is found counts."""
EXPECTED = "dataset.json or dataset_*.json (Karpathy), annotations/captions_train2014.json (COCO) or id_mapping.json"


@dataclass(frozen=True)
class Found:
    """Annotations that are there: their format and file, or folder."""

    format: Format
    path: Path


def find(name: str, root: Path) -> Found | None:
    """The annotations under this root."""
    return next((Found(kind, path) for kind in FORMATS if (path := kind.find(name, root))), None)


def read(found: Found, name: str, root: Path, problems: list[Problem]) -> dict[str, list[Entry]]:
    """The entries by split, with the first captions of each image where the data set's protocols use only those."""
    known = catalog.dataset(name) if name in catalog.names("datasets") else None
    entries = found.format.entries(found.path, root, known.test_splits if known else ("test",), problems)
    most = known.captions_per_image if known else None
    by_split: dict[str, list[Entry]] = {split: [] for split in SPLITS}
    for entry in entries:
        by_split[entry.split].append(replace(entry, captions=entry.captions[:most]))
    return by_split


def listings(by_split: dict[str, list[Entry]], root: Path, problems: list[Problem]) -> dict[str, Listing]:
    """Every split with its image files; entries without a file are left out and reported."""
    places = located([entry for entries in by_split.values() for entry in entries], root, problems)
    made = {}
    for split in by_split:
        entries = [entry for entry, _ in places if entry.split == split]
        captions = [caption for entry in entries for caption in entry.captions]
        made[split] = Listing([file for entry, file in places if entry.split == split], captions, owners(entries))
    return made


def load(name: str, root: Path) -> tuple[Listing, Listing, Listing]:
    """Train, val and test by the annotations under the root; every image is there.

    Raises:
        DataError: there are none, they cannot be read, or images are missing or lead out of the root.
    """
    found = find(name, root)
    if found is None:
        raise DataError(f"no annotations under {root}, the root of {name!r}: expected {EXPECTED}.")
    problems: list[Problem] = []
    entries = read(found, name, root, problems)
    refuse(problems, str(found.path))
    splits = listings(entries, root, problems)
    refuse(problems, f"the images of {found.path}")
    return splits["train"], splits["val"], splits["test"]
