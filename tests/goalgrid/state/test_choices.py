"""What validation chooses, from the grid file to the table: it follows from the validation metrics alone."""

import json
import random
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.files import write_json, write_json_lines
from goalgrid.grid.store.home import Home, State
from goalgrid.planning.decisions import decide, to_evaluate, to_train
from goalgrid.reports.tables import draw
from goalgrid.results.export.table_request import TableRequest
from goalgrid.results.records import record
from goalgrid.state.choices import searches
from goalgrid.state.grid_state import GridState, NothingDone

from ...states import fail
from ..conftest import PAIR, Verb

SEARCH = ("seeds=[0,1]", 'select.over={"objective.tau"=[1,10],"train.lr"=[1e-4,1e-3,1e-2]}', "name=tuned")
WORDS = [word for word in PAIR if word not in ("--set", "name=demo", "seeds=[0]")] + list(SEARCH)
TUNED = [word for pair in WORDS for word in ("--set", pair)]


@pytest.fixture
def grid() -> Grid:
    return load("demo", WORDS)


def finish(source: Home, home: Home, trial: Trial, **values: float) -> None:
    """A finished trial with these metrics, made of a trained one."""
    (row,) = record.collect([next(iter(source.trials())).record]).to_pylist()
    names = {"trial_id": trial.id, "seed": trial.seed, "recipe": trial.shared.recipe}
    folder = home.trial(trial.id)
    shutil.rmtree(folder.path, ignore_errors=True)
    shutil.copytree(next(iter(source.trials())).path, folder.path)
    record.write(folder.record, row | names | {"objective": trial.shared.objective.name} | values)


def search_trials(grid: Grid) -> list[Trial]:
    return [trial for trial in trials_of(expand(grid)) if trial.seed == 100]


def chosen_in(grid: Grid, home: Home) -> Mapping[str, Any]:
    return {search.title: search.chosen and search.chosen.to_dict() for search in searches(grid, home)}


def test_test_metrics_never_reach_the_choice(trained_pair: Home, tmp_path: Path, grid: Grid) -> None:
    home, draw, trials = Home(tmp_path / "runs"), random.Random(0), search_trials(grid)
    validation = {trial.id: draw.uniform(0, 600) for trial in trials}
    tests = [draw.uniform(0, 600) for _ in trials]
    chosen = []
    for _ in range(2):
        for trial, test in zip(trials, tests, strict=True):
            values = {name: test for name in record.SCHEMA.names if name.startswith("test_") and "r" in name[-4:]}
            numbers = {name: value for name, value in values.items() if name.endswith(("r1", "r5", "r10", "rsum"))}
            finish(trained_pair, home, trial, val_rsum=validation[trial.id], **numbers)
        chosen.append(chosen_in(grid, home))
        draw.shuffle(tests)
    assert chosen[0] == chosen[1]
    for search in searches(grid, home):
        best = search.trials[0]  # literally: the first trial that no other beats
        for trial_id in search.trials:
            if validation[trial_id] > validation[best]:
                best = trial_id
        assert search.chosen
        assert search.chosen.best.trial == best


def test_points_that_differ_in_what_a_cell_does_not_read_are_one(grid: Grid, tmp_path: Path) -> None:
    con, sig = searches(grid, Home(tmp_path))
    assert (con.title, len(con.points), len(sig.points)) == ("con_con by cnn-bow on shapes", 3, 6)


def test_a_table_tells_search_trials_from_trials_with_chosen_values(
    trained_pair: Home, tmp_path: Path, grid: Grid, verb: Verb
) -> None:
    home, file = Home(tmp_path / "runs"), tmp_path / "mine.toml"
    file.write_text(grid.to_toml())
    for trial in search_trials(grid):
        finish(trained_pair, home, trial, val_rsum=trial.shared.train.lr)
    said = (
        r"no trial with chosen values is done \(13 trials: 9 done, 4 planned\)\. To continue: goalgrid run .*mine\.toml"
    )
    for name in ("table", "effects", "figures"):
        with pytest.raises(NothingDone, match=said):
            verb(name, str(file), runs=home)


def test_a_choice_names_only_what_the_cell_reads(trained_pair: Home, tmp_path: Path, grid: Grid) -> None:
    home = Home(tmp_path / "runs")
    for trial in search_trials(grid):
        finish(trained_pair, home, trial, val_rsum=trial.shared.train.lr * 1000)
    con, sig = searches(grid, home)
    assert con.chosen
    assert con.chosen.to_dict() == {
        "chosen": {"train.lr": 0.01}, "by": "val_rsum", "value": 10.0, "runner_up": {"train.lr": 0.001, "value": 1.0},
        "margin": 9.0, "points": 3, "done": 3, "stopped": 0, "diverged": 0, "missing": {"unread": 3},
        "epochs": 6, "epochs_of_whole_trainings": 6, "at_edge": ["train.lr"],
    }  # fmt: skip
    assert sig.chosen
    assert dict(sig.chosen.best.point) == {"objective.tau": 1, "train.lr": 0.01}


