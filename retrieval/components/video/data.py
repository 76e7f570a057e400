"""Videos on disk: MSR-VTT's captions with features of experts. This module does not import torch."""

from collections.abc import Sequence
from pathlib import Path

from goalgrid.grid.catalog import Dataset
from goalgrid.grid.errors import counted, sha256_of
from goalgrid.grid.identity import digest
from goalgrid.retrieval.components.video import expert_files, msr_vtt
from goalgrid.retrieval.components.video.settings import ExpertRead
from goalgrid.retrieval.data.content import Stamp
from goalgrid.retrieval.data.file_slice import FileSlice
from goalgrid.retrieval.data.forms import CheckProgress, Form, Part, SplitSize, Summed
from goalgrid.retrieval.data.rows import blocks, finite_sum, unfit
from goalgrid.retrieval.splits.equality import overlaps
from goalgrid.retrieval.splits.pairs import Pairs, Split
from goalgrid.retrieval.splits.problems import Problem, faults_of_captions, refuse

FORMAT = "features of videos by experts"


def of_root(root: Path, official: Dataset, progress: CheckProgress) -> Part:
    """Check the videos below a root with all their experts, and count the videos in which each expert saw nothing."""
    part = Part(FORMAT, root, noun="video")
    places = msr_vtt.places(root, part.problems)
    if places is None:
        return part
    folder, captions = places
    listings = msr_vtt.splits(captions, official.test_splits, part.problems)
    names = expert_files.names(folder)
    experts = [found for name in names if (found := expert_files.read(folder / name, part.problems))]
    for split, listing in listings.items():
        part.sizes[split], part.captions[split] = SplitSize.of(listing), listing.captions
        part.problems += faults_of_captions(listing.captions, f"captions of the {split} split of {captions}")
        silent = [int((expert.spans_of(listing.images)[:, 1] == 0).sum()) for expert in experts]
        lacks = [f"{count:,} lack {expert.folder.name}" for expert, count in zip(experts, silent, strict=True) if count]
        part.notes[split] = ", ".join([counted(len(experts), "expert"), *lacks])
    for expert in experts:
        _values(expert, part.problems, progress)
    part.files = [*map(FileSlice, [*expert_files.files(folder), *msr_vtt.files(captions)])]
    videos = {split: listing.images for split, listing in listings.items()}
    part.problems += expert_files.lacking(experts, videos)
    if msr_vtt.JSFUSION in official.test_splits and not set(videos["val"]) - set(videos["train"]):
        part.notes["val"] += "; its videos are also used for training, as in MMT"
        del videos["val"]
    part.problems += overlaps(videos, str(captions), "video").values()
    return part


def _values(expert: expert_files.Expert, problems: list[Problem], progress: CheckProgress) -> None:
    path, bad, array = expert.folder / expert_files.FEATURES, 0, expert.array
    for start, block in blocks(array):
        bad += int(unfit(block).sum())
        progress(f"reading {expert.folder.name}", start + len(block), len(array))
    if bad:
        problems.append(Problem(str(path), f"{counted(bad, 'vector')} with NaN or infinity", "Extract them again."))


def _check(root: Path, reads: Sequence[ExpertRead]) -> None:
    problems = list[Problem]()
    expert_files.chosen(msr_vtt.present(root)[0], reads, problems)
    refuse(problems, str(root))


def _load(root: Path, test_splits: Sequence[str], reads: Sequence[ExpertRead]) -> Pairs:
    """Open the videos and MSR-VTT captions below a root; raise DataError if they are unreadable or do not match."""
    from goalgrid.retrieval.components.video.videos import Videos

    (folder, captions), problems = msr_vtt.present(root), list[Problem]()
    experts = expert_files.chosen(folder, reads, problems)
    listings = msr_vtt.splits(captions, test_splits, problems)
    problems += expert_files.lacking(experts, {split: listing.images for split, listing in listings.items()})
    refuse(problems, str(root))
    return Pairs(*(
        Split(Videos(listing.images, reads, experts), listing.captions, listing.image_of_text)
        for listing in listings.values()
    ))  # fmt: skip


def _summed(root: Path, test_splits: Sequence[str], stamp: Stamp) -> Summed:
    (folder, captions), problems = msr_vtt.present(root), list[Problem]()
    stamp.note([*expert_files.files(folder), *msr_vtt.files(captions)])
    experts = [expert_files.read(folder / expert, problems) for expert in expert_files.names(folder)]
    listings = msr_vtt.splits(captions, test_splits, problems)
    refuse(problems, str(root))
    present = [expert for expert in experts if expert]
    sums = stamp.digests([FileSlice(expert.folder / expert_files.FEATURES) for expert in present], finite_sum)
    times = [None if expert.times is None else sha256_of(expert.folder / expert_files.TIMES) for expert in present]
    marks = dict[str, str]()
    for split, listing in listings.items():
        spans = [[expert.folder.name, expert.spans_of(listing.images).tolist()] for expert in present]
        marks[split] = digest([sums, times, spans])
    names = {split: listing.images for split, listing in listings.items()}
    for split, listing in listings.items():
        problems += faults_of_captions(listing.captions, f"captions of the {split} split of {captions}")
    problems += [*expert_files.lacking(present, names), *overlaps(names, str(captions), "video").values()]
    return Summed(marks, listings, problems)


VIDEOS = Form(
    noun="video",
    title=FORMAT,
    recipes="ce or mmt",
    expected=f"{msr_vtt.JSON} with experts/*/{expert_files.FEATURES} (videos)",
    shown_by="msr-vtt",
    has_features=lambda root: expert_files.find(root) is not None,
    begun=lambda root: (expert_files.find(root) or msr_vtt.find(root)) is not None,
    check=_check,
    load=_load,
    summed=_summed,
    faults=of_root,
)
"""Videos given by features of experts, with captions in MSR-VTT's format."""
