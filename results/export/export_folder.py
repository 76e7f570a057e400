"""The folder that `goalgrid export` writes: everything about a grid that a paper needs."""

import json
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow.parquet as pq

from goalgrid.grid.errors import UserError, sha256_of
from goalgrid.grid.expansion import Cell
from goalgrid.grid.gridfile import Grid
from goalgrid.grid.groups import nested
from goalgrid.grid.notes import later
from goalgrid.grid.store.files import write_json, write_json_lines, write_text
from goalgrid.grid.store.home import Home, LaunchFolder, TrialFolder
from goalgrid.grid.store.kept_launch import KeptLaunch
from goalgrid.results import figures, pages, renderers
from goalgrid.results.analysis import fairness
from goalgrid.results.analysis.documents import Document, DocumentSection, Sheet, as_markdown
from goalgrid.results.export.report_page import FOREMOST, Measured
from goalgrid.results.export.staging import SUMS
from goalgrid.results.export.table_request import TableRequest
from goalgrid.results.records import record, record_cache
from goalgrid.results.records.scores import Score, Scores
from goalgrid.results.reference.matching import reported
from goalgrid.results.tables import Row, Table

Tables = Mapping[Path, Table]


def export(
    grid: Grid,
    cells: Sequence[Cell],
    measured: Measured,
    home: Home,
    target: Path,
    *,
    report: str,
    paper: str | None = None,
    filled: Table | None = None,
    only: str = "",
) -> None:
    """Write tables, figures, effects, records, settings, environments, grid file, launches, checksums and a README.

    Args:
        measured: the results of the finished trials.
        report: the grid's report as HTML.
        paper: name of a paper's table.
        filled: that table with our numbers; trials that it uses from other grids are exported as well.
        only: the filter that selected the trials.
    """
    scores = measured.scores
    values = [entry.score for entry in filled.entries() if isinstance(entry.score, Score)] if filled else []
    behind = dict.fromkeys(chain.from_iterable(value.trials for value in values))
    others = record_cache.rows(home, [trial_id for trial_id in behind if trial_id not in scores.rows], ["environment"])
    record.write_records([*scores.rows, *others], home, target / "records.parquet")
    tables = dict(_tables(TableRequest(grid.name, only=only), cells, scores, home))
    if grid.letters_faults:
        tables = {path: fairness.lettered(table, measured.fair) for path, table in tables.items()}
    tables |= {Path("tables", "paper", filled.name): filled} if filled else {}
    for path, table in tables.items():
        renderers.write_all(table, (target / path).parent)
    if filled and (sheet := _differences(filled)).rows:
        write_text(target / "differs.md", as_markdown(Document((DocumentSection(filled.command, (sheet,)),), ())))
    if measured.effects:
        write_text(target / "effects.md", as_markdown(measured.effects))
    if measured.fair:
        write_text(target / "fairness.md", as_markdown(fairness.document(measured.fair)))
        write_json(target / "fairness.json", [row.to_dict() for row in measured.fair])
    figures.write(measured.drawings, target / "figures", ("pdf", "svg", "png"))
    write_text(target / "report.html", report)
    write_text(target / "grid.toml", grid.to_toml())
    _write_trials(target)
    _copy_launches(home, grid.name, [*scores.rows], target)
    if chosen := [(cell, choice) for cell in cells for choice in cell.choices]:
        write_json(target / "choices.json", [cell.axes | choice.to_dict() for cell, choice in chosen])
        tried = [one for _, choice in chosen for one in choice.tried]
        done = [one.trial for one in tried if one.done]
        searched = [*done, *(name for one in tried for name, value in one.confirmed.items() if math.isfinite(value))]
        record.write_records(searched, home, target / "search.parquet", record.VALIDATED)
    if notes := grid.notes.markdown(later(home.grid(grid.name).notes)):
        write_text(target / "notes.md", notes)
    machines = Counter(_machine(row["environment"]) for row in (*measured.rows.values(), *others.values()))
    asked = TableRequest(grid.name, paper=paper, only=only)
    launched = (target / "launches").exists()
    write_text(target / "README.md", readme(asked, grid, cells, measured, tables, machines, bool(notes), launched))
    write_text(target / "trials.csv", trial_list(cells, scores))
    files = sorted(path for path in target.rglob("*") if path.is_file())
    write_text(target / SUMS, "".join(f"{sha256_of(path)}  {path.relative_to(target)}\n" for path in files))


def _differences(filled: Table) -> Sheet:
    """List how the training of each row of a paper's table differs from the paper's."""
    texts = [
        (f"{block.title}: {row.label.text}" if block.title else row.label.text, _differs(row))
        for block in filled.blocks
        for row in block.rows
    ]
    return Sheet("", ("row", "differs"), tuple((label, text) for label, text in texts if text))


