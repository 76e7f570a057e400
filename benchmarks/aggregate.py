"""From records to tables at scale: `python benchmarks/aggregate.py`.

Records: a grid of 100,000 trials, each with a record of 30 epochs, three million rows of history in all. The tables are
what `goalgrid table` prints, in processes of their own, from start to end: when no record was read before, again, and
after some trials were retrained. Collecting alone is measured beside pyarrow's reader, file by file. The page of
`goalgrid report` is that of a smaller grid.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from goalgrid.results.records.provenance import environment
from goalgrid.results.records.record_cache import Copying
from tests.browser import browser, visit

EPOCHS = 30
IMAGES = 100
"""Of the test set of the made-up records: with as many ranks as COCO's 5,000 images, they would take 70 GB."""
ANEW = 100


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
        "train_seconds": 1.0, "data_fingerprint": "d", "code_fingerprint": "c",
        "environment": json.dumps(environment("cpu", "", 1)),
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
        ours = record.collect(paths, record.SHORT)
    with timed(f"{count:,} records' summaries: pyarrow, file by file"):
        each = [pq.ParquetFile(path).read(columns=record.SHORT) for path in paths]
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
    home.summaries.unlink()
    with timed(f"copying {len(wanted):,} records as a launch writes them"), Copying(home) as copying:
        for trial in wanted:
            copying.note(home.trial(trial.id).record)
    command(f"{many}, first after such a launch", *words)
    leave(wanted[:ANEW], home)
    command(f"{many}, {ANEW} retrained", *words)
    leave(wanted[: 10 * ANEW], home)
    command(f"{many}, {10 * ANEW:,} retrained", *words)
    with timed(f"expanding {len(wanted):,} trials alone"):
        expand(load(str(path)))
    collected(folder, min(10_000, len(wanted)))


def report(folder: Path, trials: int) -> None:
    """Measure the page of a grid of so many trials: written first, written again, and opened in Chromium."""
    folder.mkdir()
    path, home = grid_of(trials, folder), Home(folder / "runs")
    wanted = trials_of(expand(load(str(path))))
    leave(wanted, home)
    words = ("report", str(path), "--output", str(folder / "report.html"), "--runs", str(home.path))
    command(f"`goalgrid report` of {len(wanted):,} trials, no record read before", *words)
    command(f"`goalgrid report` of {len(wanted):,} trials, again", *words)
    of = f"of {len(wanted):,} trials"
    command(f"`goalgrid compare` {of} with the same in another folder", "compare", str(path), *compared(home))
    command(f"`goalgrid export` {of}", "export", str(path), str(folder / "exported"), "--runs", str(home.path))
    page = folder / "report.html"
    driver = visit(browser(), page)
    opened = driver.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd")
    ready = driver.execute_script("document.querySelector('button.opens').click(); return performance.now()")
    driver.quit()
    seconds = f"{opened / 1000:.1f} s, and a cell of it after {ready / 1000:.1f} s"
    measuring.show([measuring.row("its page, opened", f"{seconds}, {page.stat().st_size / 1e6:.1f} MB")])


def compared(home: Home) -> list[str]:
    """The options that read the second grid from another folder."""
    other = home.path.with_name("other")
    other.symlink_to(home.path, target_is_directory=True)
    return ["--runs", str(home.path), "--other-runs", str(other), "--format", "csv", "--output", str(other) + ".csv"]


def main() -> None:
    """Measure and print tables for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--reported", type=int, default=225, help="trials of the grid whose report is written")
    parser.add_argument("--only", choices=("records", "report"))
    given = parser.parse_args()
    measuring.begin("pyarrow")
    with tempfile.TemporaryDirectory() as folder:
        if given.only in (None, "records"):
            tables(Path(folder), given.trials)
        if given.only in (None, "report"):
            report(Path(folder) / "report", given.reported)


if __name__ == "__main__":
    sys.exit(main())
