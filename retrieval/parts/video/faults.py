"""Faults of videos: captions, splits, and the features of each expert, of which every value is read."""

from pathlib import Path

import numpy as np

from goalgrid.grid.catalog import Dataset
from goalgrid.grid.errors.wording import counted
from goalgrid.retrieval.data.parts import CheckProgress, Part, SplitSize, overlaps
from goalgrid.retrieval.parts.video import expert_files, msr_vtt
from goalgrid.retrieval.splits.problems import Problem, faults_of_captions

FORMAT = "features of videos by experts"
STEP = 4096
"""Vectors read at a time."""


def of_root(root: Path, official: Dataset, progress: CheckProgress) -> Part:
    """The videos under a root with all their experts; and by expert, the number of videos in which it saw nothing."""
    part = Part(FORMAT, root, noun="video")
    places = msr_vtt.places(root, part.problems)
    if places is None:
        return part
    folder, captions = places
    listings = msr_vtt.splits(captions, official.test_splits, part.problems)
    names = expert_files.names(folder)
    experts = [found for name in names if (found := expert_files.read(folder / name, part.problems))]
    for split, listing in listings.items():
        part.sizes[split] = SplitSize.of(np.array(listing.video_of_text, dtype=np.int64), len(listing.videos))
        part.problems += faults_of_captions(listing.texts, f"captions of the {split} split of {captions}")
        silent = [int((expert.spans_of(listing.videos)[:, 1] == 0).sum()) for expert in experts]
        lacks = [f"{count:,} lack {expert.folder.name}" for expert, count in zip(experts, silent, strict=True) if count]
        part.notes[split] = ", ".join([counted(len(experts), "expert"), *lacks])
    for expert in experts:
        _values(expert, part.problems, progress)
    part.files = [*expert_files.files(folder), *msr_vtt.files(captions)]
    videos = {split: listing.videos for split, listing in listings.items()}
    if msr_vtt.JSFUSION in official.test_splits and not set(videos["val"]) - set(videos["train"]):
        part.notes["val"] += "; its videos also train, as in MMT"
        del videos["val"]
    part.problems += overlaps(videos, str(captions), "video")
    return part


def _values(expert: expert_files.Expert, problems: list[Problem], progress: CheckProgress) -> None:
    """NaN and infinity, anywhere in the file."""
    path, bad, array = expert.folder / expert_files.FEATURES, 0, expert.array
    for start in range(0, len(array), STEP):
        bad += int((~np.isfinite(array[start : start + STEP]).all(1)).sum())
        progress(f"reading {expert.folder.name}", min(start + STEP, len(array)), len(array))
    if bad:
        problems.append(Problem(str(path), f"{counted(bad, 'vector')} with NaN or infinity", "Extract them anew."))
