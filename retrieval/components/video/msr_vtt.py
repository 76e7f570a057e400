"""Captions and splits of MSR-VTT: MSRVTT_data.json, CE's split lists, and JSFusion's 1k-A test split."""

import csv
from collections.abc import Container, Sequence
from pathlib import Path

from goalgrid.grid.errors import counted
from goalgrid.retrieval.components.video import expert_files
from goalgrid.retrieval.data.annotations import split_files
from goalgrid.retrieval.splits.pairs import Listing
from goalgrid.retrieval.splits.problems import Problem, json_of, lines_of, no_text, refuse, repeated, rows_of, shortened

JSON = "MSRVTT_data.json"
TEST_1K_A = "MSRVTT_JSFUSION_test.csv"
TRAIN_1K_A = ("MSRVTT_train.9k.csv", "train_list_jsfusion.txt")
SPLIT_NAMES = {"validate": "val", **split_files.NAMES}
JSFUSION = "jsfusion"
"""Name of the 1k-A test split in a data set's `test_splits`."""
LAYOUT = '{"videos": [{"video_id", "split"}], "sentences": [{"video_id", "caption"}]}'


def find(root: Path) -> Path | None:
    return next((path for path in (root / JSON, root / "annotations" / JSON) if path.exists()), None)


def places(root: Path, problems: list[Problem]) -> tuple[Path, Path] | None:
    """Find the experts' folder and the captions file below a root; if one is missing, report it and return None."""
    folder, captions = expert_files.find(root), find(root)
    if folder is None:
        what = f"has no experts/*/{expert_files.FEATURES}, the features of its videos"
        fix = "Convert published features of experts: goalgrid data convert SOURCE... --to DIR."
        problems.append(Problem(str(root), what, fix))
    if captions is None:
        what = f"has no {JSON}, the captions of its videos"
        problems.append(Problem(str(root), what, "Where to get it: goalgrid data where msr-vtt."))
    return (folder, captions) if folder and captions else None


def present(root: Path) -> tuple[Path, Path]:
    """Find the experts' folder and the captions file below a root; raise DataError if one is missing."""
    problems: list[Problem] = []
    both = places(root, problems)
    refuse(problems, str(root))
    assert both is not None, "what is missing was refused"
    return both


def files(path: Path) -> list[Path]:
    """Return all files that may be read, whether they exist or not."""
    lists = [path.parent / f"{split}_list_full.txt" for split in ("train", "val", "test")]
    return [path, path.with_name(TEST_1K_A), *(path.with_name(name) for name in TRAIN_1K_A), *lists]


def splits(path: Path, test_splits: Sequence[str], problems: list[Problem]) -> dict[str, Listing[list[str]]]:
    """Read the train, val and test splits; report videos without captions.

    In 1k-A, all videos outside the test split are used for training, including the validation videos of the full split,
    as in MMT.
    """
    captions, by_json = _captions(path, problems)
    lists, tested = _lists(path, by_json, problems), dict[str, list[str]]()
    if JSFUSION in test_splits:
        tested = _tested(path.with_name(TEST_1K_A), problems)
        val = [name for name in lists["val"] if name not in tested]
        lists = {"train": _trained(path, by_json, tested, problems), "val": val, "test": list(tested)}
    listings = {}
    listed = {name for names in (*by_json.values(), *lists.values()) for name in names}
    if others := [name for name in captions if name not in listed]:
        lost = counted(sum(len(captions[name]) for name in others), "caption")
        what = f"{lost} of {counted(len(others), 'video')} in no split: {shortened(others)}"
        problems.append(
            Problem(str(path), what, "They are ignored; to use them, add the videos to its list of videos.", "note")
        )
    for split, names in lists.items():
        texts = tested if split == "test" and tested else captions
        silent = [name for name in names if not texts.get(name)]
        if silent:
            what = f"{counted(len(silent), 'video')} of the {split} split without a caption: {shortened(silent)}"
            problems.append(Problem(str(path), what, "Add captions for them, or remove them from the split."))
        if twice := repeated(names):
            what = f"{counted(len(twice), 'video')} of the {split} split given more than once: {shortened(twice)}"
            problems.append(Problem(str(path), what, "List each video only once."))
        listings[split] = Listing.of(names, [texts.get(name, []) for name in names])
    return listings


def _captions(path: Path, problems: list[Problem]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Read the non-empty captions by video (CE skips empty ones, too), and the videos by split."""
    content = json_of(path, dict, LAYOUT, problems)
    captions: dict[str, list[str]] = {}
    by_split: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    try:
        for row, video in enumerate(content["videos"] if content else []):
            name, split, place = video["video_id"], video["split"], f"{path}: videos[{row}]"
            if split := split_files.split_of(str(split), f"{place}, {name}", problems, SPLIT_NAMES):
                by_split[split].append(name)
        for row, sentence in enumerate(content["sentences"] if content else []):
            name, caption = sentence["video_id"], sentence["caption"]
            if not isinstance(caption, str):
                problems.append(no_text(f"{path}: sentences[{row}], a caption of {name}", caption))
            elif caption.strip():
                captions.setdefault(name, []).append(" ".join(caption.split()))
    except (KeyError, TypeError) as error:
        problems.append(Problem(str(path), f"is not in MSR-VTT's layout ({error!r})", f"Expected {LAYOUT}."))
    return captions, by_split


def _lists(path: Path, by_json: dict[str, list[str]], problems: list[Problem]) -> dict[str, list[str]]:
    """Return the full split, from CE's lists if they are next to the captions, else from the JSON."""
    files = {split: path.with_name(f"{split}_list_full.txt") for split in by_json}
    return {
        split: [line.strip() for line in _lines(file, problems)] if file.exists() else by_json[split]
        for split, file in files.items()
    }


def _tested(path: Path, problems: list[Problem]) -> dict[str, list[str]]:
    if not path.exists():
        what = "is missing: the 1k-A test split, one row per video with its caption"
        problems.append(Problem(str(path), what, "Where to get it: goalgrid data where msr-vtt-1k-a."))
        return {}
    rows = rows_of(path, ("video_id", "sentence"), problems)
    return {row["video_id"].strip(): [row["sentence"].strip()] for _, row in rows}


def _trained(path: Path, by_json: dict[str, list[str]], tested: Container[str], problems: list[Problem]) -> list[str]:
    """Return the training videos of 1k-A from the first list that exists, else all except the test videos."""
    for name in TRAIN_1K_A:
        file = path.with_name(name)
        if file.exists():
            lines = _lines(file, problems)
            return [row[0].strip() for row in csv.reader(lines) if row and row[0].strip() not in ("", "video_id")]
    return [name for names in by_json.values() for name in names if name not in tested]


def _lines(path: Path, problems: list[Problem]) -> list[str]:
    return [line for line in lines_of(path, "one video per line", problems) if line.strip()]
