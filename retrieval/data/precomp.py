"""Precomputed features as SCAN and VSE-infinity publish them: {train,dev,test[,testall]}_{ims.npy,caps.txt,ids.txt}.

`val` may replace `dev`. The memory-mapped arrays are `FLOATS`, (n, d) or (n, regions, d), with one row per
image or with the row repeated for each of its captions; both are seen as one row per image. Which rows are repeated is
told by `Rows`, which reads all of them: `content` keeps it for the openings. This module loads no torch before features
are gathered.
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
DIR/train_ims.npy           float16, 32 or 64, (images, d) or (images, regions, d); a row an image or a caption
DIR/train_caps.txt          a caption a line, those of one image together; equally many an image, or train_ids.txt
DIR/train_ids.txt           may be left out: the id of its image, a line a caption
DIR/val_*, DIR/test_*       the same; or dev_* for val_*, and all of them in DIR/precomp/
"""
SHORT = {"flickr30k": "f30k", "flickr8k": "f8k"}
"""Names of data sets in the packages of VSE++ and SCAN."""


class Features:
    """Rows of a memory-mapped .npy; `rows[i]` is the row of image i. `finite_rows` has checked their values."""

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


class SplitFiles(NamedTuple):
    """Contents of the files of a split; there may be no ids."""

    array: np.ndarray
    captions: list[str]
    ids: list[str]


def load(
    root: Path, *, test_splits: Sequence[str] = ("test",), repeats: Mapping[str, Sequence[int]] | None = None
) -> Pairs:
    """Open the three splits under `root`; raises as `fitted`.

    `repeats`: by split, as `Rows.repeats`; None: the arrays are read for it where captions and ids do not tell.
    """
    listings = [
        fitted(root, name, present(root, name), repeats.get(split, ()) if repeats is not None else None)
        for split, name in splits(root, test_splits).items()
    ]
    return Pairs(*(Split(listing.images, listing.captions, listing.image_of_text) for listing in listings))


def find(name: str, root: Path) -> Path | None:
    """Return the folder of the features: the root, `precomp/`, or one named after the data set, e.g.

    `f30k_precomp/`.
    """
    folders = (root, root / "precomp", root / f"{name}_precomp", root / f"{SHORT.get(name, name)}_precomp")
    files = (folder / f"{split}_ims.npy" for folder in folders for split in ("train", "dev", "val"))
    return next((file.parent for file in files if file.exists()), None)


def shape(root: Path) -> tuple[int, ...]:
    """Return the shape of an image's features, by the header of the training split's file."""
    return tuple(np.load(root / "train_ims.npy", mmap_mode="r").shape[1:])


def splits(root: Path, test_splits: Sequence[str]) -> dict[str, str]:
    """Return the prefix of each split's files: of several names, the first that has features here."""
    names = {"train": ["train"], "val": ["dev", "val"], "test": list(test_splits)}
    return {
        split: next((name for name in known if (root / f"{name}_ims.npy").exists()), known[0])
        for split, known in names.items()
    }


def files(root: Path, name: str) -> list[Path]:
    """List the files that a split may have."""
    return [root / f"{name}_{kind}" for kind in ("ims.npy", "caps.txt", "ids.txt")]


def present(root: Path, name: str) -> SplitFiles:
    """Read the files of a split; DataError: one is missing or cannot be read."""
    problems: list[Problem] = []
    array, captions, ids = read(root, name, problems)
    refuse(problems, str(root))
    assert array is not None, "what is missing was refused"
    return SplitFiles(array, captions, ids)


def fitted(root: Path, name: str, files: SplitFiles, repeats: Sequence[int] | None) -> Listing[Features]:
    """Match the features of a split with its captions; DataError: they do not fit. `repeats`: as of `align`."""
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
    """Report images in two splits, by their ids or features, and images of equal features in one split.

    Args:
        ids: by split, of its images or captions.
        rows: by split, the rows of its file, and the row of each image.
        published: as of `overlaps`.
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
    """Report splits in the folder that are not read, e.g. `val_*` if `dev_*` is."""
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
    """Report splits of as many rows as captions, without ids and repeated rows: each caption has its own image."""
    single = [
        split
        for split, (array, captions, ids) in files.items()
        if len(array) == len(captions) and not ids and not rows[split].repeats
    ]
    if not single:
        return []
    what = f"{' and '.join(single)}: as many rows as captions, so each caption has an image of its own"
    fix = "If captions share images, name the image of each caption in *_ids.txt, a line a caption."
    return [Problem(str(folder), what, fix, "remark")]


def read(root: Path, name: str, problems: list[Problem]) -> tuple[np.ndarray | None, list[str], list[str]]:
    """Read the features, captions and ids of one split as they are in its files; there may be no ids."""
    array = _array(root / f"{name}_ims.npy", problems)
    ids_path = root / f"{name}_ids.txt"
    ids = lines_of(ids_path, "one id a line", problems) if ids_path.exists() else []
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
    """Return the row of each image, with its captions; None, after reporting it, if that is ambiguous.

    `repeats`: as `Rows.repeats`; None: the array is read for it where rows are as many as captions.
    """
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
    elif len(captions) == len(array):
        lengths = np.array((Rows.read(array).repeats if repeats is None else repeats) or [1] * len(array))
        return Listing(np.cumsum(lengths) - lengths, captions, np.repeat(np.arange(len(lengths)), lengths))
    elif len(captions) % len(array) == 0:
        return Listing(np.arange(len(array)), captions, np.arange(len(captions)) // (len(captions) // len(array)))
    what = (
        f"captions and images do not match in number: {stem}_ims.npy has {len(array)} rows, {stem}_caps.txt "
        f"{len(captions)} lines, {stem}_ids.txt {len(ids)}"
    )
    fix = "Expected one row per image or per caption; check that the files come from one package and are complete."
    problems.append(Problem(f"{stem}_ims.npy", what, fix))
    return None


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
