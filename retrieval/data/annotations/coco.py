"""COCO caption files: the official ones with VSE++'s splits, or the user's, with one file per split or a single file.

VSE++'s splits list annotation ids of captions_{train,val}2014.json; `restval` joins the training split if its id file
exists. With one file per split, `dev` is read as `val`, and images may be in a folder named after the suffix of the
file name (`train2017/`).
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
"""For each id file, the split it belongs to, and the caption file its ids refer to."""
NAMES = {"train": ("train",), "val": ("val", "dev"), "test": ("test",)}
"""For each split, possible beginnings of its caption files' names, after `captions_`."""
FOLDERS = ("annotations", ".")
YEARS = ("2014", "2017")
"""Years of COCO's official files."""
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
    """Return the folder of COCO's official caption files, or None."""
    file = first(root, FOLDERS, "captions_train2014.json")
    return file and file.parent


def official(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read all images whose captions are listed in the id files, in the order of the ids."""
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
                "Take it from VSE++'s data (see `goalgrid data where coco`); or, for your own splits, remove all id "
                "files and provide captions_train.json, captions_val.json and captions_test.json."
            )
            problems.append(Problem(str(places[0]), "is missing", fix))
    return annotations


def find_splits(name: str, root: Path) -> Path | None:
    """Return the folder with one caption file per split, if it has a test split and no id files; else None."""
    if first(root, FOLDERS, "coco_*_ids.npy"):
        return None
    return next((root / folder for folder in FOLDERS if _files(root / folder, "test")), None)


def splits(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read all images with captions, in the order of their first captions."""
    annotations = []
    for split, names in NAMES.items():
        files = _files(path, split)
        if not files:
            fix = "Each split needs a caption file: captions_train.json, captions_val.json, captions_test.json."
            problems.append(Problem(str(path / f"captions_{names[0]}.json"), "is missing", fix))
        for file in files:
            folder = file.stem.removeprefix("captions_")
            captions = _captions(file, problems, all_images=True)
            annotations += entries_of(split, captions.values(), file, folder, [*captions])
    return annotations


def lacks_test(root: Path) -> Problem | None:
    """Report that there are training or validation caption files but no test captions; return None if not so."""
    files = [file for folder in FOLDERS for split in ("train", "val") for file in _files(root / folder, split)]
    if not files:
        return None
    fix = "Provide one file per split: captions_train.json, captions_val.json, captions_test.json."
    if any(year in files[0].name for year in YEARS):
        fix += " COCO publishes no captions for its test images: use Karpathy's dataset_coco.json to test on val2014."
    what = f"is missing; {files[0].name} alone is not enough"
    return Problem(str(files[0].with_name("captions_test.json")), what, fix)


def find_one_file(name: str, root: Path) -> Path | None:
    return first(root, (".", "annotations"), "captions.json")


def one_file(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read all images listed in the split files, with their captions in file order."""
    return split_files.entries(_captions(path, problems).values(), path, problems)


def _files(folder: Path, split: str) -> list[Path]:
    return [file for name in NAMES[split] for file in sorted(folder.glob(f"captions_{name}*.json"))]


def _named(place: Path, captions: Captions, year: str, problems: list[Problem]) -> list[int]:
    """Return the caption ids listed in an id file, without unknown ones."""
    ids = array_at(place, problems)
    if ids is None:
        return []
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        problems.append(
            Problem(str(place), "is not an array of integers", "Expected one annotation id per caption, shape (n,).")
        )
        return []
    unknown = [key for key in ids.tolist() if key not in captions]
    if unknown and captions:
        what = f"{counted(len(unknown), 'annotation id')} not in captions_{year}.json: {shortened(unknown)}"
        problems.append(Problem(str(place), what, "Use the ids of captions (annotations), not of images."))
    return [key for key in ids.tolist() if key in captions]


def _captions(path: Path, problems: list[Problem], *, all_images: bool = False) -> Captions:
    """Read the captions of a file; report and leave out captions of images that the file does not list.

    With `all_images`, images without captions are reported, too.
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
            fix = f"Give each {kind} a unique id, also when merging files."
            problems.append(Problem(str(path), what, fix))
    silent = [file for key, file in images if all_images and key not in captioned]
    if silent:
        what = f"{counted(len(silent), 'image')} without a caption: {shortened(silent)}"
        problems.append(Problem(str(path), what, "Remove them from the list of images, or add captions."))
    lost = [f"{key} (image {image})" for key, image, _ in notes if image not in files]
    if lost:
        what = f"{counted(len(lost), 'annotation')} of an image that is not in the list of images: {shortened(lost)}"
        problems.append(Problem(str(path), what, "Left out: remove the annotation, or add its image.", "note"))
    return {key: (files[image], caption) for key, image, caption in notes if image in files}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