def test_a_cell_waits_for_its_own_search_alone(trained_pair: Home, tmp_path: Path, grid: Grid, verb: Verb) -> None:
    home = Home(tmp_path / "runs")
    with pytest.raises(UserError, match="no cell has selected its settings yet"):
        verb("export", "demo", str(tmp_path / "export"), *TUNED, runs=home)
    planned = verb("plan", "demo", *TUNED, runs=home).stdout
    assert "objective.tau, train.lr: 3 or 6 points per cell, with seed 100, by val_rsum" in planned
    assert "4 x with selected settings, after all 3 or 6 search trials of their cell" in planned
    assert "13 x cnn-bow on shapes" in planned
    for trial in search_trials(grid):
        if trial.shared.objective.name == "con_con":
            finish(trained_pair, home, trial, val_rsum=trial.shared.train.lr)
    grid_state = GridState.of(grid, home)
    assert [(cell.objective, cell.swept, len(cell.trials)) for cell in grid_state.cells] == [("con_con", (), 2)]
    assert grid_state.headline() == "11 trials: 3 done, 8 planned"
    named = {(trial.shared.objective.name, trial.seed) for trial in grid_state.selected("seed=0")}
    assert named == {("con_con", 0), ("sig-ms_cir", 100)}
    assert {trial.seed for trial in grid_state.selected("seed=100")} == {100}
    assert [trial.seed for trial in grid_state.pending("seed=1")] == [1]
    with pytest.raises(UserError, match="other values were selected on validation"):
        grid_state.selected("objective=con_con train.lr=0.001 seed=0")


def test_a_cell_whose_search_failed_is_named_and_others_go_on(
    trained_pair: Home, tmp_path: Path, grid: Grid, verb: Verb
) -> None:
    home = Home(tmp_path / "runs")
    for trial in search_trials(grid):
        if trial.shared.objective.name == "con_con" or trial.shared.train.lr == 1e-4:
            fail(home.trial(trial.id), Failure.BUG, "wrong")
        else:
            finish(trained_pair, home, trial, val_rsum=trial.shared.train.lr)
    planned = verb("plan", "demo", *TUNED, runs=home).stdout
    assert "choices: 1 of 2 cells" in planned
    assert "no choice for con_con by cnn-bow on shapes: its 3 search trials failed; other cells go on" in planned
    (cell,) = GridState.of(grid, home).cells
    assert cell.objective == "sig-ms_cir"
    finish(trained_pair, home, cell.trials[0])
    caption = " ".join(draw(TableRequest("tuned"), home, grid).caption.split())
    assert caption.endswith("Not shown, since no settings are selected yet: con_con by cnn-bow on shapes.")
    assert "Chosen (objective.tau, train.lr): all cells: 1, 0.01." in caption
    assert "Chosen among fewer points: sig-ms_cir 4 (2 failed)." in caption


def test_search_trials_are_evaluated_on_no_further_data(trained_pair: Home, tmp_path: Path) -> None:
    home, grid = Home(tmp_path / "runs"), load("demo", [*WORDS, 'evaluate.datasets=["flickr8k"]'])
    for trial in search_trials(grid):
        if trial.shared.objective.name == "con_con":
            finish(trained_pair, home, trial, val_rsum=trial.shared.train.lr)
    grid_state = GridState.of(grid, home)
    decisions = decide(grid_state)
    assert {trial.seed for trial in to_train(decisions)} == {0, 1, 100}
    assert [trial.seed for trial in to_evaluate(decisions, grid_state)] == [0, 1]


