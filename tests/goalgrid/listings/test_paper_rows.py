"""`goalgrid tables`: what trains each row of the papers' tables, and the count."""

import json
import re
from pathlib import Path

from goalgrid.listings import paper_rows

from ...conftest import ROOT, Goalgrid


def test_the_count_is_the_sum_of_the_tables() -> None:
    page = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| \[.*\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.M)
    sums = [sum(map(int, column)) for column in zip(*found, strict=True)]
    every = paper_rows.rows()
    assert len(found) == 29
    assert sums[0] == sum(sums[1:]) == len(every)
    assert paper_rows.count(every).startswith("{} rows: {} trainable here, {} quoted, {} not possible;".format(*sums))


def test_a_table_is_shown_alone_and_a_wrong_name_gives_the_nearest(goalgrid: Goalgrid, tmp_path: Path) -> None:
    shown = goalgrid("tables", "selhn-table5", runs=tmp_path).stdout
    assert re.search(
        r"^  RVSE\+\+ +selhn-table5: rvsepp, selhn; differs: .* BERT learns at a tenth", shown, re.MULTILINE
    )
    assert re.search(r"^  CAMP\(CVPR'19\) \[34\] +quoted from \[34\]$", shown, re.MULTILINE)
    shared = goalgrid("tables", "selhn-table9", runs=tmp_path).stdout
    assert shared.count("(published: nltk's, a file)") == 1, "of all rows, so said once"
    assert re.search(
        r"^  all rows that are trainable here differ: plain words .*; 1,000 validation", shared, re.MULTILINE
    )
    rows = json.loads(goalgrid("tables", "selhn-table5", "--json", runs=tmp_path).stdout)
    names = "table block label origin grids recipes objectives quoted why differs"
    assert rows[-1].keys() == set(names.split())
    wrong = goalgrid("tables", "selhn-tabel5", runs=tmp_path)
    assert wrong.returncode == 2
    assert "unknown table of a paper 'selhn-tabel5'. Did you mean 'selhn-table5'?" in wrong.stderr
