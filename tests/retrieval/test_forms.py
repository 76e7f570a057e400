"""The same photographs in all forms: equal pixels, captions and fingerprints; damaged in several ways, one message."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from goalgrid.grid.settings.image_views import View
from goalgrid.listings import new_grid
from goalgrid.retrieval.data import opening
from goalgrid.retrieval.data.annotations import Annotated
from goalgrid.retrieval.data.check import check
from goalgrid.retrieval.data.content import content
from goalgrid.retrieval.splits.pairs import DataError

from . import forms
from .forms import COLUMNS, FORMS, Photograph

VIEW = View(16)


@pytest.fixture
def photographs(tmp_path: Path) -> list[Photograph]:
    return forms.made_up(tmp_path / "made up")


def write(form: str, photographs: Sequence[Photograph], root: Path) -> Path:
    root.mkdir()
    FORMS[form](photographs, root)
    return root


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_give_the_same_pixels_captions_and_fingerprints(
    form: str, photographs: list[Photograph], tmp_path: Path
) -> None:
    first, root = write("Karpathy's JSON", photographs, tmp_path / "first"), write(form, photographs, tmp_path / "data")
    options = {"columns": COLUMNS.get(form, ()), "copies": tmp_path / "copies"}
    held = content("mine", root, features=False, kept=tmp_path / "kept", **options)
    assert held.fingerprint == content("mine", first, features=False).fingerprint
    assert content("mine", root, features=False, kept=tmp_path / "kept", **options) == held
    pairs, expected = opening.load("mine", root, VIEW, **options), opening.load("mine", first, VIEW)
    for split, other in zip(pairs.splits.values(), expected.splits.values(), strict=True):
        rows = np.arange(len(other.images))
        assert split.images.gather(rows).equal(other.images.gather(rows))
        assert split.captions == other.captions
        assert split.image_of_text.tolist() == other.image_of_text.tolist()
    report = check("mine", root, **options)
    assert not report.problems
    assert report.parts[0].fingerprint == held.fingerprint


def test_real_photographs_are_the_same_in_all_forms(flickr8k: Path, tmp_path: Path) -> None:
    photographs = forms.photographs_of(flickr8k, {"train": 30, "val": 10, "test": 10})
    fingerprints = {
        content(
            "mine",
            write(form, photographs, tmp_path / str(place)),
            features=False,
            columns=COLUMNS.get(form, ()),
            copies=tmp_path,
        ).fingerprint
        for place, form in enumerate(FORMS)
    }
    assert len(fingerprints) == 1


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("Karpathy's JSON", "our CSV")])
def test_one_line_says_what_was_read(form: str, photographs: list[Photograph], tmp_path: Path) -> None:
    root = write(form, photographs, tmp_path / "data")
    columns = COLUMNS.get(form, ())
    annotated = Annotated.of("mine", root, columns, tmp_path / "copies")
    assert annotated.summary.startswith("8 photographs with 2 captions each from ")
    (remark,) = (note for note in annotated.notes() if note.what == annotated.summary)
    assert remark.kind == "remark"
    assert remark in check("mine", root, columns=columns, copies=tmp_path / "copies").remarks


def rewrite(name: str, change: Callable[[str], str]) -> Callable[[Path], object]:
    def edit(root: Path) -> None:
        text = (root / name).read_text(encoding="utf-8")
        assert change(text) != text
        (root / name).write_text(change(text), encoding="utf-8")

    return edit


def recode(name: str) -> Callable[[Path], object]:
    """Rewrite a file as Windows did."""
    return lambda root: (root / name).write_bytes((root / name).read_text("utf-8").replace("犬", "").encode("cp1252"))


def drop(name: str, line: int) -> Callable[[Path], object]:
    """Empty the image's cell of a line."""

    def change(text: str) -> str:
        lines = text.splitlines(keepends=True)
        lines[line] = re.sub(r"^[^,]*", "", lines[line])
        return "".join(lines)

    return rewrite(name, change)


