"""[select]: the points of a search, the trials that it makes, and what a grid file may not ask for."""

from dataclasses import replace
from pathlib import Path

import pytest

from goalgrid.grid.chosen import Chosen, Tried
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.select import Select

TUNED = """
name = "tuned"
datasets = ["shapes"]
recipes = ["cnn-bow"]
objectives = ["con_con", "sig-ms_cir"]
seeds = [0, 1]

[select]
over = { "objective.tau" = [1, 10], "train.lr" = [1e-4, 1e-3, 1e-2] }
"""


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    path = tmp_path / "tuned.toml"
    path.write_text(TUNED)
    return path


def searched(path: Path, *words: str) -> Grid:
    return load(str(path), words)


def test_a_setting_of_the_command_line_is_no_longer_chosen(tuned: Path) -> None:
    select = searched(tuned, "train.lr=1e-3").select
    assert select
    assert set(select.over) == {"objective.tau"}
    assert searched(tuned, "sweep.train.lr=[1e-3, 1e-4]", "objective.tau=4").select is None


DRAWN = {"objective.tau": [1, 4, 10], "train.lr": {"log_uniform": [1e-5, 1e-3]}, "objective.k": {"uniform": [1, 3]}}


def test_more_draws_extend_the_points_and_each_lies_in_its_range() -> None:
    few, many = (Select.model_validate({"over": DRAWN, "draws": draws}).points() for draws in (7, 40))
    assert many[:7] == few
    assert len(set(many)) == 40
    for tau, lr, k in ([value for _, value in point] for point in many):
        assert tau in (1, 4, 10)
        assert 1e-5 <= float(lr) <= 1e-3
        assert k in (1, 2, 3)
    assert len({point[1] for point in many}) > 35
    assert Select.model_validate({"over": DRAWN, "draws": 7, "seed": 101}).points() != few


def test_the_points_of_a_finite_product_are_all_of_it_and_draws_are_some_of_it() -> None:
    over = {"objective.tau": [1, 4], "train.lr": [1e-4, 1e-3, 1e-2]}
    every = [tuple(zip(over, (tau, lr), strict=True)) for tau in over["objective.tau"] for lr in over["train.lr"]]
    assert Select.model_validate({"over": over}).points() == every
    assert sorted(Select.model_validate({"over": over, "draws": 6}).points()) == sorted(every)
    assert set(Select.model_validate({"over": over, "draws": 4}).points()) < set(every)


def test_the_default_is_the_first_of_the_draws_and_one_more_than_a_product() -> None:
    plain, included = ({"over": DRAWN, "draws": 12, "include": name} for name in ("none", "default"))
    assert Select.model_validate(included).points() == [(), *Select.model_validate(plain).points()[:11]]
    over = {"train.lr": [1e-4, 1e-3]}
    every = Select.model_validate({"over": over}).points()
    assert Select.model_validate({"over": over, "include": "default"}).points() == [(), *every]


def test_searches_have_seeds_and_draws_of_their_own_and_the_first_is_that_of_one_search() -> None:
    one, several = (Select.model_validate({"over": DRAWN, "draws": 5, "repeats": n}) for n in (1, 3))
    assert [[*seeds] for seeds in several.searches] == [[100], [200], [300]]
    assert several.points(0) == one.points() != several.points(1)
    confirmed = Select.model_validate({"over": DRAWN, "draws": 5, "repeats": 2, "confirm": 3})
    assert [[*seeds] for seeds in confirmed.searches] == [[100, 101, 102], [200, 201, 202]]
    assert [draw.seeds for draw in confirmed.tried([0, 1])] == [(100, 101, 102, 0)] * 5 + [(200, 201, 202, 1)] * 5


def test_a_grid_with_a_search_comes_back_as_written(tuned: Path, tmp_path: Path) -> None:
    grid = searched(tuned, "select.draws=3", "select.over.train.lr={log_uniform=[1e-4, 1e-2]}")
    again = tmp_path / "again.toml"
    again.write_text(grid.to_toml())
    assert load(str(again)) == grid


@pytest.mark.parametrize("ends", ["[1, 40]", "[1.0, 40.0]", "[1, 40.0]"])
def test_whole_ends_stay_whole_when_a_grid_is_saved(ends: str, tuned: Path, tmp_path: Path) -> None:
    grid = searched(tuned, "select.draws=5", f"select.over.objective.tau={{uniform={ends}}}")
    again = tmp_path / "again.toml"
    again.write_text(grid.to_toml())
    assert grid.select
    drawn = load(str(again)).select
    assert drawn
    assert [repr(sorted(point)) for point in drawn.points()] == [repr(sorted(point)) for point in grid.select.points()]


def test_trials_of_chosen_values_are_those_of_a_grid_that_sets_them_by_hand(tuned: Path) -> None:
    hand = tuned.with_name("hand.toml")
    hand.write_text(TUNED.partition("[select]")[0])
    for cell in expand(searched(tuned)):
        values = [f"{name}={value}" for name, value in cell.swept]
        same = {trial.id for trial in trials_of(expand(load(str(hand), values)))}
        assert {trial.id for trial in cell.trials[1:]} <= same
        assert cell.trials[0].seed == 100


