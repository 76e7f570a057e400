"""The papers' tables that a grid is for: which of their numbers it will fill, and why not the others."""

import math
import re
from collections import Counter

import pytest

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.objectives import OURS
from goalgrid.results.records import record
from goalgrid.results.reference.coverage import Coverage, check_names, coverage
from goalgrid.results.reference.reading import paper_table, results_of, table_names
from tests.cases import every


def covered(table: str, *overrides: str, grid: str = "goal-table3-coco") -> Coverage:
    return coverage(table, expand(load(grid, overrides)))


@every("table", table_names())
def test_what_is_filled_equals_the_literal_product(table: str) -> None:
    grid = load("goal-table2-coco", ['datasets=["coco","flickr30k"]', 'objectives=["con_con","triplet-hn","selhn"]'])
    found = coverage(table, expand(grid))
    recipes = {name for recipe in grid.recipes for name in catalog.SHIPPED.lineage(recipe)}
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


def systems(name: str) -> set[str]:
    """The words of a printed name, systems spelt as in recipes: `R VSE++` and `X-VLM ours` have vsepp and xvlm."""
    plain = name.lower().replace("∞", "-infinity").replace("++", "pp").replace("x-vlm", "xvlm")
    return set(re.findall(r"[a-z]{2,}[a-z0-9]*", plain))


SHIPPED_MODELS = {name.partition("-")[0] for name in catalog.names("recipes")}
"""The system of every shipped recipe: the first word of its name."""
SHIPPED_LOSSES = {name.replace("-", "") for name in OURS}


@every("table", table_names())
def test_nothing_that_is_shipped_is_said_to_be_missing(table: str) -> None:
    """Every gap of every table, held against the catalogue; a gap that a table's file explains says more."""
    explained = {first.line.not_possible for first, *_ in paper_table(table).rows(table)}
    for result, missing in coverage(table, ()).lacking:
        if missing.why == "no recipe here is this model":
            assert not systems(result.model) & SHIPPED_MODELS, result
        elif missing.why == "no objective here is this loss":
            assert systems(result.loss), result
            assert not systems(result.loss.replace("-", "")) & SHIPPED_LOSSES, result
        elif missing.why == "not measured here:":
            assert missing.name not in record.METRICS, result
        else:
            assert missing.why in explained or missing == ("the grid has no dataset", result.dataset), missing


@every("name", [name for name in catalog.names("presets") if load(name).tables])
def test_no_shipped_grid_is_said_to_lack_what_it_has(name: str) -> None:
    cells = expand(load(name))
    has = {what: {getattr(cell, what) for cell in cells} for what in ("dataset", "recipe", "objective")}
    for table in load(name).tables:
        for result, missing in coverage(table, cells).lacking:
            what = missing.why.removeprefix("the grid has no ")
            if what in has:
                assert missing.name == getattr(result, what)
                assert missing.name not in has[what], (name, table, result)
            if missing.why == "the grid leaves out":
                assert result.recipe in has["recipe"]
                assert result.objective in has["objective"]


def test_a_cell_that_a_grid_excludes_is_said_so() -> None:
    exclude = 'exclude=[{recipe="vsepp-r152-ft",objective="con_nca"}]'
    (gap,) = {" ".join(gap).rstrip() for _, gap in covered("goal-table3-coco", exclude).lacking}
    assert gap == "the grid leaves out vsepp-r152-ft by con_nca on coco"


def test_each_gap_says_what_is_lacking() -> None:
    smaller = covered("goal-table3-coco", 'objectives=["con_con","sig_cir"]', 'recipes=["vsepp-r152"]')
    counts = Counter(" ".join(gap).rstrip() for _, gap in smaller.lacking)
    assert counts["the grid has no recipe vsepp-r152-ft"] == 30
    assert counts["the grid has no objective con_nca"] == 2
    assert sum(counts.values()) == 56
    other = {" ".join(gap).rstrip() for _, gap in covered("goal-table6").lacking}
    assert {"the grid has no dataset flickr30k", "no recipe here is this model"} <= other


def test_cells_that_leave_their_recipe_are_said() -> None:
    assert covered("goal-table3-coco").changed == ()
    assert covered("goal-table3-coco", "train.epochs=3", "objective.tau=4").changed == ("train.epochs", "objective.tau")
    assert covered("goal-table6", "train.epochs=3", 'objectives=["con_nca"]').changed == ()


def test_cells_that_leave_the_whole_data_set_are_said() -> None:
    changed = covered("goal-table3-coco", "dataset.noise=0.5", "dataset.train_images=20", "dataset.min_count=1").changed
    assert changed == ("dataset.min_count", "dataset.train_images", "dataset.noise")
    assert covered("goal-table3-coco", "dataset.val_images=50", "dataset.words=nltk").changed == (), "left to the user"


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
