"""Split files, for captions that do not tell the split of an image: splits.csv, or a list of file names per split."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

from goalgrid.grid.errors import counted
from goalgrid.grid.groups import grouped
from goalgrid.retrieval.data.annotations.annotation import SPLITS, Annotation
from goalgrid.retrieval.splits.problems import Problem, lines_of, rows_of, shortened

NAMES = {"train": "train", "val": "val", "dev": "val", "test": "test"}
"""Accepted names of splits."""
LISTS = {
    "train": ("train.txt", "Flickr_8k.trainImages.txt"),
    "val": ("val.txt", "dev.txt", "Flickr_8k.devImages.txt"),
    "test": ("test.txt", "Flickr_8k.testImages.txt"),
}
TABLE = "splits.csv"
EXPECTED = f"{TABLE} with the columns image,split, or train.txt, val.txt and test.txt with one file name per line"


def given(path: Path) -> bool:
    """Return whether there are split files next to the captions."""
    return any(os.path.lexists(path.with_name(name)) for name in (TABLE, *chain(*LISTS.values())))


def entries(pairs: Iterable[tuple[str, str]], path: Path, problems: list[Problem]) -> list[Annotation]:
    """Return those images of the (image, caption) pairs that are listed in the split files next to the captions."""
    captions, table = grouped(pairs), path.with_name(TABLE)
    by_split = _of_table(table, problems) if os.path.lexists(table) else _of_lists(path, problems)
    by_stem = grouped((name.rpartition(".")[0], name) for name in captions)
    names = {stem: alike[0] for stem, alike in by_stem.items() if len(alike) == 1}
    annotations = []
    for split, (place, images) in by_split.items():
        known = [(image if image in captions else names.get(image, "")) for image in images]
        annotations += [
            Annotation(split, (name,), tuple(captions[name]), f"{place}: image {name}") for name in known if name
        ]
        lost = [image for image, name in zip(images, known, strict=True) if not name]
        if lost and captions:
            near = get_close_matches(lost[0], list(captions), n=1)
            hint = f"; the closest name to the first is {near[0]}" if near else ""
            what = f"{counted(len(lost), 'image')} without a caption in {path.name}: {shortened(lost)}{hint}"
            problems.append(Problem(str(place), what, f"Remove them, or add their captions to {path.name}."))
    return annotations


def by_hash(image: str) -> str:
    """Assign an image to a split by a hash of its name: 80, 10 and 10 percent. Adding images changes no other's split.

    >>> [by_hash(name) for name in ("1.jpg", "2.jpg", "5.jpg")]
    ['test', 'train', 'val']
    """
    tenth = int(hashlib.sha256(image.encode(errors="surrogatepass")).hexdigest()[:8], 16) % 10
    return {8: "val", 9: "test"}.get(tenth, "train")


def split_of(name: str, place: str, problems: list[Problem], names: Mapping[str, str] = NAMES) -> str | None:
    """Return the split with this name; report an unknown name and return None."""
    if name.strip() in names:
        return names[name.strip()]
    near = get_close_matches(name.strip().lower(), list(names), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    problems.append(Problem(place, f"unknown split {name!r}", f"Known: {', '.join(names)}.{hint}"))
    return None


def _of_table(path: Path, problems: list[Problem]) -> dict[str, tuple[Path, list[str]]]:
    images: dict[str, list[str]] = {split: [] for split in SPLITS}
    for line, row in rows_of(path, ("image", "split"), problems):
        if split := split_of(row["split"], f"{path}, line {line}", problems):
            images[split].append(row["image"].strip())
    return {split: (path, names) for split, names in images.items()}


def _of_lists(captions: Path, problems: list[Problem]) -> dict[str, tuple[Path, list[str]]]:
    """Return for each split its list file and the images listed there."""
    splits = {}
    for split, names in LISTS.items():
        path = next((path for name in names if os.path.lexists(path := captions.parent / name)), None)
        if path is None:
            what = f"does not assign its images to splits, and {names[0]} is not in the same folder"
            problems.append(Problem(str(captions), what, f"Expected {EXPECTED}."))
            continue
        lines = lines_of(path, "one file name per line", problems)
        splits[split] = path, [line.strip() for line in lines if line.strip()]
    return splits
