"""Figures of single steps."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.results.figures import FIGURES, Study
from goalgrid.results.records import steps


def test_steps_are_drawn_as_the_mean_over_seeds_of_what_stands_beside_the_records(study: Study) -> None:
    drawn = FIGURES["steps"].draw(study)
    assert drawn
    panel, name = drawn.axes[0], "con_con"
    kept = [pq.read_table(study.home.trial(trial).trace).to_pydict() for trial in study.trials(name)]
    assert [own["step"] for own in kept] == [list(range(5, 21, 5))] * 2
    assert panel.get_ylabel().startswith("mean")  # no branch and no K in this grid
    (line,) = (line for line in panel.lines if line.get_color() == "#0072B2" or len(panel.lines) == 1)
    assert list(line.get_xdata()) == kept[0]["step"]
    np.testing.assert_allclose(line.get_ydata(), np.mean([own["delta_s"] for own in kept], axis=0))
    assert drawn.axes[-1].get_xlabel() == "step"


def test_without_a_trace_nothing_is_drawn_and_a_damaged_one_is_named(study: Study, tmp_path: Path) -> None:
    assert FIGURES["steps"].draw(Study(study.part, study.scores, {}, study.home)) is None
    (tmp_path / "trace.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(UserError, match=r"the trace .*trace\.parquet cannot be read"):
        steps.read(tmp_path / "trace.parquet")
    home, trials = Home(Path(shutil.copytree(study.home.path, tmp_path / "runs"))), study.trials("con_con")
    home.trial(trials[0]).trace.write_bytes(b"PAR1 cut off")
    said = list[str]()
    drawn = FIGURES["steps"].draw(replace(study, home=home, scores=replace(study.scores, leave=said.append)))
    assert drawn
    kept = pq.read_table(home.trial(trials[1]).trace).to_pydict()
    assert list(drawn.axes[0].lines[0].get_ydata()) == kept["delta_s"]
    assert [message.partition(" cannot")[0] for message in said] == [f"the trace {home.trial(trials[0]).trace}"]
