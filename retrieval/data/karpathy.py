"""Raw images with captions in Karpathy's JSON: {"images": [{"filename", "split", "sentences": [{"raw"}]}]}."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int, UInt8
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from retrieval.data.pairs import DataError, Pairs, Split

KEPT_BYTES = 1 << 30
"""A split whose resized images fit here is decoded once and kept; a larger one is decoded as it is read."""


class ImageFiles:
    """Images decoded by worker threads, resized to a square of `size` pixels (Pillow lets go of the interpreter)."""

    def __init__(self, files: list[Path], *, size: int, workers: int = 2) -> None:
        self.files, self.size = files, size
        self.pool = ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="decode")
        self.kept: UInt8[Tensor, "i 3 h w"] | None = None
        if len(files) * 3 * size * size <= KEPT_BYTES:
            self.kept = torch.zeros(len(files), 3, size, size, dtype=torch.uint8)
        self.read = np.zeros(len(files), dtype=bool)

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, self.size, self.size)

    def __len__(self) -> int:
        return len(self.files)

    def gather(self, rows: Int[np.ndarray, " b"]) -> UInt8[Tensor, "b 3 h w"]:
        """Decode these images, or take them from memory.

        Raises:
            DataError: a file is missing or is no readable image.
        """
        if self.kept is None:
            return torch.stack(list(self.pool.map(self._decode, rows.tolist())))
        missing = np.unique(rows[~self.read[rows]]).tolist()
        for row, pixels in zip(missing, self.pool.map(self._decode, missing), strict=True):
            self.kept[row] = pixels
            self.read[row] = True
        return self.kept[torch.from_numpy(rows)]

    def fingerprint(self) -> str:
        """Hash of the file names and sizes."""
        listing = "\n".join(f"{file.name} {file.stat().st_size}" for file in self.files)
        return hashlib.sha256(listing.encode()).hexdigest()

    def _decode(self, row: int) -> UInt8[Tensor, "3 h w"]:
        file = self.files[row]
        try:
            with Image.open(file) as image:
                square = image.convert("RGB").resize((self.size, self.size), Image.Resampling.BICUBIC)
        except FileNotFoundError:
            raise DataError(f"image {file} is missing.") from None
        except (OSError, UnidentifiedImageError, SyntaxError) as error:
            raise DataError(f"image {file} cannot be read: {error}. Fetch this file again.") from error
        return torch.from_numpy(np.array(square)).permute(2, 0, 1)


def load(annotations: Path, *, size: int, workers: int = 2) -> Pairs:
    """Read the JSON, find the image folder beside it, and check that every image is there; `restval` trains.

    Raises:
        DataError: the JSON is not in this layout, or images are missing.
    """
    entries = _entries(annotations)
    root = annotations.parent
    by_split: dict[str, list[dict[str, Any]]] = {"train": [], "val": [], "test": []}
    for entry in entries:
        by_split.setdefault("train" if entry["split"] == "restval" else entry["split"], []).append(entry)
    locate = _locator(root, entries)
    return Pairs(*(_split(by_split[name], locate, annotations, size, workers) for name in ("train", "val", "test")))


def find(root: Path) -> Path | None:
    """The annotations under `root`: dataset.json or dataset_*.json."""
    return next(
        (path for path in [root / "dataset.json", *sorted(root.glob("dataset_*.json"))] if path.exists()),
        None,
    )


def _entries(annotations: Path) -> list[dict[str, Any]]:
    try:
        entries = json.loads(annotations.read_text(encoding="utf-8"))["images"]
        complete = all(isinstance(e["filename"], str) and e["split"] and e["sentences"] for e in entries)
        complete &= all(isinstance(sentence["raw"], str) for e in entries for sentence in e["sentences"])
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {annotations}: {error}") from error
    except (KeyError, IndexError, TypeError) as error:
        raise DataError(
            f'{annotations} is not in Karpathy\'s layout ({error!r}): expected {{"images": [{{"filename", "split", '
            '"sentences": [{"raw"}, ...]}, ...]}.'
        ) from error
    if not complete or not entries:
        raise DataError(f"{annotations}: {'an image has no file name, split or caption' if entries else 'no images'}.")
    return list(entries)


def _locator(root: Path, entries: list[dict[str, Any]]) -> "Locator":
    """Where the image files are: the folder beside the JSON that holds the first one."""
    for folder in [root, *sorted(path for path in root.iterdir() if path.is_dir())]:
        locator = Locator(folder)
        if entries and locator(entries[0]).exists():
            return locator
    first = entries[0]["filename"] if entries else "any image"
    raise DataError(
        f"no folder under {root} holds {first}. Put the image folder beside the JSON, e.g. {root / 'images'}."
    )


class Locator:
    """Path of an entry's file: <folder>/[<filepath>/]<filename>, never outside the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def __call__(self, entry: dict[str, Any]) -> Path:
        path = self.folder / str(entry.get("filepath", "")) / str(entry["filename"])
        if not path.is_relative_to(self.folder) or ".." in path.parts:
            raise DataError(f"file name {entry['filename']!r} leads out of {self.folder}.")
        return path


def _split(entries: list[dict[str, Any]], locate: Locator, annotations: Path, size: int, workers: int) -> Split:
    files = [locate(entry) for entry in entries]
    missing = [file for file in files if not file.exists()]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(files)} images of {annotations} are missing, the first is {missing[0]}."
        )
    captions = [sentence["raw"] for entry in entries for sentence in entry["sentences"]]
    image_of_text = np.repeat(np.arange(len(entries)), [len(entry["sentences"]) for entry in entries])
    return Split(ImageFiles(files, size=size, workers=workers), captions, image_of_text)
