"""The report of a grid: results and state on one HTML page, which opens from disk and needs no network."""

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
from goalgrid.results.analysis import fairness
from goalgrid.results.analysis.block_analysis import Analysis, analyse, metrics_of
from goalgrid.results.analysis.documents import Document
from goalgrid.results.analysis.effects_text import document, finding, verdict
from goalgrid.results.analysis.factors import parts_of
from goalgrid.results.analysis.fairness import FairRow, fair_rows
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

Drawing = tuple[str, Study, "Figure"]
"""The kind of a figure, the block it shows, and the figure itself."""

TRIALS_SHOWN = 2000
"""Maximum number of trials that the page lists; the records contain all of them."""

CURVES = 500
"""Maximum number of trials whose curves are on the page; larger grids show curves for their best blocks only."""

BLOCKS, FOREMOST = 6, 2
"""A grid with more than BLOCKS blocks shows effects and figures only for the FOREMOST blocks with the best rsum."""

MANY = 500
"""Above this number of cells, the page shows one matrix instead of one per metric."""

_PROVENANCE = (
    "dataset", "recipe", "selected_epoch", "epochs", "train_seconds", "data_fingerprint", "environment",
    "test_i2t_r1", "test_t2i_r1", "test_rsum",
)  # fmt: skip


@dataclass(frozen=True)
class Picture:
    alt: str
    source: str
    kind: str = ""
    """Its name for `goalgrid figures`."""


@dataclass(frozen=True)
class Measured:
    """The results of the finished trials. Reading them is slow; they change only when another trial finishes."""

    findings: tuple[str, ...] = ()
    """One sentence per block: the best cell, and the cells not distinguishable from it."""
    conditions: tuple[str, ...] = ()
    """For each block, the settings chosen on the validation split, and the settings in which its cells differ."""
    tables: Mapping[str, Mapping[str, Table]] = field(default_factory=dict)
    """Tables, first by protocol, then by the title in the page's menu."""
    against: Table | None = None
    """Our Recall@1 next to the papers'; None if no paper reports these cells."""
    effects: Document | None = None
    fair: tuple[FairRow, ...] = ()
    """The fairness check: one row per cell."""
    pictures: tuple[Picture, ...] = ()
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Record columns that the page shows, for each finished trial by id."""
    provenance: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Device, versions, code and data of the trials: for each heading, the number of trials per value."""
    attention: tuple[Picture, ...] = ()
    no_attention: str = ""
    """Why no examples are shown, if a trial could have some."""
    noun: str = "image"
    cells: Sequence[Mapping[str, Any]] = ()
    """Details shown when a reader opens a cell: its name, a verdict, and its trials."""
    left_out: Sequence[str] = ()
    """One message for each unreadable record or adjacent file, whose trial is therefore missing from a figure."""
    narrowed: bool = False
    """Whether effects and figures are shown only for the best blocks."""
    scores: Scores = field(default_factory=lambda: Scores({}))
    drawings: tuple[Drawing, ...] = ()
    """The figures that the pictures show."""

    @classmethod
    def of(cls, grid: str, cells: Sequence[Cell], scores: Scores, home: Home) -> "Measured":
        """Build tables, effects and figures from the finished trials."""
        if not scores.rows:
            return cls(scores=scores)
        rows = record_cache.rows(home, scores.rows, _PROVENANCE)
        noted = grouped(chain.from_iterable(map(_noted, rows.values())))
        sums = analyse(cells, scores, None, ["rsum"])
        best = cells
        if len(sums) > BLOCKS:  # the foremost come first, and have effects and figures
            sums.sort(key=lambda analysis: max(analysis.means), reverse=True)
            titles = {analysis.title for analysis in sums[:FOREMOST]}
            best = [cell for part in parts_of(cells) if part.title in titles for cell in part.cells.values()]
        recalls = metrics_of("r1", "both")
        analyses = analyse(best, scores, QueryRanks.read(best, home), recalls)
        studies = Study.read(cells if len(rows) <= CURVES else best, scores, home)
        no_history: dict[str, dict[str, dict[int, float]]] = {trial_id: {} for trial_id in scores.rows}
        every = [Study(part, scores, no_history, home) for part in parts_of(cells)]
        drawings = tuple(_drawings(studies, every, best))
        return cls(
            tuple(map(finding, sums)),
            tuple(" ".join(analysis.conditions) for analysis in sums),
            dict(_tables(grid, cells, shown) for shown in (scores, *scores.further(cells, home))),
            arrange(cells, scores, against="paper") if reported(cells, scores, recalls).results else None,
            document([replace(analysis, conditions=()) for analysis in analyses], best) if analyses else None,
            tuple(fair_rows(best, scores, home)),
            tuple(_pictures(drawings, blocks=len(every))),
            rows,
            {heading: dict(Counter(texts).most_common()) for heading, texts in noted.items()},
            noun=noun_of(cells),
            cells=tuple(_opened(cells, sums, rows, studies[0].histories if studies else {})),
            narrowed=len(best) < len(cells),
            scores=scores,
            drawings=drawings,
        )