def again(name: str, line: int) -> Callable[[Path], object]:
    """Repeat a line."""

    def change(text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join([*lines, lines[line]])

    return rewrite(name, change)


def shorten(name: str, size: int) -> Callable[[Path], object]:
    return lambda root: os.truncate(root / name, min(size, (root / name).stat().st_size // 20 * 3))


def repack(name: str, edit: Callable[[dict[str, bytes]], object]) -> Callable[[Path], object]:
    """Pack a tar again after a change of its files."""

    def change(root: Path) -> None:
        with tarfile.open(root / name) as tar:
            files = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
        edit(files)
        with tarfile.open(root / name, "w") as tar:
            for member, content in files.items():
                forms.add(tar, member, content)

    return change


def rename_texts(files: dict[str, bytes]) -> None:
    for name in [name for name in files if name.endswith(".txt")]:
        files[name.replace(".txt", ".cap")] = files.pop(name)


def append(path: Path, name: str) -> None:
    with tarfile.open(path, "a") as tar:
        forms.add(tar, name, b"again")


TRAIN = "train-00000-of-00001.parquet"


def rewrite_rows(edit: Callable[[list[dict[str, Any]]], object], text: Any = None) -> Callable[[Path], object]:
    """Write the parquet file of training again, with captions of another type if `text` is one."""

    def change(root: Path) -> None:
        path = root / "data" / TRAIN
        before = pq.read_table(path)
        rows = before.to_pylist()
        edit(rows)
        fields = {field.name: field.type for field in before.schema}
        if text is not None:
            rows = [
                row | {"caption": [one if isinstance(one, bytes) else one.encode() for one in row["caption"]]}
                for row in rows
            ]
            fields["caption"] = pa.list_(text)
        if "legend" in rows[0]:
            fields["legend"] = fields.pop("caption")
        pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(fields)), path)

    return change


PAIRS, LINES = "pairs.csv", "all.jsonl"
OPEN_CLIP, FOLDER, TARS = "CSV of open_clip", "imagefolder, CSV", "tars with texts"
PARQUET = "parquet, bytes and path"
DAMAGED: dict[tuple[str, str], tuple[Callable[[Path], object], str]] = {
    (OPEN_CLIP, "cut"): (rewrite(PAIRS, lambda text: text[:-12]), r"pairs\.csv, line 17: has 2 cells"),
    (OPEN_CLIP, "missing row"): (drop(PAIRS, 3), r"pairs\.csv, line 4: names no image"),
    (OPEN_CLIP, "wrong column"): (
        rewrite(PAIRS, lambda text: text.replace("title", "legend", 1)),
        r"pairs\.csv: no caption column was recognised; its columns: 'filepath', 'legend', 'split'\. Choose one",
    ),
    (OPEN_CLIP, "duplicate"): (again(PAIRS, 2), r"pairs\.csv: 1 caption repeated for the same image; .* line 18"),
    (OPEN_CLIP, "other encoding"): (recode(PAIRS), r"pairs\.csv, line 3: is not UTF-8: byte 0xe0, which is 'à'"),
    ("JSON lines", "cut"): (
        rewrite(LINES, lambda text: text[:-9]),
        r"all\.jsonl, line 8: is not valid JSON: .* Is the",
    ),
    ("JSON lines", "missing row"): (
        rewrite(LINES, lambda text: text.replace('"image": "train2.png", ', "")),
        r"all\.jsonl, line 3: names no image",
    ),
    ("JSON lines", "wrong column"): (
        rewrite(LINES, lambda text: text.replace("captions", "legends")),
        r"all\.jsonl: no caption column was recognised; its columns: 'image', 'legends', 'split'\. Choose one",
    ),
    ("JSON lines", "duplicate"): (again(LINES, 1), r"all\.jsonl: 2 captions repeated for the same image; .* line 9"),
    ("JSON lines", "other encoding"): (
        lambda root: (root / LINES).write_bytes('{"image": "a.png", "caption": "à"}\n'.encode("cp1252")),
        r"all\.jsonl, line 1: is not UTF-8: byte 0xe0, which is 'à'",
    ),
    (FOLDER, "cut"): (
        rewrite("test/metadata.csv", lambda text: text[:-30] + "\n"),
        r"test/metadata\.csv, line 5: has 1 cell",
    ),
    (FOLDER, "missing row"): (drop("train/metadata.csv", 1), r"train/metadata\.csv, line 2: names no image"),
    (FOLDER, "missing image"): (
        lambda root: (root / "train" / "train1.png").unlink(),
        r"train/train1\.png: the imag",
    ),
    (FOLDER, "wrong column"): (
        lambda root: [
            rewrite(f"{split}/metadata.csv", lambda text: text.replace("file_name", "id", 1))(root)
            for split in ("train", "validation", "test")
        ],
        r"metadata\.csv: no image column was recognised; its columns: 'id', 'text'\. Choose one",
    ),
    (FOLDER, "duplicate"): (again("test/metadata.csv", 1), r"1 caption repeated for the same image; .* line 6"),
    (TARS, "cut"): (shorten("train-00001.tar", 11_000), r"train-00001\.tar: cannot be read.*unexpected end of data"),
    (TARS, "missing row"): (
        repack("test-00000.tar", lambda files: files.pop("test1.png")),
        r"test-00000\.tar: test1\.txt: has no image next to it",
    ),
    (TARS, "wrong column"): (
        lambda root: [repack(tar.name, rename_texts)(root) for tar in root.glob("*.tar")],
        r"\.tar: no caption column was recognised; its columns: 'image'\. Choose one",
    ),
    (TARS, "duplicate"): (
        lambda root: append(root / "train-00000.tar", "train0.png"),
        r"train-00000\.tar: train0: occurs twice",
    ),
    (TARS, "other encoding"): (
        repack("val-00000.tar", lambda files: files.update({"val1.txt": "à".encode("cp1252")})),
        r"val-00000\.tar: val1\.txt: is not UTF-8: byte 0xe0 at position 1",
    ),
    (PARQUET, "cut"): (
        lambda root: os.truncate(root / "data" / TRAIN, 2000),
        r"train-00000-of-00001\.parquet: cannot be read: .*Download it again",
    ),
    (PARQUET, "missing row"): (
        rewrite_rows(lambda rows: rows[2].update(image=None)),
        r"train-00000-of-00001\.parquet, row 3: names no image",
    ),
    (PARQUET, "wrong column"): (
        rewrite_rows(lambda rows: [row.update(legend=row.pop("caption")) for row in rows]),
        r"train-00000-of-00001\.parquet: lacks columns that test-00000-of-00001\.parquet has: caption",
    ),
    (PARQUET, "duplicate"): (
        rewrite_rows(lambda rows: rows.append(rows[0])),
        r"2 captions repeated for the same image; the first is .*train-00000-of-00001\.parquet, row 5",
    ),
    (PARQUET, "other encoding"): (
        rewrite_rows(
            lambda rows: [row.update(caption=["à".encode("cp1252"), b"a dog"]) for row in rows[:1]], pa.binary()
        ),
        r"train-00000-of-00001\.parquet, row 1: is not UTF-8: byte 0xe0",
    ),
    (FOLDER, "other encoding"): (recode("test/metadata.csv"), r"test/metadata\.csv, line 3: is not UTF-8: byte 0xe0"),
}


@pytest.mark.parametrize("form_and_damage", DAMAGED, ids=": ".join)
def test_damage_is_one_message_with_file_and_row(
    form_and_damage: tuple[str, str], photographs: list[Photograph], tmp_path: Path
) -> None:
    form, damage = form_and_damage
    root = write(form, photographs, tmp_path / "data")
    edit, message = DAMAGED[form_and_damage]
    edit(root)
    report = check("mine", root, copies=tmp_path / "copies")
    if damage == "duplicate" and form != TARS:
        assert not report.problems
        (problem,) = (remark for remark in report.remarks if re.search(message, str(remark)))
        return
    (problem,) = report.problems
    assert re.search(message, str(problem)), str(problem)
    with pytest.raises(DataError, match=message):
        Annotated.of("mine", root, copies=tmp_path / "copies")


def test_two_readings_are_asked_for(tmp_path: Path) -> None:
    """Of two columns that may be captions, of a column that is not there, and of two tables."""
    table = tmp_path / "pairs.csv"
    table.write_text("filepath,title,text\n0.png,a,b\n")
    with pytest.raises(
        DataError, match=r"'title' and 'text' could each be the caption column\. .*captions = \"title\""
    ):
        Annotated.of("mine", tmp_path)
    with pytest.raises(DataError, match=r"no column 'titel', chosen by columns\.captions.* Did you mean 'title'\?"):
        Annotated.of("mine", tmp_path, (("captions", ("titel",)),))
    (tmp_path / "other.csv").write_text("filepath,title\n0.png,a\n")
    with pytest.raises(DataError, match=r"other\.csv and pairs\.csv could each be the caption file"):
        Annotated.of("mine", tmp_path)


def test_kaggle_s_flickr30k_is_read_with_its_broken_row(tmp_path: Path) -> None:
    """Bars and blanks between columns, quotation marks as they are, and a row that lacks its second bar."""
    numbers = (1, 2, 5)  # whose hashes say test, train and val
    lines = ["image_name| comment_number| comment"]
    for number in numbers:
        forms.write_files([Photograph(f"{number}.jpg", b"", (), "")], tmp_path / "flickr30k_images")
        lines += [f'{number}.jpg| {place}| A "dog" number {place} runs .' for place in range(4)]
        lines.append(f"{number}.jpg| 4   A dog runs across the grass ." if number == 2 else f"{number}.jpg| 4| A cat .")
    (tmp_path / "results.csv").write_text("\n".join(lines) + "\n")
    train = Annotated.of("mine", tmp_path).listings["train"]
    assert train.captions == [
        *(f'A "dog" number {place} runs .' for place in range(4)),
        "A dog runs across the grass .",
    ]


def test_img2dataset_s_files_are_read_without_failed_downloads(tmp_path: Path) -> None:
    numbers = (1, 2, 5)
    for number in numbers:
        shard = tmp_path / "00000"
        forms.write_files([Photograph(f"{number}.jpg", b"", (), "")], shard)
        (shard / f"{number}.json").write_text(
            json.dumps({"caption": f"a dog {number}", "url": "u", "key": str(number)})
        )
    (tmp_path / "00000_stats.json").write_text("{}")
    annotated = Annotated.of("mine", tmp_path)
    assert sum(len(entries) for entries in annotated.by_split.values()) == 3


def test_rows_without_captions_are_left_out_and_counted(photographs: list[Photograph], tmp_path: Path) -> None:
    root = write("JSON lines", photographs, tmp_path / "data")
    with (root / "all.jsonl").open("a") as file:
        file.write(json.dumps({"image": "none.png", "captions": [], "split": "train"}) + "\n")
    annotated = Annotated.of("mine", root)
    assert "1 row without a caption left out; the first is " in annotated.summary
    assert len(annotated.listings["train"].images) == 4


def test_numbered_columns_are_the_captions_of_an_image(tmp_path: Path) -> None:
    forms.write_files([Photograph(f"{number}.jpg", b"", (), "") for number in range(3)], tmp_path)
    rows = [f"{number}.jpg,a {number},b {number},{split}" for number, split in enumerate(("train", "val", "test"))]
    (tmp_path / "pairs.csv").write_text("\n".join(["image,caption_0,caption_1,split", *rows]) + "\n")
    assert Annotated.of("mine", tmp_path).listings["val"].captions == ["a 1", "b 1"]


def test_a_hub_s_folder_is_read_through_its_links(photographs: list[Photograph], tmp_path: Path) -> None:
    """Of a hub's cache: files of a revision are links into a folder of blobs, which is out of the root."""
    plain = write("imagefolder, CSV", photographs, tmp_path / "plain")
    hub = tmp_path / "datasets--user--name"
    root, blobs = hub / "snapshots" / "0a1b", hub / "blobs"
    blobs.mkdir(parents=True)
    for number, file in enumerate(sorted(path for path in plain.rglob("*") if path.is_file())):
        (blobs / f"{number:040x}").write_bytes(file.read_bytes())
        link = root / file.relative_to(plain)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path("../" * len(link.relative_to(hub).parts[1:])) / "blobs" / f"{number:040x}")
    held = content("mine", root, features=False)
    assert held.fingerprint == content("mine", plain, features=False).fingerprint
    (root / "train" / "train0.png").unlink()
    (root / "train" / "train0.png").symlink_to(plain / "train" / "train0.png")
    with pytest.raises(DataError, match=r"the link 'train/train0\.png' leads out of"):
        Annotated.of("mine", root)


