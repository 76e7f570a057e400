"""Small data sets as users have them on disk, one writer a format; images can be told apart."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

SPLITS = ("train", "dev", "test")
OFFSET = {"train": 0, "dev": 100, "test": 200, "testall": 200}
"""Of a split's image ids, so that no two splits share one."""


def write_image(path: Path, number: int) -> None:
    """A small picture that decodes to its number's grey."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 30), (number % 256, 0, 0)).save(path)


def write_precomp(
    root: Path, *, images: int = 6, captions: int = 5, repeated: bool = False, ids: bool = True, arrays: bool = True
) -> None:
    """A small precomp package; image i's features are i + 1, the last one the split's, so that no two are equal."""
    root.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        rows = np.repeat(np.arange(images), captions if repeated else 1)
        if arrays:
            array = np.tile(rows[:, None, None] + 1, (1, 3, 4)).astype(np.float16)
            array[:, -1, -1] = OFFSET[split]
            np.save(root / f"{split}_ims.npy", array)
        lines = [f"image {i} caption {c}" for i in range(images) for c in range(captions)]
        (root / f"{split}_caps.txt").write_text("\n".join(lines) + "\n")
        if ids:
            (root / f"{split}_ids.txt").write_text("".join(f"{OFFSET[split] + row}\n" for row in rows))


def write_karpathy(root: Path, counts: tuple[int, ...] = (5, 3, 4, 1)) -> Path:
    """One image a split (two in training), with as many captions as `counts` says."""
    entries = []
    for i, (split, count) in enumerate(zip(("train", "restval", "val", "test"), counts, strict=True)):
        write_image(root / "images" / f"{i}.png", i * 60)
        sentences = [{"raw": f"a {split} picture {c}"} for c in range(count)]
        entries.append({"filename": f"{i}.png", "split": split, "sentences": sentences})
    (root / "dataset.json").write_text(json.dumps({"images": entries}))
    return root / "dataset.json"


def write_coco(root: Path, *, captions: int = 6, restval: bool = True) -> None:
    """COCO's caption files with VSE++'s ids: two images a part, each with `captions`, the ids those of all of them."""
    years: dict[str, dict[str, list[dict[str, object]]]] = {
        year: {"images": [], "annotations": []} for year in ("train2014", "val2014")
    }
    parts = {"train": "train2014", "restval": "val2014", "dev": "val2014", "test": "val2014"}
    annotations = root / "annotations"
    annotations.mkdir(parents=True, exist_ok=True)
    for place, (part, year) in enumerate(parts.items()):
        ids = []
        for image in (10 * place + 1, 10 * place):  # not in the order of their ids
            write_image(root / "images" / year / f"COCO_{image}.png", image)
            years[year]["images"].append({"id": image, "file_name": f"COCO_{image}.png"})
            for c in range(captions):
                note = {"id": 1000 * image + c, "image_id": image, "caption": f"image {image} caption {c}"}
                years[year]["annotations"].insert(0, note)
                ids.append(1000 * image + c)
        if part != "restval" or restval:
            np.save(annotations / f"coco_{part}_ids.npy", np.array(ids))
    for year, content in years.items():
        (annotations / f"captions_{year}.json").write_text(json.dumps(content))


def write_coco_splits(root: Path) -> None:
    """Data of one's own in COCO's layout: a caption file a split, two images each with two captions."""
    for place, split in enumerate(("train", "val", "test")):
        numbers = (10 * place + 1, 10 * place + 2)
        listed = [{"id": number, "file_name": f"COCO_{number}.png"} for number in numbers]
        notes = [
            {"id": 10 * number + c, "image_id": number, "caption": f"image {number} caption {c}"}
            for number in numbers
            for c in range(2)
        ]
        for number in numbers:
            write_image(root / "images" / f"COCO_{number}.png", number)
        (root / f"captions_{split}.json").write_text(json.dumps({"images": listed, "annotations": notes}))


def write_xvlm(root: Path) -> None:
    """X-VLM's lists: a caption an item in training, all captions of an image in an item elsewhere."""
    for place, split in enumerate(("train", "val", "test")):
        names = [f"photos/{split}{number}.png" for number in range(2)]
        for number, name in enumerate(names):
            write_image(root / name, 10 * place + number)
        captions = {name: [f"image {name} caption {c}" for c in range(3 - number)] for number, name in enumerate(names)}
        items: list[dict[str, object]] = [{"image": name, "caption": texts} for name, texts in captions.items()]
        if split == "train":
            items = [
                {"image": name, "caption": texts[c], "image_id": name}
                for c in range(3) for name, texts in captions.items() if c < len(texts)
            ]  # fmt: skip
        (root / f"mine_{split}.json").write_text(json.dumps(items))


def write_vse_infinity(root: Path, *, images: int = 6, repeated: bool = False, folder: str = "images") -> None:
    """VSE-infinity's text files and id mapping, with raw images."""
    write_precomp(root / "precomp", images=images, repeated=repeated, arrays=False)
    mapping = {}
    for split in SPLITS:
        for i in range(images):
            name = f"{split}/{OFFSET[split] + i}.png"
            write_image(root / folder / name, OFFSET[split] + i)
            mapping[str(OFFSET[split] + i)] = name
    (root / "id_mapping.json").write_text(json.dumps(mapping))


def write_listed(root: Path) -> list[str]:
    """Four images, and a list for each split: two train, one validates, one tests; the names of the images."""
    names = [f"{number}.png" for number in range(4)]
    for number, name in enumerate(names):
        write_image(root / "images" / name, number * 60)
    for split, images in (("train", names[:2]), ("val", names[2:3]), ("test", names[3:])):
        (root / f"{split}.txt").write_text("".join(f"{image}\n" for image in images))
    return names


def write_csv(root: Path) -> None:
    """A CSV file with a column of splits, as spreadsheets save it: byte order mark, CRLF, quotation marks."""
    names, splits = write_listed(root), ("train", "train", "val", "test")
    rows = "".join(f'{name},"a {name}, and\r\n""more""",{split}\r\n' for name, split in zip(names, splits, strict=True))
    (root / "captions.csv").write_bytes(b"\xef\xbb\xbf" + f"image,caption,split\r\n{rows}".encode())


def write_csv_with_lists(root: Path) -> None:
    """A CSV file whose splits are lists."""
    rows = "".join(f"{name},a {name}\n" for name in write_listed(root))
    (root / "captions.csv").write_text(f"image,caption\n{rows}")


def write_tokens(root: Path) -> None:
    """Flickr's token file, two captions an image."""
    lines = [f"{name}#{c}\ta {name} {c}\n" for name in write_listed(root) for c in range(2)]
    (root / "mine.token.txt").write_text("".join(lines))


def write_coco_in_one_file(root: Path) -> None:
    """COCO's layout in one file, with a table of splits."""
    names = write_listed(root)
    listed = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    notes = [{"id": number, "image_id": number, "caption": f"a {name}"} for number, name in enumerate(names)]
    (root / "captions.json").write_text(json.dumps({"images": listed, "annotations": notes}))
    rows = zip(names, ("train", "train", "val", "test"), strict=True)
    (root / "splits.csv").write_text("image,split\n" + "".join(f"{name},{split}\n" for name, split in rows))
