"""Seeds until resolved, from the grid file to the table: what is trained next follows from the records alone."""

import json
import shutil
from pathlib import Path

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import Home, State
from goalgrid.results.records import record
from goalgrid.state.seeds import so_far

from ...states import fail
from ..conftest import PAIR, Verb

BUDGET = ("--set", "seeds=until resolved", "--set", "budget.seeds=4", "--set", "name=contest")
WORDS = [word for word in (*PAIR, *BUDGET) if word != "--set"]
CLOSE = {"con_con": [40.0, 41.0, 40.5], "sig-ms_cir": [40.5, 40.6, 41.0]}


@pytest.fixture
def known(trained_pair: Home, tmp_path: Path) -> Home:
    """The trials of the first three seeds as done, with Recall@1 that is close."""
    home = Home(tmp_path / "runs")
    give(trained_pair, home, CLOSE)
    return home


def give(source: Home, home: Home, values: dict[str, list[float]]) -> None:
    """Finished trials with these values by objective, seed by seed, made of trained ones."""
    made = {folder.trial_id.rpartition("_s")[0]: folder for folder in source.trials()}
    for trial in trials_of(expand(load("demo", WORDS))):
        known, origin = values[trial.shared.objective.name], made[trial.id.rpartition("_s")[0]]
        if trial.seed < len(known):
            shutil.copytree(origin.path, home.trial(trial.id).path)
            (row,) = record.collect([origin.record]).to_pylist()
            value = {"test_i2t_r1": known[trial.seed] + 1, "test_t2i_r1": known[trial.seed] - 1}
            record.write(home.trial(trial.id).record, row | value | {"trial_id": trial.id, "seed": trial.seed})


def test_a_grid_file_with_a_budget_has_all_seeds_that_it_may_spend_and_comes_back_as_written(tmp_path: Path) -> None:
    grid = load("demo", ["seeds=until resolved", "budget.difference=1.5"])
    assert (grid.seeds, grid.budget and grid.budget.difference) == (list(range(10)), 1.5)
    path = tmp_path / "again.toml"
    path.write_text(grid.to_toml())
    assert 'seeds = "until resolved"' in path.read_text()
    assert load(str(path)) == grid
    assert {trial.id for trial in trials_of(expand(load("demo")))} <= {trial.id for trial in trials_of(expand(grid))}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["budget.seeds=5"], r"\[budget\] needs seeds = \"until resolved\" instead of a list of seeds"),
        (["seeds=until resolved", "budget.seeds=3"], "budget.seeds"),
        (["seeds=until resolved", "budget.metric=medr"], "budget.metric"),
        (["seeds=until resolvd"], "seeds"),
    ],
)
def test_a_wrong_budget_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load("demo", words)


def test_cells_that_compete_get_seeds_until_the_budget_is_spent(known: Home, verb: Verb) -> None:
    planned = verb("plan", "demo", *PAIR, *BUDGET, runs=known).stdout
    assert "8 trials now, at most 8: seeds are added until resolved" in planned
    assert "2 x new" in planned
    assert json.loads(verb("plan", "demo", *PAIR, *BUDGET, "--json", runs=known).stdout)["most_trials"] == 8
    assert "most_trials" not in json.loads(verb("plan", "demo", *PAIR, "--json", runs=known).stdout)
    ran = verb("run", "demo", *PAIR, *BUDGET, "--here", "--mlflow-uri", "", runs=known)
    assert ran.exit_code == 0
    assert "training 2" in ran.stderr
    spent = "seeds of cnn-bow on shapes: the budget of 4 seeds is spent; competing: con_con, sig-ms_cir (4 seeds)"
    assert spent in verb("status", "contest", runs=known).stdout
    assert "nothing is left" in verb("plan", "contest", runs=known).stdout


def test_a_trial_that_others_start_from_gets_the_seeds_that_they_get(trained_pair: Home, tmp_path: Path) -> None:
    """Of the recipe that others start from, con_con is out; where it goes on, it competes."""
    words = ['recipes=["vsepp-r152-tiny-ft"]', *(word for word in WORDS if not word.startswith("recipes="))]
    grid, home = load("demo", words), Home(tmp_path / "runs")
    origin = next(iter(trained_pair.trials()))
    (row,) = record.collect([origin.record]).to_pylist()
    for trial in trials_of(expand(grid)):
        if trial.seed < 3:
            name = trial.shared.objective.name
            known = CLOSE[name][trial.seed] - (30 if name == "con_con" and not trial.parents else 0)
            shutil.copytree(origin.path, home.trial(trial.id).path)
            value = {"test_i2t_r1": known, "test_t2i_r1": known, "trial_id": trial.id, "seed": trial.seed}
            record.write(home.trial(trial.id).record, row | value | {"recipe": trial.shared.recipe})
    assert grid.budget is not None
    found = {(cell.recipe, cell.objective): len(cell.trials) for cell in so_far(grid.budget, expand(grid), home)[0]}
    assert found["vsepp-r152-tiny-ft", "con_con"] == found["vsepp-r152-tiny", "con_con"] == 4


def test_a_cell_that_is_out_gets_no_more_seeds(trained_pair: Home, tmp_path: Path, verb: Verb) -> None:
    home = Home(tmp_path / "runs")
    give(trained_pair, home, CLOSE | {"con_con": [10.0, 11.0, 10.5]})
    assert verb("run", "demo", *PAIR, *BUDGET, "--here", "--mlflow-uri", "", runs=home).exit_code == 0
    status = verb("status", "contest", runs=home)
    assert "contest: 6 trials: 6 done" in status.stdout
    assert "resolved" in status.stdout
    caption = " ".join(verb("table", "contest", "--format", "html", runs=home).stdout.split())
    assert "competing: sig-ms_cir (3 seeds); out: con_con (3 seeds)." in caption
    found = json.loads(verb("status", "contest", "--json", runs=home).stdout)["seeds"]["cnn-bow on shapes"]
    assert (found["state"], found["out"]) == ("resolved", ["con_con"])


def test_a_cell_with_a_failed_trial_takes_no_part_until_that_is_done(known: Home, verb: Verb) -> None:
    folder = next(folder for folder in known.trials() if "con_con_s2" in folder.trial_id)
    fail(folder, Failure.BUG, "wrong")
    assert folder.state() is State.FAILED
    said = verb("plan", "demo", *PAIR, *BUDGET, runs=known).stdout
    assert "competing: sig-ms_cir (3 seeds); excluded until their failed trials are done: con_con" in said
    assert "6 trials now" in said
