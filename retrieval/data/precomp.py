"""Precomputed features as SCAN and VSE-infinity publish them: {train,dev,test[,testall]}_{ims.npy,caps.txt,ids.txt}.

`val` may stand for `dev`. The memory-mapped arrays are `FLOATS`, (n, d) or (n, regions, d), with one row per
image or with the row repeated for each of its captions; both are seen as one row per image. This module loads no torch
before features are gathered.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from goalgrid.retrieval.splits.pairs import WHOLE, DataError, Listing, Pairs, Split
from goalgrid.retrieval.splits.problems import Problem, array_at, array_of, faults_of_ids, lines_of, overlaps, refuse

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 1 << 26
"""Bytes of features read at a time."""
FLOATS = (np.float16, np.float32, np.float64)
TREE = """
DIR/train_ims.npy           float16, 32 or 64, (images, d) or (images, regions, d); a row an image or a caption
DIR/train_caps.txt          a caption a line, those of one image together; equally many an image, or train_ids.txt
DIR/train_ids.txt           may be left out: the id of its image, a line a caption
DIR/val_*, DIR/test_*       the same; or dev_* for val_*, and all of them in DIR/precomp/
"""
SHORT = {"flickr30k": "f30k", "flickr8k": "f8k"}
"""Names of data sets in the packages of VSE++ and SCAN."""


class Features:
    """Rows of a memory-mapped .npy; `rows[i]` is where image i stands. `finite_sum` has checked their values."""

    def __init__(self, path: Path, array: np.ndarray, rows: Int[np.ndarray, " i"]) -> None:
        self.path, self.array, self.rows = path, array, rows

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape[1:])

    def __len__(self) -> int:
        return len(self.rows)

    def gather(
        self, rows: Int[np.ndarray, " b"], draw: int | None = None, part: slice = WHOLE
    ) -> "Float[Tensor, 'p *shape']":
        """Read these images' features as they are on disk; the encoder casts."""
        import torch

        return torch.from_numpy(self.array[self.rows[rows[part]]])


def load(root: Path, *, test_splits: Sequence[str] = ("test",)) -> Pairs:
    """Open the three splits under `root`; raises as `aligned`."""
    listings = (aligned(root, name)[0] for name in splits(root, test_splits).values())
    return Pairs(*(Split(listing.images, listing.captions, listing.image_of_text) for listing in listings))


def find(name: str, root: Path) -> Path | None:
    """The folder of the features: the root, `precomp/`, or one named after the data set, e.g. `f30k_precomp/`."""
    folders = (root, root / "precomp", root / f"{name}_precomp", root / f"{SHORT.get(name, name)}_precomp")
    files = (folder / f"{split}_ims.npy" for folder in folders for split in ("train", "dev", "val"))
    return next((file.parent for file in files if file.exists()), None)


def shape(root: Path) -> tuple[int, ...]:
    """The shape of an image's features, by the header of the training split's file."""
    return tuple(np.load(root / "train_ims.npy", mmap_mode="r").shape[1:])


def splits(root: Path, test_splits: Sequence[str]) -> dict[str, str]:
    """What the files of each split begin with: of several names, the first that has features here."""
    names = {"train": ["train"], "val": ["dev", "val"], "test": list(test_splits)}
    return {
        split: next((name for name in known if (root / f"{name}_ims.npy").exists()), known[0])
        for split, known in names.items()
    }


def files(root: Path, name: str) -> list[Path]:
    """The files of a split that may be there."""
    return [root / f"{name}_{kind}" for kind in ("ims.npy", "caps.txt", "ids.txt")]


def aligned(root: Path, name: str) -> tuple[Listing[Features], list[str]]:
    """The features of a split with captions, and ids; DataError: they do not fit."""
    problems: list[Problem] = []
    array, captions, ids = read(root, name, problems)
    refuse(problems, str(root))
    assert array is not None, "what is missing was refused"
    listing = align(array, captions, ids, root / name, problems)
    refuse(problems, str(root))
    assert listing is not None, "what does not fit was refused"
    features = Features(root / f"{name}_ims.npy", array, listing.images)
    return Listing(features, listing.captions, listing.image_of_text), ids


