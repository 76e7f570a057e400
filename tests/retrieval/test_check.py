"""`data check`: every planted fault is found and named, several at once are all reported, a healthy copy has none."""

import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from goalgrid.listings import new_grid
from goalgrid.retrieval.data import rows
from goalgrid.retrieval.data.annotations import Annotated
from goalgrid.retrieval.data.check import DataReport, check
from goalgrid.retrieval.data.content import content
from goalgrid.retrieval.splits.pairs import DataError

from .packages import (
    write_coco,
    write_coco_in_one_file,
    write_csv,
    write_csv_with_lists,
    write_image,
    write_karpathy,
    write_precomp,
    write_tokens,
    write_vse_infinity,
)

Plant = Callable[[Path], object]


def features(split: str, edit: Callable[[np.ndarray], np.ndarray | None]) -> Plant:
    """Change one feature file."""

    def plant(root: Path) -> None:
        array = np.load(root / f"{split}_ims.npy")
        changed = edit(array)
        np.save(root / f"{split}_ims.npy", array if changed is None else changed)

    return plant


def put(row: int, value: float) -> Callable[[np.ndarray], None]:
    def edit(array: np.ndarray) -> None:
        array[row] = value

    return edit


def lines(file: str, edit: Callable[[list[str]], object]) -> Plant:
    """Change the lines of a text file in place."""

    def plant(root: Path) -> None:
        content = (root / file).read_text().splitlines()
        edit(content)
        (root / file).write_text("\n".join(content) + "\n")

    return plant


def line(file: str, number: int, text: str) -> Plant:
    """Replace one line of a text file."""
    return lines(file, lambda content: content.__setitem__(number, text))


def entry(number: int, **fields: Any) -> Plant:
    """Change one image of Karpathy's JSON."""

    def plant(root: Path) -> None:
        content = json.loads((root / "dataset.json").read_text())
        content["images"][number].update(fields)
        (root / "dataset.json").write_text(json.dumps(content))

    return plant


def negative_shape(file: str) -> Plant:
    """Write another number of rows into an array's header, which keeps its length."""

    def plant(root: Path) -> None:
        content = (root / file).read_bytes()
        place = content.index(b"'shape': (") + len(b"'shape': (")
        (root / file).write_bytes(content[:place] + b"-" + content[place:128].replace(b" \n", b"\n") + content[128:])

    return plant


def pipe(file: str) -> Plant:
    """A named pipe in a file's place, which nobody writes to."""

    def plant(root: Path) -> None:
        (root / file).unlink()
        os.mkfifo(root / file)

    return plant


def circle(file: str) -> Plant:
    """A link to itself in a file's place."""

    def plant(root: Path) -> None:
        (root / file).unlink()
        (root / file).symlink_to(file)

    return plant


def beneath(folder: str) -> Plant:
    """Name all images of the table by their path in a folder."""

    def edit(rows: list[str]) -> None:
        rows[:] = [f"{folder}/{row}" if row[0].isdigit() else row for row in rows]

    return lines("captions.csv", edit)


