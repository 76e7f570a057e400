"""Comparing two runs: what differs is named, and when and where they ran is no difference."""

import shutil
from pathlib import Path

import pytest

from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from goalgrid.results.records.record import differences


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [("finished_at", "tomorrow", ""), ("test_i2t_ranks", [1], "test_i2t_ranks"), ("val_rsum", 1.0, "val_rsum")],
)
def test_what_differs_is_named(trained: Home, tmp_path: Path, column: str, value: object, expected: str) -> None:
    cells = expand(load(str(trained.grid("demo").grid)))
    shutil.copytree(trained.path, tmp_path / "other")
    other = Home(tmp_path / "other")
    changed = other.trial(cells[0].trials[0].id)
    (row,) = record.collect([changed.record]).to_pylist()
    record.write(changed.record, row | {column: value})
    assert differences(cells, trained, other) == ([f"{changed.trial_id}: {expected} differs"] if expected else [])
    changed.done.unlink()
    assert differences(cells, trained, other) == [f"{changed.trial_id}: done in only one of the runs"]
