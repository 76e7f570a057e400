"""Precomputed features as SCAN and VSE-infinity publish them: {train,dev,test[,testall]}_{ims.npy,caps.txt,ids.txt};
in data of one's own, `val` may stand for `dev`.

The arrays are memory-mapped, float16 or float32, (n, d) or (n, regions, d). Public packages come with one row per
image or with the row repeated for each of its captions; both are read, and seen as one row per image.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.retrieval.splits.problems import Problem, array_of, lines_of, refuse

FLOATS = (np.float16, np.float32, np.float64)
TREE = """
DIR/train_ims.npy           float16 or float32, (images, d) or (images, regions, d); a row an image or a row a caption
DIR/train_caps.txt          a caption a line, those of one image together; equally many an image, or train_ids.txt
DIR/train_ids.txt           may be left out: the id of its image, a line a caption
DIR/val_*, DIR/test_*       the same; or dev_* for val_*, and all of them in DIR/precomp/
"""
SHORT = {"flickr30k": "f30k", "flickr8k": "f8k"}
"""Names of data sets in the packages of VSE++ and SCAN."""


def find(name: str, root: Path) -> Path | None:
    """The folder of the features: the root, `precomp/`, or one named after the data set, e.g. `f30k_precomp/`."""
    folders = (root, root / "precomp", root / f"{name}_precomp", root / f"{SHORT.get(name, name)}_precomp")
    files = (folder / f"{split}_ims.npy" for folder in folders for split in ("train", "dev", "val"))
    return next((file.parent for file in files if file.exists()), None)


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


def aligned(root: Path, name: str) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray, list[str]]:
    """Of one split: the array, the row of each image, the captions, the image of each caption, and the ids.

    Raises:
        DataError: a file is missing or unreadable, or captions and images do not match in number.
    """
    problems: list[Problem] = []
    array, captions, ids = read(root, name, problems)
    refuse(problems, str(root))
    assert array is not None
    rows, image_of_text = align(array, captions, ids, root / name)
    return array, rows, captions, image_of_text, ids


def check_finite(path: Path, block: np.ndarray, places: np.ndarray) -> None:
    """Check rows of features, which stand at these places in the file.

    Raises:
        DataError: a value is NaN or infinite.
    """
    bad = ~np.isfinite(block).reshape(len(block), -1).all(axis=1)
    if bad.any():
        place = int(places[int(bad.argmax())])
        raise DataError(f"{path}: row {place} holds NaN or infinity. Extract the features of this image anew.")


def read(root: Path, name: str, problems: list[Problem]) -> tuple[np.ndarray | None, list[str], list[str]]:
    """Features, captions and ids of one split as they stand in its files; ids may be none."""
    array = _array(root / f"{name}_ims.npy", problems)
    captions = lines_of(root / f"{name}_caps.txt", "one caption a line, those of one image together", problems)
    ids_path = root / f"{name}_ids.txt"
    return array, captions, lines_of(ids_path, "one id a line", problems) if ids_path.exists() else []


def align(array: np.ndarray, captions: list[str], ids: list[str], where: Path) -> tuple[np.ndarray, np.ndarray]:
    """Which row is each image's, and which image is each caption's.

    Raises:
        DataError: there are none, or their numbers do not fit.
    """
    if not captions or not len(array):
        numbers = f"{len(array)} feature rows, {len(captions)} captions"
        raise DataError(f"{where.name} split under {where.parent} is empty: {numbers}. Take its files again.")
    if len(ids) == len(captions) and len(set(ids)) < len(captions):
        order = list(dict.fromkeys(ids))
        position = {key: index for index, key in enumerate(order)}
        image_of_text = np.array([position[key] for key in ids])
        if len(array) == len(captions):
            _, first = np.unique(image_of_text, return_index=True)
            return first, image_of_text
        if len(array) == len(order):
            return np.arange(len(array)), image_of_text
    elif len(captions) % len(array) == 0:
        per_image = len(captions) // len(array)
        if per_image == 1:
            per_image = _repeats(array)
            return np.arange(0, len(array), per_image), np.arange(len(captions)) // per_image
        return np.arange(len(array)), np.arange(len(captions)) // per_image
    raise DataError(
        f"captions and images do not match in number: {where}_ims.npy has {len(array)} rows, {where}_caps.txt "
        f"{len(captions)} lines, {where}_ids.txt {len(ids)}. Expected one row per image or per caption; "
        "check that the files come from one package and are complete."
    )


def _repeats(array: np.ndarray) -> int:
    """How often each image's row is repeated, where rows are as many as captions and no ids tell: 5 times or once."""
    if len(array) % 5:
        return 1
    groups = np.unique(np.linspace(0, len(array) // 5 - 1, 20).astype(int)) * 5
    return 5 if all((array[first] == array[first + 4]).all() for first in groups) else 1


def _array(path: Path, problems: list[Problem]) -> np.ndarray | None:
    try:
        array = array_of(path)
    except FileNotFoundError:
        problems.append(Problem(f"no features at {path}", "the file is missing", "Take the whole package."))
        return None
    except (OSError, ValueError) as error:
        problems.append(Problem(f"cannot read {path}", str(error), "Is the download complete? Fetch it again."))
        return None
    if not isinstance(array, np.ndarray) or array.ndim not in (2, 3) or array.dtype not in FLOATS:
        kind = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else "an archive"
        fix = "Store the features as floats, one row an image."
        problems.append(Problem(str(path), f"expected floats of shape (n, d) or (n, regions, d), found {kind}", fix))
        return None
    return np.asarray(array)