def torn(file: str) -> Plant:
    """Cut a file in half."""
    return lambda root: (root / file).write_bytes((root / file).read_bytes()[: (root / file).stat().st_size // 2])


def copied(source: str, target: str) -> Plant:
    """Put one file of the annotations in the place of another."""
    return lambda root: shutil.copy(root / "annotations" / source, root / "annotations" / target)


def pointer(file: str) -> Plant:
    """What a clone without git-lfs has in a file's place."""
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:df01d1\nsize 26366460\n"
    return lambda root: (root / file).write_text(text)


PULL = (
    "cannot be read: it is a git-lfs pointer: git lfs pull fetches the file itself. Run in its clone: git lfs install"
)

PRECOMP: dict[str, tuple[Plant, str]] = {
    "nan": (features("train", put(4, np.nan)), "train_ims.npy: row 4 contains NaN or infinity"),
    "infinity": (features("dev", put(2, np.inf)), "dev_ims.npy: row 2 contains NaN or infinity"),
    "zero rows": (features("test", put(3, 0)), "test_ims.npy: row 3 contains zeros only"),
    "width": (features("dev", lambda a: a[:, :, :3]), "differs between splits: train 3 x 4, val 3 x 3"),
    "dtype": (features("train", lambda a: a.astype(np.int32)), "found int32 (6, 3, 4)"),
    "one dimension": (features("train", lambda a: a[:, 0, 0]), "found float16 (6,)"),
    "rows": (features("test", lambda a: a[:4]), "test_ims.npy has 4 rows"),
    "no rows": (features("dev", lambda a: a[:0]), "is empty: 0 feature rows, 30 captions"),
    "negative shape": (negative_shape("dev_ims.npy"), "cannot be read"),
    "features from a pipe": (pipe("dev_ims.npy"), "it is not a regular file"),
    "captions from a pipe": (pipe("train_caps.txt"), "train_caps.txt: cannot be read: it is not a regular file"),
    "torn features": (torn("test_ims.npy"), "cannot be read"),
    "missing features": (lambda r: (r / "dev_ims.npy").unlink(), "dev_ims.npy: is missing"),
    "missing captions": (lambda r: (r / "dev_caps.txt").unlink(), "dev_caps.txt: is missing"),
    "empty caption": (line("dev_caps.txt", 6, "  "), "1 caption is empty: number 7"),
    "python bytes": (line("train_caps.txt", 0, "b'a dog'"), "looks like python bytes, number 1"),
    "latin 1": (
        lambda r: (r / "test_caps.txt").write_bytes(b"caf\xe9\n" * 30),
        "test_caps.txt, line 1: is not UTF-8: byte 0xe9",
    ),
    "missing value": (
        line("train_caps.txt", 2, "NaN"),
        "1 caption is a placeholder for a missing value, number 3",
    ),
    "list": (line("dev_caps.txt", 0, "['a dog', 'a dog runs']"), "1 caption looks like a list of captions"),
    "html": (
        line("test_caps.txt", 4, "black &amp; white"),
        "1 caption contains HTML, number 5: black &amp;",
    ),
    "spreadsheet": (line("test_caps.txt", 4, "#NAME?"), "1 caption is a spreadsheet error"),
    "coding": (line("test_caps.txt", 4, "a cafÃ© at night"), "1 caption is UTF-8 decoded with the wrong encoding"),
    "empty last caption": (line("dev_caps.txt", 29, ""), "1 caption is empty: number 30"),
    "features of git-lfs": (pointer("dev_ims.npy"), f"dev_ims.npy: {PULL}"),
    "captions of git-lfs": (pointer("dev_caps.txt"), f"dev_caps.txt: {PULL}"),
    "doubled id": (line("train_ids.txt", 5, "0"), "train_ids.txt: 1 id listed more than once; the first is 0"),
    "number of ids": (lines("dev_ids.txt", lambda t: t.pop()), "dev_ids.txt: has 5 ids, but there are 6 images"),
    "image in two splits": (line("test_ids.txt", 1, "3"), "train and test share 1 image id; the first is 3"),
}

KARPATHY: dict[str, tuple[Plant, str]] = {
    "missing image": (lambda r: (r / "images" / "2.png").unlink(), "images/2.png: the image is missing"),
    "torn image": (torn("images/1.png"), "images/1.png: the image cannot be read"),
    "no image": (lambda r: (r / "images" / "0.png").write_text("<html>"), "images/0.png: the image cannot be read"),
    "empty file": (lambda r: (r / "images" / "0.png").write_bytes(b""), "images/0.png: the image cannot be read"),
    "outside": (entry(1, filename="../../../etc/passwd"), "images[1]: file name '../../../etc/passwd' leads out of"),
    "absolute": (entry(1, filename="/etc/passwd"), "images[1]: file name '/etc/passwd' leads out of"),
    "two splits": (entry(3, filename="0.png"), "train and test share 1 image; the first is 0.png"),
    "twice in a split": (entry(1, filename="0.png"), "1 image listed more than once; the first is 0.png"),
    "unknown split": (entry(2, split="tset"), "unknown split 'tset' of image '2.png'"),
    "no caption": (entry(2, sentences=[]), "image '2.png' has no caption"),
    "null caption": (
        entry(2, sentences=[{"raw": "a dog"}, {"raw": None}]),
        "images[2]: image '2.png': sentences[1] has no text",
    ),
    "json of git-lfs": (pointer("dataset.json"), f"dataset.json: {PULL}"),
    "image of git-lfs": (
        pointer("images/1.png"),
        "images/1.png: the image cannot be read: it is a git-lfs pointer: git lfs pull fetches the file itself. Run in",
    ),
    "empty caption": (entry(2, sentences=[{"raw": ""}]), "captions of the val split"),
    "python bytes": (entry(3, sentences=[{"raw": 'b"a cat"'}]), "1 caption looks like python bytes"),
    "empty split": (entry(2, split="train"), "val split of"),
    "torn json": (torn("dataset.json"), "dataset.json: cannot be read"),
}

VSE: dict[str, tuple[Plant, str]] = {
    "id without a file name": (line("precomp/dev_ids.txt", 0, "999"), "1 id not in id_mapping.json: 999"),
    "captions apart": (
        lines("precomp/test_ids.txt", lambda t: t.insert(0, t.pop())),
        "1 id with captions in lines that are not consecutive",
    ),
    "empty last caption": (line("precomp/dev_caps.txt", 29, ""), "1 caption is empty: number 30"),
    "too few ids": (lines("precomp/train_ids.txt", lambda t: t.pop()), "has 29 ids for the 30 lines"),
    "not utf-8": (
        lambda r: (r / "precomp" / "dev_caps.txt").write_bytes(b"\xff\n" * 30),
        "dev_caps.txt, line 1: is not UTF-8",
    ),
}

COCO: dict[str, tuple[Plant, str]] = {
    "missing ids": (lambda r: (r / "annotations/coco_dev_ids.npy").unlink(), "coco_dev_ids.npy: is missing"),
    "torn ids": (torn("annotations/coco_train_ids.npy"), "coco_train_ids.npy: cannot be read"),
    "foreign ids": (
        lambda r: np.save(r / "annotations/coco_test_ids.npy", np.array([7])),
        "1 annotation id not in captions_val2014.json: 7",
    ),
    "two splits": (copied("coco_dev_ids.npy", "coco_test_ids.npy"), "val and test share 2 images"),
}

CSV: dict[str, tuple[Plant, str]] = {
    "column": (
        line("captions.csv", 0, "image,captoin,split"),
        "line 1: lacks 1 column: 'caption'; its columns: 'image',",
    ),
    "nearest column": (line("captions.csv", 0, "image,caption,splt"), "has a column 'splt'; did you mean 'split'?"),
    "column twice": (line("captions.csv", 0, "image,caption,image"), "names column 'image' more than once"),
    "unquoted comma": (
        lines("captions.csv", lambda t: t.append("0.png,a dog, and a cat,train")),
        "captions.csv, line 10: has 4 cells, but the header has 3 columns",
    ),
    "open quotation mark": (
        lines("captions.csv", lambda t: t.append('0.png,"a dog,train')),
        "is not valid CSV: unexpected end",
    ),
    "not utf-8": (
        lambda r: (r / "captions.csv").write_bytes(b"image,caption,split\n0.png,caf\xe9,train\n"),
        "captions.csv, line 2: is not UTF-8: byte 0xe9, which is 'é' in cp1252",
    ),
    "unknown split": (lines("captions.csv", lambda t: t.append("0.png,a,tset")), "unknown split 'tset'"),
    "no image": (lines("captions.csv", lambda t: t.append(",a,train")), "captions.csv, line 10: names no image"),
    "no caption": (lines("captions.csv", lambda t: t.append("0.png,,train")), "1 caption is empty"),
    "caption of no image": (lines("captions.csv", lambda t: t.append("9.png,a,val")), "9.png: the image is missing"),
    "outside": (lines("captions.csv", lambda t: t.append("../9.png,a,val")), "'../9.png' leads out of"),
    "two splits": (lines("captions.csv", lambda t: t.append("0.png,a,test")), "train and test share 1 image"),
    "only a header": (lambda r: (r / "captions.csv").write_text("image,caption,split\n"), "is empty: 0 images"),
    "empty file": (
        lambda r: (r / "captions.csv").write_text(""),
        "lacks 2 columns: 'image', 'caption'; its columns: none",
    ),
    "other columns": (
        line("captions.csv", 0, "filename,words,split"),
        "lacks 2 columns: 'image', 'caption'; its columns: 'filename', 'words', 'split'",
    ),
    "columns of which two may be captions": (
        line("captions.csv", 0, "filepath,title,text"),
        "columns 'title' and 'text' could each be the caption column. Choose one: [data.NAME] columns = { captions",
    ),
    "backslashes": (beneath("images\\"), "Separate folders with / instead of \\"),
    "capital split": (lines("captions.csv", lambda t: t.append("0.png,a,Train")), "Did you mean 'train'?"),
    "utf-16": (
        lambda r: (r / "captions.csv").write_text((r / "captions.csv").read_text("utf-8-sig"), encoding="utf-16"),
        "captions.csv, line 1: is not UTF-8: it is UTF-16",
    ),
    "many outside": (beneath("/a"), "file name '/a/0.png' leads out of"),
    "named by the folder above": (beneath("mine/images"), "'0.png' is in"),
}

LISTED: dict[str, tuple[Plant, str]] = {
    "missing list": (
        lambda r: (r / "val.txt").unlink(),
        "does not assign its images to splits, and val.txt is not in the same folder",
    ),
    "unknown image": (
        lines("test.txt", lambda t: t.append("3.pgn")),
        "test.txt: 1 image without a caption in captions.csv: 3.pgn; the closest name to the first is 3.png",
    ),
    "two splits": (lines("val.txt", lambda t: t.append("0.png")), "train and val share 1 image; the first is 0.png"),
    "a link to itself": (circle("test.txt"), "test.txt: cannot be read: Too many levels of symbolic links"),
    "empty list": (lambda r: (r / "test.txt").write_text(""), "test split of"),
}

TOKENS: dict[str, tuple[Plant, str]] = {
    "no tab": (line("mine.token.txt", 3, "1.png#1 a dog"), "line 4: is not an image with a caption: '1.png#1 a dog'"),
    "no number": (line("mine.token.txt", 0, "0.png\ta dog"), "line 1: is not an image with a caption"),
    "unknown image": (lines("train.txt", lambda t: t.append("7.png")), "1 image without a caption in mine.token.txt"),
    "no lists": (
        lambda r: [(r / f"{split}.txt").unlink() for split in ("train", "val", "test")],
        "mine.token.txt: does not assign its images to splits, and train.txt is not in the same folder",
    ),
}

ONE_FILE: dict[str, tuple[Plant, str]] = {
    "column": (line("splits.csv", 0, "image,spilt"), "splits.csv, line 1: lacks 1 column: 'split'"),
    "unknown split": (line("splits.csv", 2, "1.png,training"), "splits.csv, line 3: unknown split 'training'"),
    "unknown image": (
        lines("splits.csv", lambda t: t.append("7.png,val")),
        "1 image without a caption in captions.json",
    ),
    "a link to itself": (circle("splits.csv"), "splits.csv: cannot be read: Too many levels of symbolic links"),
    "other layout": (lambda r: (r / "captions.json").write_text('{"images": []}'), "is not in COCO's layout"),
    "null caption": (
        lambda r: (r / "captions.json").write_text(
            re.sub(r'"caption": "[^"]*"', '"caption": null', (r / "captions.json").read_text(), count=1)
        ),
        "captions.json: annotations[0], annotation",
    ),
}

WRITERS: dict[str, tuple[Callable[[Path], object], dict[str, tuple[Plant, str]]]] = {
    "precomp": (write_precomp, PRECOMP),
    "karpathy": (write_karpathy, KARPATHY),
    "vse-infinity": (lambda root: write_vse_infinity(root, repeated=True), VSE),
    "coco": (write_coco, COCO),
    "csv": (write_csv, CSV),
    "csv with lists": (write_csv_with_lists, LISTED),
    "tokens": (write_tokens, TOKENS),
    "coco in one file": (write_coco_in_one_file, ONE_FILE),
}
FAULTS = [(form, name) for form, (_, faults) in WRITERS.items() for name in faults]


def named(report: DataReport) -> str:
    return "\n".join(str(problem) for problem in report.problems)


@pytest.mark.parametrize("form", WRITERS)
def test_a_healthy_copy_has_no_problem(form: str, tmp_path: Path) -> None:
    WRITERS[form][0](tmp_path)
    report = check("mine", tmp_path)
    assert report.problems == []
    (part,) = report.parts
    assert set(part.sizes) == {"train", "val", "test"}
    assert part.bytes > 0
    assert len(part.fingerprint) == 18


@pytest.mark.parametrize(("form", "fault"), FAULTS, ids=[f"{form}: {fault}" for form, fault in FAULTS])
def test_a_planted_fault_is_found_and_named(form: str, fault: str, tmp_path: Path) -> None:
    write, faults = WRITERS[form]
    write(tmp_path)
    plant, message = faults[fault]
    plant(tmp_path)
    report = check("mine", tmp_path)
    assert message in named(report)
    assert all(problem.fix for problem in report.problems)


def test_what_is_whole_is_not_to_be_fetched_again(tmp_path: Path) -> None:
    karpathy, features, table = (tmp_path / name for name in ("karpathy", "features", "table"))
    annotations = write_karpathy(karpathy)
    annotations.write_bytes(annotations.read_bytes().replace(b'"raw": "', b'"raw": "caf\xe9 '))
    write_precomp(features)
    rows = np.load(features / "train_ims.npy")
    np.save(features / "train_ims.npy", rows.astype(object))
    np.save(features / "test_ims.npy", np.load(features / "test_ims.npy").astype(">f4"))
    (features / "dev_ims.npy").write_bytes(pickle.dumps(rows))
    write_csv(table)
    with (table / "captions.csv").open("a") as file:
        file.write("0.png," + 30_000 * "words " + ",train\n")
    said = "\n".join(named(check("mine", root)) for root in (karpathy, features, table))
    assert f"iconv -f cp1252 -t utf-8 {annotations.name} > fixed" in said
    assert "Save numbers of equal shape: np.save('train_ims.npy'" in said
    assert "It is not a valid .npy file: download it again, or save numbers with np.save" in said
    assert "Change the byte order: np.save('test_ims.npy', np.load('test_ims.npy')" in said
    assert "Close the quotation mark that opens there, or shorten the caption" in said
    assert "Download it again" not in said


def test_a_file_name_in_other_code_points_is_named(tmp_path: Path) -> None:
    annotations = write_karpathy(tmp_path)
    image = tmp_path / "images" / "0.png"
    image.rename(image.with_name("hu\u0308nd.png"))
    annotations.write_text(annotations.read_text().replace(image.name, "h\\u00fcnd.png"))
    (problem,) = check("mine", tmp_path).problems
    assert "same name in another Unicode normalisation" in problem.what
    assert f"convmv -r -f utf-8 -t utf-8 --nfc --notest {image.parent}" in problem.fix


@pytest.mark.parametrize(
    "fault",
    [
        "other columns",
        "columns of which two may be captions",
        "backslashes",
        "utf-16",
        "many outside",
        "named by the folder above",
    ],
)
def test_one_cause_is_one_problem(fault: str, tmp_path: Path) -> None:
    write_csv(tmp_path)
    CSV[fault][0](tmp_path)
    assert len(check("mine", tmp_path).problems) == 1


def test_images_may_be_named_by_their_whole_path_below_the_root(tmp_path: Path) -> None:
    write_csv(tmp_path)
    relative = check("mine", tmp_path)
    beneath(str(tmp_path / "images"))(tmp_path)
    absolute = check("mine", tmp_path)
    assert absolute.problems == []
    assert absolute.parts[0].fingerprint == relative.parts[0].fingerprint


@pytest.mark.parametrize(
    ("form", "together"),
    [
        ("precomp", ("nan", "infinity", "zero rows", "empty caption", "python bytes", "doubled id")),
        ("precomp", ("width", "number of ids", "torn features", "python bytes", "image in two splits")),
        ("precomp", ("missing features", "latin 1", "infinity", "nan", "doubled id")),
        ("karpathy", ("missing image", "torn image", "no image", "python bytes")),
        ("karpathy", ("outside", "no caption", "two splits")),
        ("vse-infinity", ("id without a file name", "captions apart", "too few ids")),
        ("csv", ("unquoted comma", "unknown split", "caption of no image", "two splits")),
    ],
)
def test_several_faults_are_all_reported(form: str, together: tuple[str, ...], tmp_path: Path) -> None:
    write, faults = WRITERS[form]
    write(tmp_path)
    wanted = [message for fault in together if (message := faults[fault][1]) and fault != "infinity"]
    for fault in together:
        if not (fault == "infinity" and "missing features" in together):
            faults[fault][0](tmp_path)
    text = named(check("mine", tmp_path))
    assert [message for message in wanted if message not in text] == []


def test_features_and_images_are_both_checked(tmp_path: Path) -> None:
    write_karpathy(tmp_path)
    write_precomp(tmp_path / "precomp")
    features("train", put(1, np.nan))(tmp_path / "precomp")
    torn("images/3.png")(tmp_path)
    text = named(check("mine", tmp_path))
    assert "row 1 contains NaN" in text
    assert "3.png: the image cannot be read" in text


def test_nan_is_found_in_every_block_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BLOCK", 48)  # two rows
    write_precomp(tmp_path)
    for row in (0, 5):
        features("train", put(row, np.nan))(tmp_path)
    told: list[tuple[str, int, int]] = []
    report = check("mine", tmp_path, progress=lambda *word: told.append(word))
    assert "rows 0, 5 contain NaN or infinity" in named(report)
    assert told[:3] == [("reading train_ims.npy", done, 6) for done in (2, 4, 6)]


def test_files_that_are_no_whole_image_are_named(tmp_path: Path) -> None:
    write_karpathy(tmp_path)
    write_image(tmp_path / "images" / "large.png", 1)
    torn("images/3.png")(tmp_path)
    (tmp_path / "images" / "2.png").write_text("no image")
    assert [problem.place[-5:] for problem in check("mine", tmp_path).problems] == ["2.png", "3.png"]


def test_sizes_are_held_against_the_official_ones(tmp_path: Path) -> None:
    write_precomp(tmp_path)
    text = named(check("flickr30k", tmp_path))
    assert "6 images with 30 captions; officially 29,000 with 145,000" in text
    assert text.count("officially") == 3
    assert check("mine", tmp_path).problems == []


def test_a_known_incomplete_copy_says_what_is_missing(tmp_path: Path) -> None:
    write_precomp(tmp_path, images=1000, captions=5)
    text = named(check("coco", tmp_path))
    assert "1,000 images with 5,000 captions; officially 5,000 with 25,000. What is missing: `testall`" in text


def test_row_numbers_are_no_image_ids(tmp_path: Path) -> None:
    write_precomp(tmp_path)
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}_ids.txt").write_text("".join(f"{row}\n" for row in range(6)))
    assert check("mine", tmp_path).problems == []


def test_numbers_of_images_given_for_each_caption_are_no_leak(tmp_path: Path) -> None:
    write_precomp(tmp_path)
    for split in ("train", "dev", "test"):
        captions = len((tmp_path / f"{split}_caps.txt").read_text().splitlines())
        (tmp_path / f"{split}_ids.txt").write_text("".join(f"{6 * row // captions}\n" for row in range(captions)))
    assert check("mine", tmp_path).problems == []
    assert content("mine", tmp_path, features=True).leaks(chooses=True) == []


def test_repeated_rows_and_no_ids_are_healthy(tmp_path: Path) -> None:
    write_precomp(tmp_path, repeated=True)
    write_precomp(tmp_path / "precomp", ids=False)
    assert check("mine", tmp_path).problems == check("mine", tmp_path / "precomp").problems == []


def test_a_folder_without_data_says_what_was_expected(tmp_path: Path) -> None:
    (problem,) = check("coco", tmp_path).problems
    assert "no data in a known form" in problem.what
    assert "goalgrid data where coco" in problem.fix
    (problem,) = check("msr-vtt", tmp_path).problems
    assert problem.what.endswith("expected MSRVTT_data.json with experts/*/features.npy (videos)")
    (problem,) = check("coco", tmp_path / "none").problems
    assert "no such folder" in problem.what


def test_files_of_a_known_form_name_the_one_that_is_missing(tmp_path: Path) -> None:
    """Not all forms that there are: COCO 2017 has no captions of its test images, as people find out."""
    year = tmp_path / "coco" / "annotations"
    year.mkdir(parents=True)
    for name in ("captions_train2017.json", "captions_val2017.json", "instances_val2017.json"):
        (year / name).write_text('{"images": [], "annotations": []}')
    lists, texts, table = (tmp_path / name for name in ("lists", "texts", "table"))
    write_precomp(texts, arrays=False)
    for folder in (lists, table):
        folder.mkdir()
    (lists / "f30k_train.json").write_text('[{"image": "0.png", "caption": "a dog"}]')
    (table / "results.csv").write_text("image,legend\n0.png,a dog\n")
    expected = {
        year.parent: "annotations/captions_test.json: is missing; captions_train2017.json alone is not enough. Provide",
        lists: "lists/f30k_test.json: is missing; f30k_train.json alone is not enough. Provide one list per split",
        texts: "texts/train_ims.npy: is missing; train_caps.txt has neither features nor images",
        table: "results.csv: no caption column was recognised; its columns: 'image', 'legend'. Choose one: [data",
    }
    for root, message in expected.items():
        (problem,) = check("mine", root).problems
        assert message in str(problem)
        with pytest.raises(DataError, match=re.escape(message)):
            Annotated.of("mine", root)
        assert message in "\n".join(new_grid.text("birds", "mine", [], [], str(root))[1])


def test_a_blank_line_at_the_end_is_a_caption_only_where_one_is_wanted(tmp_path: Path) -> None:
    write_precomp(tmp_path)
    before = check("mine", tmp_path)
    with (tmp_path / "train_caps.txt").open("a") as file:
        file.write("\n\n")
    after = check("mine", tmp_path)
    assert (after.problems, after.parts[0].fingerprint) == ([], before.parts[0].fingerprint)


def test_the_check_says_how_many_words_are_unknown(tmp_path: Path) -> None:
    write_karpathy(tmp_path)
    (part,) = check("mine", tmp_path).parts
    known = {"a", "train", "picture"}  # of train: a, picture 8 times, train 5, restval 3
    val = [f"a val picture {c}".split() for c in range(4)]
    share = sum(word not in known for words in val for word in words) / 16
    assert (
        part.words
        == f"3 words occur at least 4 times in train; unknown words: {100 * share:.1f} % of val, 50.0 % of test"
    )
    captions = [{"raw": f"只猫在草地{c}"} for c in range(4)]
    entry(2, sentences=captions)(tmp_path)
    (problem,) = check("mine", tmp_path).problems
    assert problem.what == "100.0 % of the words of the validation captions occur in no training caption"
    assert "pretrained text encoder" in problem.fix


@pytest.mark.gate
def test_real_photographs_and_features_have_no_problem(flickr8k: Path) -> None:
    report = check("flickr8k", flickr8k)
    assert report.problems == []
    assert [part.sizes["train"].captions for part in report.parts] == [30000, 30000]
    assert report.parts[1].notes["test"] == "9 x 512 float16"


def test_pictures_that_are_turned_or_seen_over_white_are_counted(tmp_path: Path) -> None:
    write_karpathy(tmp_path)
    exif = Image.Exif()
    exif[0x112] = 3
    Image.new("RGB", (20, 30), "red").save(tmp_path / "images" / "1.png", exif=exif)
    Image.new("RGBA", (20, 30), (255, 0, 0, 0)).save(tmp_path / "images" / "2.png", exif=exif)
    report = check("mine", tmp_path)
    assert report.lines()[-3:-1] == [
        "  2 pictures rotated according to EXIF",
        "  1 picture with transparent parts, shown as white",
    ]
    assert report.to_dict()["parts"][0]["read_as"] == {"turned": 2, "transparent": 1}
