"""Which split each image is in, where its captions do not say: a file splits.csv, or a list of file names a split."""

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
"""How the splits may be called."""
LISTS = {
    "train": ("train.txt", "Flickr_8k.trainImages.txt"),
    "val": ("val.txt", "dev.txt", "Flickr_8k.devImages.txt"),
    "test": ("test.txt", "Flickr_8k.testImages.txt"),
}
TABLE = "splits.csv"
EXPECTED = f"{TABLE} with the columns image,split, or train.txt, val.txt and test.txt with a file name a line"


def given(path: Path) -> bool:
    """Return whether a file next to the captions names the splits."""
    return any(os.path.lexists(path.with_name(name)) for name in (TABLE, *chain(*LISTS.values())))


def entries(pairs: Iterable[tuple[str, str]], path: Path, problems: list[Problem]) -> list[Annotation]:
    """Return the images, of (image, caption) pairs, that the split files next to the captions name; no others."""
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
            hint = f"; the nearest to the first is {near[0]}" if near else ""
            what = f"{counted(len(lost), 'image')} without a caption in {path.name}: {shortened(lost)}{hint}"
            problems.append(Problem(str(place), what, f"Take it out, or give it captions in {path.name}."))
    return annotations


def by_hash(image: str) -> str:
    """Assign an image to a split by its name alone, so that new images move no other: 80, 10 and 10 percent.

    >>> [by_hash(name) for name in ("1.jpg", "2.jpg", "5.jpg")]
    ['test', 'train', 'val']
    """
    tenth = int(hashlib.sha256(image.encode(errors="surrogatepass")).hexdigest()[:8], 16) % 10
    return {8: "val", 9: "test"}.get(tenth, "train")


def split_of(name: str, place: str, problems: list[Problem], names: Mapping[str, str] = NAMES) -> str | None:
    """Return the split of this name; None, after reporting it, if it is unknown."""
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
    """The images of each split, and its list."""
    splits = {}
    for split, names in LISTS.items():
        path = next((path for name in names if os.path.lexists(path := captions.parent / name)), None)
        if path is None:
            what = f"says no split of its images, and {names[0]} is not in the same folder"
            problems.append(Problem(str(captions), what, f"Expected {EXPECTED}."))
            continue
        lines = lines_of(path, "a file name a line", problems)
        splits[split] = path, [line.strip() for line in lines if line.strip()]
    return splits
