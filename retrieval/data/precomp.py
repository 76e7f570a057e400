"""Precomputed features as published for SCAN and VSE-infinity: {train,dev,test[,testall]}_{ims.npy,caps.txt,ids.txt}.

`val` may replace `dev`. The memory-mapped arrays are `FLOATS`, (n, d) or (n, regions, d), with one row per image, or
with an image's row repeated for each of its captions; both are presented as one row per image. `Rows` reads the whole
array to detect repeated rows, and `content` caches the result. This module imports torch only when features are
gathered.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from goalgrid.grid import catalog
from goalgrid.retrieval.data.rows import Rows
from goalgrid.retrieval.splits.equality import doubles, overlaps
from goalgrid.retrieval.splits.pairs import WHOLE, Listing, Pairs, Split
from goalgrid.retrieval.splits.problems import Problem, array_at, captions_of, faults_of_ids, lines_of, refuse

if TYPE_CHECKING:
    from torch import Tensor

FLOATS = (np.float16, np.float32, np.float64)
TREE = """
DIR/train_ims.npy           float16, 32 or 64, (images, d) or (images, regions, d); one row per image or per caption
DIR/train_caps.txt          one caption per line, grouped by image, equally many per image unless there is train_ids.txt
DIR/train_ids.txt           optional: for each caption, the id of its image, one per line
DIR/val_*, DIR/test_*       likewise; or dev_* instead of val_*; all of them may also be in DIR/precomp/
"""
SHORT = {"flickr30k": "f30k", "flickr8k": "f8k"}
"""Short names of data sets in the packages of VSE++ and SCAN."""


class Features:
    """Features in a memory-mapped .npy; `rows[i]` is the row of image i. `finite_rows` has checked the values."""

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
        """Read the features of these images in the data type on disk; the encoder casts them."""
        import torch

        return torch.from_numpy(self.array[self.rows[rows[part]]])


class SplitFiles(NamedTuple):
    """Contents of the files of a split; the ids may be empty."""

    array: np.ndarray
    captions: list[str]
    ids: list[str]


def load(
    root: Path, *, test_splits: Sequence[str] = ("test",), repeats: Mapping[str, Sequence[int]] | None = None
) -> Pairs:
    """Open the three splits under `root`; raises DataError like `present` and `fitted`.

    `repeats`: by split, see `Rows.repeats`; if None, the arrays are read where captions and ids leave it open.
    """
    listings = [
        fitted(root, name, present(root, name), repeats.get(split, ()) if repeats is not None else None)
        for split, name in splits(root, test_splits).items()
    ]
    return Pairs(*(Split(listing.images, listing.captions, listing.image_of_text) for listing in listings))


def find(name: str, root: Path) -> Path | None:
    """Return the folder of the features (the root, `precomp/`, or e.g. `f30k_precomp/`); None if there are none."""
    folders = (root, root / "precomp", root / f"{name}_precomp", root / f"{SHORT.get(name, name)}_precomp")
    files = (folder / f"{split}_ims.npy" for folder in folders for split in ("train", "dev", "val"))
    return next((file.parent for file in files if file.exists()), None)


def shape(root: Path) -> tuple[int, ...]:
    """Return the shape of one image's features, from the header of the training split's file."""
    return tuple(np.load(root / "train_ims.npy", mmap_mode="r").shape[1:])


def splits(root: Path, test_splits: Sequence[str]) -> dict[str, str]:
    """Return for each split its file prefix: the first of its possible names for which there are features."""
    names = {"train": ["train"], "val": ["dev", "val"], "test": list(test_splits)}
    return {
        split: next((name for name in known if (root / f"{name}_ims.npy").exists()), known[0])
        for split, known in names.items()
    }


def files(root: Path, name: str) -> list[Path]:
    """List the paths of a split's files, which need not exist."""
    return [root / f"{name}_{kind}" for kind in ("ims.npy", "caps.txt", "ids.txt")]


def present(root: Path, name: str) -> SplitFiles:
    """Read the files of a split; raises DataError if one is missing or unreadable."""
    problems: list[Problem] = []
    array, captions, ids = read(root, name, problems)
    refuse(problems, str(root))
    assert array is not None, "what is missing was refused"
    return SplitFiles(array, captions, ids)


def fitted(root: Path, name: str, files: SplitFiles, repeats: Sequence[int] | None) -> Listing[Features]:
    """Match the features of a split with its captions; raises DataError if they differ. `repeats`: see `align`."""
    problems: list[Problem] = []
    listing = align(*files, root / name, problems, repeats)
    refuse(problems, str(root))
    assert listing is not None, "what does not fit was refused"
    features = Features(root / f"{name}_ims.npy", files.array, listing.images)
    return Listing(features, listing.captions, listing.image_of_text)


