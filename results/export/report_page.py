"""The report of a grid: results and state as one HTML page, which opens from disk and needs no network."""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, Any

from goalgrid.grid.expansion import Cell
from goalgrid.grid.groups import grouped
from goalgrid.grid.protocols import JUDGED
from goalgrid.grid.store.home import Home
from goalgrid.results import figures
from goalgrid.results.analysis.block_analysis import Analysis, analyse, metrics_of
from goalgrid.results.analysis.documents import Document
from goalgrid.results.analysis.effects_text import document, finding, verdict
from goalgrid.results.analysis.factors import parts_of
from goalgrid.results.analysis.observations import marked
from goalgrid.results.analysis.queries import QueryRanks
from goalgrid.results.figures import Study
from goalgrid.results.layouts import arrange, natural
from goalgrid.results.layouts.captions import METRIC_NAMES, noun_of
from goalgrid.results.pages import page
from goalgrid.results.records import record_cache
from goalgrid.results.records.scores import Scores
from goalgrid.results.reference.matching import reported
from goalgrid.results.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRIALS_SHOWN = 2000
"""Trials that the page lists, at most; the records have all of them."""

CURVES = 500
"""Trials with whose curves a page can be opened and sent; of a grid that has more, the foremost blocks have curves."""

BLOCKS, FOREMOST = 6, 2
"""Blocks whose effects and figures a page or an export has; of a grid with more, that many with the best rsum."""

MANY = 500
"""Cells of which a page has one matrix, and not one of each metric."""

_PROVENANCE = (
    "trial_id", "dataset", "recipe", "objective", "seed", "selected_epoch", "epochs", "train_seconds",
    "data_fingerprint", "environment", "test_i2t_r1", "test_t2i_r1", "test_rsum",
)  # fmt: skip


@dataclass(frozen=True)
class Picture:
    alt: str
    source: str
    kind: str = ""
    """The word by which `goalgrid figures` draws it."""


@dataclass(frozen=True)
class OpenCell:
    """What a cell of a table shows when a reader opens it, beside its trials."""

    name: str
    verdict: str
    seeds: Mapping[str, int]
    """By trial id."""


