"""The papers' tables that a grid is for: which of their numbers it will fill, and why not the others."""

import math
from collections import Counter

import pytest

from grid import catalog
from grid.errors import UserError
from grid.expansion import expand
from grid.gridfile import load
from results.records import record
from results.reference.coverage import Coverage, check_names, coverage
from results.reference.reading import results_of, table_names


def covered(table: str, *overrides: str, grid: str = "goal-table3-coco") -> Coverage:
    return coverage(table, expand(load(grid, overrides)))


@pytest.mark.parametrize("table", table_names())
def test_what_is_filled_equals_the_literal_product(table: str) -> None:
    grid = load("goal-table2-coco", ['datasets=["coco","flickr30k"]', 'objectives=["con_con","triplet-hn","selhn"]'])
    found = coverage(table, expand(grid))
    recipes = {name for recipe in grid.recipes for name in catalog.lineage(recipe)}
    literal = [
        result
        for result in results_of(table)
        if result.value.mean == result.value.mean
        and result.dataset in grid.datasets
        and result.recipe in recipes
        and result.objective in grid.objectives
        and result.metric in record.METRICS
        and result.protocol in catalog.protocols(result.dataset)
    ]
    assert list(found.filled) == literal
    assert len(found.filled) + len(found.lacking) == sum(not math.isnan(r.value.mean) for r in results_of(table))


def test_each_gap_says_what_is_lacking() -> None:
    smaller = covered("goal-table3-coco", 'objectives=["con_con","sig_cir"]', 'recipes=["vsepp-r152"]')
    counts = Counter(gap.text for _, gap in smaller.lacking)
    assert counts["the grid has no recipe vsepp-r152-ft"] == 30
    assert counts["the grid has no objective con_nca"] == 2
    assert sum(counts.values()) == 56
    other = {gap.text for _, gap in covered("goal-table6").lacking}
    assert {"the grid has no dataset flickr30k", "no recipe here is this model"} <= other


def test_cells_that_leave_their_recipe_are_said() -> None:
    assert covered("goal-table3-coco").changed == ()
    assert covered("goal-table3-coco", "train.epochs=3", "objective.tau=4").changed == ("train.epochs", "objective.tau")
    assert covered("goal-table6", "train.epochs=3", 'objectives=["con_nca"]').changed == ()


def test_every_unknown_table_is_named_at_once() -> None:
    with pytest.raises(UserError) as caught:
        check_names(load("demo", ['tables=["goal-table3-cocoo","goal-table6","x"]']))
    assert "unknown table 'goal-table3-cocoo' in tables[0]. Did you mean 'goal-table3-coco'?" in str(caught.value)
    assert "unknown table 'x' in tables[2]" in str(caught.value)
    assert "goalgrid table --reference" in str(caught.value)


def test_tables_are_no_part_of_a_trials_identity() -> None:
    plain, named = load("demo"), load("demo", ['tables=["goal-table6"]'])
    assert expand(plain) == expand(named)
    assert [trial.id for cell in expand(named) for trial in cell.trials] == [
        trial.id for cell in expand(plain) for trial in cell.trials
    ]
