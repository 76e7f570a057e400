"""VSE-infinity's layout: {train,dev,test,testall}_{caps,ids}.txt, and id_mapping.json from ids to image files."""

from collections.abc import Sequence
from pathlib import Path

from goalgrid.grid.errors import counted
from goalgrid.grid.groups import grouped
from goalgrid.retrieval.data.annotations.annotation import Annotation, first
from goalgrid.retrieval.splits.problems import Problem, captions_of, faults_of_ids, json_of, lines_of, shortened

JSON = "id_mapping.json"
LAYOUT = '{"391895": "val2014/COCO_val2014_000000391895.jpg", ...}'


def find(name: str, root: Path) -> Path | None:
    return first(root, (".", "precomp"), JSON)


def lacks_mapping(root: Path) -> Problem | None:
    """Report captions that have neither images nor features; return None if there are no captions."""
    if not (captions := first(root, (".", "precomp"), "train_caps.txt")):
        return None
    what = f"is missing; {captions.name} has neither features nor images"
    fix = f"Take the features of all splits from the package the captions came from, or provide {JSON}: {LAYOUT}."
    return Problem(str(captions.with_name("train_ims.npy")), what, fix)


def entries(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read all images whose ids the text files list; the first of `test_splits` that exists is the test split."""
    mapping = json_of(path, dict, LAYOUT, problems)
    if not all(isinstance(name, str) for name in mapping.values()):
        problems.append(Problem(str(path), "contains an id without a file name", f"Expected {LAYOUT}."))
        mapping = {}
    folder = next((f for f in (root / "precomp", root) if (f / "train_caps.txt").exists()), root / "precomp")
    test = next((name for name in test_splits if (folder / f"{name}_caps.txt").exists()), test_splits[0])
    annotations = []
    for split, name in (("train", "train"), ("val", "dev"), ("test", test)):
        place = folder / f"{name}_ids.txt"
        by_id = _captions(folder, name, problems)
        unknown = [key for key in by_id if key not in mapping]
        if unknown and mapping:
            what = f"{counted(len(unknown), 'id')} not in {path.name}: {shortened(unknown)}"
            fix = "Take both from the same package; Flickr30K's ids are Karpathy's imgid."
            problems.append(Problem(str(place), what, fix))
        annotations += [
            Annotation(split, (mapping[key],), tuple(texts), f"{place}: id {key}")
            for key, texts in by_id.items()
            if key in mapping
        ]
    return annotations


def _captions(folder: Path, name: str, problems: list[Problem]) -> dict[str, list[str]]:
    """Return the captions by image id. The file has one id per caption, or one per image if all have equally many."""
    ids = [key.strip() for key in lines_of(folder / f"{name}_ids.txt", "one image id per line", problems)]
    captions = captions_of(folder / f"{name}_caps.txt", len(ids), problems)
    if not captions or not ids:
        return {}
    if len(captions) % len(ids):
        place = str(folder / f"{name}_ids.txt")
        what = f"has {len(ids)} ids for the {len(captions)} lines of {name}_caps.txt"
        fix = "Expected one id per caption or one per image; take both files from the same package."
        problems.append(Problem(place, what, fix))
        return {}
    captions_per_id = len(captions) // len(ids)
    images = len(ids) if captions_per_id > 1 else len(set(ids))
    problems += faults_of_ids(ids, len(captions), images, str(folder / f"{name}_ids.txt"))
    return grouped(zip((key for key in ids for _ in range(captions_per_id)), captions, strict=True))