@dataclass(frozen=True)
class Measured:
    """The results of the finished trials. Reading them is costly, and they change only when another trial is done."""

    findings: tuple[str, ...] = ()
    """A sentence for every block: the best cell, and the cells that cannot be told from it."""
    tables: Mapping[str, Mapping[str, Table]] = field(default_factory=dict)
    """By protocol, then by the title under which a reader chooses one."""
    against: Table | None = None
    """Our Recall@1 beside the papers'; None if no paper reports it."""
    effects: Document | None = None
    pictures: tuple[Picture, ...] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    """Columns of the record that the page shows of every finished trial."""
    provenance: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Device, versions, code and data of the trials: under each heading, the number of trials by value."""
    attention: tuple[Picture, ...] = ()
    no_attention: str = ""
    """Why there are no examples, where a trial could have some."""
    noun: str = "image"
    cells: Sequence[OpenCell] = ()
    curves: Mapping[str, Mapping[str, Mapping[int, float]]] = field(default_factory=dict)
    """Logged values: by trial id, then by name, then by epoch."""
    left_out: Sequence[str] = ()
    """A message for each record, or file beside it, that cannot be read, so that a figure lacks its trial."""
    narrowed: bool = False
    """Whether effects and figures are those of the foremost blocks alone."""

    @classmethod
    def of(cls, grid: str, cells: Sequence[Cell], scores: Scores, home: Home) -> "Measured":
        """Tables, effects and figures of the finished trials."""
        if not scores.rows:
            return cls()
        rows = record_cache.rows(home, scores.rows, _PROVENANCE)
        noted = grouped(chain.from_iterable(map(_noted, rows)))
        sums = analyse(cells, scores, None, ["rsum"])
        best = foremost(cells, sums)
        recalls = metrics_of("r1", "both")
        analyses = analyse(best, scores, QueryRanks.read(best, home), recalls)
        studies = Study.read(cells if len(rows) <= CURVES else best, scores, home)
        every = [Study(part, scores, {trial_id: {} for trial_id in scores.rows}, home) for part in parts_of(cells)]
        return cls(
            tuple(map(finding, sorted(sums, key=_top, reverse=True) if len(sums) > BLOCKS else sums)),
            dict(_tables(grid, cells, shown) for shown in (scores, *scores.further(cells, home))),
            arrange(cells, scores, against="paper") if reported(cells, scores, recalls).results else None,
            document(analyses, cells) if analyses else None,
            tuple(_pictures(studies, every, best)),
            rows,
            {heading: dict(Counter(texts).most_common()) for heading, texts in noted.items()},
            noun=noun_of(cells),
            cells=tuple(_opened(cells, sums)),
            curves=studies[0].histories if studies else {},
            narrowed=len(best) < len(cells),
        )


def _top(analysis: Analysis) -> float:
    return max(analysis.means)


def foremost(cells: Sequence[Cell], sums: Sequence[Analysis]) -> Sequence[Cell]:
    """All cells; of more than `BLOCKS` blocks, the cells of those with the best rsum."""
    if len(sums) <= BLOCKS:
        return cells
    titles = {analysis.title for analysis in sorted(sums, key=_top, reverse=True)[:FOREMOST]}
    return [cell for part in parts_of(cells) if part.title in titles for cell in part.cells.values()]


def _pictures(studies: Sequence[Study], every: Sequence[Study], best: Sequence[Cell]) -> Iterator[Picture]:
    """The figures of the foremost blocks, and of all blocks together."""
    titles = {part.title for part in parts_of(best)}
    shown = [study for study in studies if study.title in titles]
    for kind, known in figures.FIGURES.items():
        form = "png" if known.gather and len(every) > BLOCKS else "svg"  # a vector for each of thousands of marks
        for _, study, figure in figures.draw_all(every if known.gather else shown, [kind]):
            yield picture(f"{known.title}: {study.title}", figure, kind, form)


@dataclass(frozen=True)
class Standing:
    """The state of the grid, which changes while the grid runs."""

    headline: str
    states: Mapping[str, int]
    trials: Mapping[str, str]
    running: Sequence[str] = ()
    troubles: Sequence[Mapping[str, Any]] = ()
    """Groups of trials that failed for the same reason, as `goalgrid status --json` has them."""
    notes: Sequence[str] = ()
    """A line for every trial or group of trials that is collapsed, stale or left over."""


def rendered(measured: Measured, standing: Standing, **report: Any) -> str:
    """The page of these results and this state; `report` is what else `report.html` reads of a grid."""
    finished = {row["trial_id"]: row for row in measured.rows}

    def trial(trial_id: str, seed: int) -> dict[str, Any]:
        """A trial as the script reads it to open a cell; without a record, only its state."""
        record = _of_record(finished[trial_id], measured.curves.get(trial_id, {})) if trial_id in finished else {}
        return {"id": trial_id, "seed": seed, "state": standing.trials.get(trial_id, ""), **record}

    cells = [
        {"name": cell.name, "verdict": cell.verdict, "trials": [trial(*pair) for pair in cell.seeds.items()]}
        for cell in measured.cells
    ]
    return page(
        "report.html", report=report, measured=measured, standing=standing, finished=finished,
        shown=dict(list(standing.trials.items())[:TRIALS_SHOWN]), behind={"cells": cells},
        opens={trial: number for number, cell in enumerate(measured.cells) for trial in cell.seeds},
        curves=CURVES, foremost=FOREMOST, version=version("goalgrid"),
    )  # fmt: skip


def _of_record(row: Mapping[str, Any], logged: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    """Numbers of a finished trial, and its curves as columns of epochs and values."""
    metrics = [f"{row[f'test_{name}']:.1f}" for name in ("i2t_r1", "t2i_r1", "rsum")]
    epochs, seconds = f"{row['selected_epoch']} of {row['epochs']}", f"{row['train_seconds']:.1f}"
    curves = {
        name: [list(values), [float(f"{value:.5g}") if isfinite(value) else None for value in values.values()]]
        for name, values in logged.items()
    }
    return {"numbers": [*metrics, epochs, seconds, str(json.loads(row["environment"]).get("host"))], "curves": curves}


def _opened(cells: Sequence[Cell], analyses: Iterable[Analysis]) -> Iterator[OpenCell]:
    by_title = {analysis.title: analysis for analysis in analyses}
    for part in parts_of(cells):
        analysis = by_title.get(part.title)
        for name, cell in part.cells.items():
            words = verdict(analysis, name) if analysis and name in analysis.names else ""
            yield OpenCell(f"{name}, {part.title}", words, {trial.id: trial.settings.seed for trial in cell.trials})


def _tables(grid: str, cells: Sequence[Cell], scores: Scores) -> tuple[str, dict[str, Table]]:
    """The protocol, and by it a table of all metrics; for a grid in GOAL's matrix, before it, a matrix for each."""
    several = any(len(cell.trials) > 1 for cell in cells)
    titles = {metric: name.partition(" (")[0].partition(",")[0] for metric, name in METRIC_NAMES.items()}
    shown = [metric for metric in titles if metric not in JUDGED] if natural(cells, scores) == "goal" else []
    shown = shown[:1] if len(cells) > MANY else shown
    tables = {titles[metric]: (f"--metric {metric}", arrange(cells, scores, metric=metric)) for metric in shown}
    tables["all metrics"] = "--layout listing", arrange(cells, scores, layout="listing")
    by = f" --protocol {scores.protocol}" if scores.protocol else ""
    return ", ".join(dict.fromkeys(scores.protocol_of(cell) for cell in cells)), {
        title: replace(marked(table) if several else table, command=f"table {grid} {words}{by}")
        for title, (words, table) in tables.items()
    }


def picture(alt: str, figure: "Figure", kind: str = "", form: str = "svg") -> Picture:
    content = b64encode(figures.encoded(figure, form)).decode()
    return Picture(alt, f"data:image/{form}{'+xml' * (form == 'svg')};base64,{content}", kind)


def _noted(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    environment = json.loads(row["environment"])
    source = environment.get("source") or {}
    commit = f"{source['commit']}{', changed since' if source['dirty'] else ''}" if source else "not under git"
    threads = environment.get("threads")
    versions = {"python": environment.get("python"), **environment.get("versions", {})}
    return [
        ("device", f"{environment.get('device')}, {threads} thread{'s' * (threads != 1)}"),
        ("host", str(environment.get("host"))),
        ("platform", str(environment.get("platform"))),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("commit", commit),
        (f"data of {row['dataset']}, {row['recipe']}", row["data_fingerprint"]),
    ]
