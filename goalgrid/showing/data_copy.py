"""What `goalgrid data` says of a data set: where to get it and how it must look, and what is wrong with a copy."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from goalgrid.grid import catalog
from goalgrid.grid.errors.wording import counted
from goalgrid.grid.protocols import protocol

if TYPE_CHECKING:
    from goalgrid.retrieval.data.check import DataReport
    from goalgrid.retrieval.data.parts import Part
    from goalgrid.retrieval.splits.problems import Problem

ALIKE = 5
"""Problems with the same fix that are spelled out; further problems are counted (`--json` has all)."""


def guide(name: str, known: catalog.Dataset) -> list[str]:
    """Where to get a data set, how its folder may look, and how large it is."""
    lines, noun = [f"{name}: {known.description}"], f"{catalog.noun(name)}s"
    lines += [
        f"  {split:6}{size.images:>8,} {noun}{size.captions:>9,} captions" for split, size in known.splits.items()
    ]
    lines += [f"  protocol {name}: {protocol(name).description}" for name in known.protocols]
    if known.embedded:
        return [*lines, "", "Nothing to download: it is made on the spot."]
    lines += ["", "Where to get it"]
    for source in known.sources:
        size = f": {source.size}" if source.size else ""
        lines += [f"  {source.what}{size}", f"    {source.at}", *([f"    {source.note}"] if source.note else [])]
    lines += ["", "How DIR may look: one of"]
    for title, tree in known.trees.items():
        lines += [f"  {title}", *(f"    {line}" for line in tree.strip().splitlines())]
    more = [f"More: {known.page}"] if known.page else []
    return [*lines, "", f"Check your copy: goalgrid data check {name} --root DIR", *more]


def own_guide() -> list[str]:
    """How a folder with data of one's own may look, in each form."""
    from goalgrid.retrieval.data import precomp_files
    from goalgrid.retrieval.data.annotations import FORMATS

    trees = {title: form.tree for title, form in FORMATS.items() if form.tree} | {"features": precomp_files.TREE}
    trees |= {f"videos: {title}": tree for title, tree in catalog.dataset("msr-vtt").trees.items()}
    lines = ["Data of your own have any name that `goalgrid datasets` does not list. How DIR may look: one of", ""]
    for title, tree in trees.items():
        lines += [f"  {title}", *(f"    {line}" for line in tree.strip().splitlines())]
    grid = '[data.NAME] root = "DIR"'
    return [
        *lines,
        "",
        "Check it: goalgrid data check NAME --root DIR",
        f"In a grid file: {grid}. More: docs/data/own.md",
    ]


def lines(report: "DataReport") -> list[str]:
    """The problems of a copy, then its parts."""
    parts = [line for part in report.parts for line in _part(part)]
    place = f"{report.name} under {report.root}"
    if not report.problems:
        return [f"{place}: no problems", *parts]
    told = [f"{place}: {counted(len(report.problems), 'problem')}", ""]
    by_fix: dict[str, list[Problem]] = {}
    for problem in report.problems:
        by_fix.setdefault(problem.fix, []).append(problem)
    for fix, alike in by_fix.items():
        told += [f"- {problem.place}: {problem.what}" for problem in alike[:ALIKE]]
        told += [f"  and {len(alike) - ALIKE:,} more like it"] if len(alike) > ALIKE else []
        told += [f"  fix: {fix}", ""]
    return [*told, *parts]


def _part(part: "Part") -> list[str]:
    lines = [f"{part.format}: {part.path}"]
    for split, size in part.sizes.items():
        each = f"{size.least} / {size.mean:.2f} / {size.most} per {part.noun} (min / mean / max)"
        note = f"; {part.notes[split]}" if split in part.notes else ""
        lines.append(f"  {split:6}{size.images:>8,} {part.noun}s{size.captions:>9,} captions, {each}{note}")
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