def _differs(row: Row) -> str:
    return "; ".join(dict.fromkeys(entry.keys["differs"] for entry in row.entries if entry and "differs" in entry.keys))


def _write_trials(target: Path) -> None:
    """Write settings, environment and history of each trial, taken from the exported, checksummed records."""
    columns = ["trial_id", "settings", "environment", "history"]
    for batch in pq.ParquetFile(target / "records.parquet").iter_batches(record.PART, columns=columns):
        for row in batch.to_pylist():
            folder = TrialFolder(target / "trials" / row["trial_id"])
            logged = ((entry["epoch"], entry["name"], entry["value"]) for entry in row["history"])
            rows = nested((epoch, name, int(value) if name == "step" else value) for epoch, name, value in logged)
            write_json(folder.settings, json.loads(row["settings"]))
            write_json(folder.environment, json.loads(row["environment"]))
            write_json_lines(folder.history, [{"epoch": epoch, **values} for epoch, values in rows.items()])


def _copy_launches(home: Home, name: str, ids: Sequence[str], target: Path) -> None:
    """Copy the stored launches that trained these trials, with an archive of the code if the launch kept one."""
    latest = filter(None, (home.trial(trial_id).latest() for trial_id in ids))
    launched = {attempt.launch_id() for attempt in latest}
    for folder in home.grid(name).kept_launches():
        if folder.path.name in launched:
            with suppress(UserError):  # it was changed
                launch = KeptLaunch.read(folder)
                launch.write(LaunchFolder(target / "launches" / launch.id), launch.archive(folder))


def _tables(request: TableRequest, cells: Sequence[Cell], scores: Scores, home: Home) -> Iterator[tuple[Path, Table]]:
    """Yield the grid's table, and the comparison with papers if they report its cells, for each protocol."""
    for shown in (scores, *scores.further(cells, home)):
        folder = Path("tables", *([shown.protocol] if shown.protocol else []))
        asked = replace(request, protocol=shown.protocol)
        compared = [replace(asked, against="paper")] if reported(cells, shown, ["i2t_r1", "t2i_r1"]).results else []
        for table in (part.draw(cells, shown) for part in (asked, *compared)):
            yield folder / table.name, table


def readme(
    asked: TableRequest,
    grid: Grid,
    cells: Sequence[Cell],
    measured: Measured,
    tables: Tables,
    machines: Counter[str],
    noted: bool,
    launched: bool = False,
) -> str:
    """Write the README of an export: its contents, how to reproduce it, and which machines trained the trials."""
    only = f" --only {shlex.quote(asked.only)}" if asked.only else ""
    return pages.page(
        "export.md", name=asked.grid, example=_train(cells[0]), tables=tables, done=len(measured.rows),
        noted=noted, launched=launched,
        named=f"{asked.grid}{only}", reported=f"{f'--paper {asked.paper}' if asked.paper else asked.grid}{only}",
        only=only, machines=dict(machines.most_common()), others=machines.total() - len(measured.rows),
        wanted=len({trial.id for cell in cells for trial in cell.trials}),
        of_other_code=" ".join(measured.scores.of_other_code(cells)),
        effects=measured.effects is not None, fair=bool(measured.fair),
        differs=any(_differences(table).rows for table in tables.values()),
        drawn=", ".join(dict.fromkeys(kind for kind, _, _ in measured.drawings)),
        searched=any(cell.choices for cell in cells), files=[use.path for use in grid.uses if use.is_file],
        places=[*(f"--root {name}=DIR" for name in grid.data), *(f"--weights {name}=DIR" for name in grid.weights)],
        some=FOREMOST if measured.narrowed else 0,
    )  # fmt: skip


def trial_list(cells: Sequence[Cell], scores: Scores) -> str:
    """Write a CSV line for every cell and seed: id, axes, why a record is missing, and the training command."""
    rows = [
        {
            "trial_id": trial.id,
            **cell.axes,
            "seed": "" if cell.published else str(trial.settings.seed),
            "missing": dict(scores.of(cell, "rsum").missing).get(trial.id, ""),
            "command": _train(cell, trial.settings.seed),
        }
        for cell in cells
        for trial in cell.trials
    ]
    return renderers.csv.written(list(rows[0]), [list(row.values()) for row in rows])


def _train(cell: Cell, seed: int | None = None) -> str:
    """Return the command that trains the trial with this seed, or, without a seed, all trials of the cell."""
    if cell.published:
        return "goalgrid evaluate FILE --into GRID"
    words = [f"{name}={value}" for name, value in cell.axes.items()]
    only = " ".join(words if seed is None else [*words, f"seed={seed}"])
    return f"goalgrid run grid.toml --only {shlex.quote(only)}"


def _machine(text: str) -> str:
    environment = json.loads(text)
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return f"Python {environment['python']}, {versions}; {environment['device']}, {environment['platform']}"
