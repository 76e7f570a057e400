"""The verb table: its options, and the command that a written file carries."""

import json
import shlex
import shutil
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from goalgrid import LoadedGrid
from goalgrid.cli.app import app
from goalgrid.cli.commands.results import verbs
from goalgrid.cli.options import HELP
from goalgrid.grid.errors import UserError
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import Home
from goalgrid.results import renderers
from goalgrid.results.export.table_request import PROGRAM, TableRequest
from tests.cases import every

from ...conftest import Goalgrid
from ...states import fail
from ..conftest import Verb

LATEX_ONLY = {"label", "caption", "siunitx", "width", "notes", "plain", "cite"}
WORDS = st.text("abc0.9_-*' |$&%", min_size=1).filter(lambda word: not word.startswith("-"))


@given(
    st.builds(
        TableRequest,
        WORDS,
        *[st.none() | WORDS] * 4,
        WORDS,
        *[st.none() | WORDS] * 2,
        st.booleans(),
        st.none() | WORDS,
        st.booleans(),
        *[st.none() | WORDS] * 2,
        st.booleans(),
        st.none() | WORDS,
        WORDS,
        st.booleans(),
        st.just("") | WORDS,
        *[st.lists(WORDS).map(tuple)] * 2,
    )
)
def test_a_command_reads_back_as_what_was_asked_for(request: TableRequest) -> None:
    parser: Any = get_command(verbs)
    words = shlex.split(request.command.removeprefix(PROGRAM))
    options = parser.commands["table"].make_context("table", words, **HELP).params
    read = {field.name: options[field.name] for field in fields(TableRequest)}
    read |= {name: tuple(options[name]) for name in ("cite", "set_")}
    assert TableRequest(**read) == request


def test_python_has_the_options_of_the_command_line_with_their_defaults() -> None:
    command = {field.name: field.default for field in fields(TableRequest) if field.name not in ("grid", "set_")}
    python = {name: parameter.default for name, parameter in signature(LoadedGrid.table).parameters.items()}
    assert python.keys() - {"self"} == command.keys() - {"paper", "reference", *LATEX_ONLY}
    assert all(python[name] == command[name] for name in python.keys() - {"self"})


@pytest.mark.parametrize("ending", renderers.ENDINGS.values())
def test_a_run_leaves_the_tables_that_its_command_prints(
    ending: str, trained_pair: Home, tmp_path: Path, verb: Verb
) -> None:
    path = tmp_path / f"t.{ending}"
    verb("table", "demo", "-o", str(path), runs=trained_pair)
    assert (trained_pair.grid("demo").tables / f"goal.{ending}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("demo", "--rows", "seeed"), "unknown axis 'seeed' in --rows"),
        (("demo", "--metric", "r1,r5"), "the layout 'goal' shows one metric, but --metric r1,r5 names 2"),
        (("demo", "--rows", "seed", "--metric", "r1,r2"), "unknown metric 'r2'"),
        (("goal-table3-coco", "--reference", "--rows", "pair"), "leave --rows out"),
        (("goal-table3-coco", "--reference", "--marks"), "as published; leave --marks out"),
        (("goal-table3-coco", "--reference", "--set", "seeds=[0]"), "as published; leave --set out"),
        (("goal-table3-coco", "--reference", "--complete"), "none of which can be missing; leave --complete out"),
        (("goal", "--reference", "--json"), "--reference lists tables on the screen; name a table"),
        (("--reference", "-o", "t.tex"), "--reference lists tables on the screen; name a table"),
        (("demo", "--against", "paper"), "no paper reports"),
        (("demo", "--label", "tab:demo"), "--label can be used for LaTeX only. Give --format latex"),
        (
            ("demo", "-o", "table.doc"),
            "its ending belongs to no format. Known: .csv, .html, .json, .tex, .md, .long.parquet, .parquet; or",
        ),
        (
            ("demo", "--format", "csv", "-o", "t.xlsx"),
            "t.xlsx: its ending does not fit the format csv. End it in .csv.",
        ),
        (("demo", "--format", "csv", "-o", "t.tex"), "End it in .csv, or give --format latex."),
        (("demo", "--json", "-o", "t.csv"), "its ending does not fit the format json. End it in .json, or give"),
        (("demo", "--format", "latex", "-o", "t.parquet"), "End it in .tex, or give --format parquet."),
        (("demo", "--format", "parquet", "-o", "t.txt"), "its ending does not fit the format parquet"),
        (("demo", "--format", "parquet", "-o", "t.long.parquet"), "or give --format parquet-long."),
    ],
)
def test_options_that_do_not_fit_are_named(
    words: tuple[str, ...], message: str, trained_pair: Home, verb: Verb
) -> None:
    with pytest.raises(UserError) as caught:
        verb("table", *words, runs=trained_pair)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("csv", "t"), ("markdown", "t.txt"), ("latex", "t.latex"), ("parquet-long", "t.parquet"), ("html", "t.html")],
)
def test_names_that_say_no_other_format_are_written(
    kind: str, name: str, trained_pair: Home, tmp_path: Path, verb: Verb
) -> None:
    verb("table", "demo", "--format", kind, "-o", str(tmp_path / name), runs=trained_pair)
    (usual,) = (ending for known, ending in renderers.ENDINGS.items() if known == kind)
    assert (tmp_path / name).read_bytes() == (trained_pair.grid("demo").tables / f"goal.{usual}").read_bytes()


