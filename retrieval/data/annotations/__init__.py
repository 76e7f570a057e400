"""Raw images with captions: the annotation format is told by what lies under the root. One file a format."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from goalgrid.grid import catalog
from goalgrid.grid.errors import counted
from goalgrid.retrieval.data.annotations import coco, csv_captions, flickr_tokens, karpathy, vse_infinity, xvlm_json
from goalgrid.retrieval.data.annotations.annotation import SPLITS, Annotation, located
from goalgrid.retrieval.splits.pairs import DataError, Listing
from goalgrid.retrieval.splits.problems import Problem, check_command, faults_of_captions, overlaps, refuse, repeated


class Format(NamedTuple):
    """How the annotations of a format are found and read.

    Args:
        find: from the name of the data set and the root: the annotations' file or folder, if it is there.
        entries: from that path, the root, the names of the test split and a list for problems: the images.
        tree: how a root of one's own looks.
    """

    find: Callable[[str, Path], Path | None]
    entries: Callable[[Path, Path, Sequence[str], list[Problem]], list[Annotation]]
    tree: str = ""


FORMATS = {
    "Karpathy's JSON": Format(karpathy.find, karpathy.entries, karpathy.TREE),
    "COCO captions, a file a split": Format(coco.find_splits, coco.splits, coco.SPLITS_TREE),
    "COCO captions with id files": Format(coco.find_official, coco.official),
    "captions by id, VSE-infinity": Format(vse_infinity.find, vse_infinity.entries),
    "COCO captions in one file": Format(coco.find_one_file, coco.one_file, coco.ONE_FILE_TREE),
    "X-VLM's JSON": Format(xvlm_json.find, xvlm_json.entries, xvlm_json.TREE),
    "CSV": Format(csv_captions.find_with_splits, csv_captions.entries, csv_captions.TREE),
    "CSV, split by a hash of the images' names": Format(csv_captions.find, csv_captions.entries),
    "Flickr's token file": Format(flickr_tokens.find, flickr_tokens.entries, flickr_tokens.TREE),
}
"""The first format found counts."""
EXPECTED = (
    "captions.csv (a first line image,caption, then a row a caption), "
    "dataset.json or dataset_*.json (Karpathy), annotations/captions_train2014.json with id files or "
    "annotations/captions_{train,val,test}.json or captions.json (COCO), id_mapping.json, "
    "NAME_{train,val,test}.json (X-VLM), or *.token.txt"
)
ENDINGS = (".json", ".txt", ".csv", ".npy", ".token")
"""Of files that annotations may stand in."""


def find(name: str, root: Path) -> tuple[str, Path] | None:
    """The format of the annotations under this root, and their file or folder."""
    return next(((title, path) for title, form in FORMATS.items() if (path := form.find(name, root))), None)


def files(path: Path, root: Path) -> list[Path]:
    """The files, images apart, that may be read for the annotations at this path."""
    folders = dict.fromkeys((root, root / "precomp", path if path.is_dir() else path.parent))
    return [file for folder in folders for file in sorted(folder.glob("*")) if file.suffix in ENDINGS]


@dataclass(frozen=True)
class Annotated:
    """The annotated images under a root, by split.

    Args:
        title: the format of the annotations.
        files: the file of each entry that has one, in the order of the splits and their entries.
        problems: what is wrong with the annotations, and images that are missing or lead out of the root.
    """

    title: str
    path: Path
    by_split: dict[str, list[Annotation]]
    files: list[tuple[Annotation, Path]]
    problems: list[Problem]

    @classmethod
    def read(cls, name: str, root: Path) -> "Annotated | None":
        """Read the annotations under the root, and find the images; None where there are no annotations."""
        if not (source := find(name, root)):
            return None
        (title, path), known, problems = source, catalog.described(name), list[Problem]()
        by_split: dict[str, list[Annotation]] = {split: [] for split in SPLITS}
        for entry in FORMATS[title].entries(path, root, known.test_splits, problems):
            captions = entry.captions[: known.captions_per_image]  # where protocols use only the first
            by_split[entry.split].append(replace(entry, captions=captions))
        files = located([entry for entries in by_split.values() for entry in entries], root, problems)
        return cls(title, path, by_split, files, problems)

    @classmethod
    def of(cls, name: str, root: Path) -> "Annotated":
        """As `read`; DataError: there are none, they cannot be read, or images are missing or lead out of the root."""
        if not (annotated := cls.read(name, root)):
            raise DataError(f"no annotations under {root}, the root of {name!r}: expected {EXPECTED}.")
        refuse(annotated.problems, str(annotated.path), check_command(name, root.absolute()))
        return annotated

    @property
    def listings(self) -> dict[str, Listing[list[Path]]]:
        """The image files of each split, as training reads them."""
        listings = dict[str, Listing[list[Path]]]()
        for split, entries in self.by_split.items():
            files = [file for entry, file in self.files if entry.split == split]
            listings[split] = Listing.of(files, [entry.captions for entry in entries])
        return listings

    def notes(self) -> list[Problem]:
        """Captions that are empty or no text, and images in two splits or twice in one."""
        notes = []
        for split, listing in self.listings.items():
            notes += faults_of_captions(listing.captions, f"captions of the {split} split of {self.path}")
        names = {split: [entry.names[0] for entry in entries] for split, entries in self.by_split.items()}
        notes += overlaps(names, str(self.path), "image")
        for split, given in names.items():
            if twice := repeated(given):
                what = f"{counted(len(twice), 'image')} given more than once, the first is {twice[0]}"
                fix = "Give each image one entry with all its captions."
                notes.append(Problem(f"{split} split of {self.path}", what, fix, "note"))
        return notes
