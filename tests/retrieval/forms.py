"""The same photographs with their captions in every form that people have them in, one writer a form."""

import csv
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


@dataclass(frozen=True)
class Photograph:
    name: str
    content: bytes
    captions: tuple[str, ...]
    split: str


def photographs_of(flickr8k: Path, counts: dict[str, int]) -> list[Photograph]:
    """The first photographs of each split of Karpathy's Flickr8k."""
    images = json.loads((flickr8k / "dataset.json").read_text())["images"]
    return [
        Photograph(
            image["filename"],
            (flickr8k / "images" / image["filename"]).read_bytes(),
            tuple(sentence["raw"] for sentence in image["sentences"]),
            split,
        )
        for split, count in counts.items()
        for image in [image for image in images if image["split"] == split][:count]
    ]


def made_up(folder: Path, counts: dict[str, int] | None = None) -> list[Photograph]:
    """Pictures of noise, two captions each, one of them with quotation marks, a comma and letters of other scripts."""
    made = []
    for split, count in (counts or {"train": 4, "val": 2, "test": 2}).items():
        for number in range(count):
            path = folder / f"{split}{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise = np.random.default_rng(len(made)).integers(0, 255, (24, 20 + len(made), 3), dtype=np.uint8)
            Image.fromarray(noise).save(path)
            captions = f'a {split} "dog" runs, {number}', f"une chienne à la plage {number} 犬"
            made.append(Photograph(path.name, path.read_bytes(), captions, split))
    return made


def write_files(photographs: Sequence[Photograph], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for photograph in photographs:
        (folder / photograph.name).write_bytes(photograph.content)


def karpathy(photographs: Sequence[Photograph], root: Path) -> None:
    write_files(photographs, root / "images")
    images = [
        {"filename": one.name, "split": one.split, "sentences": [{"raw": text} for text in one.captions]}
        for one in photographs
    ]
    (root / "dataset.json").write_text(json.dumps({"images": images}))


def table(name: str, columns: Sequence[str], delimiter: str = ",") -> Callable[[Sequence[Photograph], Path], None]:
    def write(photographs: Sequence[Photograph], root: Path) -> None:
        write_files(photographs, root / "images")
        with (root / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter)
            writer.writerow(columns)
            writer.writerows([one.name, text, one.split] for one in photographs for text in one.captions)

    return write


def json_lines(photographs: Sequence[Photograph], root: Path) -> None:
    write_files(photographs, root / "images")
    objects = ({"image": one.name, "captions": one.captions, "split": one.split} for one in photographs)
    (root / "all.jsonl").write_text("".join(f"{json.dumps(values)}\n" for values in objects))


def imagefolder(ending: str) -> Callable[[Sequence[Photograph], Path], None]:
    def write(photographs: Sequence[Photograph], root: Path) -> None:
        for split, folder in (("train", "train"), ("val", "validation"), ("test", "test")):
            of_split = [one for one in photographs if one.split == split]
            write_files(of_split, root / folder)
            rows = [(one.name, text) for one in of_split for text in one.captions]
            with (root / folder / f"metadata.{ending}").open("w", newline="", encoding="utf-8") as file:
                if ending == "csv":
                    csv.writer(file).writerows([("file_name", "text"), *rows])
                else:
                    file.writelines(json.dumps({"file_name": name, "text": text}) + "\n" for name, text in rows)

    return write


def caption_files(photographs: Sequence[Photograph], root: Path) -> None:
    for one in photographs:
        write_files([one], root / one.split)
        (root / one.split / one.name).with_suffix(".txt").write_text("\n".join(one.captions) + "\n", encoding="utf-8")


def tars(texts: str, per_shard: int = 3) -> Callable[[Sequence[Photograph], Path], None]:
    """Shards of each split, with captions in texts or in JSON."""

    def write(photographs: Sequence[Photograph], root: Path) -> None:
        for split in ("train", "val", "test"):
            of_split = [one for one in photographs if one.split == split]
            for shard, start in enumerate(range(0, len(of_split), per_shard)):
                with tarfile.open(root / f"{split}-{shard:05}.tar", "w") as tar:
                    for one in of_split[start : start + per_shard]:
                        captions = json.dumps({"captions": one.captions, "key": one.name})
                        text = "\n".join(one.captions) if texts == "txt" else captions
                        add(tar, one.name, one.content)
                        add(tar, str(Path(one.name).with_suffix(f".{texts}")), text.encode())

    return write


def parquet(kind: str) -> Callable[[Sequence[Photograph], Path], None]:
    """Hugging Face's layout: bytes and path; bytes alone, a row a caption; or paths of files."""

    def write(photographs: Sequence[Photograph], root: Path) -> None:
        (root / "data").mkdir()
        for split, name in (("train", "train"), ("val", "validation"), ("test", "test")):
            of_split = [one for one in photographs if one.split == split]
            if kind == "bytes and path":
                rows = [
                    {"image": {"bytes": one.content, "path": one.name}, "caption": list(one.captions)}
                    for one in of_split
                ]
            elif kind == "bytes":
                rows = [{"jpg": one.content, "caption": text} for one in of_split for text in one.captions]
            else:
                write_files(of_split, root / "images")
                rows = [{"image_path": one.name, "captions": list(one.captions)} for one in of_split]
            pq.write_table(
                pa.Table.from_pylist(rows), root / "data" / f"{name}-00000-of-00001.parquet", row_group_size=2
            )

    return write


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


FORMS: dict[str, Callable[[Sequence[Photograph], Path], None]] = {
    "Karpathy's JSON": karpathy,
    "our CSV": table("captions.csv", ["image", "caption", "split"]),
    "CSV of open_clip": table("pairs.csv", ["filepath", "title", "split"]),
    "tabs": table("all.tsv", ["file_name", "text", "split"], "\t"),
    "semicolons": table("captions.csv", ["image", "caption", "split"], ";"),
    "columns of one's own": table("pairs.csv", ["photo_id", "legend", "part"]),
    "JSON lines": json_lines,
    "imagefolder, CSV": imagefolder("csv"),
    "imagefolder, JSON lines": imagefolder("jsonl"),
    "caption files": caption_files,
    "tars with texts": tars("txt"),
    "tars with JSON": tars("json"),
    "parquet, bytes and path": parquet("bytes and path"),
    "parquet, bytes": parquet("bytes"),
    "parquet, paths": parquet("paths"),
}
COLUMNS: dict[str, Any] = {
    "columns of one's own": (("image", ("photo_id",)), ("captions", ("legend",)), ("split", ("part",))),
}
"""Of forms whose columns have to be named."""
