"""`goalgrid export`: everything a paper needs of a grid, in one folder that stands on its own."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from grid.expansion import Cell, trials_of
from grid.files import write_text, written_aside
from grid.gridfile import Grid
from grid.home import Home
from results import figures, record
from results.analysis import analyse, metrics_of
from results.findings import write_out
from results.layouts import arrange
from results.queries import Ranks
from results.renderers import write_all
from results.scores import Scores


def results(cells: Sequence[Cell], home: Home, path: Path) -> int:
    """Concatenate the records of all finished trials into one Parquet file; how many there are."""
    folders = [home.trial(trial.id) for trial in trials_of(cells)]
    done = [folder.record for folder in folders if folder.done.exists()]
    with written_aside(path) as aside, pq.ParquetWriter(aside, record.SCHEMA, compression="zstd") as writer:
        for part in record.parts(done):
            writer.write_table(part)
    return len(done)


def export(grid: Grid, cells: Sequence[Cell], home: Home, target: Path) -> None:
    """Write tables, figures, effects, records, settings, environments, the grid file, checksums and a README.

    Raises:
        UserError: the target cannot be written, or records cannot be read.
    """
    count = results(cells, home, target / "records.parquet")
    scores = Scores.read(cells, home)
    write_all(arrange(cells, scores), target / "tables")
    for protocol in scores.others(cells):
        write_all(arrange(cells, replace(scores, protocol=protocol)), target / "tables" / protocol)
    if scores.rows:
        found = analyse(cells, scores, Ranks.read(cells, home), metrics_of("r1", "both"))
        write_text(target / "effects.md", write_out(found, cells, "markdown"))
        figures.write(figures.Study.read(cells, scores, home), target / "figures", formats=("pdf", "svg", "png"))
    write_text(target / "grid.toml", grid.to_toml())
    for trial in trials_of(cells):
        folder = home.trial(trial.id)
        for source in (folder.settings, folder.environment, folder.history):
            if folder.done.exists():
                write_text(target / "trials" / trial.id / source.name, source.read_text(encoding="utf-8"))
    write_text(target / "README.md", _readme(grid, count, len(trials_of(cells))))
    files = sorted(path for path in target.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    sums = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(target)}\n" for path in files)
    write_text(target / "SHA256SUMS", "".join(sums))


def _readme(grid: Grid, done: int, wanted: int) -> str:
    return f"""# {grid.name}

{done} of {wanted} trials are done. Each number of a table comes from the trials named in its row of `tables/*.parquet`.

- `tables/`: the table as LaTeX, Markdown, CSV and Parquet; below it, by the data set's other protocols, if any
- `figures/`: the matrix, effects, learning curves and diagnostics, each as PDF, SVG and PNG
- `effects.md`: which axis matters, what differs from the baseline, and how sure that is
- `records.parquet`: one row a trial, with the rank of every test query; the columns' meaning stands in its schema
- `trials/`: settings, environment and history of each trial
- `grid.toml`: the grid; train it anew with `goalgrid run grid.toml`
- `SHA256SUMS`: check with `sha256sum -c SHA256SUMS`
"""
