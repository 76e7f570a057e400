"""COCO's caption files: its own with VSE++'s splits; and for data of one's own, a file a split or a single file.

VSE++'s splits are ids of annotations of captions_{train,val}2014.json; `restval` trains where its ids are there. Of a
file a split, `dev` is read as `val`, and images may lie in a folder named after its ending (`train2017/`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from goalgrid.grid.errors import counted
from goalgrid.retrieval.data.annotations import split_files
from goalgrid.retrieval.data.annotations.annotation import Annotation, entries_of, first
from goalgrid.retrieval.splits.problems import Problem, array_at, json_of, no_text, repeated, shortened

PARTS = {"train": ("train", "train2014"), "restval": ("train", "val2014")}
PARTS |= {"dev": ("val", "val2014"), "test": ("test", "val2014")}
"""By id file: the split it fills, and the caption file that its ids come from."""
NAMES = {"train": ("train",), "val": ("val", "dev"), "test": ("test",)}
"""By split: what the names of its caption files begin with, after `captions_`."""
FOLDERS = ("annotations", ".")
YEARS = ("2014", "2017")
"""Years of COCO's own files."""
Captions = dict[int, tuple[str, str]]
"""File name and caption by annotation id."""
LAYOUT = '{"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}'
_IMAGES = "DIR/images/*.jpg            or in DIR, or in any other folder below it"
SPLITS_TREE = f"""
DIR/captions_{{train,val,test}}.json    {LAYOUT}
    or in DIR/annotations/; no coco_*_ids.npy
{_IMAGES}
"""
ONE_FILE_TREE = f"""
DIR/captions.json           {LAYOUT}
DIR/splits.csv              columns image,split, the image by its file_name; or DIR/{{train,val,test}}.txt
{_IMAGES}
"""


def find_official(name: str, root: Path) -> Path | None:
    """Return the folder of COCO's own caption files."""
    file = first(root, FOLDERS, "captions_train2014.json")
    return file and file.parent


def official(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read every image whose captions the id files name, in the order of the ids."""
    by_year = {year: _captions(path / f"captions_{year}.json", problems) for year in ("train2014", "val2014")}
    annotations = []
    for part, (split, year) in PARTS.items():
        places = [folder / f"coco_{part}_ids.npy" for folder in (path, root)]
        place = next((place for place in places if place.exists()), None)
        if place:
            keys = _named(place, by_year[year], year, problems)
            annotations += entries_of(split, [by_year[year][key] for key in keys], place, year, keys)
        elif part != "restval":
            fix = (
                "Take it from VSE++'s data (see `goalgrid data where coco`); or, for splits of your own, leave all id "
                "files out and give captions_train.json, captions_val.json and captions_test.json."
            )
            problems.append(Problem(str(places[0]), "is missing", fix))
    return annotations


def find_splits(name: str, root: Path) -> Path | None:
    """Return the folder with a caption file per split, if it has a test split and no id file."""
    if first(root, FOLDERS, "coco_*_ids.npy"):
        return None
    return next((root / folder for folder in FOLDERS if _files(root / folder, "test")), None)


def splits(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read every image with captions, in the order of its first caption."""
    annotations = []
    for split, names in NAMES.items():
        files = _files(path, split)
        if not files:
            fix = "Each split has its caption file: captions_train.json, captions_val.json, captions_test.json."
            problems.append(Problem(str(path / f"captions_{names[0]}.json"), "is missing", fix))
        for file in files:
            folder = file.stem.removeprefix("captions_")
            captions = _captions(file, problems, all_images=True)
            annotations += entries_of(split, captions.values(), file, folder, [*captions])
    return annotations


def lacks_test(root: Path) -> Problem | None:
    """Report caption files of training or validation without one of the test; None: nothing to report."""
    files = [file for folder in FOLDERS for split in ("train", "val") for file in _files(root / folder, split)]
    if not files:
        return None
    fix = "Give each split its file: captions_train.json, captions_val.json, captions_test.json."
    if any(year in files[0].name for year in YEARS):
        fix += (
            " COCO publishes no captions of its test images: test on part of val2014 by Karpathy's dataset_coco.json."
        )
    what = f"is missing; {files[0].name} alone is not enough"
    return Problem(str(files[0].with_name("captions_test.json")), what, fix)


def find_one_file(name: str, root: Path) -> Path | None:
    return first(root, (".", "annotations"), "captions.json")


def one_file(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read every image that the splits name, with its captions in their order."""
    return split_files.entries(_captions(path, problems).values(), path, problems)


def _files(folder: Path, split: str) -> list[Path]:
    return [file for name in NAMES[split] for file in sorted(folder.glob(f"captions_{name}*.json"))]


def _named(place: Path, captions: Captions, year: str, problems: list[Problem]) -> list[int]:
    """The ids of the captions that an id file names."""
    ids = array_at(place, problems)
    if ids is None:
        return []
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        problems.append(
            Problem(str(place), "is not an array of integers", "Expected one annotation id a caption, (n).")
        )
        return []
    unknown = [key for key in ids.tolist() if key not in captions]
    if unknown and captions:
        what = f"{counted(len(unknown), 'annotation id')} not in captions_{year}.json: {shortened(unknown)}"
        problems.append(Problem(str(place), what, "Ids are those of captions (annotations), not of images."))
    return [key for key in ids.tolist() if key in captions]


def _captions(path: Path, problems: list[Problem], *, all_images: bool = False) -> Captions:
    """The captions of a file; a caption of an image that the file does not list is noted and left out.

    With `all_images`, an image without a caption is reported, too.
    """
    content = json_of(path, dict, LAYOUT, problems)
    if not content:
        return {}
    try:
        images = [(image["id"], _text(image["file_name"])) for image in content["images"]]
        given = [(note["id"], note["image_id"], note["caption"]) for note in content["annotations"]]
        problems += [
            no_text(f"{path}: annotations[{row}], annotation {key} of image {image}", caption)
            for row, (key, image, caption) in enumerate(given)
            if not isinstance(caption, str)
        ]
        notes = [note for note in given if isinstance(note[2], str)]
        files, captioned = dict(images), {image for _, image, _ in given}
        twice = {"image": repeated(key for key, _ in images), "annotation": repeated(key for key, *_ in notes)}
    except (KeyError, TypeError) as error:
        problems.append(Problem(str(path), f"is not in COCO's layout ({error!r})", f"Expected {LAYOUT}."))
        return {}
    for kind, ids in twice.items():
        if ids:
            what = f"gives {counted(len(ids), f'{kind} id')} more than once: {shortened(ids)}"
            fix = f"Give each {kind} an id of its own, also where files are merged."
            problems.append(Problem(str(path), what, fix))
    silent = [file for key, file in images if all_images and key not in captioned]
    if silent:
        what = f"{counted(len(silent), 'image')} without a caption: {shortened(silent)}"
        problems.append(Problem(str(path), what, "Take it out of the list of images, or give it captions."))
    lost = [f"{key} (image {image})" for key, image, _ in notes if image not in files]
    if lost:
        what = f"{counted(len(lost), 'annotation')} of an image that is not in its list of images: {shortened(lost)}"
        problems.append(Problem(str(path), what, "It is left out: remove it, or add its image.", "note"))
    return {key: (files[image], caption) for key, image, caption in notes if image in files}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
