"""The verb table: any axes, averages, and a written file held against the records."""

import json
import re
from dataclasses import fields
from inspect import signature
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalgrid import LoadedGrid
from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results import renderers
from goalgrid.results.export.table_request import TableRequest
from goalgrid.results.records import sealed
from goalgrid.verbs.results import table_request

from ..conftest import Verb

WORDS = st.text("abc0.9_-*' |$&%", min_size=1).filter(lambda word: not word.startswith("-"))


@given(
    st.builds(
        TableRequest,
        WORDS,
        *[st.none() | WORDS] * 4,
        WORDS,
        *[st.none() | WORDS] * 3,
        st.booleans(),
        st.none() | WORDS,
        *[st.booleans()] * 4,
        *[st.none() | WORDS] * 2,
        st.booleans(),
        st.just("") | WORDS,
        st.lists(WORDS).map(tuple),
    )
)
def test_a_command_reads_back_as_what_was_asked_for(request: TableRequest) -> None:
    assert table_request(f"{request.command} --format latex") == (request, "latex")


@pytest.mark.parametrize(
    "command", ["goalgrid table demo", "goalgrid table demo --format latex --colour red", "goalgrid table 'x"]
)
def test_a_command_that_is_not_understood_is_named(command: str) -> None:
    with pytest.raises(UserError) as caught:
        table_request(command)
    assert command in str(caught.value)


def test_python_has_the_options_of_the_command_line_with_their_defaults() -> None:
    command = {field.name: field.default for field in fields(TableRequest) if field.metadata}
    python = {name: parameter.default for name, parameter in signature(LoadedGrid.table).parameters.items()}
    assert python.keys() - {"self"} == command.keys() - {"paper", "reference", "label", "caption", "siunitx"}
    assert all(python[name] == command[name] for name in python.keys() - {"self"})


def change(folder: TrialFolder, metric: str, value: float) -> None:
    """Give a record another value of a test metric."""
    content = pq.ParquetFile(folder.record).read()
    place = content.schema.get_field_index(f"test_{metric}")
    changed = content.set_column(place, content.schema.field(place), pa.array([value]))
    folder.record.write_bytes(sealed.dumped(changed))


@pytest.mark.parametrize("ending", [ending for kind, ending in renderers.ENDINGS.items() if kind != "csv"])
def test_a_run_leaves_tables_that_check_themselves(ending: str, trained_pair: Home, verb: Verb) -> None:
    path = trained_pair.grid("demo").tables / f"goal.{ending}"
    finished = verb("table", "--check", str(path), runs=trained_pair)
    assert finished.exit_code == 0
    assert f"{path} is the same, byte for byte, as `goalgrid table demo --format " in finished.stdout
    assert "now: 4 numbers from 2 trials" in finished.stdout


def test_a_table_that_the_records_left_behind_exits_5_and_shows_the_lines(pair: Home, verb: Verb) -> None:
    path = pair.grid("demo").tables / "goal.md"
    folder = next(folder for folder in pair.trials() if "con_con" in folder.trial_id)
    change(folder, "i2t_r1", 99.0)
    finished = verb("table", "--check", str(path), "--trials", runs=pair)
    assert finished.exit_code == 5
    assert re.search(r"^  @@ .*\n  -\| P\^con .*\n  \+\| P\^con \| \*\*99\.0\*\* ", finished.stdout, re.MULTILINE)
    assert f"con_con, i2t_r1: 99.0  from {folder.trial_id}\n" in finished.stdout


def test_a_file_without_a_command_needs_the_grid(trained_pair: Home, tmp_path: Path, verb: Verb) -> None:
    path = tmp_path / "t.csv"
    options = ("demo", "--rows", "objective", "--columns", "seed,metric", "--metric", "r1,rsum")
    assert verb("table", *options, "--format", "csv", "-o", str(path), runs=trained_pair).exit_code == 0
    assert verb("table", *options, "--check", str(path), runs=trained_pair).exit_code == 0
    with pytest.raises(UserError, match=r"does not say by which command.*goalgrid table GRID --check"):
        verb("table", "--check", str(path), runs=trained_pair)
    with pytest.raises(UserError, match="is a folder: name a written table in it"):
        verb("table", "--check", str(tmp_path), runs=trained_pair)
    unnamed = path.rename(tmp_path / "t.txt")
    with pytest.raises(UserError, match="Give --format"):
        verb("table", *options, "--check", str(unnamed), runs=trained_pair)
    assert verb("table", *options, "--check", str(unnamed), "--format", "csv", runs=trained_pair).exit_code == 0