def equal(
    ids: Mapping[str, list[str]],
    rows: Mapping[str, tuple[Rows, Sequence[int]]],
    folder: Path,
    *,
    published: bool = False,
) -> list[Problem]:
    """Report images that occur in two splits (same id or features), and images with equal features in one split.

    Args:
        ids: by split, the ids of its images or captions.
        rows: by split, the digest of its file's rows, and the row of each image.
        published: see `overlaps`.
    """
    numbered = all(list(dict.fromkeys(of)) == [*map(str, range(len({*of})))] for of in ids.values())
    keys = {split: of.keys_of(images) for split, (of, images) in rows.items()}
    names = {split: [f"row {row}" for row in images] for split, (_, images) in rows.items()}
    by_ids = {} if numbered else overlaps(ids, str(folder), "image id")
    by_rows = overlaps(keys, str(folder), "image", names, published=published)
    problems = [*(by_ids | by_rows).values()]
    for split, of in keys.items():
        problems += doubles(of, names[split], f"{split} split of {folder}", "image")
    return problems


def unread(root: Path, test_splits: Sequence[str]) -> list[Problem]:
    """Report splits in the folder that are not read, e.g. `val_*` if `dev_*` is read."""
    taken = list(splits(root, test_splits).values())
    given = sorted(path.name.removesuffix("_ims.npy") for path in root.glob("*_ims.npy"))
    what = f"these files are not read: the splits are {', '.join(f'{split}_*' for split in taken)}"
    remarks = []
    for name in (name for name in given if name not in (*taken, *test_splits)):
        reader = next((known for known in catalog.names("datasets") if name in catalog.dataset(known).test_splits), "")
        fix = f"To read them, name the data set {reader}, or rename them." if reader else "To read them, rename them."
        remarks.append(Problem(f"{root / name}_*", what, fix, "remark"))
    return remarks


def unnamed(rows: Mapping[str, Rows], files: Mapping[str, SplitFiles], folder: Path) -> list[Problem]:
    """Report splits in which each caption has its own image: no ids, no repeated rows, as many rows as captions."""
    single = [
        split
        for split, (array, captions, ids) in files.items()
        if len(array) == len(captions) and not ids and not rows[split].repeats
    ]
    if not single:
        return []
    what = f"{' and '.join(single)}: as many rows as captions, so each caption is assigned a separate image"
    fix = "If captions share images, list the image id of each caption in *_ids.txt, one per line."
    return [Problem(str(folder), what, fix, "remark")]


def read(root: Path, name: str, problems: list[Problem]) -> tuple[np.ndarray | None, list[str], list[str]]:
    """Read the features, captions and ids of one split from its files; the ids may be empty."""
    array = _array(root / f"{name}_ims.npy", problems)
    ids_path = root / f"{name}_ids.txt"
    ids = lines_of(ids_path, "one id per line", problems) if ids_path.exists() else []
    described = len(ids) or (0 if array is None else len(array))
    return array, captions_of(root / f"{name}_caps.txt", described, problems), ids


def align(
    array: np.ndarray,
    captions: list[str],
    ids: list[str],
    stem: Path,
    problems: list[Problem],
    repeats: Sequence[int] | None,
) -> Listing[np.ndarray] | None:
    """Return the row of each image, with its captions; if they do not match, report that and return None.

    `repeats`: see `Rows.repeats`; if None, the array is read to find them if it has as many rows as captions.
    """
    if not captions or not len(array):
        what = f"{stem.name} split under {stem.parent} is empty: {len(array)} feature rows, {len(captions)} captions"
        problems.append(Problem(f"{stem}_ims.npy", what, "Take all files of this split from one complete package."))
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
    elif len(captions) == len(array):
        lengths = np.array((Rows.read(array).repeats if repeats is None else repeats) or [1] * len(array))
        return Listing(np.cumsum(lengths) - lengths, captions, np.repeat(np.arange(len(lengths)), lengths))
    elif len(captions) % len(array) == 0:
        return Listing(np.arange(len(array)), captions, np.arange(len(captions)) // (len(captions) // len(array)))
    what = (
        f"the numbers of captions and images do not match: {stem}_ims.npy has {len(array)} rows, {stem}_caps.txt "
        f"{len(captions)} lines, {stem}_ids.txt {len(ids)}"
    )
    fix = "Expected one row per image or per caption; check that the files are complete and from the same package."
    problems.append(Problem(f"{stem}_ims.npy", what, fix))
    return None


def _array(path: Path, problems: list[Problem]) -> np.ndarray | None:
    array = array_at(path, problems)
    if array is None or (array.ndim in (2, 3) and array.dtype in FLOATS):
        return array
    what = f"expected floats of shape (n, d) or (n, regions, d), found {array.dtype} {array.shape}"
    fix = "Store the features as floats, one row per image."
    if not array.dtype.isnative:
        fix = f"Change the byte order: np.save('{path.name}', np.load('{path.name}').astype('float32'))"
    problems.append(Problem(str(path), what, fix))
    return None
