"""Features of experts as goalgrid reads them: a folder for each expert, whose array holds the vectors of all videos.

    experts/<expert>/features.npy   float16 or float32 (vectors, width), those of a video one below the other
    experts/<expert>/videos.txt     a video a line, in their order: its name and how many vectors it has
    experts/<expert>/times.npy      may be left out: float32 (vectors), the second in the middle of what each saw

An expert that saw nothing in a video does not name it, or gives it 0 vectors. The arrays are memory-mapped.
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
CONVERT = "Write the folder anew: goalgrid data convert SOURCE... --to DIR."


@dataclass(frozen=True, eq=False)
class Expert:
    """The vectors of an expert, which names the folder; by video, where its vectors begin, and how many there are."""

    folder: Path
    array: Float[np.ndarray, "n d"]
    times: Float[np.ndarray, " n"] | None
    spans: dict[str, tuple[int, int]]

    def spans_of(self, videos: Sequence[str]) -> Int[np.ndarray, "v 2"]:
        """Beginning and number of the vectors of each of these videos; (0, 0) where the expert saw nothing."""
        return np.array([self.spans.get(name, (0, 0)) for name in videos], dtype=np.int64).reshape(-1, 2)


def find(root: Path) -> Path | None:
    folder = root / "experts"
    return folder if next(folder.glob(f"*/{FEATURES}"), None) else None


def names(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob(f"*/{FEATURES}"))


def files(folder: Path) -> list[Path]:
    """The files that are read, whether they are there or not."""
    return [folder / name / file for name in names(folder) for file in (FEATURES, VIDEOS, TIMES)]


def read(folder: Path, problems: list[Problem]) -> Expert | None:
    """The features in the folder of an expert; None, and reported, where they cannot be read."""
    before = len(problems)
    array = array_at(folder / FEATURES, problems)
    spans = _spans(folder / VIDEOS, problems)
    times = array_at(folder / TIMES, problems) if (folder / TIMES).exists() else None
    if array is not None and (array.ndim != 2 or array.dtype not in FLOATS):
        what = f"is {array.dtype} {array.shape}, not float16 or float32 of shape (vectors, width)"
        problems.append(Problem(str(folder / FEATURES), what, CONVERT))
    listed = sum(count for _, count in spans.values())
    if array is not None and listed != len(array):
        what = f"names {listed:,} vectors, where {FEATURES} has {len(array):,}"
        problems.append(Problem(str(folder / VIDEOS), what, CONVERT))
    if array is not None and times is not None and times.shape != array.shape[:1]:
        what = f"has the shape {times.shape}; there are {len(array):,} vectors"
        problems.append(Problem(str(folder / TIMES), what, CONVERT))
    return None if array is None or len(problems) > before else Expert(folder, array, times, spans)


def chosen(folder: Path, reads: Sequence[ExpertRead], problems: list[Problem]) -> list[Expert]:
    """The experts that a model reads, in its order, each with vectors of the width that it reads."""
    known, experts = names(folder), list[Expert]()
    for expert in reads:
        if expert.name not in known:
            hint = "".join(f"Did you mean {near!r}? " for near in nearest(expert.name, known))
            own = "Convert its features, too, or take a recipe of your own with [model.image.experts]."
            fix = f"{hint}Known: {', '.join(known)}. {own}"
            problems.append(Problem(str(folder), f"has no expert {expert.name!r}, which the recipe reads", fix))
        elif (expert_files := read(folder / expert.name, problems)) is not None:
            width = expert_files.array.shape[1]
            if width != expert.width:
                what = f"has vectors of {width:,} values; the recipe reads {expert.width:,} of this expert"
                fix = "Take the features that the recipe names, or a recipe of your own with [model.image.experts]."
                problems.append(Problem(str(folder / expert.name / FEATURES), what, fix))
            experts.append(expert_files)
    return experts


def lacking(experts: Sequence[Expert], videos: Mapping[str, Sequence[str]]) -> list[Problem]:
    """Experts that saw none of a split's videos, a fault, or half of them at most, a note.

    Args:
        videos: by split, their names.
    """
    problems = []
    for expert in experts:
        place, seen = str(expert.folder / VIDEOS), dict[str, int]()
        for split, listed in videos.items():
            seen[split] = int((expert.spans_of(listed)[:, 1] > 0).sum())
        if silent := [split for split, listed in videos.items() if listed and not seen[split]]:
            what = f"names no video of {' and '.join(silent)} with vectors"
            problems.append(Problem(place, what, _fix_of_names(videos[silent[0]][0], expert.spans)))
        few = [split for split, listed in videos.items() if 0 < 2 * seen[split] <= len(listed)]
        if few:
            shares = ", ".join(f"{seen[split]:,} of {len(videos[split]):,} videos of {split}" for split in few)
            fix = "The others are read without this expert: are its features whole?"
            problems.append(Problem(place, f"has vectors of {shares}", fix, "note"))
    return problems


def _fix_of_names(video: str, known: Collection[str]) -> str:
    """What to do about a video that an expert does not name, with the name that is probably the same video's."""
    within = [name for name in known if name and (name in video or video in name)]
    near = sorted(within, key=lambda name: abs(len(name) - len(video)))[:1] or nearest(video, known)
    if not near:
        return f"The first is {video!r}. Convert the features of these videos, too."
    return f"The first is {video!r}, and the nearest name here is {near[0]!r}: write names alike in both files."


def _spans(path: Path, problems: list[Problem]) -> dict[str, tuple[int, int]]:
    spans: dict[str, tuple[int, int]] = {}
    start, lines = 0, lines_of(path, "a video and its number of vectors a line", problems)
    for number, line in enumerate(lines, 1):
        name, _, count = line.rpartition(" ")
        if not name or not count.isdecimal():
            problems.append(Problem(f"{path}, line {number}", f"is {line!r}, not a video and a number", CONVERT))
            return {}
        spans[name] = start, int(count)
        start += int(count)
    if twice := repeated(line.rpartition(" ")[0] for line in lines):
        problems.append(Problem(str(path), f"names videos more than once: {shortened(twice)}", CONVERT))
    return spans