def _drawings(studies: Sequence[Study], every: Sequence[Study], best: Sequence[Cell]) -> Iterator[Drawing]:
    """Draw the figures of the best blocks, and those that combine all blocks."""
    titles = {part.title for part in parts_of(best)}
    shown = [study for study in studies if study.title in titles]
    for kind, known in figures.FIGURES.items():
        yield from figures.draw_all(every if known.gather else shown, [kind])


def _pictures(drawings: Iterable[Drawing], *, blocks: int) -> Iterator[Picture]:
    for kind, study, figure in drawings:
        known = figures.FIGURES[kind]
        form = "png" if known.gather and blocks > BLOCKS else "svg"  # a vector for each of thousands of marks
        yield picture(f"{known.title}: {study.title}", figure, kind, form)


def rendered(measured: Measured, standing: Mapping[str, Any], **report: Any) -> str:
    """Render the page from the results, the current state (`standing`) and other contents (`report`)."""
    states = standing["trials"]
    cells = [
        {**cell, "trials": [{**trial, "state": states.get(trial["id"], "")} for trial in cell["trials"]]}
        for cell in measured.cells
    ]
    return page(
        "report.html", report=report, measured=measured, standing=standing,
        fairness=fairness.document(measured.fair) if measured.fair else None,
        shown=dict(list(states.items())[:TRIALS_SHOWN]), behind={"cells": cells},
        opens={trial["id"]: number for number, cell in enumerate(cells) for trial in cell["trials"]},
        curves=CURVES, foremost=FOREMOST, version=version("goalgrid"),
    )  # fmt: skip


def _of_record(row: Mapping[str, Any] | None, logged: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    """Return a finished trial's numbers, and its curves as lists of epochs and values; empty for other trials."""
    if row is None:
        return {}
    metrics = [f"{row[f'test_{name}']:.1f}" for name in ("i2t_r1", "t2i_r1", "rsum")]
    epochs, seconds = f"{row['selected_epoch']} of {row['epochs']}", f"{row['train_seconds']:.1f}"
    curves = {
        name: [list(values), [float(f"{value:.5g}") if isfinite(value) else None for value in values.values()]]
        for name, values in logged.items()
    }
    return {"numbers": [*metrics, epochs, seconds, str(json.loads(row["environment"]).get("host"))], "curves": curves}


def _opened(
    cells: Sequence[Cell],
    analyses: Iterable[Analysis],
    rows: Mapping[str, Mapping[str, Any]],
    histories: Mapping[str, Mapping[str, Mapping[int, float]]],
) -> Iterator[dict[str, Any]]:
    """Yield the cells as the page's script reads them, except for the states of their trials."""
    by_title = {analysis.title: analysis for analysis in analyses}
    for part in parts_of(cells):
        analysis = by_title.get(part.title)
        for name, cell in part.cells.items():
            trials = [
                {"id": trial.id, "seed": trial.settings.seed}
                | _of_record(rows.get(trial.id), histories.get(trial.id, {}))
                for trial in cell.trials
            ]
            words = verdict(analysis, name) if analysis and name in analysis.names else ""
            yield {"name": f"{name}, {part.title}", "verdict": words, "trials": trials}


def _tables(grid: str, cells: Sequence[Cell], scores: Scores) -> tuple[str, dict[str, Table]]:
    """Return the protocol, and its tables by title: for GOAL's matrix, one matrix per metric; then all metrics."""
    several = any(len(cell.trials) > 1 for cell in cells)
    titles = {metric: name.partition(" (")[0].partition(",")[0] for metric, name in METRIC_NAMES.items()}
    shown = [metric for metric in titles if metric not in JUDGED] if natural(cells, scores) == "goal" else []
    shown = shown[:1] if len(cells) > MANY else shown
    tables = {titles[metric]: (f"--metric {metric}", arrange(cells, scores, metric=metric)) for metric in shown}
    tables["all metrics"] = "--layout listing", arrange(cells, scores, layout="listing")
    by = f" --protocol {scores.protocol}" * bool(scores.protocol) + " --marks" * several
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
    commit = source["commit"] if source else "not under git"
    if source and source["dirty"]:
        commit = f"{commit}, changed since"
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
