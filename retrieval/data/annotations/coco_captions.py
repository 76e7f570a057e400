"""COCO's own caption files with VSE++'s splits: captions_{train,val}2014.json and coco_*_ids.npy, annotation ids.

`restval` trains where its ids are there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from goalgrid.grid.errors.wording import counted
from goalgrid.retrieval.data.annotations.annotation import Annotation, grouped
from goalgrid.retrieval.splits.problems import Problem, array_of, object_of, shortened, torn

PARTS = {"train": ("train", "train2014"), "restval": ("train", "val2014")}
PARTS |= {"dev": ("val", "val2014"), "test": ("test", "val2014")}
"""By id file: the split it fills, and the caption file that its ids come from."""
Captions = dict[int, tuple[str, str]]
"""File name and caption by annotation id."""
LAYOUT = '{"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}'


def find(name: str, root: Path) -> Path | None:
    """The folder of the caption files: `annotations/`, or the root."""
    return next((path for path in (root / "annotations", root) if (path / "captions_train2014.json").exists()), None)


def files(path: Path, root: Path) -> list[Path]:
    """The caption files and the id files."""
    captions = [path / f"captions_{year}.json" for year in ("train2014", "val2014")]
    return captions + [place for part in PARTS for place in _places(part, path, root)]


def _places(part: str, path: Path, root: Path) -> list[Path]:
    """Where the ids of a part may lie."""
    return [folder / f"coco_{part}_ids.npy" for folder in (path, root)]


def entries(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Every image whose captions the id files name, in the order of the ids."""
    by_year = {year: captions_of(path / f"captions_{year}.json", problems) for year in ("train2014", "val2014")}
    annotations = []
    for part, (_, year) in PARTS.items():
        place = next((place for place in _places(part, path, root) if place.exists()), None)
        if place:
            annotations += _entries(part, place, by_year[year], problems)
        elif part != "restval":
            fix = (
                "Take it from VSE++'s data (see `goalgrid data where coco`); or, for splits of your own, leave all id "
                "files out and give captions_train.json, captions_val.json and captions_test.json."
            )
            problems.append(Problem(str(path / f"coco_{part}_ids.npy"), "is missing", fix))
    return annotations


def _entries(part: str, place: Path, captions: Captions, problems: list[Problem]) -> list[Annotation]:
    split, year = PARTS[part]
    ids = _ids(place, problems)
    unknown = [key for key in ids if key not in captions]
    if unknown and captions:
        what = f"{counted(len(unknown), 'annotation id')} not in captions_{year}.json: {shortened(unknown)}"
        problems.append(Problem(str(place), what, "Ids are those of captions (annotations), not of images."))
    known = [captions[key] for key in ids if key in captions]
    by_file = grouped([caption for _, caption in known], [file for file, _ in known])
    return [
        Annotation(split, (f"{year}/{file}", file), tuple(texts), f"{place}: image {file}")
        for file, texts in by_file.items()
    ]


def _ids(path: Path, problems: list[Problem]) -> list[int]:
    try:
        ids = array_of(path)
    except (OSError, ValueError) as error:
        problems.append(torn(path, error))
        return []
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        problems.append(Problem(str(path), "is no array of integers", "Expected one annotation id a caption, (n)."))
        return []
    return [int(key) for key in ids]


def captions_of(path: Path, problems: list[Problem]) -> Captions:
    """The captions of a file; a caption of an image that the file does not list is noted and left out."""
    content = object_of(path, LAYOUT, problems)
    if not content:
        return {}
    try:
        files = {image["id"]: _text(image["file_name"]) for image in content["images"]}
        notes = [(note["id"], note["image_id"], _text(note["caption"])) for note in content["annotations"]]
    except (KeyError, TypeError) as error:
        problems.append(Problem(str(path), f"is not in COCO's layout ({error!r})", f"Expected {LAYOUT}."))
        return {}
    lost = [f"{key} (image {image})" for key, image, _ in notes if image not in files]
    if lost:
        what = f"{counted(len(lost), 'annotation')} of an image that is not in its list of images: {shortened(lost)}"
        problems.append(Problem(str(path), what, "Remove it, or add its image; it is left out.", "note"))
    return {key: (files[image], caption) for key, image, caption in notes if image in files}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
