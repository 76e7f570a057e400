"""Searches with the default, with confirmation and with repeats: round by round, against a literal computation."""

import math
import random
from pathlib import Path

import pytest

from goalgrid.grid.chosen import Chosen, Tried
from goalgrid.grid.expansion import Trial, expand
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import ENDED, Home, State
from goalgrid.state.grid_state import GridState

from ...paper_records import write_trial
from ...states import fail

GRID = """
name = "searched"
datasets = ["flickr8k"]
recipes = ["fc-bow"]
objectives = ["con_con", "sig-ms_cir"]
seeds = [0, 1]

[select]
over = { "objective.tau" = [1, 40], "train.lr" = [1e-4, 1e-2] }
include = "default"
confirm = 2
confirm_seeds = 2
"""
DIVERGED, FAILED = -math.inf, math.nan
"""What a trial of a table reaches that has no value."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "searched.toml"
    path.write_text(GRID)
    return path


def literal(table: dict[int, list[float]], confirm: int) -> int | None:
    """The chosen point of a table of points, each with its value by the search seed and by the confirming seeds."""
    rivals = [point for point in table if table[point][0] not in (DIVERGED,) and not math.isnan(table[point][0])]
    if not rivals:
        return None
    order = list[int]()
    while len(order) < min(confirm, len(rivals)):
        best = None
        for point in rivals:
            if point not in order and (best is None or table[point][0] > table[best][0]):
                best = point
        assert best is not None
        order.append(best)
    if len(order) < 2:
        return max(rivals, key=lambda point: (table[point][0], -point))
    winner = None
    for point in order:
        values = [value for value in table[point] if not math.isnan(value)]
        collapsed = DIVERGED in values
        mean = sum(values) / len(values)
        rank = (0 if collapsed else 1, len(values), mean, table[point][0])
        if winner is None or rank > winner[0]:
            winner = rank, point
    assert winner
    return winner[1]


@pytest.mark.parametrize("seed", range(200))
def test_a_choice_is_that_of_a_literal_computation(seed: int) -> None:
    draw = random.Random(seed)
    values = [DIVERGED, *range(4)]  # so that many tie
    table = {
        point: [draw.choice(values), *(draw.choice([*values, FAILED]) for _ in range(2))]
        for point in range(draw.randint(1, 8))
    }
    tried = tuple(
        Tried(
            str(point), (("train.lr", point),), first, done=first != DIVERGED, default=point == 0,
            confirmed={f"{point}{place}": value for place, value in enumerate(rest) if not math.isnan(value)},
        )
        for point, (first, *rest) in table.items()
    )  # fmt: skip
    choice = Chosen("val_rsum", len(table), len(table), tried, confirm=3, confirm_seeds=2)
    expected = literal(table, 3)
    assert (choice.best.trial if choice.possible else None) == (None if expected is None else str(expected))


def written(trial: Trial, value: float, home: Home) -> None:
    """Leave the trial as one that reached this value, or as one that failed for good."""
    if value == DIVERGED or math.isnan(value):
        fail(home.trial(trial.id), Failure.NON_FINITE if value == DIVERGED else Failure.BUG, "why")
    else:
        write_trial(home, trial, {}, val_rsum=value)


@pytest.mark.parametrize("seed", range(6))
def test_rounds_train_the_search_then_the_best_again_then_the_choice(seed: int, file: Path, tmp_path: Path) -> None:
    draw, grid, home = random.Random(seed), load(str(file)), Home(tmp_path / "runs")
    values, rounds = dict[str, float](), list[set[int]]()
    grid_state = GridState.of(grid, home)
    while todo := [trial for trial in grid_state.trials if grid_state.states[trial.id] not in ENDED]:
        rounds.append({trial.seed for trial in todo})
        for trial in todo:
            values[trial.id] = draw.choice([DIVERGED, FAILED, *range(200, 240)])
            written(trial, values[trial.id], home)
        grid_state = GridState.of(grid, home)
        assert len(rounds) < 5
    for search in grid_state.searches:
        table = dict[int, list[float]]()
        for place, point in enumerate(search.points):
            seeds = {trial.seed: values.get(trial.id, FAILED) for trial in point.trials}
            table[place] = [seeds[100], seeds[101], seeds[102]]
        expected = literal(table, 2)
        assert (search.chosen is None) == (expected is None)
        if search.chosen and expected is not None:
            assert search.chosen.best.trial == search.points[expected].trials[0].id
            assert {trial.seed for trial in search.final} == {0, 1}
            assert {trial.id for trial in search.final} <= values.keys()
    assert rounds[0] == {100}
    assert {0, 1} in rounds or not any(search.chosen for search in grid_state.searches)
    confirmed = [trial_id for trial_id in values if "_s101-" in trial_id or "_s102-" in trial_id]
    assert len(confirmed) == sum(2 * len(s.chosen.candidates) for s in grid_state.searches if s.chosen)


def test_the_default_is_the_trial_of_the_same_grid_without_a_search(file: Path, tmp_path: Path) -> None:
    untuned = tmp_path / "untuned.toml"
    untuned.write_text(GRID.partition("[select]")[0])
    ids = {trial.id for cell in expand(load(str(untuned))) for trial in cell.trials}
    first = [search.points[0] for search in GridState.of(load(str(file)), Home(tmp_path)).searches]
    assert [{trial.id for trial in cell.trials if trial.seed in (0, 1)} for cell in first] == [
        {trial_id for trial_id in ids if f"_{cell.objective}_" in trial_id} for cell in first
    ]
    assert dict(first[0].swept)["train.lr"] == 0.001
    assert [len(search.points) for search in GridState.of(load(str(file)), Home(tmp_path)).searches] == [3, 5]


def test_a_drawn_default_is_one_point(file: Path, tmp_path: Path) -> None:
    """Where the product holds the default, nothing is tried twice, and the caption counts it once."""
    grid = load(str(file), ['select.over={"train.lr"=[1e-4,1e-3]}', "select.confirm=0", "select.draws=3"])
    home = Home(tmp_path)
    for trial in GridState.of(grid, home).trials:
        write_trial(home, trial, {}, val_rsum=200 - trial.shared.train.lr)
    choices = [search.chosen for search in GridState.of(grid, home).searches]
    assert [(c.points, c.draws, c.missing["unread"], c.missing["impossible"]) for c in choices if c] == [
        (2, 2, 0, 0)
    ] * 2
    assert [c.default and (c.default.value, c.gain) for c in choices if c] == [(199.999, pytest.approx(0.0009))] * 2


def repeated(file: Path) -> Grid:
    return load(str(file), ["select.repeats=2", "select.confirm=0", "select.draws=4"])


def test_with_repeats_each_seed_has_a_search_of_its_own(file: Path, tmp_path: Path) -> None:
    grid, home, draw = repeated(file), Home(tmp_path / "runs"), random.Random(1)
    values = dict[str, float]()
    for trial in GridState.of(grid, home).trials:
        values[trial.id] = draw.uniform(200, 300)
        write_trial(home, trial, {}, val_rsum=values[trial.id])
    grid_state = GridState.of(grid, home)
    assert [search.number for search in grid_state.searches] == ["search 1 of 2"] * 2 + ["search 2 of 2"] * 2
    assert {trial_id.rpartition("-")[0].rpartition("_s")[2] for trial_id in values} == {"100", "200"}
    drawn = [[point.swept for point in search.points] for search in grid_state.searches]
    assert drawn[1][0] == drawn[3][0]  # the default
    assert drawn[1][1:] != drawn[3][1:]
    for cell in grid_state.cells:
        assert [trial.seed for trial in cell.trials] == [0, 1]
        for trial, choice, first in zip(cell.trials, cell.choices, (100, 200), strict=True):
            searched = [p for s in grid_state.searches for p in s.points if p.objective == cell.objective]
            of_seed = [point for point in searched if point.trials[0].seed == first]
            best = max(of_seed, key=lambda point: values[point.trials[0].id])
            assert choice.best.trial == best.trials[0].id
            assert trial.shared.train.lr == best.trials[0].shared.train.lr
    assert {grid_state.states[trial.id] for cell in grid_state.cells for trial in cell.trials} == {State.PLANNED}
