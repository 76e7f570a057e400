"""The same image in two splits is found by what it is: its file's bytes, or its features, whatever it is called."""

import csv
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from goalgrid.retrieval.data.annotations import FORMATS, Annotated
from goalgrid.retrieval.data.check import check
from goalgrid.retrieval.data.content import Content, content

from .forms import FORMS, made_up
from .packages import (
    write_coco,
    write_coco_in_one_file,
    write_coco_splits,
    write_csv,
    write_image,
    write_karpathy,
    write_precomp,
    write_tokens,
    write_vse_infinity,
    write_xvlm,
)


def write_csv_without_splits(root: Path) -> None:
    """Nine images, of which the hashes of 1.jpg, 2.jpg and 5.jpg say test, train and val."""
    for number in range(1, 10):
        write_image(root / "images" / f"{number}.jpg", 20 * number)
    rows = "".join(f"{number}.jpg,a dog\n" for number in range(1, 10))
    (root / "captions.csv").write_text(f"image,caption\n{rows}")


def written(form: str) -> Callable[[Path], object]:
    return lambda root: FORMS[form](made_up(root / "photos" / "made up"), root)


WRITERS: dict[str, Callable[[Path], object]] = {
    "Karpathy's JSON": write_karpathy,
    "COCO captions, a file a split": write_coco_splits,
    "COCO captions with id files": write_coco,
    "captions by id, VSE-infinity": write_vse_infinity,
    "COCO captions in one file": write_coco_in_one_file,
    "X-VLM's JSON": write_xvlm,
    "CSV": write_csv,
    "CSV, split by a hash of the images' names": write_csv_without_splits,
    "Flickr's token file": write_tokens,
    "imagefolder": written("imagefolder, CSV"),
    "JSON lines": written("JSON lines"),
    "CSV with other columns": written("CSV of open_clip"),
    "pictures with caption files": written("caption files"),
}


INSIDE = {"webdataset tars": "tars with texts", "parquet": "parquet, bytes and path"}
"""Formats whose pictures lie inside tables, and a form of each."""


def of(root: Path, kept: Path | None = None, *, features: bool = False) -> Content:
    return content("mine", root, features=features, kept=kept)


def by_kind(held: Content) -> dict[str, list[str]]:
    return {kind: [problem.what for problem in held.problems if problem.kind == kind] for kind in (
        "leak", "tested validation", "note", "remark"
    )}  # fmt: skip


@pytest.mark.parametrize("title", [title for title in FORMATS if title not in INSIDE])
def test_equal_bytes_in_train_and_test_are_a_leak_in_each_format(title: str, tmp_path: Path) -> None:
    WRITERS[title](tmp_path)
    annotated = Annotated.of("mine", tmp_path)
    assert annotated.title == title
    assert all(problem.kind == "remark" for problem in of(tmp_path).problems)
    train, test = (annotated.listings[split].images[0].path for split in ("train", "test"))
    shutil.copy(train, test)
    copied = of(tmp_path)
    test.unlink()
    test.symlink_to(train)
    assert len(copied.leaks(chooses=False)) == len(of(tmp_path).leaks(chooses=False)) == 1
    (leak,) = copied.leaks(chooses=False)
    assert leak.what.startswith("train and test share 1 image; the first is ")
    assert leak in check("mine", tmp_path).problems


@pytest.mark.parametrize("title", INSIDE)
def test_equal_bytes_inside_tables_are_a_leak_too(title: str, tmp_path: Path) -> None:
    made = made_up(tmp_path / "made up")
    root = tmp_path / "data"
    root.mkdir()
    FORMS[INSIDE[title]]([*made[:-1], replace(made[-1], content=made[0].content)], root)
    held = content("mine", root, features=False, copies=tmp_path / "copies")
    (leak,) = held.leaks(chooses=False)
    assert leak.what.startswith("train and test share 1 image; the first is ")
    assert leak in check("mine", root, copies=tmp_path / "copies").problems