def blocks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The array in blocks of rows, each with the place of its first row."""
    step = max(1, BLOCK // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        yield start, np.ascontiguousarray(array[start : start + step])


def unfit(block: np.ndarray) -> np.ndarray:
    """Whether each row holds NaN or infinity."""
    return ~np.isfinite(block).reshape(len(block), -1).all(axis=1)


def finite_sum(file: Path) -> str:
    """SHA-256 of an array; DataError: a value is NaN or infinite."""
    array = array_of(file)
    summed = hashlib.sha256(f"{array.shape} {array.dtype}".encode())
    for start, block in blocks(array):
        if (bad := unfit(block)).any():
            row = start + int(bad.argmax())
            raise DataError(f"{file}: row {row} holds NaN or infinity. Extract the features of this image anew.")
        summed.update(block.data)
    return summed.hexdigest()


def overlapping(keys: dict[str, list[str]], folder: Path) -> list[Problem]:
    """The same id in two splits, unless the ids of all splits only number their rows."""
    numbered = all(list(dict.fromkeys(ids)) == [*map(str, range(len({*ids})))] for ids in keys.values())
    return [] if numbered else overlaps(keys, str(folder), "image id")


def read(root: Path, name: str, problems: list[Problem]) -> tuple[np.ndarray | None, list[str], list[str]]:
    """Features, captions and ids of one split as they stand in its files; ids may be none."""
    array = _array(root / f"{name}_ims.npy", problems)
    captions = lines_of(root / f"{name}_caps.txt", "one caption a line, those of one image together", problems)
    ids_path = root / f"{name}_ids.txt"
    return array, captions, lines_of(ids_path, "one id a line", problems) if ids_path.exists() else []


def align(
    array: np.ndarray, captions: list[str], ids: list[str], stem: Path, problems: list[Problem]
) -> Listing[np.ndarray] | None:
    """The row of each image, with its captions; None, and reported, where that cannot be told."""
    if not captions or not len(array):
        what = f"{stem.name} split under {stem.parent} is empty: {len(array)} feature rows, {len(captions)} captions"
        problems.append(Problem(f"{stem}_ims.npy", what, "Take all files of this split from one package, whole."))
        return None
    if len(ids) == len(captions) and len(set(ids)) < len(captions):
        order = list(dict.fromkeys(ids))
        position = {key: index for index, key in enumerate(order)}
        image_of_text = np.array([position[key] for key in ids])
        if len(array) == len(captions):
            _, first = np.unique(image_of_text, return_index=True)
            return Listing(first, captions, image_of_text)
        if len(array) == len(order):
            problems += faults_of_ids(ids, len(captions), len(order), f"{stem}_ids.txt")
            return Listing(np.arange(len(array)), captions, image_of_text)
    elif len(captions) % len(array) == 0:
        per_image = len(captions) // len(array)
        repeats = _repeats(array) if per_image == 1 else 1
        rows = np.arange(0, len(array), repeats)
        return Listing(rows, captions, np.arange(len(captions)) // (per_image * repeats))
    what = (
        f"captions and images do not match in number: {stem}_ims.npy has {len(array)} rows, {stem}_caps.txt "
        f"{len(captions)} lines, {stem}_ids.txt {len(ids)}"
    )
    fix = "Expected one row per image or per caption; check that the files come from one package and are complete."
    problems.append(Problem(f"{stem}_ims.npy", what, fix))
    return None


def _repeats(array: np.ndarray) -> int:
    """How often each image's row is repeated, where rows are as many as captions and no ids tell: 5 times or once."""
    if len(array) % 5:
        return 1
    groups = np.unique(np.linspace(0, len(array) // 5 - 1, 20).astype(int)) * 5
    return 5 if all((array[first] == array[first + 4]).all() for first in groups) else 1


def _array(path: Path, problems: list[Problem]) -> np.ndarray | None:
    array = array_at(path, problems)
    if array is None or (array.ndim in (2, 3) and array.dtype in FLOATS):
        return array
    what = f"expected floats of shape (n, d) or (n, regions, d), found {array.dtype} {array.shape}"
    fix = "Store the features as floats, one row an image."
    if not array.dtype.isnative:
        fix = f"Change the order of bytes: np.save('{path.name}', np.load('{path.name}').astype('float32'))"
    problems.append(Problem(str(path), what, fix))
    return None