def test_pictures_of_parquet_are_copied_once_and_again_when_they_change(
    photographs: list[Photograph], tmp_path: Path
) -> None:
    root, copies = write(PARQUET, photographs, tmp_path / "data"), tmp_path / "copies"
    annotated = Annotated.of("mine", root, (), copies)
    (copy,) = copies.glob("pictures-*.bin")
    assert copy.stat().st_size == sum(len(one.content) for one in photographs)
    assert f"pictures copied to {copy} (0.0 MB)" in annotated.summary
    first = copy.stat().st_mtime_ns
    Annotated.of("mine", root, (), copies)
    assert copy.stat().st_mtime_ns == first
    rewrite_rows(lambda rows: rows.pop())(root)
    assert len(Annotated.of("mine", root, (), copies).listings["train"].images) == 3
    (other,) = copies.glob("pictures-*.bin")
    assert other != copy


def test_equal_pictures_are_stored_once(photographs: list[Photograph], tmp_path: Path) -> None:
    root = write("parquet, bytes", photographs, tmp_path / "data")
    Annotated.of("mine", root, (), tmp_path / "copies")
    (copy,) = (tmp_path / "copies").glob("pictures-*.bin")
    assert copy.stat().st_size == sum(len(one.content) for one in photographs)


def test_a_starter_grid_copies_no_pictures_and_writes_the_columns(
    photographs: list[Photograph], tmp_path: Path
) -> None:
    root = write(PARQUET, photographs, tmp_path / "data")
    text, notes = new_grid.text("birds", None, [], [], str(root))
    assert 'columns = { captions = "caption" }' in text
    assert any("8 photographs with 2 captions each from 3 parquet files" in note for note in notes)
    root = write("CSV of open_clip", photographs, tmp_path / "table")
    text, _ = new_grid.text("birds", None, [], [], str(root))
    named = tomllib.loads(text)["data"]["birds"]["columns"]
    assert named == {"image": "filepath", "captions": "title", "split": "split"}


