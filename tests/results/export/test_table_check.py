"""Published tables against the records: written files say how they were made, and every change is named."""

import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.results import renderers
from goalgrid.results.export import table_check
from goalgrid.results.export.table_request import TableRequest
from goalgrid.results.records.scores import Scores
from goalgrid.results.renderers import parquet
from goalgrid.results.tables.table import Table

from ..tables.test_averages import records

CELLS = expand(load("demo", ['objectives=["con_con","sig-ms_cir"]', "seeds=[0,1]", 'recipes=["cnn-bow","cnn-gru"]']))


def scores(**changed: float) -> Scores:
    """Records of all trials, those of the last one changed in some metrics."""
    made = records(CELLS)
    last = CELLS[-1].trials[-1].id
    return replace(made, rows={**made.rows, last: {**made.rows[last], **changed}})


def table(request: TableRequest = TableRequest("demo"), **changed: float) -> Table:  # noqa: B008
    return request.draw(CELLS, scores(**changed))


@pytest.fixture(params=renderers.ENDINGS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_file_says_how_it_was_made(kind: str, tmp_path: Path) -> None:
    request = TableRequest("demo", metric="r5", marks=True)
    path = tmp_path / f"t.{renderers.ENDINGS[kind]}"
    renderers.write(table(request), kind, path)
    says = kind != "csv"
    assert table_check.command_of(path) == (f"{request.command} --format {kind}" if says else "")
    assert renderers.format_of(path) == kind


def test_a_file_that_nothing_changed_is_the_same(kind: str, tmp_path: Path) -> None:
    renderers.write(table(), kind, tmp_path / "t")
    assert table_check.compare(table(), kind, tmp_path / "t") == table_check.CheckOutcome()


def test_a_changed_record_changes_one_line_that_is_shown(kind: str, tmp_path: Path) -> None:
    renderers.write(table(), kind, tmp_path / "t")
    differences = table_check.compare(table(test_t2i_r1=9.0), kind, tmp_path / "t").differences
    plain = [re.sub(r"\*\*|\\textbf|[${}\s]", "", line.replace("$\\pm$", "±")) for line in differences]
    assert re.match(r"@@-(\d+)(,3)?\+\1(,3)?@@", plain[0])
    before, now = ("6.5,0.7", "7.5,2.1") if kind == "parquet" else ("6.5±0.7", "7.5±2.1")
    assert any(re.match(rf"-.*{before}", line) for line in plain)
    assert any(re.match(rf"\+.*{now}", line) for line in plain)


def test_a_change_that_no_reader_sees_is_shown_in_data(tmp_path: Path) -> None:
    renderers.write(table(), "csv", tmp_path / "t")
    renderers.write(table(), "latex", tmp_path / "t.tex")
    now = table(test_t2i_r1=7.01)
    place, _, line = table_check.compare(now, "csv", tmp_path / "t").differences
    assert place == "@@ -9 +9 @@"
    assert ",6.505," in line
    assert table_check.compare(now, "latex", tmp_path / "t.tex").differences == ()


def test_a_changed_caption_is_a_changed_line(kind: str, tmp_path: Path) -> None:
    renderers.write(table(), kind, tmp_path / "t")
    differences = table_check.compare(replace(table(), caption="another"), kind, tmp_path / "t").differences
    assert kind == "csv" or re.fullmatch(r"\+.*another.*", differences[-1])
    assert len(differences) == (0 if kind == "csv" else 3)


def test_rows_that_are_gone_or_new_are_shown(kind: str, tmp_path: Path) -> None:
    request = TableRequest("demo", layout="listing")
    whole, fewer = table(request), request.draw(CELLS[:-1], scores())
    for before, now, mark in ((whole, fewer, "-"), (fewer, whole, "+")):
        renderers.write(before, kind, tmp_path / "t")
        differences = table_check.compare(now, kind, tmp_path / "t").differences
        assert any(line[0] == mark and "sig" in line for line in differences)


def test_parquet_of_another_library_is_held_against_its_content(tmp_path: Path) -> None:
    pq.write_table(parquet.tidy(table()), tmp_path / "t", compression="gzip")
    found = table_check.compare(table(), "parquet-long", tmp_path / "t")
    assert found.differences == ()
    assert "the same content in other bytes" in found.note


def test_every_number_has_its_trials() -> None:
    found = list(table_check.trials(table()))
    assert found[0] == ("cnn-bow, con_con, i2t_r1", "0.5 ± 0.7", tuple(trial.id for trial in CELLS[0].trials))
    assert len({name for name, _, _ in found}) == len(found) == 8


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*none\.tex: No such file"):
        table_check.command_of(tmp_path / "none.tex")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="is no Parquet file"):
        table_check.command_of(tmp_path / "torn.parquet")
    (tmp_path / "other.tex").write_text("\\begin{table}\n")
    assert table_check.command_of(tmp_path / "other.tex") == ""
    assert renderers.format_of(tmp_path / "other.doc") is None