def test_a_grid_that_extends_a_search_replaces_what_it_sets_sweeps_or_chooses(tuned: Path) -> None:
    def extended(text: str) -> Grid:
        path = tuned.with_name("further.toml")
        path.write_text(f'name = "further"\nextends = "tuned.toml"\n{text}')
        return load(str(path))

    chosen = extended('[select]\ndraws = 2\nover = { "train.lr" = { uniform = [0.1, 0.2] } }').select
    assert chosen
    assert chosen.over == {"objective.tau": [1, 10], "train.lr": {"uniform": [0.1, 0.2]}}
    swept = extended('[sweep]\n"train.lr" = [0.1, 0.2]')
    assert swept.select
    assert set(swept.select.over) == {"objective.tau"}
    untuned = extended('[set]\n"train.lr" = 0.1\n"objective.tau" = 4')
    assert untuned.select is None
    anew = tuned.with_name("anew.toml")
    anew.write_text('name = "anew"\nextends = "further.toml"\n[select]\nover = { "train.lr" = [0.1, 0.2] }')
    assert load(str(anew)).set == {"objective.tau": 4}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (['select.over={"train.lrr"=[1]}'], r"unknown setting 'train.lrr' in \[select\]. Did you mean 'train.lr'"),
        (['select.over={"dataset.noise"=[0.1]}'], "dataset.noise changes the data"),
        (['select.over={"model.image.encoder"=["cnn"]}'], "model.image.encoder is fixed by the recipe"),
        (['select.over={"train.trace_every"=[1]}'], "train.trace_every does not change trial ids"),
        (['select.over={"objective.gamma"=[1]}'], "objective.gamma: none of the grid's objectives has this parameter"),
        (['select.over={"model.image.pool_k"=[1, 2]}'], "model.image.pool_k has no effect in this grid"),
        (
            ['where=[{objective="con*", set={"train.lr"=1e-3}}]'],
            r"where\[0\] has train.lr, which .select. also chooses",
        ),
        (['exclude=[{"objective.tau"=1}]'], r"exclude\[0\] has objective.tau, which .select. also chooses"),
        (["select.draws=7"], "select.draws: the product has 6 points; leave draws out to try all of them"),
        (["select.over.train.lr={uniform=[0.1,0.2]}"], "select.draws: train.lr is drawn from a range, so say how many"),
        (["select.over.train.lr={uniform=[0.2,0.1]}"], "select.over.train.lr: it should be a list of values, or"),
        (["select.over.train.lr={log_uniform=[0,1]}"], "select.over.train.lr: it should be a list of values, or"),
        (["select.seed=1"], "select.seed = 1 is also in seeds"),
        (["seeds=until resolved", "select.seed=3"], "select.seed = 3 is also in seeds"),
        (["select.by=val_loss"], "select.by: it should be 'val_rsum'"),
        (["select.stop=soon"], "select.stop: it should be 'none' or 'asha'"),
        (["select.grace=1"], 'select.grace has no effect without select.stop = "asha"'),
        (["select.factor=2"], 'select.factor has no effect without select.stop = "asha"'),
        (["select.confirm=1"], "select.confirm: it should be 0, or 2 or more"),
        (
            ["select.confirm_seeds=3"],
            "select.confirm_seeds has no effect without select.confirm, e.g. select.confirm = 3",
        ),
        (["select.confirm=2", "seeds=[102]"], "102, a seed of the search by .select., is also in seeds"),
        (
            ["select.repeats=3"],
            "select.repeats = 3: each seed is trained with the values of its own search, so re",
        ),
        (
            ["seeds=until resolved", "select.repeats=2"],
            "select.repeats: each seed has its own search, so seeds can",
        ),
        (["select.include=all"], "select.include: it should be 'none' or 'default'"),
        (["select.include=default", "select.draws=8"], "select.draws: the product has 7 points"),
        (["select.grace=0", "select.stop=asha"], "select.grace: it should be above 0"),
        (["select.over={}"], "select.over: it needs 1 or more entries"),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_one_message(tuned: Path, words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        expand(searched(tuned, *words))
    assert "problems" not in str(refused.value)


def chosen(*values: float) -> Chosen:
    tried = [Tried(f"t{place}", (("train.lr", place),), value) for place, value in enumerate(values)]
    return Chosen("val_rsum", len(values), len(values), tuple(tried))


def test_the_best_point_is_chosen_and_of_several_the_first() -> None:
    choice = chosen(1.0, 3.0, 3.0, 2.0)
    assert choice.best.trial == "t1"
    assert choice.runner_up
    assert (choice.runner_up.trial, choice.margin, choice.edges) == ("t2", 0.0, [])
    assert chosen(1.0, 3.0, 4.0).edges == ["train.lr"]
    assert chosen(3.0, 1.0).edges == []
    assert chosen(3.0).margin is None


def test_a_stopped_point_is_chosen_only_where_none_is_done() -> None:
    choice = chosen(1.0, 3.0, 2.0)
    stopped = replace(choice, tried=(choice.tried[0], *(replace(tried, done=False) for tried in choice.tried[1:])))
    assert (stopped.best.trial, stopped.runner_up) == ("t0", None)
    none = replace(choice, tried=tuple(replace(tried, done=False) for tried in choice.tried))
    assert none.best.trial == "t1"
