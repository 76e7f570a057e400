"""The rows of the papers' tables: each row has one origin, and the grids that train a row really have its cells."""

import math
import re

import pytest

from goalgrid.grid import catalog
from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import Grid, load
from goalgrid.results.records import record
from goalgrid.results.reference.coverage import NOT_POSSIBLE, QUOTED, TRAINED, PaperRow, paper_rows
from goalgrid.results.reference.reading import Line, Result, paper_table, table_names
from tests.cases import every
from tests.grid.test_recipes import text_of

TABLES = [name for name in table_names() if name != "goal-table1"]
"""Table 1 of GOAL names losses."""

Grids = list[tuple[Grid, list[Cell]]]


@pytest.fixture(scope="module")
def grids() -> Grids:
    return [(grid, expand(grid)) for grid in map(load, catalog.names("presets"))]


def told(table: str, grids: Grids) -> list[tuple[PaperRow, Line, list[Result]]]:
    """The rows of a table with its file's lines and the numbers that are measured here."""
    lines = list(paper_table(table).rows(table))
    return [
        (row, numbers[0].line, [r for r in numbers if not math.isnan(r.value.mean) and r.metric in record.METRICS])
        for row, numbers in zip(paper_rows(table, grids), lines, strict=True)
    ]


def test_there_are_29_tables_with_numbers() -> None:
    assert len(TABLES) == 29


@every("table", TABLES)
def test_every_row_has_one_origin(table: str, grids: Grids) -> None:
    for row, line, _ in told(table, grids):
        mark = QUOTED if line.quoted else NOT_POSSIBLE if line.not_possible else None
        assert row.origin == (TRAINED if row.grids else mark), row
        assert bool(row.recipes) == bool(row.objectives) or line.not_possible, row
        assert not (row.objectives and line.not_possible), row
        assert row.grids or row.quoted or not row.objectives, row


@every("table", TABLES)
def test_the_grids_of_a_row_have_a_cell_for_each_of_its_numbers_and_no_grid_is_idle(table: str, grids: Grids) -> None:
    cells = {grid.name: {(cell.dataset, cell.recipe, cell.objective) for cell in cells} for grid, cells in grids}
    for row, _, numbers in told(table, grids):
        if row.grids:
            wanted = {(number.dataset, number.recipe, number.objective) for number in numbers}
            assert wanted <= set().union(*(cells[name] for name in row.grids)), row
            assert all(wanted & cells[name] for name in row.grids), row


def test_selhns_table_10_is_trained_by_the_grid_of_table_3(grids: Grids) -> None:
    assert [row.grids for row, _, _ in told("selhn-table10", grids)] == [("selhn-table3",)] * 5


@every("table", [name for name in TABLES if name != "selhn-table10"])
def test_one_grid_trains_a_table_and_no_cell_of_it_for_nothing(table: str, grids: Grids) -> None:
    """All numbers of the rows that can be trained; what others start from fills no number of its own."""
    named = [cells for grid, cells in grids if table in grid.tables]
    rows = told(table, grids)
    filled = {(n.dataset, n.recipe, n.objective) for row, _, numbers in rows if row.grids for n in numbers}
    assert {name for row, _, _ in rows for name in row.grids} <= {table}
    assert len(named) == bool(filled)
    for cells in named:
        parents = {parent for cell in cells for trial in cell.trials for parent in trial.parents}
        own = [cell for cell in cells if not any(trial.id in parents for trial in cell.trials)]
        assert {(cell.dataset, cell.recipe, cell.objective) for cell in own} <= filled
        assert filled <= {(cell.dataset, cell.recipe, cell.objective) for cell in cells}


@every("table", TABLES)
def test_the_grids_that_name_a_table_train_its_own_rows(table: str, grids: Grids) -> None:
    """A grid with settings that are not the recipe's fills a table only if it names the table.

    Rows that no grid names the table for, as those of VSE++ in GOAL's Table 6, are filled by grids of other tables.
    """
    named = {grid.name for grid, _ in grids if table in grid.tables}
    for row, line, _ in told(table, grids):
        for grid, _ in grids:
            own = any(not setting.startswith("dataset.") for setting in grid.set)
            assert not (own and grid.name in row.grids and grid.name not in named), row
        if named & set(row.grids) and not line.quoted:
            assert set(row.grids) <= named, row


def trained(numbers: list[Result]) -> set[str]:
    """The recipes of a row that train something: of an ensemble its members, and what a recipe starts from."""
    recipes = {number.recipe for number in numbers if number.recipe}
    return {model for recipe in recipes for model in catalog.lineage(recipe) if not catalog.recipe(model).ensemble}


