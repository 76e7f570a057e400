"""Karpathy's JSON: {"images": [{"filename", "split", "sentences": [{"raw"}], "filepath"?}]}.

`restval` belongs to the training split. Sentences may also be plain strings.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goalgrid.retrieval.data.annotations.annotation import Annotation, first
from goalgrid.retrieval.splits.problems import Problem, json_of

SPLITS = {"train": "train", "restval": "train", "val": "val", "test": "test"}
FOLDERS = (".", "karpathy", "annotations")
TREE = """
DIR/dataset.json            {"images": [{"filename": "1.jpg", "split": "train", "sentences": ["a dog", "a dog runs"]}]}
    other fields are ignored; a sentence may also be {"raw": "a dog"}, as in Karpathy's files
DIR/images/*.jpg            or in DIR, or in any other folder below it
"""
LAYOUT = '{"images": [{"filename", "split", "sentences": [{"raw"}, ...]}, ...]}'


def find(name: str, root: Path) -> Path | None:
    """Return dataset_NAME.json or dataset.json, else any dataset_*.json, in the root, `karpathy/` or `annotations/`."""
    named = first(root, FOLDERS, f"dataset_{name}.json", "dataset.json")
    return named or first(root, FOLDERS, "dataset_*.json")


def entries(path: Path, root: Path, test_splits: Sequence[str], problems: list[Problem]) -> list[Annotation]:
    """Read all images of the JSON file; report items without a file name, captions or a known split."""
    content = json_of(path, dict, LAYOUT, problems)
    images = content.get("images")
    if not isinstance(images, list) or not images:
        if content:
            what = "is not in Karpathy's layout, or lists no images"
            problems.append(Problem(str(path), what, f"Expected {LAYOUT}."))
        return []
    annotations = []
    for index, item in enumerate(images):
        entry, fault = _entry(item, f"{path}: images[{index}]")
        if entry:
            annotations.append(entry)
        else:
            problems.append(Problem(f"{path}: images[{index}]", fault, f"Expected {LAYOUT}."))
    return annotations


def _entry(item: Any, place: str) -> tuple[Annotation | None, str]:
    """Return the entry, or None and the reason why the item is invalid."""
    if not isinstance(item, dict) or not isinstance(item.get("filename"), str) or not item["filename"]:
        return None, "has no file name"
    sentences = item.get("sentences")
    raw = [s.get("raw") if isinstance(s, dict) else s for s in sentences] if isinstance(sentences, list) else []
    captions = tuple(text for text in raw if isinstance(text, str))
    if not raw:
        return None, f"image {item['filename']!r} has no caption"
    if len(captions) < len(raw):
        wrong = next(number for number, text in enumerate(raw) if not isinstance(text, str))
        return None, f"image {item['filename']!r}: sentences[{wrong}] has no text"
    if not isinstance(item.get("split"), str) or item["split"] not in SPLITS:
        return None, f"unknown split {item.get('split')!r} of image {item['filename']!r}; known: {', '.join(SPLITS)}"
    folder, name = str(item.get("filepath") or ""), item["filename"]
    names = (f"{folder}/{name}", name) if folder else (name,)
    keys = [sentence.get("sentid") for sentence in sentences or () if isinstance(sentence, dict)]
    ids = tuple(key for key in keys if type(key) is int)
    return Annotation(SPLITS[item["split"]], names, captions, place, ids if len(ids) == len(captions) else ()), ""
