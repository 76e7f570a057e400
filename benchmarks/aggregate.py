"""From records to tables at scale: `python benchmarks/aggregate.py`.

Metrics: ten million rows (2 data sets x 6 backbones x 15 objectives x 3 seeds x 12 metrics x 1,543 steps, Parquet with
zstd) grouped to mean and standard deviation of 2,160 cells, each engine in a process of its own, with what its memory
grows by at most while it does so, its import left out.

Records: a grid of 100,000 trials, each with a record of 30 epochs, three million rows of history in all. The tables are
what `goalgrid table` prints, in processes of their own, from start to end: when no record was read before, again, and
after some trials were trained anew. Collecting alone is measured beside pyarrow's reader, file by file. The page of
`goalgrid report` is that of a smaller grid.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record, record_cache

AXES = {"dataset": 2, "recipe": 6, "objective": 15, "seed": 3, "metric": 12, "step": 1543}
CELL = ("dataset", "recipe", "objective", "metric")
SECONDS_GOAL, MEMORY_GOAL = 0.6, 150.0
EPOCHS = 30
IMAGES = 100
"""Of the test set of the made-up records: with as many ranks as COCO's 5,000 images, they would take 70 GB."""
ANEW = 100


def metric_rows(path: Path) -> None:
    """Write the metric rows, a row group a data set and backbone."""
    rng = np.random.default_rng(0)
    names = ("seed", "metric", "step")
    inner = np.meshgrid(*(np.arange(AXES[name], dtype=np.int32) for name in ("objective", *names)), indexing="ij")
    columns = {name: values.ravel() for name, values in zip(("objective", *names), inner, strict=True)}
    writer = None
    for dataset, recipe in itertools.product(range(AXES["dataset"]), range(AXES["recipe"])):
        size = len(columns["step"])
        texts = {"dataset": np.full(size, dataset), "recipe": np.full(size, recipe)}
        texts |= {name: columns[name] for name in ("objective", "metric")}
        table = pa.table({
            **{name: pa.array(np.char.add(f"{name}-", np.arange(AXES[name]).astype(str))).take(pa.array(codes))
               for name, codes in texts.items()},
            "seed": columns["seed"], "step": columns["step"],
            "value": 40 + rng.normal(size=size) + columns["objective"],
        })  # fmt: skip
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()


def by_duckdb(path: str) -> list[float]:
    """Standard deviations of all cells."""
    import duckdb

    names = ", ".join(CELL)
    query = f"SELECT avg(value), stddev_samp(value) FROM read_parquet($1) GROUP BY {names}"
    return [std for _, std in duckdb.execute(query, [path]).fetchall()]


def by_pyarrow(path: str) -> list[float]:
    """Standard deviations of all cells, names read as dictionaries."""
    table = pq.read_table(path, columns=[*CELL, "value"], read_dictionary=list(CELL)).unify_dictionaries()
    options = pc.VarianceOptions(ddof=1)
    found = table.group_by(CELL).aggregate([("value", "mean"), ("value", "stddev", options)])
    return list(found["value_stddev"].to_pylist())


def by_pandas(path: str) -> list[float]:
    """Standard deviations of all cells, names as categories."""
    import pandas as pd

    table = pq.read_table(path, columns=[*CELL, "value"], read_dictionary=list(CELL)).unify_dictionaries()
    frame: pd.DataFrame = table.to_pandas()
    return list(frame.groupby(list(CELL), observed=True)["value"].agg(["mean", "std"])["std"])


ENGINES: dict[str, Callable[[str], list[float]]] = {"duckdb": by_duckdb, "pyarrow": by_pyarrow, "pandas": by_pandas}


def engine(name: str, path: str) -> None:
    """Print what grouping took in this process: seconds, those of its processors, MB more than before, a check sum."""
    __import__(name)
    found = list[float]()
    started, worked = time.perf_counter(), time.process_time()
    megabytes = measuring.peak_megabytes(lambda: found.extend(ENGINES[name](path)))
    took = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - worked}
    print(json.dumps({**took, "mb": megabytes, "cells": len(found), "sum": sum(found)}))