def other_schedule(row: PaperRow, numbers: list[Result], grids: Grids) -> bool:
    """Whether a model of the row trains by other settings than its recipe's."""
    models = trained(numbers)
    return any(
        cell.trials[0].shared.train != catalog.recipe(cell.recipe).train
        for grid, cells in grids
        for cell in cells
        if grid.name in row.grids and cell.recipe in models and cell.objective in row.objectives
    )


def test_eighteen_quoted_rows_have_another_schedule_than_their_source(grids: Grids) -> None:
    said = []
    for table in TABLES:
        for row, line, numbers in told(table, grids):
            if row.grids and line.quoted and not numbers[0].differs:
                other = [text for text in row.differs if text.startswith("another schedule than its source: train.")]
                assert bool(other) == other_schedule(row, numbers, grids), row
                said += other
            else:
                assert not any("another schedule" in text for text in row.differs), row
    assert len(said) == 18
    assert "another schedule than its source: train.epochs 30 for 15, train.lr 0.0005 for 0.0002" in said


@every("table", TABLES)
def test_a_row_says_what_its_table_and_the_models_that_it_trains_say(table: str, grids: Grids) -> None:
    idle = {remark.text for remark in paper_table(table).differs}
    for row, _, numbers in told(table, grids):
        if row.grids:
            readings = {catalog.recipe(model).reading for model in trained(numbers)} - {""}
            said = {text for text in row.differs if not text.startswith("another schedule")}
            assert said == readings | {number.differs for number in numbers} - {""}, row
            idle -= said
        else:
            assert not row.differs, row
    assert not idle, "a remark on rows that no grid fills"


def test_six_rows_have_a_stand_in_and_ten_a_pooling_by_our_reading(grids: Grids) -> None:
    rows = [row for table in TABLES for row in paper_rows(table, grids) if row.grids]
    stand_ins = [row for row in rows if {"aoq", "ncr"} & set(row.objectives)]
    assert len(stand_ins) == 6
    assert all("the authors' candidates" in row.differs[0] or "not NCR's code" in row.differs[0] for row in stand_ins)
    poolings = [row for row in rows if row.label in {"LIP", "Seq2Seq", "GCN", "SelfAttn", "AdaPool"}]
    assert len(poolings) == 10
    assert all(row.label in row.differs[0] for row in poolings)


@every("name", [name for name in catalog.names("recipes") if not name.endswith("-tiny")])
def test_a_recipe_whose_comments_speak_of_our_reading_has_one(name: str) -> None:
    """What a reader of the file learns stands in the table, too."""
    comments = "\n".join(re.findall("#.*", text_of(name)))
    if re.search(r"our reading|\bours:|is silent|leaves? open|batch norms by GPU", comments):
        assert catalog.recipe(name).reading or name == "xvlm-zero-shot", comments


def test_a_recipe_does_not_inherit_what_is_read_of_another() -> None:
    assert "frozen" in catalog.recipe("clip-vit-l14-336").reading
    assert catalog.recipe("clip-ft").reading == ""


def test_a_row_that_a_grid_fills_in_part_is_not_trained(grids: Grids) -> None:
    coco = [
        (grid, [cell for cell in cells if cell.dataset != "flickr30k"])
        for grid, cells in grids
        if grid.name != "flickr8k"
    ]
    before = {row.label: row for row in paper_rows("goal-table6", grids)}
    after = {row.label: row for row in paper_rows("goal-table6", coco)}
    assert before["VSE∞ (WSL) ours"].grids == ("goal-table6",)
    assert after["VSE∞ (WSL) ours"].grids == ()
    assert after["VSE∞ (WSL) [2]"].origin == QUOTED


def test_a_row_of_two_data_sets_may_have_a_recipe_of_each(grids: Grids) -> None:
    for table, model, recipes in (
        ("unified-table1", "SCAN*", {"flickr30k": "scan", "coco": "scan-coco"}),
        ("goal-table6", "X-VLM ours", {"coco": "xvlm", "flickr30k": "xvlm-f30k"}),
    ):
        (row,) = (row for row in paper_rows(table, grids) if row.label.startswith(model))
        (numbers,) = (own for own in paper_table(table).rows(table) if own[0].model.startswith(model))
        assert {number.dataset: number.recipe for number in numbers} == recipes
        assert (row.recipes, row.grids) == (tuple(recipes.values()), (table,))
