"""Raw images with captions: the annotation format is told by what lies under the root. One file a format."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from goalgrid.grid import catalog
from goalgrid.retrieval.data.annotations import (
    coco_captions,
    coco_one_file,
    coco_splits,
    csv_captions,
    flickr_tokens,
    karpathy,
    split_files,
    vse_infinity,
    xvlm_json,
)
from goalgrid.retrieval.data.annotations.annotation import SPLITS, Annotation, owners
from goalgrid.retrieval.data.annotations.locate import located
from goalgrid.retrieval.splits.pairs import DataError, Listing
from goalgrid.retrieval.splits.problems import Problem, refuse

Find = Callable[[str, Path], Path | None]
"""From the name of the data set and the root: the annotations' file or folder, if it is there."""

Reading = Callable[[Path, Path, Sequence[str], list[Problem]], list[Annotation]]
"""From the annotations' file, the root, the names of the test split and a list for problems."""

Files = Callable[[Path, Path], list[Path]]
"""From the annotations' file or folder and the root: the files, images apart, that may be read."""


class Format(NamedTuple):
    """How the annotations of a format are found and read, from which files, and how a root of one's own looks."""

    find: Find
    entries: Reading
    files: Files
    tree: str = ""


FORMATS = {
    "Karpathy's JSON": Format(karpathy.find, karpathy.entries, lambda path, root: [path], karpathy.TREE),
    "COCO captions, a file a split": Format(coco_splits.find, coco_splits.entries, coco_splits.files, coco_splits.TREE),
    "COCO captions with id files": Format(coco_captions.find, coco_captions.entries, coco_captions.files),
    "captions by id, VSE-infinity": Format(vse_infinity.find, vse_infinity.entries, vse_infinity.files),
    "COCO captions in one file": Format(
        coco_one_file.find, coco_one_file.entries, split_files.files, coco_one_file.TREE
    ),
    "X-VLM's JSON": Format(xvlm_json.find, xvlm_json.entries, xvlm_json.files, xvlm_json.TREE),
    "CSV": Format(csv_captions.find_with_splits, csv_captions.entries, split_files.files, csv_captions.TREE),
    "CSV, split by a hash of the images' names": Format(csv_captions.find, csv_captions.entries, split_files.files),
    "Flickr's token file": Format(flickr_tokens.find, flickr_tokens.entries, split_files.files, flickr_tokens.TREE),
}
"""The first format found counts."""
EXPECTED = (
    "dataset.json or dataset_*.json (Karpathy), annotations/captions_train2014.json with id files or "
    "annotations/captions_{train,val,test}.json or captions.json (COCO), id_mapping.json, "
    "NAME_{train,val,test}.json (X-VLM), captions.csv, or *.token.txt"
)


def find(name: str, root: Path) -> tuple[str, Path] | None:
    """The format of the annotations under this root, and their file or folder."""
    return next(((title, path) for title, form in FORMATS.items() if (path := form.find(name, root))), None)


def read(title: str, path: Path, name: str, root: Path, problems: list[Problem]) -> dict[str, list[Annotation]]:
    """Annotated images by split, with their first captions alone where the protocols of the data set use only those."""
    known = catalog.described(name)
    by_split: dict[str, list[Annotation]] = {split: [] for split in SPLITS}
    for entry in FORMATS[title].entries(path, root, known.test_splits, problems):
        by_split[entry.split].append(replace(entry, captions=entry.captions[: known.captions_per_image]))
    return by_split


@dataclass(frozen=True)
class Annotated:
    """The annotated images under a root, by split; every image is there.

    Args:
        files: the file of each entry, in the order of the splits and their entries.
        notes: what is wrong and yet no reason to refuse the data.
    """

    path: Path
    by_split: dict[str, list[Annotation]]
    files: list[tuple[Annotation, Path]]
    notes: list[Problem]

    @classmethod
    def of(cls, name: str, root: Path) -> "Annotated":
        """Read the annotations under the root, and find the images.

        Raises:
            DataError: there are none, they cannot be read, or images are missing or lead out of the root.
        """
        source = find(name, root)
        if source is None:
            raise DataError(f"no annotations under {root}, the root of {name!r}: expected {EXPECTED}.")
        problems: list[Problem] = []
        by_split = read(*source, name, root, problems)
        refuse(problems, str(source[1]))
        files = located([entry for entries in by_split.values() for entry in entries], root, problems)
        refuse(problems, f"the images of {source[1]}")
        return cls(source[1], by_split, files, problems)

    def listing(self, split: str) -> Listing:
        entries = self.by_split[split]
        captions = [caption for entry in entries for caption in entry.captions]
        return Listing([file for entry, file in self.files if entry.split == split], captions, owners(entries))


def load(name: str, root: Path) -> tuple[Listing, Listing, Listing]:
    """Train, val and test by the annotations under the root; raises as `Annotated.of`."""
    annotated = Annotated.of(name, root)
    return annotated.listing("train"), annotated.listing("val"), annotated.listing("test")
