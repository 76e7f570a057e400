"""rsum against speed: each point is what was measured."""

import shutil
from pathlib import Path

import pytest

from goalgrid.grid.expansion import trials_of
from goalgrid.grid.store.home import Home
from goalgrid.results.figures import FIGURES, Study
from goalgrid.results.records import record
from goalgrid.results.records.models import Speed
from goalgrid.results.records.scores import Scores


def test_a_point_is_the_measured_speed_and_the_mean_rsum(study: Study, traced: Home, tmp_path: Path) -> None:
    kind = FIGURES["speed"]
    (whole,) = kind.gather([study])
    assert kind.draw(whole) is None
    home, cells = Home(tmp_path / "runs"), list(study.part.cells.values())
    shutil.copytree(traced.path, home.path)
    trials = [trial.id for trial in trials_of(cells) if trial.id in study.histories]
    for place, pairs in ((0, 2_000_000.0), (1, 4_000_000.0)):
        Speed(pairs, 1.0, 43_280, 43_280, "a device", 2).write(home.trial(trials[place]).speed)
    (found,) = kind.gather(Study.read(cells, Scores.read(cells, home), home))
    drawn = kind.draw(found)
    assert drawn
    (axes,) = drawn.axes
    rows = record.collect([home.trial(trial).record for trial in trials]).to_pylist()
    means = [
        sum(row["test_rsum"] for row in rows if row["objective"] == name) / 2 for name in ("con_con", "sig-ms_cir")
    ]
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_marker() in "os"]
    assert points == [(3_000.0, pytest.approx(mean)) for mean in means]
    assert axes.get_xlabel() == "thousands of pairs scored per second, on a device, 2 threads"
    assert axes.get_legend_handles_labels()[1][0] == f"cnn-bow con_con, {rows[0]['parameters'] / 1e6:#.3g} M weights"
