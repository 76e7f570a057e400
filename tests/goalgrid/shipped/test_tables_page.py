"""`goalgrid tables`: what trains each row of the papers' tables, the count, and docs/tables.md says the same."""

import json
import re
from pathlib import Path

import pytest

from goalgrid.results.reference.coverage import PaperRow
from goalgrid.shipped import lists, tables_page

from ...conftest import ROOT, Goalgrid

WRITE = "goalgrid tables --format markdown > docs/tables.md"


@pytest.fixture(scope="module")
def every() -> list[PaperRow]:
    return tables_page.rows()


def test_the_page_is_what_the_grids_train(every: list[PaperRow]) -> None:
    page = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    assert page == "\n".join(tables_page.markdown(every)) + "\n", f"docs/tables.md is out of date; write it: {WRITE}"


def test_the_count_is_the_sum_of_the_tables(every: list[PaperRow]) -> None:
    found = re.findall(r"^\| \[.*\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", "\n".join(tables_page.markdown(every)), re.M)
    sums = [sum(map(int, column)) for column in zip(*found, strict=True)]
    assert len(found) == 29
    assert sums[0] == sum(sums[1:]) == len(every)
    assert tables_page.count(every).startswith("{} rows: {} trained here, {} quoted, {} not possible;".format(*sums))


def test_a_table_is_shown_alone_and_a_wrong_name_gives_the_nearest(goalgrid: Goalgrid, tmp_path: Path) -> None:
    shown = goalgrid("tables", "selhn-table5", runs=tmp_path).stdout
    assert re.search(r"^  RVSE\+\+ +selhn-table5: rvsepp, selhn; differs: .* BERT's learning rate", shown, re.MULTILINE)
    assert re.search(r"^  CAMP\(CVPR'19\) \[34\] +quoted from \[34\]$", shown, re.MULTILINE)
    rows = json.loads(goalgrid("tables", "selhn-table5", "--json", runs=tmp_path).stdout)
    told = re.findall(r"\w+", lists.JSON_TABLES.partition(":")[2].partition(" of each")[0])
    assert rows[-1].keys() == set(told) - {"and"}
    wrong = goalgrid("tables", "selhn-tabel5", runs=tmp_path)
    assert wrong.returncode == 2
    assert "unknown table of a paper 'selhn-tabel5'. Did you mean 'selhn-table5'?" in wrong.stderr