def test_a_diverged_point_is_the_worst_of_its_search_and_is_tried_once(tmp_path: Path, verb: Verb) -> None:
    """It costs no exit code and no second try, and has no edge beside it; of the search nothing is shown of test."""
    home, over = Home(tmp_path / "runs"), 'select.over={"train.lr"=[1e-4,1e-3,1e25]}'
    words = [*TUNED, *(w for pair in ("objectives=['con_con']", "seeds=[0]", over) for w in ("--set", pair))]
    words += ["--set", "trackers=['tensorboard']", "--here"]
    ran = verb("run", "demo", *words, runs=home)
    assert ran.exit_code == 0, ran.stderr
    assert len(re.findall("^diverged ", ran.stderr, re.MULTILINE)) == 1
    done = [line for line in ran.stderr.splitlines() if line.startswith("done ")]
    assert (
        ["_s100-" in line for line in done] == ["  validation  i2t R@1" in line for line in done] == [True, True, False]
    )
    status = json.loads(verb("status", "tuned", "--json", runs=home).stdout)
    (choice,) = status["choices"]
    assert (choice["done"], choice["diverged"], status["states"]["diverged"], status["failed"]) == (2, 1, 1, [])
    assert choice["at_edge"] == [] or choice["chosen"]["train.lr"] == 1e-4
    assert "1 search trial diverged: counts as the worst point of its cell" in verb("status", "tuned", runs=home).stdout
    caption = " ".join(verb("table", "tuned", "--format", "html", runs=home).stdout.split())
    assert "Chosen among fewer points: con_con 2 (1 diverged)." in caption
    attempts = sorted(home.trials_folder.glob("*/attempts/*"))
    again = verb("run", "demo", *words, runs=home)
    assert (again.exit_code, sorted(home.trials_folder.glob("*/attempts/*"))) == (0, attempts)
    for folder in home.trials():
        tested = any(
            b"test_rsum" in file.read_bytes() for file in (home.tensorboard / "tuned" / folder.trial_id).glob("ev*")
        )
        assert tested == (folder.is_done() and "_s0-" in folder.trial_id)
    verb("export", "tuned", str(tmp_path / "export"), runs=home)
    assert not [n for n in pq.read_schema(tmp_path / "export" / "search.parquet").names if n.startswith("test_")]


def test_a_trial_with_chosen_values_starts_from_one_with_the_same_values(trained_pair: Home, tmp_path: Path) -> None:
    words = ['recipes=["vsepp-r152-tiny-ft"]', *(word for word in WORDS if not word.startswith("recipes="))]
    grid, home = load("demo", words), Home(tmp_path / "runs")
    for trial in search_trials(grid):
        better = trial.shared.train.lr if trial.parents else -trial.shared.train.lr
        finish(trained_pair, home, trial, val_rsum=better)
    grid_state = GridState.of(grid, home)
    lrs = {cell.recipe: cell.trials[0].shared.train.lr for cell in grid_state.cells}
    assert lrs == {"vsepp-r152-tiny": 1e-4, "vsepp-r152-tiny-ft": 1e-2}
    places = {trial.id: place for place, trial in enumerate(grid_state.trials)}
    assert all(places[parent] < places[trial.id] for trial in grid_state.trials for parent in trial.parents)


@pytest.mark.gate
def test_one_command_searches_chooses_trains_and_shows(tmp_path: Path, verb: Verb) -> None:
    home, one = Home(tmp_path / "runs"), ("objectives=['con_con']", 'select.over={"train.lr"=[1e-4,1e-3]}')
    words = [*TUNED, *(word for pair in one for word in ("--set", pair))]
    ran = verb("run", "demo", *words, "--here", "--mlflow-uri", "", runs=home)
    assert ran.exit_code == 0, ran.stderr
    assert "training 2\n" in ran.stderr
    assert "tuned: 4 trials: 2 done, 2 planned; training 2" in ran.stderr
    assert "choices: 1 of 1 cell" in ran.stderr
    caption = " ".join(verb("table", "tuned", "--format", "html", runs=home).stdout.split())
    assert (
        "each cell at its own best of 2 points by validation rsum; mean ± sample standard deviation over 2 fresh"
        in caption
    )
    verb("export", "tuned", str(tmp_path / "export"), runs=home)
    assert list((tmp_path / "export").rglob("search-cnn-bow-on-shapes.*"))
    notes = json.loads(home.grid("tuned").choices.read_text())
    assert json.loads((tmp_path / "export" / "choices.json").read_text()) == notes
    assert [note["objective"] for note in notes] == ["con_con"]
    assert json.loads(verb("status", "tuned", "--json", runs=home).stdout)["choices"] == notes
    assert pq.read_metadata(tmp_path / "export" / "search.parquet").num_rows == 2
    again = verb("run", "demo", *words, "--here", "--mlflow-uri", "", runs=home)
    assert "; training " not in again.stderr
    for note in notes:  # the same values by hand are the same trials
        by_hand = [word for word in TUNED if "select" not in word and word != "--set"]
        hand = [*by_hand, "name=hand", f"objectives={note['objective']}", f"train.lr={note['chosen']['train.lr']}"]
        assert GridState.of(load("demo", hand), home).headline() == "2 trials: 2 done"


