"""The content of a copy of a data set: what its fingerprint sees, and when a kept result is believed."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from goalgrid.retrieval.data.content import Content, content
from goalgrid.retrieval.data.opening import load
from goalgrid.retrieval.splits.pairs import DataError

from ..conftest import ROOT, swapped
from .packages import (
    write_coco,
    write_csv_with_lists,
    write_image,
    write_karpathy,
    write_precomp,
    write_tokens,
    write_vse_infinity,
)


def of(root: Path, kept: Path | None = None, *, features: bool = False) -> Content:
    return content("mine", root, features=features, kept=kept)


def replace_in(path: Path, before: str, after: str) -> None:
    path.write_text(swapped(path.read_text(), before, after))


def brighten(root: Path) -> None:
    """Change one pixel; name and size stay."""
    path = root / "images" / "2.png"
    before = path.read_bytes()
    write_image(path, 61)
    assert path.read_bytes() != before
    assert len(path.read_bytes()) == len(before)


def move_to_val(root: Path) -> None:
    replace_in(root / "dataset.json", '"restval"', '"val"')


PICTURES: dict[str, Callable[[Path], None]] = {
    "one pixel": brighten,
    "a word of a caption": lambda root: replace_in(root / "dataset.json", "a test picture 0", "a test picture 9"),
    "the split of an image": move_to_val,
}


@pytest.mark.parametrize("what", PICTURES)
def test_the_fingerprint_of_images_sees(what: str, tmp_path: Path) -> None:
    root, kept = tmp_path / "data", tmp_path / "kept"
    write_karpathy(root)
    before = of(root, kept)
    assert of(root, kept) == before
    PICTURES[what](root)
    after = of(root, kept)
    assert after.fingerprint != before.fingerprint
    assert after == of(root)
    assert (after.images == before.images) == (what == "a word of a caption")


def swap_lists(root: Path) -> None:
    """Let the image that validates test, and the image that tests validate."""
    for split, name in (("val", "3.png"), ("test", "2.png")):
        (root / f"{split}.txt").write_text(f"{name}\n")


def add_a_table(root: Path) -> None:
    """Let splits.csv, which counts before lists, name three images for training."""
    rows = zip(range(4), ("train", "test", "val", "train"), strict=True)
    (root / "splits.csv").write_text("image,split\n" + "".join(f"{number}.png,{split}\n" for number, split in rows))


@pytest.mark.parametrize("write", [write_csv_with_lists, write_tokens])
@pytest.mark.parametrize("change", [swap_lists, add_a_table])
def test_the_fingerprint_sees_files_of_splits(
    write: Callable[[Path], None], change: Callable[[Path], None], tmp_path: Path
) -> None:
    root, kept = tmp_path / "data", tmp_path / "kept"
    write(root)
    before = of(root, kept)
    change(root)
    after = of(root, kept)
    assert after.fingerprint != before.fingerprint
    assert after == of(root)


def test_the_fingerprint_of_features_sees_each_value_and_each_caption(tmp_path: Path) -> None:
    write_precomp(tmp_path)
    seen = {of(tmp_path, features=True).fingerprint}
    array = np.load(tmp_path / "test_ims.npy")
    array[3, 1, 2] += 1
    np.save(tmp_path / "test_ims.npy", array)
    seen.add(of(tmp_path, features=True).fingerprint)
    replace_in(tmp_path / "dev_caps.txt", "image 0 caption 0", "image 0 caption 9")
    seen.add(of(tmp_path, features=True).fingerprint)
    assert len(seen) == 3


def test_the_fingerprint_does_not_see_where_the_data_lie_or_when_they_were_written(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for root in (one, two):
        write_karpathy(root)
    os.utime(two / "dataset.json", (1, 1))
    assert of(one, tmp_path / "kept") == of(two, tmp_path / "kept")


def test_while_the_stamp_holds_no_file_is_opened(tmp_path: Path) -> None:
    root, kept = tmp_path / "data", tmp_path / "kept"
    write_karpathy(root)
    before = of(root, kept)
    script = (
        "import sys; from pathlib import Path; from goalgrid.retrieval.data.content import content\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, told: event == 'open' and opened.append(str(told[0])))\n"
        f"print(content('mine', Path({str(root)!r}), features=False, kept=Path({str(kept)!r})).fingerprint)\n"
        f"print([name for name in opened if name.startswith({str(root)!r})], 'torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert told.stdout.split("\n")[:2] == [before.fingerprint, "[] False"]


def test_only_files_whose_own_stamp_changed_are_read_again(tmp_path: Path) -> None:
    root, kept = tmp_path / "data", tmp_path / "kept"
    write_karpathy(root)
    of(root, kept)
    (file,) = kept.iterdir()
    _, _, text = file.read_text().partition("\n")
    brighten(root)
    after = of(root, kept)
    before, now = (json.loads(found)["paths"] for found in (text, file.read_text().partition("\n")[2]))
    assert {path for path in now if now[path] != before[path]} == {"images/2.png"}
    assert after == of(root)


def mark(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@pytest.mark.parametrize("turned", [False, True])
def test_only_pictures_that_were_read_wrong_get_another_mark_than_before_they_were_turned(
    turned: bool, tmp_path: Path
) -> None:
    """What c608b168 kept of the same files, literally: a mark of their bytes alone, in a stamp that says no more."""
    root, kept = tmp_path / "data", tmp_path / "kept"
    write_karpathy(root)
    exif = Image.Exif()
    exif[0x112] = 6 if turned else 1
    Image.open(root / "images" / "1.png").save(root / "images" / "1.png", exif=exif)
    now = of(root, kept)
    sums = [hashlib.sha256((root / "images" / f"{place}.png").read_bytes()).hexdigest() for place in range(4)]
    before = mark({"train": mark(sums[:2]), "val": mark(sums[2:3]), "test": mark(sums[3:])})
    (file,) = kept.iterdir()
    stamp = json.loads(file.read_text().partition("\n")[2])
    del stamp["content"]["read_as"]
    text = json.dumps({
        "paths": {path: found[:3] for path, found in stamp["paths"].items()},
        "content": stamp["content"] | {"images": before, "fingerprint": f"2:{before[:16]}"},
    })  # fmt: skip
    file.write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    after = of(root, kept)
    assert after == now == of(root, kept)
    assert (after.images == before) == (not turned)
    assert after.read_as == ((("turned", 1),) if turned else ())


def test_a_file_that_takes_precedence_is_noticed(tmp_path: Path) -> None:
    root, kept = tmp_path / "data", tmp_path / "kept"
    write_karpathy(root)
    before = of(root, kept)
    other = swapped((root / "dataset.json").read_text(), "a test picture 0", "another")
    (root / "dataset_mine.json").write_text(other)
    assert of(root, kept).fingerprint != before.fingerprint


@pytest.mark.parametrize("damage", [b"", b"\0" * 50, b"{}", b"\xff\xfe"])
def test_a_damaged_stamp_is_made_anew(damage: bytes, tmp_path: Path) -> None:
    root, kept = tmp_path / "data", tmp_path / "kept"
    write_karpathy(root)
    before = of(root, kept)
    (file,) = kept.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage)
    assert of(root, kept) == before
    assert file.read_bytes() == whole


@pytest.mark.parametrize(
    ("write", "features"),
    [(write_karpathy, False), (write_coco, False), (write_vse_infinity, False), (write_precomp, True)],
)
def test_the_sizes_are_what_training_opens(write: Callable[[Path], object], features: bool, tmp_path: Path) -> None:
    from goalgrid.grid.settings.image_views import View

    write(tmp_path)
    pairs = load("mine", tmp_path, None if features else View(8))
    opened = tuple((name, len(split.images), len(split.captions)) for name, split in pairs.splits.items())
    assert of(tmp_path, features=features).sizes == opened


def test_nan_is_named_with_its_row(tmp_path: Path) -> None:
    write_precomp(tmp_path)
    array = np.ones((6, 4), np.float32)
    array[4, 2] = np.nan
    np.save(tmp_path / "test_ims.npy", array)
    with pytest.raises(DataError, match=r"test_ims\.npy: row 4 contains NaN"):
        of(tmp_path, features=True)


def test_a_test_image_in_training_is_a_leak_and_blank_captions_are_noted(tmp_path: Path) -> None:
    path = write_karpathy(tmp_path)
    told = json.loads(path.read_text())
    test = next(entry for entry in told["images"] if entry["split"] == "test")
    told["images"].append(test | {"split": "train", "sentences": [{"raw": " "}]})
    path.write_text(json.dumps(told))
    found = of(tmp_path)
    assert [problem.what for problem in found.leaks(chooses=False)] == [
        "train and test share 1 image; the first is 3.png"
    ]
    assert [problem.what for problem in found.problems if problem.kind == "note"] == ["1 caption is empty: number 9"]
    assert found == of(tmp_path, tmp_path / "kept") == of(tmp_path, tmp_path / "kept")
