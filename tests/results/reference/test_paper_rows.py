"""The rows of the papers' tables: each row has one origin, and the grids that train a row really have its cells."""

import math

import pytest

from grid import catalog
from grid.expansion import Cell, expand
from grid.gridfile import Grid, load
from results.records import record
from results.reference.paper_rows import NOT_POSSIBLE, QUOTED, TRAINED, PaperRow, paper_rows
from results.reference.reading import Line, Result, paper_table, table_names

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
        (row, line, [r for r in numbers if not math.isnan(r.value.mean) and r.metric in record.METRICS])
        for row, (line, numbers) in zip(paper_rows(table, grids), lines, strict=True)
    ]


def test_there_are_29_tables_with_numbers() -> None:
    assert len(TABLES) == 29


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_one_origin(table: str, grids: Grids) -> None:
    for row, line, _ in told(table, grids):
        mark = QUOTED if line.quoted else NOT_POSSIBLE if line.not_possible else None
        assert not (line.quoted and line.not_possible), row
        assert row.origin == (TRAINED if row.recipe and row.objectives else mark), row
        assert not (row.origin == TRAINED and line.not_possible), row


@pytest.mark.parametrize("table", TABLES)
def test_the_grids_of_a_row_have_a_cell_for_each_of_its_numbers_and_no_grid_is_idle(table: str, grids: Grids) -> None:
    cells = {grid.name: {(cell.dataset, cell.recipe, cell.objective) for cell in cells} for grid, cells in grids}
    for row, _, numbers in told(table, grids):
        if row.grids:
            wanted = {(number.dataset, number.recipe, number.objective) for number in numbers}
            assert wanted <= set().union(*(cells[name] for name in row.grids)), row
            assert all(wanted & cells[name] for name in row.grids), row


@pytest.mark.parametrize("table", TABLES)
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


def test_a_row_that_a_grid_fills_in_part_is_not_trained(grids: Grids) -> None:
    coco = [(grid, cells) for grid, cells in grids if not grid.name.endswith("-f30k")]
    before = {row.label: row for row in paper_rows("goal-table6", grids)}
    after = {row.label: row for row in paper_rows("goal-table6", coco)}
    assert before["VSE∞ (WSL) ours"].grids == ("goal-table5-coco", "goal-table5-f30k")
    assert after["VSE∞ (WSL) ours"].grids == ()
    assert after["VSE∞ (WSL) [2]"].origin == QUOTED


def test_a_row_of_two_data_sets_may_have_a_recipe_of_each(grids: Grids) -> None:
    for table, model, recipes in (
        ("unified-table1", "SCAN*", {"flickr30k": "scan", "coco": "scan-coco"}),
        ("goal-table6", "X-VLM ours", {"coco": "xvlm", "flickr30k": "xvlm-f30k"}),
    ):
        (row,) = (row for row in paper_rows(table, grids) if row.label.startswith(model))
        (numbers,) = (own for line, own in paper_table(table).rows(table) if (line.model or "").startswith(model))
        assert {number.dataset: number.recipe for number in numbers} == recipes
        assert (row.recipe, row.grids) == (", ".join(recipes.values()), (table,))