def metrics(folder: Path, repeats: int) -> None:
    """Measure all engines, alternating, and print the best of each."""
    path = folder / "metrics.parquet"
    metric_rows(path)
    size = pq.ParquetFile(path).metadata.num_rows
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ENGINES}
    for _, name in itertools.product(range(repeats), ENGINES):
        command = [sys.executable, __file__, "--engine", name, str(path)]
        runs[name].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    sums = [run["sum"] for each in runs.values() for run in each]
    assert np.allclose(sums, sums[0]), sums
    assert {run["cells"] for each in runs.values() for run in each} == {2160}
    best = {name: min(each, key=lambda run: run["seconds"]) for name, each in runs.items()}
    ours, what = best["duckdb"], f"{size:,} metric rows to 2,160 cells"
    spent = f"{ours['seconds']:.2f} s"
    rows = [
        measuring.row(what, spent, goal=f"<= {SECONDS_GOAL} s", met=ours["seconds"] <= SECONDS_GOAL),
        measuring.row(
            f"{what}: memory", f"{ours['mb']:.0f} MB", goal=f"<= {MEMORY_GOAL:.0f} MB", met=ours["mb"] <= MEMORY_GOAL
        ),
    ]
    for name in ("pyarrow", "pandas"):
        peer, ratio = best[name], best[name]["seconds"] / ours["seconds"]
        rows.append(
            measuring.row(
                what, spent, peer=f"{peer['seconds']:.2f} s and {peer['mb']:.0f} MB, {name}", ratio=f"{ratio:.1f}x"
            )
        )
    measuring.show(rows)