def test_a_papers_table_can_be_checked_too(tmp_path: Path, verb: Verb) -> None:
    path, home = tmp_path / "t.tex", Home(tmp_path / "runs")
    verb("table", "goal-table3-coco", "--reference", "--format", "latex", "-o", str(path), runs=home)
    assert "60 numbers from 0 trials" in verb("table", "--check", str(path), runs=home).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--check", "FILE", "--metric", "r5"), "says its own options; to check it by others, give the grid, too"),
        (("demo", "--trials"), "give --check FILE"),
        (("demo", "--allow-partial"), "--allow-partial says which --averages are shown"),
        (("demo", "--rows", "seeed"), "unknown axis 'seeed' in --rows"),
        (("demo", "--metric", "r1,r5"), "the layout 'goal' shows one metric, and --metric r1,r5 names 2"),
        (("demo", "--rows", "seed", "--metric", "r1,r2"), "unknown metric 'r2'"),
        (("goal-table3-coco", "--reference", "--rows", "pair"), "leave --rows, --columns and --blocks out"),
        (("demo", "--averages", "--against", "paper"), "no paper reports"),
        (("demo", "--label", "tab:demo"), "--label, --caption and --siunitx are for LaTeX; give --format latex"),
        (
            ("demo", "-o", "table.doc"),
            "its ending says no format. Known: .csv, .html, .json, .tex, .md, .long.parquet, .parquet; or",
        ),
    ],
)
def test_options_that_do_not_fit_are_named(
    words: tuple[str, ...], message: str, trained_pair: Home, verb: Verb
) -> None:
    file = str(trained_pair.grid("demo").tables / "goal.tex")
    with pytest.raises(UserError) as caught:
        verb("table", *(file if word == "FILE" else word for word in words), runs=trained_pair)
    assert message in str(caught.value)


def test_only_narrows_tables_reports_exports_and_figures(pair: Home, tmp_path: Path, verb: Verb) -> None:
    only = ("--only", "objective=sig*")
    path = tmp_path / "t.latex"
    verb("table", "demo", *only, "-o", str(path), runs=pair)
    assert path.read_text().startswith("% goalgrid table demo --only 'objective=sig*' --format latex\n")
    assert "is the same, byte for byte" in verb("table", "--check", str(path), runs=pair).stdout
    rows = [row for row in path.read_text().splitlines() if "T^{" in row]
    assert len(rows) == 1
    with pytest.raises(UserError, match="--only 'objective=none' names none of the grid's trials"):
        verb("table", "demo", "--only", "objective=none", runs=pair)
    verb("report", "demo", *only, "-o", str(tmp_path / "r.html"), runs=pair)
    assert "1 trial of objective=sig*: 1 done" in (tmp_path / "r.html").read_text()
    verb("export", "demo", str(tmp_path / "all"), *only, runs=pair)
    assert pq.ParquetFile(tmp_path / "all" / "records.parquet").metadata.num_rows == 1
    sizes = []
    for words in ((), only):
        verb("figures", "demo", "training", *words, "--format", "svg", runs=pair)
        sizes.append(next(pair.grid("demo").figures.glob("training-*.svg")).stat().st_size)
    assert sizes[1] < sizes[0]


def test_averages_stand_in_the_table(trained_pair: Home, verb: Verb) -> None:
    with pytest.raises(UserError, match="no row and no column of this table is whole"):
        verb("table", "demo", "--averages", runs=trained_pair)
    options = ("--averages", "--allow-partial")
    text = verb("table", "demo", *options, "--format", "markdown", runs=trained_pair).stdout
    assert text.startswith("<!-- goalgrid table demo --averages --allow-partial --format markdown -->\n")
    assert "| mean | " in text


def test_latex_takes_a_label_and_a_caption_and_keeps_the_command(
    trained_pair: Home, tmp_path: Path, verb: Verb
) -> None:
    path = tmp_path / "t.tex"
    words = ("--label", "tab:demo", "--caption", "50 % of --set", "-o", str(path))
    verb("table", "demo", *words, runs=trained_pair)
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\\caption{50 \\% of -{}-set}\n\\label{tab:demo}\n\\end{table*}\n")
    assert verb("table", "--check", str(path), runs=trained_pair).exit_code == 0


def test_json_is_for_programs(trained_pair: Home, verb: Verb) -> None:
    table = json.loads(verb("table", "demo", "--json", runs=trained_pair).stdout)
    assert (table["layout"], table["command"]) == ("goal", "goalgrid table demo --format json")
    assert [row["n"] for row in table["records"]] == [1] * 4
    assert "Recall@1 (%)" in table["caption"]
