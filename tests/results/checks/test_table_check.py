"""Published tables against the records: written files say how they were made, and every change is named."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.results import renderers
from goalgrid.results.checks import table_check
from goalgrid.results.export.table_request import TableRequest
from goalgrid.results.records.scores import Scores
from goalgrid.results.renderers import parquet
from goalgrid.results.tables.table import Table

from ..tables.test_averages import records

CELLS = expand(load("demo", ['objectives=["con_con","sig-ms_cir"]', "seeds=[0,1]", 'recipes=["cnn-bow","cnn-gru"]']))
WORDS = st.text("abc0.9_-*' |$&%", min_size=1).filter(lambda word: not word.startswith("-"))


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


@given(
    st.builds(
        TableRequest,
        WORDS,
        st.booleans(),
        *[st.none() | WORDS] * 4,
        WORDS,
        *[st.none() | WORDS] * 2,
        *[st.booleans()] * 4,
        st.lists(WORDS).map(tuple),
    )
)
def test_a_command_reads_back_as_what_was_asked_for(request: TableRequest) -> None:
    assert TableRequest.parse(f"{request.command} --format latex") == (request, "latex")


@pytest.mark.parametrize(
    "command", ["goalgrid table demo", "goalgrid table demo --format latex --colour red", "goalgrid table 'x"]
)
def test_a_command_that_is_not_understood_is_named(command: str) -> None:
    with pytest.raises(UserError) as caught:
        TableRequest.parse(command)
    assert command in str(caught.value)


def test_a_file_says_how_it_was_made(kind: str, tmp_path: Path) -> None:
    request = TableRequest("demo", metric="r5", marks=True)
    path = tmp_path / f"t.{renderers.ENDINGS[kind]}"
    renderers.write(table(request), kind, path)
    says = kind == "parquet" or renderers.TEXT[kind].comment
    assert table_check.made_by(path) == ((request, kind) if says else None)
    assert renderers.format_of(path) == kind


def test_a_file_that_nothing_changed_is_the_same(kind: str, tmp_path: Path) -> None:
    renderers.write(table(), kind, tmp_path / "t")
    assert table_check.compare(table(), kind, tmp_path / "t") == table_check.CheckOutcome(())


def test_a_changed_record_changes_one_cell_that_is_named(kind: str, tmp_path: Path) -> None:
    renderers.write(table(), kind, tmp_path / "t")
    now = table(test_t2i_r1=9.0)
    (difference,) = table_check.compare(now, kind, tmp_path / "t").differences
    plain = difference.replace("\\textbf{", "").replace("}", "").replace("**", "").replace("$\\pm$", "±")
    if kind in ("csv", "html", "latex", "markdown", "parquet"):
        assert plain.endswith(": 6.5 ± 0.7 -> 7.5 ± 2.1")
        assert "cnn-gru" in plain
        assert ("t2i_r1" if kind in ("csv", "parquet") else "Text → Image T^cir") in plain
    else:  # a format whose lines are compared as they stand
        before, now = plain.split(" -> ")
        assert "6.5 ± 0.7" in before
        assert "7.5 ± 2.1" in now


def test_a_change_that_no_reader_sees_is_named_in_data(tmp_path: Path) -> None:
    renderers.write(table(), "csv", tmp_path / "t")
    renderers.write(table(), "latex", tmp_path / "t.tex")
    now = table(test_t2i_r1=7.01)
    (difference,) = table_check.compare(now, "csv", tmp_path / "t").differences
    assert difference == "cnn-gru, sig-ms_cir, t2i_r1: mean 6.5 -> 6.505"
    assert table_check.compare(now, "latex", tmp_path / "t.tex").differences == ()


def test_a_changed_caption_is_a_changed_line(tmp_path: Path) -> None:
    renderers.write(table(), "markdown", tmp_path / "t")
    (difference,) = table_check.compare(replace(table(), caption="another"), "markdown", tmp_path / "t").differences
    assert difference.startswith("line: Recall@1")
    assert difference.endswith(" -> another")
    renderers.write(table(), "parquet", tmp_path / "t.parquet")
    found = table_check.compare(replace(table(), caption="another"), "parquet", tmp_path / "t.parquet").differences
    assert [each.startswith("caption: Recall@1") for each in found] == [True]


def test_a_row_that_is_gone_or_new_is_named(kind: str, tmp_path: Path) -> None:
    whole = table(TableRequest("demo", layout="listing"))
    fewer = TableRequest("demo", layout="listing").draw(CELLS[:-1], scores())
    renderers.write(whole, kind, tmp_path / "whole")
    renderers.write(fewer, kind, tmp_path / "fewer")
    gone = table_check.compare(fewer, kind, tmp_path / "whole").differences
    new = table_check.compare(whole, kind, tmp_path / "fewer").differences
    bold = 7 if kind in ("latex", "markdown") else 0  # the other row's entries become the best, or no longer are
    assert sum(each.endswith("-> no such entry") for each in gone) == len(gone) - bold == 7
    assert sum(": no such entry -> " in each for each in new) == len(new) - bold == 7


def test_parquet_of_another_library_is_held_against_its_content(tmp_path: Path) -> None:
    pq.write_table(parquet.tidy(table()), tmp_path / "t", compression="gzip")
    found = table_check.compare(table(), "parquet", tmp_path / "t")
    assert found.differences == ()
    assert "the same content in other bytes" in found.note


def test_every_number_has_its_trials() -> None:
    found = list(table_check.trials(table()))
    assert found[0] == ("cnn-bow, con_con, i2t_r1", "0.5 ± 0.7", tuple(trial.id for trial in CELLS[0].trials))
    assert len({name for name, _, _ in found}) == len(found) == 8


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*none\.tex: No such file"):
        table_check.made_by(tmp_path / "none.tex")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="is no Parquet file"):
        table_check.made_by(tmp_path / "torn.parquet")
    (tmp_path / "other.tex").write_text("\\begin{table}\n")
    assert table_check.made_by(tmp_path / "other.tex") is None
    assert renderers.format_of(tmp_path / "other.doc") is None