@every("words", [("table", "demo"), ("effects", "demo"), ("compare", "demo", "demo"), ("claims", "goal")])
def test_json_with_another_format_is_refused(words: tuple[str, ...], trained_pair: Home, verb: Verb) -> None:
    with pytest.raises(UserError, match="--json and --format latex contradict each other; leave one out"):
        verb(*words, "--json", "--format", "latex", runs=trained_pair)


@every(
    ("words", "message"),
    [
        (("report", "demo", "-o", "r.pdf"), "r.pdf: its ending does not fit the format html. End it in .html."),
        (
            ("compare", "demo", "demo", "-o", "c.xlsx"),
            "its ending belongs to no format. Known: .csv, .tex, .md; or give",
        ),
        (("compare", "demo", "demo", "-o", "c.parquet"), "c.parquet: its ending belongs to no format."),
        (("compare", "demo", "demo", "--format", "latex", "-o", "c.csv"), "End it in .tex, or give --format csv."),
        (("compare", "demo", "demo", "--json", "-o", "c.csv"), "--json prints to stdout; leave --output out."),
        (("figures", "demo", "-o", "f.pdf"), "f.pdf: give a folder for the figures, and --format pdf."),
    ],
)
def test_no_verb_writes_another_format_than_the_ending_says(
    words: tuple[str, ...], message: str, trained_pair: Home, verb: Verb
) -> None:
    with pytest.raises(UserError) as caught:
        verb(*words, runs=trained_pair)
    assert message in str(caught.value)


def test_diagrams_go_into_a_folder() -> None:
    refused = CliRunner().invoke(app, ["diagrams", "con_con", "-o", "f.svg"]).exception
    assert "f.svg: give a folder for the figures, and --format svg." in str(refused)


@pytest.mark.gate
def test_only_narrows_tables_reports_exports_and_figures(pair: Home, tmp_path: Path, verb: Verb) -> None:
    only = ("--only", "objective=sig*")
    path = tmp_path / "t.latex"
    verb("table", "demo", *only, "-o", str(path), runs=pair)
    assert path.read_text().startswith("% goalgrid table demo --only 'objective=sig*' --format latex\n")
    rows = [row for row in path.read_text().splitlines() if "T^{" in row]
    assert len(rows) == 1
    with pytest.raises(UserError, match="--only 'objective=none' names none of the grid's trials"):
        verb("table", "demo", "--only", "objective=none", runs=pair)
    verb("export", "demo", str(tmp_path / "all"), *only, runs=pair)
    assert "1 trial of objective=sig*: 1 done" in (tmp_path / "all" / "report.html").read_text()
    assert pq.ParquetFile(tmp_path / "all" / "records.parquet").metadata.num_rows == 1
    sizes = []
    for words in ((), only):
        verb("figures", "demo", "training", *words, "--format", "svg", runs=pair)
        sizes.append(next(pair.grid("demo").figures.glob("training-*.svg")).stat().st_size)
    assert sizes[1] < sizes[0]


def test_latex_takes_a_label_and_a_caption_and_keeps_the_command(
    trained_pair: Home, tmp_path: Path, verb: Verb
) -> None:
    path = tmp_path / "t.tex"
    words = ("--label", "tab:demo", "--caption", "50 % of\n\n--set", "--width", "text", "-o", str(path))
    verb("table", "demo", *words, runs=trained_pair)
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\\caption{50 \\% of -{}-set}\n\\label{tab:demo}\n\\end{table*}\n")


def test_json_is_for_programs(trained_pair: Home, verb: Verb) -> None:
    table = json.loads(verb("table", "demo", "--json", runs=trained_pair).stdout)
    assert (table["layout"], table["command"]) == ("goal", "goalgrid table demo --format json")
    assert [row["n"] for row in table["records"]] == [1] * 4
    assert "Recall@1 (%)" in table["caption"]


def test_complete_tables_exit_with_0_and_others_say_what_they_lack(
    pair: Home, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    def codes(*words: str) -> tuple[int, int]:
        ended = [goalgrid("table", "demo", *more, *words, runs=pair.path) for more in ((), ("--complete",))]
        assert ("incomplete: " in ended[1].stderr) == (ended[1].returncode != 0)
        return ended[0].returncode, ended[1].returncode

    first, second = pair.trials()
    assert codes() == codes("--only", "objective=sig*") == (0, 0)
    shutil.rmtree(first.path)
    assert codes() == codes("-o", str(tmp_path / "t.tex")) == (0, 3)
    narrow = ("--only", f"objective={second.path.name.split('_')[2]}*")
    assert codes(*narrow) == (0, 0), "of the trials that it shows"
    fail(first, Failure.NON_FINITE, "the loss became nan")
    assert codes() == (0, 4)
    fail(second, Failure.NON_FINITE, "the loss became nan")
    assert codes() == (3, 4), "nothing to show"
