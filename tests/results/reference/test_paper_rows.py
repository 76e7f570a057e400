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
from goalgrid.results.tables.notation import check_set, escape
from tests.cases import every
from tests.grid.test_recipes import PROGRAM, text_of

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
def test_latex_sets_all_that_is_said_of_a_table(table: str, grids: Grids) -> None:
    content = paper_table(table)
    texts = [text for row, _, _ in told(table, grids) for text in (*row.differs, row.label, row.block)]
    texts += [content.heading, content.note, content.i2t, content.t2i, *content.words]
    for text in [*texts, *(doubt.text for doubt in content.doubts)]:
        check_set(escape(text))


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


@every("name", [name for name in catalog.names("recipes") if not name.endswith("-tiny")])
def test_a_recipe_whose_comments_speak_of_our_reading_has_one(name: str) -> None:
    """What a reader of the file learns stands in the table, too."""
    comments = "\n".join(re.findall("#.*", text_of(name)))
    if re.search(r"our reading|\bours:|is silent|leaves? open|batch norms by GPU", comments):
        assert catalog.recipe(name).readings or name == "xvlm-zero-shot", comments


def test_a_recipe_inherits_a_reading_by_topic() -> None:
    """As any table: a topic of its own is added or takes another's place, and an empty one is none."""
    bert, bigru = (catalog.recipe(name).readings for name in ("vse-2ad", "vse-2ad-bigru"))
    assert "one linear layer on BERT, as in its code (paper: an MLP)" in bert
    assert not any("BERT" in phrase for phrase in bigru)
    assert set(bigru) - set(bert) == {"sentence boundaries may be dropped (its code: never)"}
    assert catalog.recipe("vsrn-coco").readings == catalog.recipe("vsrn").readings != ()
    assert catalog.recipe("clip-vit-l14-336").readings
    assert catalog.recipe("clip-ft").readings == catalog.recipe("clip-tiny").readings == ()


def test_a_reading_may_be_a_single_text() -> None:
    recipe = catalog.recipe("fc-bow").model_dump() | {"reading": "by hand"}
    assert catalog.Recipe.model_validate(recipe).readings == ("by hand",)


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


@every("name", [name for name in catalog.names("presets") if load(name).tables])
def test_the_comment_of_a_grid_names_the_protocol_of_its_tables(name: str) -> None:
    first = (PROGRAM / "grid" / "presets" / f"{name}.toml").read_text(encoding="utf-8").partition("\n")[0]
    protocols = {part.protocol for table in load(name).tables[:1] for part in paper_table(table).parts}
    words = {"coco-5k": "5K", "coco-5x1k": "1K"}
    assert {word for word in words.values() if f"{word}" in first} <= {words.get(p, "") for p in protocols}, first