def by_name(name: Callable[[Path, int], str]) -> Callable[[Path], None]:
    """A CSV file whose test images are the first training images, by other names."""

    def write(root: Path) -> None:
        for number in range(9):
            write_image(root / "images" / f"{number}.png", 20 * number)
        rows = [(f"{number}.png", "a dog", "train" if number < 6 else "val") for number in range(9)]
        rows += [(name(root, number), "a dog", "test") for number in range(3)]
        with (root / "captions.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("image", "caption", "split"), *rows])

    return write


def linked(root: Path, number: int) -> str:
    (root / "images" / f"l{number}.png").symlink_to(f"{number}.png")
    return f"l{number}.png"


def copied(root: Path, number: int) -> str:
    (root / "images" / "far").mkdir(exist_ok=True)
    shutil.copy(root / "images" / f"{number}.png", root / "images" / "far" / f"{number}.png")
    return f"far/{number}.png"


SPELLINGS: dict[str, Callable[[Path, int], str]] = {
    "dot": lambda root, number: f"./{number}.png",
    "slashes": lambda root, number: f".//{number}.png",
    "absolute": lambda root, number: str((root / "images" / f"{number}.png").absolute()),
    "link": linked,
    "copy in another folder": copied,
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_another_name_of_an_image_is_no_other_image(spelling: str, tmp_path: Path) -> None:
    by_name(SPELLINGS[spelling])(tmp_path)
    (leak,) = of(tmp_path).leaks(chooses=False)
    assert leak.what.startswith("train and test share 3 images; the first is 0.png, in test ")


def test_folders_of_splits_and_paths_of_some_entries_hide_no_image(tmp_path: Path) -> None:
    """COCO's entries are named by their split's folder first; Karpathy's `filepath` may be given in one split alone."""
    write_coco_splits(tmp_path / "coco")
    shutil.copy(tmp_path / "coco" / "captions_train.json", tmp_path / "coco" / "captions_test.json")
    (leak,) = of(tmp_path / "coco").leaks(chooses=False)
    assert leak.what == "train and test share 2 images; the first is train/COCO_1.png, in test test/COCO_1.png"
    path = write_karpathy(tmp_path / "karpathy")
    told = json.loads(path.read_text())
    told["images"].append(told["images"][0] | {"filepath": "images", "split": "test"})
    path.write_text(json.dumps(told))
    (leak,) = of(tmp_path / "karpathy").leaks(chooses=False)
    assert leak.what == "train and test share 1 image; the first is 0.png, in test images/0.png"


def test_a_hash_puts_one_image_into_one_split_by_whatever_path_it_is_named(tmp_path: Path) -> None:
    write_csv_without_splits(tmp_path)
    rows = (tmp_path / "captions.csv").read_text().splitlines()[1:]
    again = "".join(f".//{row}\n./{row}\n" for row in rows)
    (tmp_path / "captions.csv").write_text("image,caption\n" + "".join(f"{row}\n" for row in rows) + again)
    found = of(tmp_path)
    assert by_kind(found)["leak"] == by_kind(found)["tested validation"] == []
    assert sum("listed more than once" in what for what in by_kind(found)["note"]) == 3


def test_equal_files_of_one_split_are_a_remark(tmp_path: Path) -> None:
    write_vse_infinity(tmp_path)
    shutil.copy(tmp_path / "images" / "train" / "0.png", tmp_path / "images" / "train" / "4.png")
    found = by_kind(of(tmp_path))
    assert found == {"leak": [], "tested validation": [], "note": [], "remark": [
        "1 image equals another: train/4.png is train/0.png"
    ]}  # fmt: skip
    report = check("mine", tmp_path)
    assert (report.problems, len(report.remarks)) == ([], 1)
    assert report.lines()[-1].startswith("note: train split of ")


def test_equal_features_are_one_image_and_zeros_are_none(tmp_path: Path) -> None:
    write_precomp(tmp_path, ids=False)
    train, test = (np.load(tmp_path / f"{split}_ims.npy") for split in ("train", "test"))
    test[:2], train[:4], test[4], train[5] = 0, 0, train[4], train[4]
    for split, array in (("train", train), ("test", test)):
        np.save(tmp_path / f"{split}_ims.npy", array)
    found = by_kind(of(tmp_path, features=True))
    assert found == {
        "leak": ["train and test share 1 image; the first is row 4"],
        "tested validation": [],
        "note": ["rows 0, 1, 2, 3 contain zeros only", "rows 0, 1 contain zeros only"],
        "remark": ["1 image equals another: row 5 is row 4"],
    }
    told = [problem.what for problem in check("mine", tmp_path).problems]
    assert sorted(told) == sorted([*found["leak"], *found["note"]]), "data check and run say the same"


def test_validation_that_is_test_is_told_with_ids_and_without(tmp_path: Path) -> None:
    for ids in (True, False):
        root = tmp_path / str(ids)
        write_precomp(root, ids=ids)
        for path in root.glob("dev_*"):
            shutil.copy(path, root / path.name.replace("dev", "test"))
        found = of(root, features=True)
        assert found.leaks(chooses=False) == []
        (leak,) = found.leaks(chooses=True)
        assert leak.what == "val and test share 6 images; the first is row 0"


@pytest.mark.parametrize(("shared", "kind"), [(10, "remark"), (11, "leak")])
def test_a_published_split_may_have_a_few_images_twice(shared: int, kind: str, tmp_path: Path) -> None:
    """Flickr8k's photographs were uploaded by people: of one in 8,000, a second copy was."""
    counts, random = {"train": 6000, "dev": 1000, "test": 1000}, np.random.default_rng(0)
    arrays = {split: random.random((count, 2), np.float32) for split, count in counts.items()}
    arrays["test"][:shared] = arrays["train"][:shared]
    for split, array in arrays.items():
        np.save(tmp_path / f"{split}_ims.npy", array)
        (tmp_path / f"{split}_caps.txt").write_text("a dog\n" * 5 * len(array))
    found = by_kind(content("flickr8k", tmp_path, features=True))
    assert found[kind] == [f"train and test share {shared} images; the first is row 0"]
    assert by_kind(of(tmp_path, features=True))["leak"] == found[kind], "of data of one's own, each is a leak"


def test_a_stamp_of_an_earlier_version_tells_what_it_hashed_and_nothing_else(tmp_path: Path) -> None:
    """It lacks `noted`, and leaks by content; files whose own stamp holds are not read again."""
    root, kept = tmp_path / "data", tmp_path / "kept"
    by_name(copied)(root)
    fresh = of(root, kept)
    (file,) = kept.iterdir()
    stored = json.loads(file.read_text().partition("\n")[2])
    del stored["noted"], stored["content"]["repeats"]
    stored["content"]["problems"] = []
    stored["paths"]["images/8.png"][2] = "f" * 64
    text = json.dumps(stored, separators=(",", ":"), sort_keys=True)
    file.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    again = of(root, kept)
    assert again.leaks(chooses=False) == fresh.leaks(chooses=False) != []
    assert again.fingerprint != fresh.fingerprint, "the file was read again"
    os.utime(root / "images" / "8.png", (1, 1))
    assert of(root, kept) == fresh
