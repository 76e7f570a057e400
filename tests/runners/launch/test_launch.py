"""A launch, and what it leaves beside its trials."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record_cache
from goalgrid.runners.launch import LaunchOptions
from goalgrid.runners.launch.launch import Launch

from ...conftest import SMALL


def three() -> Grid:
    """A grid of three trials, as small as they can be."""
    small = [word for word in SMALL if word != "--set"]
    return load("demo", [*small, 'objectives=["con_con"]', "seeds=[0,1,2]", "train.epochs=1", "train.batch_size=1000"])


def test_a_launch_copies_what_tables_read_of_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_cache, "FEW", 2)
    grid = three()
    cells, home = expand(grid), Home(tmp_path)
    Launch(home, LaunchOptions(here=True)).run(grid, cells, trials_of(cells))
    copied = pq.read_table(home.summaries)["trial_id"].to_pylist()
    assert len(copied) == 2
    assert set(copied) < {trial.id for trial in trials_of(cells)}
