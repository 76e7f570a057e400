"""Every format prints the papers' tables as the papers do: header, columns of words, rows, numbers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from goalgrid.grid.store.home import Home
from goalgrid.reports.tables import draw
from goalgrid.results.export.table_request import TableRequest
from goalgrid.results.reference.reading import table_names
from goalgrid.results.tables import Row, Table
from tests.cases import every

from ...results.reference.printed_grids import FOLDER, check_printed, grids, screen, transcribed
from .test_paper_tables import FEW

WORDY = ("goal-table6", "selhn-table1", "selhn-table4", "unified-table4", "unified-table7", "2ad-table1", "2ad-tableC2")
"""Tables with several columns of words."""


def reference(name: str) -> Table:
    return draw(TableRequest(name, reference=True), Home(Path("nowhere")))


def with_rows(table: Table, change: Callable[[Row], Row]) -> Table:
    blocks = (replace(block, rows=tuple(map(change, block.rows))) for block in table.blocks)
    return replace(table, blocks=tuple(blocks))


def with_columns_swapped(table: Table) -> Table:
    """The first two columns of numbers, with their titles, or with the groups' where these have one column."""
    first, *others = table.groups
    if len(first.columns) > 1:
        one, two, *more = first.columns
        groups = (replace(first, columns=(two, one, *more)), *others)
    else:
        groups = (others[0], first, *others[1:])

    def swapped(row: Row) -> Row:
        one, two, *more = row.entries
        return replace(row, entries=(two, one, *more))

    return replace(with_rows(table, swapped), groups=groups)


def without_the_last_word(table: Table) -> Table:
    (group,) = table.words
    rest = replace(group, columns=group.columns[:-1])
    return replace(with_rows(table, lambda row: replace(row, words=row.words[:-1])), words=(rest,))


def test_every_table_is_transcribed() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(table_names())


@pytest.mark.gate
@every("name", table_names())
def test_every_format_prints_the_papers_table(name: str) -> None:
    check_printed(reference(name), transcribed(name))


@every("name", FEW)
def test_two_columns_that_are_swapped_are_noticed_in_every_format(name: str) -> None:
    read = grids(with_columns_swapped(reference(name)), transcribed(name))
    assert [kind for kind, (ours, theirs) in read.items() if ours.numbers == theirs.numbers] == []
    assert [kind for kind, (ours, theirs) in read.items() if ours.lines == theirs.lines] == []


@every("name", WORDY)
def test_a_column_of_words_that_is_dropped_is_noticed_in_every_format(name: str) -> None:
    table = reference(name)
    read = grids(without_the_last_word(table), transcribed(name))
    unharmed = ["csv", "parquet"] if table.stub_heads[-1] == "Loss" else []  # they have the loss as an axis, too
    assert [kind for kind, (ours, theirs) in read.items() if ours == theirs] == unharmed


def test_a_table_marks_as_many_bests_as_the_paper() -> None:
    table = reference("2ad-table1")
    bigru, bert = (
        {(row.words[0].text, row.entries[0].text) for place, row in enumerate(block.rows) if (place, 0) in best}
        for block, best in ((block, table.best_of(block)) for block in table.blocks)
    )
    assert bigru == {("R", "63.5"), ("RG", "65.7"), ("RGP", "67.1")}
    assert bert == {("R", "67.5"), ("RG", "71.9"), ("RGP", "72.5")}
    assert "best of each VF in bold" in table.caption


def test_where_stars_are_ensembles_the_best_has_another_mark() -> None:
    text = screen(reference("unified-table1"), 300)
    assert "SGRAF* + L_Unified" in text
    assert "^78.3" in text
    assert "*: ensemble of two models; best marked ^." in text
    assert "*77.4" in screen(reference("selhn-table1"), 300)
