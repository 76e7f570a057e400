"""Cells that lack values: each knows why, by the state of its trials, and the caption and the tidy export say it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import Home, State
from goalgrid.results.layouts import arrange
from goalgrid.results.records.scores import NEVER_RUN, Scores
from goalgrid.results.renderers import parquet

from ...conftest import SMALL
from ...states import attempt, fail, interrupt


@pytest.fixture
def home(trained: Home, tmp_path: Path) -> Home:
    """A copy of four finished trials, to be changed."""
    return Home(Path(shutil.copytree(trained.path, tmp_path / "runs")))


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    """Three cells of three seeds, of which two cells have two finished trials each."""
    axes = ['objectives=["con_con","sig-ms_cir","lin_con"]', "seeds=[0,1,2]"]
    return expand(load("demo", [*axes, *(word for word in SMALL if word != "--set")]))


def why(scores: Scores, cells: list[Cell]) -> Iterator[str]:
    for cell in cells:
        yield from (reason for _, reason in scores.of(cell, "rsum").missing)


def test_every_state_is_a_reason(home: Home, cells: list[Cell]) -> None:
    con, sig, lin = cells
    fail(home.trial(con.trials[1].id), Failure.OUT_OF_MEMORY, "full")
    interrupt(home.trial(sig.trials[0].id), epoch=1, step=23)
    attempt(home.trial(sig.trials[2].id))
    home.trial(lin.trials[0].id).path.mkdir()
    scores = Scores.read(cells, home)
    never = NEVER_RUN
    assert list(why(scores, cells)) == ["failed (out-of-memory)", never, "interrupted", "running", never, never, never]
    table = arrange(cells, scores)
    assert table.caption.endswith(
        "1 of 3 cells are missing (--); 2 of 3 cells lack seeds (n/expected): "
        "4 trials never run, 1 failed (out-of-memory), 1 interrupted, 1 running."
    )
    rows = parquet.tidy(table).to_pylist()
    first = next(row for row in rows if row["objective"] == "con_con")
    assert first["missing"] == f"{con.trials[1].id} failed (out-of-memory); {con.trials[2].id} never run"
    assert {len(row["trials"]) + row["missing"].count(";") + 1 for row in rows} == {3}


def test_a_failure_that_nobody_classified_is_a_failure(home: Home, cells: list[Cell]) -> None:
    folder = home.trial(cells[0].trials[2].id)
    folder.path.mkdir()
    folder.error.write_text("it broke\n")
    assert next(why(Scores.read(cells, home), cells)) == "failed"


def test_a_record_without_the_protocol_says_so(trained: Home, cells: list[Cell]) -> None:
    scores = Scores.read(cells[:1], trained)
    older = {trial_id: {**row, "protocol": "another"} for trial_id, row in scores.rows.items()}
    score = Scores(older).of(cells[0], "rsum")
    assert [reason for _, reason in score.missing] == ["not evaluated by shapes-500"] * 2 + [NEVER_RUN]


def test_a_whole_cell_misses_nothing(trained: Home) -> None:
    whole = expand(load("demo", ['objectives=["con_con"]', "seeds=[0,1]", *[w for w in SMALL if w != "--set"]]))
    table = arrange(whole, Scores.read(whole, trained))
    assert "cells" not in table.caption
    assert parquet.tidy(table)["missing"].null_count == 2


def test_trials_that_were_never_begun_are_planned(trained: Home, cells: list[Cell]) -> None:
    ids = [trial.id for cell in cells for trial in cell.trials]
    states, nowhere = trained.states(ids), Home(trained.path / "none").states(ids)
    begun = {name for name, state in states.items() if state is not State.PLANNED}
    assert begun == {path.name for path in (trained.path / "trials").iterdir()} < states.keys()
    assert nowhere == dict.fromkeys(ids, State.PLANNED)


def test_a_trial_of_two_cells_is_counted_once(trained: Home) -> None:
    shared = expand(load("demo", ['objectives=["con_con"]', "seeds=[7]", "sweep.objective.margin=[0.1, 0.2]"]))
    shared[1] = Cell(shared[1].dataset, shared[1].recipe, "con_con", shared[1].swept, shared[0].trials)
    assert arrange(shared, Scores.read(shared, trained)).caption.endswith(
        "2 of 2 cells are missing (--): 1 trial never run."
    )