def grid_of(trials: int, folder: Path) -> Path:
    """A grid file of so many trials: GOAL's matrix with three seeds at as many learning rates as it takes."""
    rates = ", ".join(f"{1e-6 * number:.6f}" for number in range(1, trials // 45 + 1))
    path = folder / "many.toml"
    path.write_text(
        'name = "many"\ndatasets = ["shapes"]\nrecipes = ["cnn-bow"]\nobjectives = "goal"\nseeds = [0, 1, 2]\n'
        f'[set]\n"train.epochs" = {EPOCHS}\n[sweep]\n"train.lr" = [{rates}]\n'
    )
    return path


def records_of(trials: list[Trial]) -> Iterator[pa.Table]:
    """A record of each, in tables of a thousand."""
    rng = np.random.default_rng(0)
    history = [{"epoch": epoch, "name": "val_rsum", "value": float(epoch)} for epoch in range(1, EPOCHS + 1)]
    same = {
        "selection": "best-val-rsum", "selected_epoch": EPOCHS, "epochs": EPOCHS, "steps": 20 * EPOCHS,
        "test_i2t_ranks": list(range(IMAGES)), "test_t2i_ranks": list(range(5 * IMAGES)), "history": history,
        "train_seconds": 1.0, "data_fingerprint": "d", "code_fingerprint": "c", "environment": "{}",
        "finished_at": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    for start in range(0, len(trials), 1000):
        rows = []
        for trial in trials[start : start + 1000]:
            s, value = trial.settings, 40 + float(rng.normal())
            own = {"dataset": s.dataset.name, "protocol": s.dataset.protocol, "recipe": s.recipe, "seed": s.seed}
            own |= {"objective": s.objective.name, "variant": s.objective.variant, "settings": s.model_dump_json()}
            values = {f"{split}_{name}": value for split in ("val", "test") for name in record.METRICS}
            rows.append({"trial_id": trial.id, **own, **same, **values})
        yield pa.Table.from_pylist(rows, schema=record.SCHEMA)


def leave(trials: list[Trial], home: Home) -> None:
    """Make the folders that these trials would leave, without waiting for the disk at every file."""
    places = iter(trials)
    for table in records_of(trials):
        for row in range(table.num_rows):
            folder = home.trial(next(places).id)
            folder.path.mkdir(parents=True, exist_ok=True)
            aside = folder.path / "aside"
            pq.write_table(table.slice(row, 1), aside, compression="zstd")
            aside.replace(folder.record)
            folder.done.touch()


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print what the block took."""
    started, worked = time.perf_counter(), time.process_time()
    yield
    spent = f"{time.perf_counter() - started:.1f} s, {time.process_time() - worked:.1f} s of CPU"
    measuring.show([measuring.row(what, spent)])


def command(what: str, *words: str) -> None:
    """Print what a command took."""
    spent = measuring.goalgrid(*words)
    measuring.show([measuring.row(what, f"{spent.seconds:.1f} s, {spent.cpu:.1f} s of CPU, {spent.megabytes:.0f} MB")])


def collected(folder: Path, count: int) -> None:
    """Measure collecting in this process: so many records, one by one by pyarrow, and as the product does."""
    paths = sorted(folder.glob("runs/trials/*/record.parquet"))[:count]
    for path in paths:
        path.read_bytes()  # so that neither reader is the one that waits for the disk
    with timed(f"{count:,} records' summaries: goalgrid"):
        ours = record.collect(paths, record_cache.COLUMNS)
    with timed(f"{count:,} records' summaries: pyarrow, file by file"):
        each = [pq.ParquetFile(path).read(columns=record_cache.COLUMNS) for path in paths]
        theirs = pa.concat_tables(each)
    assert ours.equals(theirs.combine_chunks())


def tables(folder: Path, trials: int) -> None:
    """Measure tables of a grid of so many trials."""
    path, home = grid_of(trials, folder), Home(folder / "runs")
    wanted = trials_of(expand(load(str(path))))
    leave(wanted, home)
    many = f"`goalgrid table` of {len(wanted):,} trials"
    words = ("table", str(path), "--format", "csv", "--runs", str(home.path))
    command(f"{many}, no record read before", *words)
    command(f"{many}, again", *words)
    leave(wanted[:ANEW], home)
    command(f"{many}, {ANEW} trained anew", *words)
    leave(wanted[: 10 * ANEW], home)
    command(f"{many}, {10 * ANEW:,} trained anew", *words)
    with timed(f"expanding {len(wanted):,} trials alone"):
        expand(load(str(path)))
    collected(folder, min(10_000, len(wanted)))


def report(folder: Path, trials: int) -> None:
    """Measure the page of a grid of so many trials."""
    folder.mkdir()
    path, home = grid_of(trials, folder), Home(folder / "runs")
    wanted = trials_of(expand(load(str(path))))
    leave(wanted, home)
    words = ("report", str(path), "--output", str(folder / "report.html"), "--runs", str(home.path))
    command(f"`goalgrid report` of {len(wanted):,} trials", *words)


def main() -> None:
    """Measure and print tables for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--reported", type=int, default=225, help="trials of the grid whose report is written")
    parser.add_argument("--repeats", type=int, default=3, help="of the grouping, of which the best counts")
    parser.add_argument("--only", choices=("metrics", "records", "report"))
    parser.add_argument("--engine", nargs=2, metavar=("NAME", "FILE"), help="group in this process")
    given = parser.parse_args()
    if given.engine:
        engine(*given.engine)
        return
    measuring.begin("duckdb", "pyarrow", "pandas")
    with tempfile.TemporaryDirectory() as folder:
        if given.only in (None, "metrics"):
            metrics(Path(folder), given.repeats)
        if given.only in (None, "records"):
            tables(Path(folder), given.trials)
        if given.only in (None, "report"):
            report(Path(folder) / "report", given.reported)


if __name__ == "__main__":
    sys.exit(main())
