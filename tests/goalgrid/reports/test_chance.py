"""A cell that is no better than chance is nobody's best: in tables, effects, the report, the index and figures."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from goalgrid.grid.store.files import write_json_lines
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results.records import record

from ..conftest import Verb

NO_BEST = "All cells are no better than chance on the validation split, so none is best."
BOLD = {"markdown": r"\*\*[0-9.]+\*\*", "latex": r"\\textbf\{[0-9.]+\}"}


def rise_of_chance(folders: Sequence[TrialFolder]) -> None:
    """Let chance reach all that there is, as on a validation split of one image."""
    for folder in folders:
        rows = list(folder.rows())
        write_json_lines(folder.history, [*rows[:-1], {**rows[-1], "val_chance": 600.0}])


def test_where_no_trial_has_learnt_no_cell_is_best_anywhere(pair: Home, verb: Verb, tmp_path: Path) -> None:
    for kind, bold in BOLD.items():
        assert re.search(bold, verb("table", "demo", "--format", kind, runs=pair).stdout)
    rise_of_chance(pair.trials())
    for kind, bold in BOLD.items():
        table = verb("table", "demo", "--marks", "--format", kind, runs=pair).stdout
        assert not re.search(bold, table)
        assert NO_BEST in table
        assert "†" not in table
    effects = verb("effects", "demo", "--format", "markdown", runs=pair).stdout
    assert effects.count(NO_BEST) == 2
    assert "Best:" not in effects
    assert {block["best"] for block in json.loads(verb("effects", "demo", "--json", runs=pair).stdout)} == {""}
    assert "collapsed: 2 of 2 done" in verb("status", "demo", runs=pair).stdout
    folder = tmp_path / "web"
    verb("site", str(folder), runs=pair)
    for page in (folder / "index.html", folder / "grids" / "demo.html"):
        text = page.read_text(encoding="utf-8")
        assert f"2 cells x 1 seed: {NO_BEST.replace('All', 'all')}" in text
        assert "has the best" not in text
        assert "the best is" not in text


def test_a_cell_that_has_learnt_is_best_of_those_that_are_at_chance(pair: Home, verb: Verb) -> None:
    """The one at chance has the higher test metrics."""
    lost, learnt = pair.trials()
    (row,) = pq.ParquetFile(lost.record).read().to_pylist()
    record.write(lost.record, row | {f"test_{name}": 99.0 for name in record.METRICS})
    names = [json.loads(folder.settings.read_text())["objective"]["name"] for folder in (lost, learnt)]
    assert f"Best: {names[0]}" in verb("effects", "demo", runs=pair).stdout
    rise_of_chance([lost])
    assert f"Best: {names[1]}" in verb("effects", "demo", runs=pair).stdout
    table = verb("table", "demo", "--format", "markdown", runs=pair).stdout
    assert len(re.findall(BOLD["markdown"], table)) == 2
    assert "**99.0**" not in table
    assert "so none is best" not in table


@pytest.mark.parametrize("learnt", [True, False])
def test_the_verdict_is_of_the_checkpoint_that_counts(pair: Home, verb: Verb, learnt: bool) -> None:
    """A trial that learnt and later collapsed is no worse for it; its history ends at chance."""
    for folder in pair.trials():
        rows = list(folder.rows())
        write_json_lines(folder.history, [*rows[:-1], {**rows[-1], "val_rsum": 12.8}])
        (row,) = pq.ParquetFile(folder.record).read().to_pylist()
        record.write(folder.record, row | {"val_rsum": 230.0 if learnt else 12.8})
    assert ("collapsed" in verb("status", "demo", runs=pair).stdout) != learnt
    assert ("none is best" in verb("table", "demo", runs=pair).stdout) != learnt