@pytest.mark.gate
def test_no_form_imports_torch_and_pyarrow_comes_with_parquet_alone(
    photographs: list[Photograph], tmp_path: Path
) -> None:
    roots = [write(form, photographs, tmp_path / str(place)) for place, form in enumerate(("tars with texts", PARQUET))]
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from goalgrid.retrieval.data.content import content\n"
        f"for root in {[str(root) for root in roots]}:\n"
        f"    content('mine', Path(root), features=False, kept=Path({str(tmp_path / 'kept')!r}))\n"
        "    print(*(name in sys.modules for name in ('torch', 'pyarrow', 'pyarrow.dataset')))\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.splitlines() == ["False False False", "False True False"]


def test_splits_go_by_their_usual_names_and_a_test_alone_holds_out_validation(tmp_path: Path) -> None:
    """Literal: SHA-256 of the name, as by_hash says: of 1.jpg to 9.jpg, 5.jpg alone is of validation."""
    forms.write_files([Photograph(f"{number}.jpg", b"", (), "") for number in range(1, 10)], tmp_path)
    rows = [f"{number}.jpg,a {number},{split}" for number, split in ((1, "Training"), (2, "validation"), (3, "TEST"))]
    (tmp_path / "pairs.csv").write_text("\n".join(["filepath,title,split", *rows]) + "\n")
    listings = Annotated.of("mine", tmp_path).listings
    assert [listing.captions for listing in listings.values()] == [["a 1"], ["a 2"], ["a 3"]]
    (tmp_path / "pairs.csv").unlink()
    for split, numbers in (("train", range(1, 8)), ("test", (8, 9))):
        lines = [f"{number}.jpg,a {number}" for number in numbers]
        (tmp_path / f"{split}.csv").write_text("\n".join(["filepath,title", *lines]) + "\n")
    annotated = Annotated.of("mine", tmp_path)
    assert annotated.listings["val"].captions == ["a 5"]
    assert annotated.listings["test"].captions == ["a 8", "a 9"]
    assert "val is a tenth of train" in annotated.summary
