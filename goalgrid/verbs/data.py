"""`goalgrid data`: where to get a data set and how it must look, and what is wrong with one's own copy."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress as Bar

from goalgrid.planning.overview import home_at
from goalgrid.terminal.options import RUNS, GridName, Json, Override, Root, Runs, Weights
from goalgrid.terminal.views import err, say, show
from grid import catalog
from grid.errors import UserError, unknown
from grid.expansion import expand
from grid.gridfile import load
from grid.protocols import protocol

if TYPE_CHECKING:
    from retrieval.data.check import DataReport, Part, Problem

verbs = typer.Typer(
    help="Where to get data and how they must look; what is wrong with a copy.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PROBLEMS = 2
ALIKE = 5
"""Problems with one fix that are spelled out; the rest is counted (`--json` has all)."""
DataName = Annotated[str, typer.Argument(metavar="NAME", help="A data set's name, see `goalgrid datasets`.")]


@verbs.command()
def where(name: DataName) -> None:
    """Where to get a data set, how its folder may look, and how large it is. Needs no network."""
    if name not in catalog.names("datasets"):
        hint = "Data of your own may have any name and any of these forms: goalgrid data where flickr30k."
        raise UserError(unknown("data set", name, catalog.names("datasets"), hint=hint))
    for line in _guide(name, catalog.dataset(name)):
        show(line)


@verbs.command()
def check(
    name: DataName,
    root: Annotated[Path | None, typer.Option("--root", metavar="DIR", help="The folder of your copy.")] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Only open the headers of image files.")] = False,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Threads that decode images; default: one a CPU.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find everything that is wrong with a copy, each with its fix; exit code 2 where there is anything.

    A NAME that is not shipped is checked as your own data: against itself, not against official sizes.
    """
    if name in catalog.names("datasets") and catalog.dataset(name).embedded:
        say(f"{name} is made on the spot: there is no copy to check.")
        return
    if root is None:
        raise UserError(
            f"where is your copy of {name!r}? Give --root DIR. How it must look: goalgrid data where {name}"
        )
    from retrieval.data.check import check as look

    with Bar(console=err, transient=True, disable=not err.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=of)
            bar.update(tasks[what], completed=done)

        report = look(name, root.expanduser(), fast=fast, workers=workers or os.cpu_count() or 1, progress=progress)
    if as_json:
        show(json.dumps(_to_dict(report), indent=2))
    else:
        show("\n".join(_plain(line) for line in _told(report)))
    raise typer.Exit(PROBLEMS if report.problems else 0)


@verbs.command()
def features(
    grid: GridName,
    runs: Runs = RUNS,
    set_: Override = [],
    root: Root = [],
    weights: Weights = [],
) -> None:
    """Run the frozen backbones of a grid ahead of its trials, which else do so when the grid is run."""
    found = load(grid, set_, roots=root, weights=weights)
    from runners.launch.feature_extraction import compute_features, feature_jobs, sources

    jobs = feature_jobs(found, expand(found), home_at(runs))
    if not sources(jobs):
        say(f"{found.name}: no recipe has a frozen backbone whose features could be kept")
        return
    compute_features(jobs, err)
    for source, machine in sources(jobs):
        folder = source.folder(machine.features)
        size = sum(file.stat().st_size for file in folder.glob("*.npy")) / 1e6
        show(f"{folder}  {source.views():,} views of {source.name} by {source.backbone.weights}, {size:,.1f} MB")


def _guide(name: str, known: catalog.Dataset) -> list[str]:
    lines = [f"{name}: {known.description}"]
    lines += [
        f"  {split:6}{size.images:>8,} images{size.captions:>9,} captions" for split, size in known.splits.items()
    ]
    lines += [f"  protocol {each}: {protocol(each).description}" for each in known.protocols]
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


def _told(report: "DataReport") -> list[str]:
    """The report as a reader wants it: problems first, then what was found."""
    found = [line for part in report.parts for line in _part(part)]
    if not report.problems:
        return [f"{report.name} under {report.root}: no problems", *found]
    count = len(report.problems)
    lines = [f"{report.name} under {report.root}: {count} problem{'s' * (count > 1)}", ""]
    by_fix: dict[str, list[Problem]] = {}
    for problem in report.problems:
        by_fix.setdefault(problem.fix, []).append(problem)
    for fix, alike in by_fix.items():
        lines += [f"- {problem.place}: {problem.what}" for problem in alike[:ALIKE]]
        lines += [f"  and {len(alike) - ALIKE:,} more like it"] if len(alike) > ALIKE else []
        lines += [f"  fix: {fix}", ""]
    return [*lines, *found]


def _part(part: "Part") -> list[str]:
    lines = [f"{part.format}: {part.path}"]
    for split, size in part.sizes.items():
        each = f"{size.least} / {size.mean:.2f} / {size.most} per image (min / mean / max)"
        note = f"; {part.notes[split]}" if split in part.notes else ""
        lines.append(f"  {split:6}{size.images:>8,} images{size.captions:>9,} captions, {each}{note}")
    mark = f", fingerprint {part.fingerprint}" if part.fingerprint else ""
    return [*lines, f"  {part.bytes / 1e6:,.1f} MB on disk{mark}"]


def _to_dict(report: "DataReport") -> dict[str, Any]:
    """For `--json`."""
    return {
        "name": report.name,
        "root": str(report.root),
        "problems": [{"place": p.place, "what": p.what, "fix": p.fix} for p in report.problems],
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


def _plain(line: str) -> str:
    """Without characters that a terminal would obey or that cannot be written: names in a copy are untrusted."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)
