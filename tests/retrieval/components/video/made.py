"""A small MSR-VTT, made by a seed: captions that name what the experts saw, as published files and converted."""

import json
import pickle
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from goalgrid.retrieval.components.video.convert import convert

COUNTS = {"train": 24, "validate": 6, "test": 8}
THINGS = ["dog", "cat", "car", "boat", "man", "girl", "ball", "song", "soup", "road"]
TINY = {"audio": 16, "face": 24, "speech": 12}
"""The experts that the tiny recipes read."""
LATER = "speech"
"""The expert that saw nothing in every third video."""


def videos(counts: Mapping[str, int] = COUNTS) -> list[tuple[str, str]]:
    """Name and split of every video."""
    splits = [split for split, count in counts.items() for _ in range(count)]
    return [(f"video{number}", split) for number, split in enumerate(splits)]


def write(root: Path, widths: Mapping[str, int], counts: Mapping[str, int] = COUNTS, seed: int = 0) -> Path:
    """A root with captions and the features of these experts, each of a vector of the two things that a video shows."""
    rng = np.random.default_rng(seed)
    root.mkdir(parents=True, exist_ok=True)
    shows = {name: rng.choice(len(THINGS), 2, replace=False) for name, _ in videos(counts)}
    sentences = [
        {"video_id": name, "caption": f"a {THINGS[a]} and a {THINGS[b]} {ending}"}
        for name, (a, b) in shows.items()
        for ending in ("", "it's ", "its ")
    ]
    content = {"videos": [{"video_id": name, "split": split} for name, split in videos(counts)], "sentences": sentences}
    (root / "MSRVTT_data.json").write_text(json.dumps(content))
    pickles = root / "pickles"
    pickles.mkdir(exist_ok=True)
    for expert, width in widths.items():
        looks = rng.normal(size=(len(THINGS), width)).astype(np.float32)
        features: dict[str, object] = {}
        for number, (name, pair) in enumerate(shows.items()):
            vectors = looks[rng.choice(pair, rng.integers(2, 9))]
            vectors = vectors + rng.normal(size=vectors.shape) / 4
            features[name] = float("nan") if expert == LATER and number % 3 == 0 else vectors.astype(np.float32)
        (pickles / f"{expert}.pickle").write_bytes(pickle.dumps(features))
    convert([f"{expert}={pickles / expert}.pickle" for expert in widths], root)
    return root