def test_stopped_search_trials_are_no_failures_and_the_grid_ends_complete(tmp_path: Path, verb: Verb) -> None:
    home, asha = (
        Home(tmp_path / "runs"),
        (
            "select.stop=asha",
            "select.grace=1",
            "seeds=[0]",
            "objectives=['infonce']",
            "train.batch_size=20",
            'select.over={"train.lr"=[3e-3,1e-3,1e-5]}',
        ),
    )
    words = [*TUNED, *(word for pair in asha for word in ("--set", pair))]
    ran = verb("run", "demo", *words, "--here", "--mlflow-uri", "", runs=home)
    assert ran.exit_code == 0, ran.stderr
    grid_state = GridState.of(load("demo", [*WORDS, *asha]), home)
    (search,) = grid_state.searches
    assert grid_state.halvings.keys() == set(search.trials)
    assert grid_state.stops_none == ""
    stopped = [trial_id for trial_id, state in search.states.items() if state is State.STOPPED]
    assert stopped
    assert search.chosen
    assert search.chosen.best.trial not in stopped
    assert search.chosen.to_dict()["stopped"] == len(stopped)
    spent = sum(len((home.trial(name).history).read_text().splitlines()) for name in search.trials)
    caption = " ".join(verb("table", "tuned", "--format", "html", runs=home).stdout.split())
    assert (
        "each cell at the best, by validation rsum, of the points that were not stopped: of 3 points, "
        f"{len(stopped)} stopped early, {spent} of 6 epochs; " in caption
    )
    assert "Chosen among fewer" not in caption
    status = verb("status", "tuned", "--json", runs=home)
    assert (status.exit_code, json.loads(status.stdout)["left"]) == (0, [])
    late = verb("plan", "demo", *words, "--set", "select.grace=2", runs=home).stdout
    assert 'select.stop = "asha" stops none of the search trials: select.grace = 2, epochs = 2' in late
    on = GridState.of(load("demo", [*WORDS, *asha, "select.stop=none"]), home)  # no rule: they go on
    assert on.searches[0].waiting == len(stopped)
    assert on.cells == []


@pytest.mark.parametrize(("selection", "value"), [("best-val-rsum", 200.0), ("last", 90.0)])
def test_a_stopped_trial_counts_by_the_epoch_that_its_selection_takes(
    trained_pair: Home, tmp_path: Path, selection: str, value: float
) -> None:
    home = Home(tmp_path / "runs")
    grid = load("demo", [*WORDS, "select.stop=asha", "select.grace=1", f"train.selection={selection}"])
    first, *others = search_trials(grid)
    for trial in others:
        finish(trained_pair, home, trial, val_rsum=50.0)
    rows = [{"epoch": epoch, "step": epoch, "val_rsum": rsum} for epoch, rsum in ((1, 200.0), (2, 90.0))]
    write_json_lines(home.trial(first.id).history, rows)
    write_json(home.trial(first.id).stopped, {"epoch": 2})
    (tried,) = (tried for s in searches(grid, home) if s.chosen for tried in s.chosen.tried if tried.trial == first.id)
    assert (tried.value, tried.done) == (value, False)


def test_a_stopped_trial_whose_history_is_lost_is_interrupted_wherever_its_state_is_asked(
    tmp_path: Path, verb: Verb
) -> None:
    """Its training goes on from the checkpoint, and it is stopped again: choices and table are as before."""
    home = Home(tmp_path / "runs")
    asha = ("select.stop=asha", "select.grace=1", "seeds=[0]", "objectives=['infonce']", "train.batch_size=20",
            "train.epochs=2", 'select.over={"train.lr"=[3e-3,1e-5]}')  # fmt: skip
    words = [*TUNED, *(word for pair in asha for word in ("--set", pair))]
    grid, run = load("demo", [*WORDS, *asha]), ("run", "demo", *words, "--here", "--mlflow-uri", "")
    assert verb(*run, runs=home).exit_code == 0
    stopped = GridState.of(grid, home).having(State.STOPPED)
    assert stopped
    choices, table = home.grid("tuned").choices.read_bytes(), verb("table", "tuned", runs=home).stdout
    for trial in stopped:
        history = home.trial(trial.id).history
        whole = history.read_bytes()
        history.write_bytes(b"")
        grid_state = GridState.of(grid, home)
        (search,) = grid_state.searches
        assert search.states[trial.id] is grid_state.states[trial.id] is grid_state.reached(trial) is State.INTERRUPTED
        assert verb("status", "tuned", runs=home).exit_code == 3
        again = verb(*run, runs=home)
        assert (again.exit_code, "training 1" in again.stderr) == (0, True), again.stderr
        assert history.read_bytes() == whole
        assert home.grid("tuned").choices.read_bytes() == choices
        assert verb("table", "tuned", runs=home).stdout == table


def test_seeds_are_added_until_resolved_to_chosen_cells_alone(
    trained_pair: Home, tmp_path: Path, grid: Grid, verb: Verb
) -> None:
    home = Home(tmp_path / "runs")
    for trial in search_trials(grid):
        finish(trained_pair, home, trial, val_rsum=trial.shared.train.lr)
    budget = ("--set", "seeds=until resolved", "--set", "budget.seeds=4")
    planned = verb("plan", "demo", *TUNED, *budget, runs=home).stdout
    assert "15 trials now, at most 17" in planned  # 9 of the search, 3 seeds of each cell
    assert "6 x new" in planned
