"""Detection of equal images in two splits, or within one split, by their content rather than their names."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

from goalgrid.grid.errors import counted
from goalgrid.grid.groups import grouped
from goalgrid.retrieval.splits.problems import Problem

FIRST = "; the first is "
"""In a problem, what separates the number of shared images from the name of one; records keep the former."""
PUBLISHED = 0.01
"""Share of images that a published split may have in common with others: people upload photographs twice."""
REPAIR = {
    ("train", "val"): "Validation images must not be trained on: keep each {noun} in one split only.",
    ("train", "test"): "Test images must not be trained on: keep each {noun} in one split only.",
    ("val", "test"): "Validating on test images selects models on the test set: keep each {noun} in one split only, or "
    'do not select by validation: train.selection = "last".',
}
_Kind = Literal["leak", "tested validation", "note"]
KINDS: dict[tuple[str, str], _Kind] = {("train", "test"): "leak", ("val", "test"): "tested validation"}


def overlaps(
    keys: Mapping[str, Sequence[str]],
    place: str,
    noun: str,
    names: Mapping[str, Sequence[str]] | None = None,
    *,
    published: bool = False,
) -> dict[tuple[str, str], Problem]:
    """Return a problem for each pair of splits that have images in common.

    Args:
        keys: by split, a key per image, e.g. the SHA-256 of its file or its id; images with an empty key are skipped.
        names: by split, the names of the images in messages; default: the keys.
        published: whether these are the published splits of a data set, which may have a few images in common.
    """
    first = {split: {key: row for row, key in reversed(list(enumerate(of))) if key} for split, of in keys.items()}
    names, problems = names or keys, dict[tuple[str, str], Problem]()
    for one, other in combinations(keys, 2):
        if shared := sorted(first[one].keys() & first[other].keys(), key=first[one].__getitem__):
            called = (names[one][first[one][shared[0]]], names[other][first[other][shared[0]]])
            which = called[0] if called[0] == called[1] else f"{called[0]}, in {other} {called[1]}"
            what = f"{one} and {other} share {counted(len(shared), noun)}{FIRST}{which}"
            if published and len(shared) <= PUBLISHED * len(keys[other]):
                problems[one, other] = Problem(place, what, "This is also so in the published splits.", "remark")
            else:
                repair, kind = REPAIR[one, other].format(noun=noun), KINDS.get((one, other), "note")
                problems[one, other] = Problem(place, what, repair, kind)
    return problems


def doubles(keys: Sequence[str], names: Sequence[str], place: str, noun: str) -> list[Problem]:
    """Report images of one split that are equal to others, in one remark; images with an empty key are skipped."""
    alike = [rows for key, rows in grouped((key, row) for row, key in enumerate(keys)).items() if key and rows[1:]]
    if not alike:
        return []
    further = sum(len(rows) - 1 for rows in alike)
    equals = "equals" if further == 1 else "equal"
    what = f"{counted(further, noun)} {equals} another: {names[alike[0][1]]} is {names[alike[0][0]]}"
    return [Problem(place, what, "Each counts as a separate image.", "remark")]
