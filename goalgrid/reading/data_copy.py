"""What `goalgrid data check` says of a copy of a data set: what is wrong with it, and what it holds."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from goalgrid.grid.errors.wording import counted

if TYPE_CHECKING:
    from goalgrid.retrieval.data.check import DataReport
    from goalgrid.retrieval.data.parts import Part
    from goalgrid.retrieval.splits.problems import Problem

ALIKE = 5
"""Problems with the same fix that are spelled out; further problems are counted (`--json` has all)."""


def lines(report: "DataReport") -> list[str]:
    """The problems of a copy, then its parts."""
    parts = [line for part in report.parts for line in _part(part)]
    place = f"{report.name} under {report.root}"
    if not report.problems:
        return [f"{place}: no problems", *parts]
    text = [f"{place}: {counted(len(report.problems), 'problem')}", ""]
    by_fix: dict[str, list[Problem]] = {}
    for problem in report.problems:
        by_fix.setdefault(problem.fix, []).append(problem)
    for fix, alike in by_fix.items():
        text += [f"- {problem.place}: {problem.what}" for problem in alike[:ALIKE]]
        text += [f"  and {len(alike) - ALIKE:,} more like it"] if len(alike) > ALIKE else []
        text += [f"  fix: {fix}", ""]
    return [*text, *parts]


def _part(part: "Part") -> list[str]:
    lines = [f"{part.format}: {part.path}"]
    for split, size in part.sizes.items():
        spread = f"{size.least} / {size.mean:.2f} / {size.most} per {part.noun} (min / mean / max)"
        note = f"; {part.notes[split]}" if split in part.notes else ""
        lines.append(f"  {split:6}{size.images:>8,} {part.noun}s{size.captions:>9,} captions, {spread}{note}")
    mark = f", fingerprint {part.fingerprint}" if part.fingerprint else ""
    return [*lines, f"  {part.bytes / 1e6:,.1f} MB on disk{mark}"]


def to_dict(report: "DataReport") -> dict[str, Any]:
    return {
        "name": report.name,
        "root": str(report.root),
        "problems": [asdict(problem) for problem in report.problems],
        "parts": [
            {
                "format": part.format,
                "path": str(part.path),
                "splits": {
                    split: {
                        "images": size.images,
                        "captions": size.captions,
                        "captions_per_image": {"min": size.least, "mean": size.mean, "max": size.most},
                        "features": part.notes.get(split),
                    }
                    for split, size in part.sizes.items()
                },
                "bytes": part.bytes,
                "fingerprint": part.fingerprint or None,
            }
            for part in report.parts
        ],
    }
