"""`goalgrid data check`: everything that is wrong with a user's copy of a data set, at once, and what it holds."""

from dataclasses import dataclass
from pathlib import Path

from goalgrid.grid import catalog
from goalgrid.retrieval.data import annotations, feature_faults, parts, picture_faults, precomp_files
from goalgrid.retrieval.data.content import content
from goalgrid.retrieval.data.forms import forms
from goalgrid.retrieval.data.parts import CheckProgress, Part
from goalgrid.retrieval.splits.pairs import DataError
from goalgrid.retrieval.splits.problems import Problem


@dataclass(frozen=True)
class DataReport:
    """Every form of the data under the root, and every problem."""

    name: str
    root: Path
    parts: list[Part]
    problems: list[Problem]


def check(
    name: str, root: Path, *, fast: bool = False, workers: int = 2, progress: CheckProgress | None = None
) -> DataReport:
    """Look at all that lies under the root: raw images with annotations, and precomputed features.

    Args:
        name: a shipped data set, held against its official size; any other name is a user's own data.
        fast: open the headers of image files only, instead of decoding them.
        progress: told (what, how much is done, of how much).
    """
    official = catalog.described(name)
    if not root.is_dir():
        missing = Problem(str(root), "there is no such folder", "Give the folder with --root.")
        return DataReport(name, root, [], [missing])
    tell = progress or (lambda what, done, of: None)
    found: list[Part] = []
    if annotated := annotations.find(name, root):
        found.append(picture_faults.of_root(name, root, annotated, tell, workers=workers, fast=fast))
    if folder := precomp_files.find(name, root):
        found.append(feature_faults.of_folder(folder, official.test_splits, tell))
    found += [form.faults(root, official, tell) for form in forms() if form.begun(root)]
    for part in found:
        part.problems += parts.counts(part, official)
        if not part.problems:
            _fingerprint(part, name, root)
    problems = [problem for part in found for problem in part.problems]
    return DataReport(name, root, found, problems if found else [_nothing(name, root)])


def _fingerprint(part: Part, name: str, root: Path) -> None:
    """The fingerprint that records keep; data that its reader refuses are a problem too."""
    features = part.format in (feature_faults.FORMAT, *(form.title for form in forms()))
    try:
        part.fingerprint = content(name, root, features=features).fingerprint
    except DataError as error:
        part.problems.append(Problem(str(part.path), str(error), "Training would stop there too."))


def _nothing(name: str, root: Path) -> Problem:
    further = {form.noun: form.expected for form in forms()}
    every = [annotations.EXPECTED, "train_ims.npy with train_caps.txt (features)", *further.values()]
    expected = further.get(catalog.described(name).noun, f"one of: {'; '.join(every)}")
    hint = f" {name}" if name in catalog.names("datasets") else ""
    return Problem(
        str(root), f"no data in a known form; expected {expected}", f"How it must look: goalgrid data where{hint}."
    )
