"""Averages over cells: equal to the literal mean, blank where a cell lacks seeds, and over values of one kind alone."""

from dataclasses import replace

import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import load
from goalgrid.results.layouts import arrange
from goalgrid.results.layouts.pivot import Axes
from goalgrid.results.records import record
from goalgrid.results.records.scores import Score, Scores
from goalgrid.results.reference.reading import Paper
from goalgrid.results.renderers import parquet
from goalgrid.results.tables.averages import Average, averaged
from goalgrid.results.tables.table import Table, TableEntry

CELLS = expand(
    load("demo", ['objectives=["con_con","con_nca","con_cir","sig_con","sig_nca","sig_cir"]', "seeds=[0,1]"])
)


def records(cells: list[Cell], *, without: int = 0) -> Scores:
    """Every metric of a trial is its place in the grid; the last trials are left out."""
    trials = [(cell, trial) for cell in cells for trial in cell.trials]
    kept = trials[: len(trials) - without]
    return Scores({
        trial.id: {
            **{"trial_id": trial.id, "dataset": cell.dataset, "recipe": cell.recipe, "protocol": "shapes-500"},
            **{"code_fingerprint": "code", "other_metrics": None},
            **{f"test_{name}": float(place) for name in record.METRICS},
        }
        for place, (cell, trial) in enumerate(kept)
    })  # fmt: skip


def mean(entry: TableEntry | None) -> Average:
    assert entry
    assert isinstance(entry.score, Average)
    return entry.score


def test_the_matrix_gets_a_row_and_a_column_a_direction() -> None:
    table = averaged(arrange(CELLS, records(CELLS)))
    assert [column.text for group in table.groups for column in group.columns] == [
        "T^con",
        "T^nca",
        "T^cir",
        "mean",
    ] * 2
    labels = {row.label.text: row for row in table.blocks[0].rows}
    values = [[0.5, 2.5, 4.5], [6.5, 8.5, 10.5]]
    for label, row in zip(("P^con", "P^sig"), values, strict=True):
        assert mean(labels[label].entries[3]).mean == mean(labels[label].entries[7]).mean == sum(row) / 3
    below = [mean(entry).mean for entry in labels["mean"].entries[:4]]
    assert below == [3.5, 5.5, 7.5, 5.5]
    assert labels["P^lin"].entries[3] is None
    assert "over the cells of a row or a column, -- where one is missing or lacks seeds." in table.caption


def test_an_average_over_incomplete_cells_is_blank_unless_it_is_asked_for() -> None:
    plain = arrange(CELLS, records(CELLS, without=3))
    last = averaged(plain).blocks[0].rows[-1].entries
    assert [entry.text for entry in last[:4] if entry] == ["3.5", "--", "--", "--"]
    allowed = averaged(plain, partial=True)
    last = allowed.blocks[0].rows[-1].entries
    assert [entry.text for entry in last[:4] if entry] == ["3.5", "5.3 (1/2)", "4.5 (1/2)", "4.4 (4/6)"]
    assert "also of those that lack seeds (whole/all cells)" in allowed.caption


def test_a_cell_that_the_grid_lacks_makes_its_averages_incomplete() -> None:
    last = averaged(arrange(CELLS[:5], records(CELLS[:5]))).blocks[0].rows
    rows = {row.label.text: row for row in last}
    assert [entry.text if entry else None for entry in rows["P^sig"].entries[:4]] == [
        "6.5 ± 0.7",
        "8.5 ± 0.7",
        None,
        "--",
    ]
    assert [entry.text for entry in rows["mean"].entries[:4] if entry] == ["3.5", "5.5", "--", "--"]


def test_only_values_of_one_metric_are_averaged() -> None:
    listing = averaged(arrange(CELLS, records(CELLS), layout="listing"))
    assert all("mean" not in [column.text for column in group.columns] for group in listing.groups)
    assert [mean(entry).mean for entry in listing.blocks[0].rows[-1].entries] == [5.5] * 7
    seeds = averaged(arrange(CELLS, records(CELLS), axes=Axes(("metric",), ("seed",), ("objective",))))
    assert [column.text for group in seeds.groups for column in group.columns] == ["0", "1", "mean"]
    assert [len(block.rows) for block in seeds.blocks] == [2] * 6
    with pytest.raises(UserError, match="no row and no column of this table has several values of one metric"):
        averaged(arrange(CELLS, records(CELLS), axes=Axes(("metric",), ("recipe",))))


def test_averages_are_never_bold_and_never_the_best() -> None:
    plain = arrange(CELLS, records(CELLS))
    before = [plain.blocks[0].rows[row].entries[column] for row, column in plain.best_of(plain.blocks[0])]
    table = averaged(plain)
    assert [table.blocks[0].rows[row].entries[column] for row, column in table.best_of(table.blocks[0])] == before


def test_a_tidy_average_says_over_what_it_is() -> None:
    rows = [row for row in parquet.tidy(averaged(arrange(CELLS, records(CELLS)))).to_pylist() if row["average_over"]]
    across, corner = rows[0], rows[-1]
    assert (across["average_over"], across["pair_weight"], across["objective"]) == (
        "objective, triplet_weight",
        "con",
        None,
    )
    assert (across["cells"], len(across["trials"]), across["mean"], across["n"]) == (3, 6, 2.5, None)
    assert set(corner["average_over"].split(", ")) == {"objective", "triplet_weight", "pair_weight"}
    assert corner["cells"] == 6


@pytest.mark.parametrize("table", [
    arrange(Paper.read("goal-table3-coco").cells, Paper.read("goal-table3-coco")),
    arrange(CELLS, Scores({}), layout="known"),
], ids=["printed", "known"])  # fmt: skip
def test_what_was_not_measured_is_not_averaged(table: Table) -> None:
    with pytest.raises(UserError, match="--averages are over measured cells"):
        averaged(table)


def test_no_value_gives_no_average_even_where_gaps_are_allowed() -> None:
    empty = Score((), expected=2)
    assert Average((empty, empty), 2, partial=True).text == "--"
    assert replace(Average((Score((1.0,), 1), empty), 2), partial=True).text == "1.0 (1/2)"


def test_a_grid_that_fills_no_row_and_no_column_is_told_so() -> None:
    cells = expand(load("demo", ['objectives=["con_con","sig_cir"]', "seeds=[0,1]"]))
    with pytest.raises(UserError, match=r"no row and no column of this table is whole.*--allow-partial"):
        averaged(arrange(cells, records(cells)))
    allowed = averaged(arrange(cells, records(cells)), partial=True)
    assert [entry.text for entry in allowed.blocks[0].rows[-1].entries if entry][-1].endswith("(2/4)")
