"""Faults of precomputed features: the whole file is read in blocks, however large it is."""

from pathlib import Path

import numpy as np

from goalgrid.retrieval.data import precomp_files
from goalgrid.retrieval.data.parts import CheckProgress, Part, SplitSize, overlaps
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.retrieval.splits.problems import Problem, faults_of_captions, faults_of_ids, shortened

BLOCK_BYTES = 1 << 26
"""Features read at a time."""

FORMAT = "precomputed features"


def of_folder(folder: Path, test_splits: list[str], progress: CheckProgress) -> Part:
    """All three splits under one folder."""
    part = Part(FORMAT, folder)
    files = precomp_files.splits(folder, test_splits)
    shapes: dict[str, tuple[int, ...]] = {}
    keys: dict[str, list[str]] = {}
    for split, file in files.items():
        array, captions, ids = precomp_files.read(folder, file, part.problems)
        part.problems += faults_of_captions(captions, str(folder / f"{file}_caps.txt"))
        keys[split] = list(dict.fromkeys(ids))
        images = len(ids) if len(ids) < len(captions) else len(set(ids))  # as far as ids tell
        if array is not None:
            shapes[split] = array.shape[1:]
            part.notes[split] = f"{' x '.join(map(str, array.shape[1:]))} {array.dtype}"
            _values(array, folder / f"{file}_ims.npy", part.problems, progress)
            images = _aligned(part, split, folder / file, array, captions, ids) or images
        part.problems += faults_of_ids(ids, len(captions), images, f"{folder / file}_ids.txt") if ids else []
    part.files = [path for file in files.values() for path in precomp_files.files(folder, file)]
    part.problems += [*_widths(shapes, folder), *overlapping(keys, folder)]
    return part


def _aligned(part: Part, split: str, stem: Path, array: np.ndarray, captions: list[str], ids: list[str]) -> int:
    """Hold rows, lines and ids against one another; how many images there are, 0 where that cannot be told."""
    try:
        rows, image_of_text = precomp_files.align(array, captions, ids, stem)
    except DataError as error:
        fix = "Take all files of this split from one package, whole."
        part.problems.append(Problem(f"{stem}_ims.npy", str(error).split(". ")[0], fix))
        return 0
    part.sizes[split] = SplitSize.of(image_of_text, len(rows))
    return len(rows)


def _values(array: np.ndarray, path: Path, problems: list[Problem], progress: CheckProgress) -> None:
    """NaN, infinity, and rows of zeros, anywhere in the file."""
    bad: list[int] = []
    empty: list[int] = []
    step = max(1, BLOCK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), step):
        block = np.asarray(array[start : start + step]).reshape(len(array[start : start + step]), -1)
        bad += (start + np.flatnonzero(~np.isfinite(block).all(axis=1))).tolist()
        empty += (start + np.flatnonzero(~block.any(axis=1))).tolist()
        progress(f"reading {path.name}", min(start + step, len(array)), len(array))
    fix = "Extract the features of these images anew."
    if bad:
        problems.append(Problem(str(path), f"{_rows(bad)} NaN or infinity", fix))
    if empty:
        problems.append(Problem(str(path), f"{_rows(empty)} zeros only", fix))


def _rows(rows: list[int]) -> str:
    return f"row{'s' * (len(rows) > 1)} {shortened(rows)} hold{'s' * (len(rows) == 1)}"


def _widths(shapes: dict[str, tuple[int, ...]], folder: Path) -> list[Problem]:
    if len(set(shapes.values())) < 2:
        return []
    what = ", ".join(f"{split} {' x '.join(map(str, shape))}" for split, shape in shapes.items())
    fix = "All splits must come from one extractor; take them from one package."
    return [Problem(str(folder), f"features of one image differ in shape between splits: {what}", fix)]


def overlapping(keys: dict[str, list[str]], folder: Path) -> list[Problem]:
    """The same id in two splits, unless the ids of all splits only number their rows."""
    numbered = all(ids == [str(row) for row in range(len(ids))] for ids in keys.values())
    return [] if numbered else overlaps(keys, str(folder), "image id")
