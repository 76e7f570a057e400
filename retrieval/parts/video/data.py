"""Videos on the disk: captions of MSR-VTT with features of experts. This module loads no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goalgrid.grid.identity import digest
from goalgrid.retrieval.data import parts
from goalgrid.retrieval.data.content import Stamp, file_sum, finite_sum
from goalgrid.retrieval.data.forms import Form, Summed
from goalgrid.retrieval.parts.video import expert_files, faults, msr_vtt
from goalgrid.retrieval.parts.video.settings import ExpertRead
from goalgrid.retrieval.splits.pairs import Pairs
from goalgrid.retrieval.splits.problems import Problem, refuse


def _check(root: Path, reads: Sequence[ExpertRead]) -> None:
    problems = list[Problem]()
    if places := msr_vtt.places(root, problems):
        expert_files.chosen(places[0], reads, problems)
    refuse(problems, str(root))


def _load(root: Path, test_splits: Sequence[str], reads: Sequence[ExpertRead]) -> Pairs:
    from goalgrid.retrieval.parts.video import videos

    return videos.load(root, test_splits, reads)


def _summed(root: Path, test_splits: Sequence[str], stamp: Stamp) -> Summed:
    problems: list[Problem] = []
    places = msr_vtt.places(root, problems)
    refuse(problems, str(root))
    assert places is not None, "what is missing was refused"
    folder, captions = places
    stamp.note([*expert_files.files(folder), *msr_vtt.files(captions)])
    experts = [expert_files.read(folder / expert, problems) for expert in expert_files.names(folder)]
    listings = msr_vtt.splits(captions, test_splits, problems)
    refuse(problems, str(root))
    present = [expert for expert in experts if expert]
    sums = stamp.digests([expert.folder / expert_files.FEATURES for expert in present], finite_sum)
    times = [None if expert.times is None else file_sum(expert.folder / expert_files.TIMES) for expert in present]
    marks, sizes, listed = dict[str, str](), dict[str, tuple[int, int]](), dict[str, Any]()
    for split, listing in listings.items():
        sizes[split] = len(listing.videos), len(listing.texts)
        spans = [[expert.folder.name, expert.spans_of(listing.videos).tolist()] for expert in present]
        marks[split] = digest([sums, times, spans])
        listed[split] = [listing.texts, listing.video_of_text]
    names = {split: listing.videos for split, listing in listings.items()}
    return Summed(marks, listed, sizes, parts.overlaps(names, str(captions), "video"))


VIDEOS = Form(
    noun="video",
    title=faults.FORMAT,
    contents="videos, as features of experts",
    recipes="ce or mmt",
    expected=f"{msr_vtt.JSON} with experts/*/{expert_files.FEATURES} (videos)",
    shown_by="msr-vtt",
    has_features=lambda root: expert_files.find(root) is not None,
    begun=lambda root: (expert_files.find(root) or msr_vtt.find(root)) is not None,
    check=_check,
    load=_load,
    summed=_summed,
    faults=faults.of_root,
)
"""Videos by the features of their experts, with captions as MSR-VTT has them."""
