"""Features of experts in goalgrid's format: one folder per expert, with the vectors of all videos in one array.

    experts/<expert>/features.npy   float16 or float32 (vectors, width); the vectors of a video are consecutive
    experts/<expert>/videos.txt     one line per video, in the same order: name and number of vectors
    experts/<expert>/times.npy      optional: float32 (vectors), time in seconds of the middle of each vector's span

If an expert saw nothing in a video, the video is missing or has 0 vectors. The arrays are memory-mapped.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from goalgrid.grid.errors import nearest
from goalgrid.retrieval.components.video.settings import ExpertRead
from goalgrid.retrieval.splits.problems import Problem, array_at, lines_of, repeated, shortened

FLOATS = (np.float16, np.float32)
FEATURES, VIDEOS, TIMES = "features.npy", "videos.txt", "times.npy"
CONVERT = "Convert again: goalgrid data convert SOURCE... --to DIR."


@dataclass(frozen=True, eq=False)
class Expert:
    """An expert's vectors; `spans` has the start and number of each video's vectors. The folder is named after it."""

    folder: Path
    array: Float[np.ndarray, "n d"]
    times: Float[np.ndarray, " n"] | None
    spans: dict[str, tuple[int, int]]

    def spans_of(self, videos: Sequence[str]) -> Int[np.ndarray, "v 2"]:
        """Return the start and number of each video's vectors; (0, 0) if the expert saw nothing."""
        return np.array([self.spans.get(name, (0, 0)) for name in videos], dtype=np.int64).reshape(-1, 2)


def find(root: Path) -> Path | None:
    folder = root / "experts"
    return folder if next(folder.glob(f"*/{FEATURES}"), None) else None


def names(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob(f"*/{FEATURES}"))


def files(folder: Path) -> list[Path]:
    """Return all files that may be read, whether they exist or not."""
    return [folder / name / file for name in names(folder) for file in (FEATURES, VIDEOS, TIMES)]


def read(folder: Path, problems: list[Problem]) -> Expert | None:
    """Read an expert's features; if they are invalid, report problems and return None."""
    before = len(problems)
    array = array_at(folder / FEATURES, problems)
    spans = _spans(folder / VIDEOS, problems)
    times = array_at(folder / TIMES, problems) if (folder / TIMES).exists() else None
    if array is not None and (array.ndim != 2 or array.dtype not in FLOATS):
        what = f"is {array.dtype} {array.shape}, not float16 or float32 of shape (vectors, width)"
        problems.append(Problem(str(folder / FEATURES), what, CONVERT))
    listed = sum(count for _, count in spans.values())
    if array is not None and listed != len(array):
        what = f"lists {listed:,} vectors, but {FEATURES} has {len(array):,}"
        problems.append(Problem(str(folder / VIDEOS), what, CONVERT))
    if array is not None and times is not None and times.shape != array.shape[:1]:
        what = f"has shape {times.shape}, but there are {len(array):,} vectors"
        problems.append(Problem(str(folder / TIMES), what, CONVERT))
    return None if array is None or len(problems) > before else Expert(folder, array, times, spans)


def chosen(folder: Path, reads: Sequence[ExpertRead], problems: list[Problem]) -> list[Expert]:
    """Read the experts that a model needs, in its order; report missing ones and wrong vector widths."""
    known, experts = names(folder), list[Expert]()
    for expert in reads:
        if expert.name not in known:
            hint = "".join(f"Did you mean {near!r}? " for near in nearest(expert.name, known))
            own = "Convert its features as well, or use your own recipe with other [model.image.experts]."
            fix = f"{hint}Known: {', '.join(known)}. {own}"
            problems.append(Problem(str(folder), f"has no expert {expert.name!r}, which the recipe reads", fix))
        elif (expert_files := read(folder / expert.name, problems)) is not None:
            width = expert_files.array.shape[1]
            if width != expert.width:
                what = f"has vectors of {width:,} values, but the recipe expects {expert.width:,} for this expert"
                fix = "Use the features that the recipe names, or your own recipe with other [model.image.experts]."
                problems.append(Problem(str(folder / expert.name / FEATURES), what, fix))
            experts.append(expert_files)
    return experts


def lacking(experts: Sequence[Expert], videos: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Report experts without vectors for any video of a split (an error), or for at most half of them (a note).

    Args:
        videos: names of the videos, by split.
    """
    problems = []
    for expert in experts:
        place, seen = str(expert.folder / VIDEOS), dict[str, int]()
        for split, listed in videos.items():
            seen[split] = int((expert.spans_of(listed)[:, 1] > 0).sum())
        if silent := [split for split, listed in videos.items() if listed and not seen[split]]:
            what = f"has no vectors for any video of {' and '.join(silent)}"
            problems.append(Problem(place, what, _fix_of_names(videos[silent[0]][0], expert.spans)))
        few = [split for split, listed in videos.items() if 0 < 2 * seen[split] <= len(listed)]
        if few:
            shares = ", ".join(f"{seen[split]:,} of {len(videos[split]):,} videos of {split}" for split in few)
            fix = "The other videos are read without this expert. Are its features complete?"
            problems.append(Problem(place, f"has vectors for only {shares}", fix, "note"))
    return problems


def _fix_of_names(video: str, known: Collection[str]) -> str:
    """Suggest how to fix a video missing from an expert, with the most similar name that the expert has."""
    within = [name for name in known if name and (name in video or video in name)]
    near = sorted(within, key=lambda name: abs(len(name) - len(video)))[:1] or nearest(video, known)
    if not near:
        return f"The first is {video!r}. Convert the features of these videos as well."
    return f"The first is {video!r}, and the most similar name here is {near[0]!r}: use the same names in both files."


def _spans(path: Path, problems: list[Problem]) -> dict[str, tuple[int, int]]:
    spans: dict[str, tuple[int, int]] = {}
    start, lines = 0, lines_of(path, "one video and its number of vectors per line", problems)
    for number, line in enumerate(lines, 1):
        name, _, count = line.rpartition(" ")
        if not name or not count.isdecimal():
            problems.append(Problem(f"{path}, line {number}", f"is {line!r}, not a video's name and a number", CONVERT))
            return {}
        spans[name] = start, int(count)
        start += int(count)
    if twice := repeated(line.rpartition(" ")[0] for line in lines):
        problems.append(Problem(str(path), f"names videos more than once: {shortened(twice)}", CONVERT))
    return spans
