"""Raw images with captions in Karpathy's JSON: {"images": [{"filename", "split", "sentences": [{"raw"}]}]}."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from retrieval.data.pairs import DataError, Listing


def load(annotations: Path) -> tuple[Listing, Listing, Listing]:
    """Train, val and test by the JSON, with the image folder beside it; every image is there; `restval` trains.

    Raises:
        DataError: the JSON is not in this layout, or images are missing.
    """
    entries = _entries(annotations)
    root = annotations.parent
    by_split: dict[str, list[dict[str, Any]]] = {"train": [], "val": [], "test": []}
    for entry in entries:
        by_split.setdefault("train" if entry["split"] == "restval" else entry["split"], []).append(entry)
    locate = _locator(root, entries)
    train, val, test = (_listing(by_split[name], locate, annotations) for name in ("train", "val", "test"))
    return train, val, test


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


def _listing(entries: list[dict[str, Any]], locate: Locator, annotations: Path) -> Listing:
    files = [locate(entry) for entry in entries]
    missing = [file for file in files if not file.exists()]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(files)} images of {annotations} are missing, the first is {missing[0]}."
        )
    captions = [sentence["raw"] for entry in entries for sentence in entry["sentences"]]
    image_of_text = np.repeat(np.arange(len(entries)), [len(entry["sentences"]) for entry in entries])
    return Listing(files, captions, image_of_text)
