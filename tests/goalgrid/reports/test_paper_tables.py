"""The papers' tables filled by trials: on records made of the printed numbers, they are the paper's digit for digit."""

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import goalgrid
from goalgrid.cli.next_steps import worded
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.messages import Note
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.saved_grid import save_grid
from goalgrid.reports.tables import NothingDone, draw
from goalgrid.results import renderers
from goalgrid.results.export.table_request import TableRequest
from goalgrid.results.layouts import arrange
from goalgrid.results.records import record
from goalgrid.results.records.models import Speed
from goalgrid.results.records.provenance import CODE_VERSION
from goalgrid.results.records.scores import Score
from goalgrid.results.reference.coverage import QUOTED as QUOTED_ROW
from goalgrid.results.reference.coverage import TRAINED, paper_rows
from goalgrid.results.reference.filled import QUOTED, Quoted
from goalgrid.results.reference.matching import difference_text, differing
from goalgrid.results.reference.reading import Paper, Printed, table_names
from goalgrid.results.renderers import latex
from goalgrid.results.tables import Table, TableEntry
from goalgrid.results.tables.notation import escape
from goalgrid.state.data_at_hand import DataAtHand
from goalgrid.state.papers import shipped

from ...conftest import Goalgrid
from ...paper_records import write_table, write_trial
from ...results.layouts.test_published import malformed
from ...results.reference.printed_grids import check_printed, transcribed
from ...tex import compiled
from ..conftest import Verb

FEW = ("goal-table3-coco", "goal-table6", "selhn-table4", "unified-table7", "2ad-table1", "2ad-table4")
"""Tables of every layout and paper, for every day."""


def trained() -> list[str]:
    """Tables with a row to train. A function: all processes of a test run read this file."""
    return [name for name in table_names() if any(row.grids for row in paper_rows(name, shipped()))]


def printed(name: str) -> Table:
    paper = Paper.read(name)
    return arrange(list(paper.rows), paper)


def filled(name: str, home: Home, **options: object) -> Table:
    return draw(TableRequest("", paper=name, **options), home)  # type: ignore[arg-type]


def expected(theirs: Printed, ours: TableEntry) -> str:
    """The printed digits; of several seeds also their spread, where the paper has none."""
    if not isinstance(ours.score, Score):
        return theirs.text + (QUOTED if theirs.text != "--" else "")
    number = "0.0" if theirs.text == "--" else theirs.text  # the records hold 0 where the paper has no number
    return number if "±" in number or ours.score.n < 2 else f"{number} ± 0.0"


def notes(caplog: pytest.LogCaptureFixture) -> str:
    """What was reported so far, as the command line prints it."""
    return "\n".join(worded(record.msg) for record in caplog.records if isinstance(record.msg, Note))


def test_there_are_29_tables_with_rows_to_train_and_no_row_is_not_possible() -> None:
    assert len(trained()) == 29
    assert Counter(row.origin for name in trained() for row in paper_rows(name, shipped())) == {
        TRAINED: 225,
        QUOTED_ROW: 48,
    }


@pytest.mark.parametrize("names", [FEW, pytest.param((), marks=pytest.mark.slow, id="all others")])
def test_a_table_is_the_papers_digit_for_digit(names: tuple[str, ...], tmp_path: Path, verb: Verb) -> None:
    for name in names or sorted({*trained()} - {*FEW}):
        check_digits(name, Home(tmp_path / name), verb)


def check_digits(name: str, home: Home, verb: Verb) -> None:
    written = write_table(home, name)
    ours, theirs = filled(name, home), printed(name)
    assert ours.heads == theirs.heads
    assert [block.title for block in ours.blocks] == [block.title for block in theirs.blocks]
    quoted = {row.label for row in paper_rows(name, shipped()) if not row.grids}
    for block, other in zip(ours.blocks, theirs.blocks, strict=True):
        for row, printed_row in zip(block.rows, other.rows, strict=True):
            label = row.label.text
            assert label == printed_row.label.text
            pairs = [(a, b.score) for a, b in zip(row.entries, printed_row.entries, strict=True) if a and b]
            assert [a.text for a, _ in pairs] == [expected(b, a) for a, b in pairs if isinstance(b, Printed)]
            measured = [a for a, _ in pairs if a.keys["metric"] in record.METRICS]
            assert {isinstance(a.score, Score) for a in measured} == {label not in quoted}
            assert label in {*written, *quoted} or label.startswith("P^")
    check_printed(ours, transcribed(name))
    assert "missing" not in ours.caption
    assert malformed(latex.render(ours)) == []
    assert (QUOTED in ours.caption) == any(QUOTED in entry.text for entry in ours.entries())
    shown = verb("table", "--paper", name, runs=home).stdout
    assert all(entry.text in shown for entry in ours.entries())
    assert all(word.text in shown for block in ours.blocks for row in block.rows for word in row.titles)


ROW = "VSE (FC), L_T-SelHN"
ROW_AS_MARKDOWN = r"VSE (FC), L\_T-SelHN"
"""A row of SelHN Table 1, of recipe vse-fc with objective selhn."""
PRINTED = {("f30k-1k", metric): 50.0 for metric in record.METRICS}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """The trials of SelHN Table 1, but for one row."""
    write_table(Home(tmp_path), "selhn-table1", but=ROW)
    return Home(tmp_path)


def saved(home: Home, name: str, *overrides: str) -> Cell:
    """The cell of that row of a grid that ran with these changes."""
    grid = load("selhn-table1", [f"name={name}", 'recipes=["vse-fc"]', 'objectives=["selhn"]', *overrides])
    (cell,) = expand(grid)
    save_grid(grid, trials_of([cell]), home)
    return cell


def texts(table: Table, label: str = ROW) -> list[str]:
    (row,) = (row for block in table.blocks for row in block.rows if row.label.text == label)
    return [entry.text for entry in row.entries if entry]


def test_missing_trials_are_no_quotation_and_the_caption_says_what_trains_them(home: Home) -> None:
    table = filled("selhn-table1", home)
    assert set(texts(table)) == {"--"}
    assert (
        "7 of 63 numbers are missing (--): 3 trials never run. "
        "To train the 3 trials missing from the table's grid: goalgrid run --paper selhn-table1." in table.caption
    )
    assert QUOTED not in table.caption


def test_trials_of_any_grid_with_the_same_settings_count(home: Home) -> None:
    own = next(cell for cell in expand(load("selhn-table1")) if (cell.recipe, cell.objective) == ("vse-fc", "selhn"))
    more = saved(home, "more", "seeds=[7, 8]")
    write_trial(home, own.trials[1], PRINTED)
    write_trial(home, more.trials[1], {key: value + 1 for key, value in PRINTED.items()})
    table = filled("selhn-table1", home)
    assert texts(table)[0] == "50.5 ± 0.7 (2/4)", "a seed that was never asked for the paper counts once it is done"
    assert "in place of" not in table.caption


def test_other_settings_fill_a_row_where_nothing_else_does_and_are_named(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    write_trial(home, saved(home, "short", "train.epochs=2").trials[0], PRINTED)
    table = filled("selhn-table1", home)
    assert texts(table)[0] == "50.0 (1/3)"
    assert ": epochs 2 in place of 20." in table.caption
    assert (
        "2 trials never run. To train the 3 trials missing from the table's grid, including trials that these depend "
        "on, and trials of rows filled with other settings: goalgrid run " in table.caption
    )
    write_trial(home, saved(home, "long", "train.epochs=40").trials[0], PRINTED)
    table, why = filled("selhn-table1", home), "not filled, since trials differ in epochs 40 in place of 2"
    assert set(texts(table)) == {"--"}
    assert texts(table, "VSE (MLP), L_Triplet")[0] == "59.1 ± 0.0", "other rows stand"
    assert f": {why}." in table.caption
    assert re.search(rf"left out: row '{re.escape(ROW)}': {why}: .* of grid 'long' and ", notes(caplog))
    own = next(cell for cell in expand(load("selhn-table1")) if (cell.recipe, cell.objective) == ("vse-fc", "selhn"))
    write_trial(home, own.trials[0], dict.fromkeys(PRINTED, 60.0))
    assert texts(filled("selhn-table1", home))[0] == "60.0 (1/3)"


def test_trials_of_changed_data_do_not_displace_those_of_the_recipe(home: Home) -> None:
    write_trial(home, saved(home, "few", "dataset.train_images=20").trials[0], PRINTED)
    assert ": train images 20 in place of none." in filled("selhn-table1", home).caption
    write_trial(home, saved(home, "whole", "dataset.val_images=50").trials[0], dict.fromkeys(PRINTED, 60.0))
    assert texts(filled("selhn-table1", home))[0] == "60.0 (1/3)"


def test_settings_that_only_another_encoder_has_are_not_named() -> None:
    words = ["name=bow", 'recipes=["vse-inf-butd"]', "model.text.encoder=bow", "train.epochs=2"]
    (*_, cell) = expand(load("goal-table5-f30k", words))
    text = difference_text([differing(cell)])
    assert "epochs 2 in place of 25" in text
    assert "text word drop 0 in place of 0.2, text encoder bow in place of transformer" in text
    assert not re.search("None|False|none|weights|frozen", text)


def test_the_settings_of_the_shipped_grid_come_before_those_of_the_recipe(tmp_path: Path) -> None:
    home, label = Home(tmp_path), "SCAN T2I AVG + Triplet-HN"
    plain = saved(home, "plain", 'recipes=["scan-t2i"]', 'objectives=["triplet-hn"]')
    write_trial(home, plain.trials[0], PRINTED)
    [row] = [row for row in paper_rows("unified-table7", shipped()) if row.label.startswith(label)]
    table = filled("unified-table7", home)
    assert texts(table, row.label)[0] == "50.0 (1/3)"
    assert "learning rate" not in table.caption, "the source of the quoted row trained with 0.0002, too"
    own = next(
        cell
        for grid, cells in shipped()
        for cell in cells
        if grid.name == row.grids[0] and (cell.recipe, cell.objective) == ("scan-t2i", "triplet-hn")
    )
    write_trial(home, own.trials[0], dict.fromkeys(PRINTED, 60.0))
    table = filled("unified-table7", home)
    assert texts(table, row.label)[0] == "60.0 (1/3)"
    assert "trained otherwise" not in table.caption


def test_trials_of_other_code_count_only_where_no_others_are(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    own = next(cell for cell in expand(load("selhn-table1")) if (cell.recipe, cell.objective) == ("vse-fc", "selhn"))
    write_trial(home, own.trials[0], PRINTED, code_fingerprint=f"{CODE_VERSION}other")
    table = filled("selhn-table1", home)
    assert texts(table)[0] == "50.0 (1/3)"
    assert "1 of 25 trials were trained with older code." in table.caption
    write_trial(home, own.trials[1], dict.fromkeys(PRINTED, 60.0))
    table = filled("selhn-table1", home)
    assert texts(table)[0] == "60.0 (1/3)"
    assert "1 trial trained with older code" in table.caption
    assert f"left out: 1 trial trained with older code: {own.trials[0].id}" in notes(caplog)


def test_trials_of_other_data_or_another_protocol_are_not_mixed(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    own = next(cell for cell in expand(load("selhn-table1")) if (cell.recipe, cell.objective) == ("vse-fc", "selhn"))
    write_trial(home, own.trials[0], PRINTED, protocol="another")
    assert set(texts(filled("selhn-table1", home))) == {"--"}
    assert f"1 trial not evaluated by f30k-1k: {own.trials[0].id}" in notes(caplog)
    write_trial(home, own.trials[1], PRINTED, data_fingerprint="2:other")
    with pytest.raises(UserError, match="trials on 'flickr30k' saw different data"):
        filled("selhn-table1", home)


def test_trials_of_other_data_than_are_here_now_are_named_and_count_nowhere(
    home: Home, few_pictures: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cell = saved(home, "rooted", f'data.flickr30k.root="{few_pictures}"')
    with pytest.raises(NothingDone, match="no trial is done"):
        filled("selhn-table1", home)
    assert "left out: 24 trials trained on data that changed since: flickr30k_" in notes(caplog)
    content = DataAtHand(load(str(home.grid("rooted").grid)), home).fingerprint(cell.trials[0].shared)
    write_trial(home, cell.trials[0], PRINTED, data_fingerprint=content)
    assert texts(filled("selhn-table1", home))[0] == "50.0 (1/3)"


def test_a_grid_of_strange_code_is_left_out_with_a_line(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    saved(home, "strange")
    file = home.grid("strange").grid
    uses = '[[uses]]\npath = "/nowhere/mine.py"\ntext = "import os"\nmodule = "mine"\nsha256 = ""\n'
    file.write_text(f"{file.read_text()}\n{uses}")
    filled("selhn-table1", home)
    assert "left out: grid 'strange': " in notes(caplog)


def test_throughput_is_that_of_one_device_over_the_slowest_rows(tmp_path: Path) -> None:
    """VSE+2AD Table 4: queries of `goalgrid evaluate --speed`, once all its rows have them."""
    home = Home(tmp_path)
    cells = expand(load("2ad-table4"))
    speeds = dict(
        zip((cell.recipe for cell in cells), (90.0, 36.0, 20.0, 32.0, 82.0, 102.0, 86.0, 112.0, 98.0), strict=True)
    )
    for cell in cells:
        write_trial(home, cell.trials[0], {("coco-5k", metric): 50.0 for metric in record.METRICS})
    for recipe, queries in speeds.items():
        shown = [entry.text for entry in filled("2ad-table4", home).entries() if entry.keys["metric"] == "oips"]
        assert shown == [f"{number}×‡" for number in ("4.6", "1.8", "1.0", "1.6", "4.1", "5.1", "4.3", "5.6", "4.9")]
        trial = next(cell.trials[0] for cell in cells if cell.recipe == recipe)
        Speed(pairs=1e6, queries=queries, parameters=1, learning=1, device="H200", threads=1).write(
            home.trial(trial.id).speed
        )
    table = filled("2ad-table4", home)
    shown = [entry.text for entry in table.entries() if entry.keys["metric"] == "oips"]
    assert shown == [f"{queries / 20:.1f}×" for queries in speeds.values()]
    assert "#OIPs: queries answered per second, relative to the slowest row, on H200, 1 thread." in table.caption
    other = Speed(pairs=1e6, queries=1.0, parameters=1, learning=1, device="A100", threads=1)
    other.write(home.trial(cells[0].trials[0].id).speed)
    assert "#OIPs: queries" not in filled("2ad-table4", home).caption, "two devices"


def test_the_papers_numbers_stand_beside_ours(home: Home) -> None:
    table = filled("selhn-table1", home, against="paper")
    assert table.heads[:2] == ["Image-to-Text R@1 ours", "Image-to-Text R@1 paper"]
    assert texts(table)[0] == "--" != texts(table)[1]
    assert texts(table, "VSE (MLP), L_Triplet")[:2] == ["59.1 ± 0.0", "59.1"]
    assert " Paper: as printed. " in table.caption
    six = filled("selhn-table1", home, against="paper", metric="r1", layout="losses")
    assert [entry.text for entry in six.entries()] == [entry.text for entry in table.entries()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--paper", "selhn-tabel1"), "unknown table of a paper 'selhn-tabel1'. Did you mean 'selhn-table1'?"),
        (
            ("--paper", "goal-table1"),
            "no row of goal-table1 can be trained here. To show the published table: goalgrid table goal-table1",
        ),
        (("demo", "--paper", "selhn-table1"), "--paper fills a paper's table by the paper's protocols; leave GRID out"),
        (("--paper", "selhn-table1", "--protocol", "f30k-1k", "--rows", "seed"), "leave --protocol, --rows, --columns"),
        (("--paper", "selhn-table1", "--metric", "medr"), "median rank is not reported in this table"),
        (("--paper", "selhn-table1", "--layout", "goal"), "cannot show"),
    ],
)
def test_options_that_do_not_fit_are_named(words: tuple[str, ...], message: str, home: Home, verb: Verb) -> None:
    with pytest.raises(UserError) as caught:
        verb("table", *words, runs=home)
    assert message in str(caught.value)


def test_a_table_without_any_trial_says_what_trains_it(tmp_path: Path, goalgrid: Goalgrid) -> None:
    finished = goalgrid("table", "--paper", "selhn-table1", runs=tmp_path / "none")
    assert finished.returncode == 3
    assert "no trial is done. Start it: goalgrid run --paper selhn-table1" in finished.stderr


def test_a_table_of_a_paper_is_complete_where_no_row_lacks_a_trial(home: Home, verb: Verb) -> None:
    short = verb("table", "--paper", "selhn-table1", "--complete", runs=home)
    assert (short.exit_code, "incomplete: 3 trials never run" in short.stderr) == (3, True)
    own = next(cell for cell in expand(load("selhn-table1")) if (cell.recipe, cell.objective) == ("vse-fc", "selhn"))
    for trial in own.trials:
        write_trial(home, trial, PRINTED)
    whole = verb("table", "--paper", "selhn-table1", "--complete", runs=home)
    assert (whole.exit_code, "incomplete" in whole.stderr) == (0, False)


def test_plan_and_status_take_the_grid_of_a_table(home: Home, verb: Verb) -> None:
    shown = verb("plan", "--paper", "selhn-table1", runs=home).stdout
    assert shown.startswith("selhn-table1: ")
    assert "finished trials fill 56 of the 63 numbers that can be trained here; 0 are quoted" in shown.splitlines()[-1]
    assert "unified-table7: " in verb("status", "--paper", "unified-table7", runs=home).stdout


def test_a_report_and_an_export_hold_the_papers_table(verb: Verb, tmp_path: Path) -> None:
    home = Home(tmp_path / "runs")
    write_trial(home, trials_of(expand(load("selhn-table1")))[0], PRINTED)
    verb("report", "--paper", "selhn-table1", "-o", str(tmp_path / "r.html"), runs=home)
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "The paper's table" in page
    assert "SelHN Table 1: Three models" in page
    assert "goalgrid table --paper selhn-table1 --against paper" in page
    ended = verb("export", "--paper", "selhn-table1", str(tmp_path / "out"), "--complete", runs=home)
    assert (ended.exit_code, "incomplete: 27 trials: 1 done, 26 planned" in ended.stderr) == (3, True)
    text = (tmp_path / "out" / "tables" / "paper" / "losses.tex").read_text(encoding="utf-8")
    assert text.startswith("% goalgrid table --paper selhn-table1 --format latex\n")


def test_an_export_holds_the_trials_of_other_grids_behind_the_papers_table(verb: Verb, tmp_path: Path) -> None:
    home, folder = Home(tmp_path / "runs"), tmp_path / "out"
    trial = saved(home, "short", "train.epochs=2").trials[0]
    write_trial(home, trial, PRINTED)
    verb("export", "--paper", "selhn-table1", str(folder), runs=home)
    assert pq.read_table(folder / "records.parquet")["trial_id"].to_pylist() == [trial.id]
    assert (folder / "trials" / trial.id / "settings.json").exists()
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert "0 of 27 trials are done.\n`tables/paper/` contains numbers from 1 trial of other grids" in readme
    assert "- 1 trial: Python" in readme
    assert "- `differs.md`: " in readme
    rows = [
        line for line in (folder / "differs.md").read_text(encoding="utf-8").splitlines() if ROW_AS_MARKDOWN in line
    ]
    assert len(rows) == 1
    assert "| epochs 2 in place of 20; " in rows[0]
    assert "`goalgrid report --paper selhn-table1`" in readme
    assert "`figures/" not in readme
    assert all((folder / name).exists() for name in re.findall(r"^- `([^`*]+)`:", readme, re.MULTILINE))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan",), "no grid given. Known grids: "),
        (("plan", "demo", "--paper", "selhn-table1"), "--paper selhn-table1 already selects the grids; leave demo out"),
        (("run", "--paper", "goal-table1"), "no row of goal-table1 can be trained here"),
        (("export", "demo"), "missing argument DIR: a new or empty folder"),
    ],
)
def test_a_command_without_a_single_meaning_says_what_to_give(
    words: tuple[str, ...], message: str, home: Home, verb: Verb
) -> None:
    with pytest.raises(UserError) as caught:
        verb(*words, runs=home)
    assert message in str(caught.value)


@pytest.mark.parametrize("names", [("goal-table6",), pytest.param((), marks=pytest.mark.slow, id="all others")])
def test_all_formats_hold_the_same_numbers(names: tuple[str, ...], tmp_path: Path, verb: Verb) -> None:
    for name in names or sorted({*trained()} - {"goal-table6"}):
        (tmp_path / name).mkdir()
        check_formats(name, tmp_path / name, verb)


def check_formats(name: str, tmp_path: Path, verb: Verb) -> None:
    home = Home(tmp_path / "runs")
    write_table(home, name)
    table = filled(name, home)
    texts = [entry.text for entry in table.entries()]
    assert goalgrid.paper_table(name, home.path).table == table
    for kind, ending in renderers.ENDINGS.items():
        path = tmp_path / f"t.{ending}"
        assert verb("table", "--paper", name, "--format", kind, "-o", str(path), runs=home).exit_code == 0
    assert [row["text"] for row in json.loads((tmp_path / "t.json").read_text())["records"]] == texts
    assert pq.read_table(tmp_path / "t.long.parquet")["text"].to_pylist() == texts
    assert [line["text"] for line in csv.DictReader((tmp_path / "t.csv").read_text().splitlines())] == texts
    source, markdown, page = ((tmp_path / f"t.{ending}").read_text() for ending in ("tex", "md", "html"))
    for text in texts:
        assert escape(text).replace(" ", "") in source.replace(" ", "")
        assert text in markdown
        assert text in re.sub(r"<[^>]*>", "", page)
    assert (r"$^{\ddagger}$" in source) == (QUOTED in "".join(texts))
    frame = pq.read_table(tmp_path / "t.parquet")
    assert frame.num_rows == sum(len(block.rows) for block in table.blocks)
    quoted = sum(frame[name].to_pylist().count(True) for name in frame.column_names if name.endswith("_quoted"))
    assert quoted == sum(isinstance(entry.score, Quoted) and entry.text != "--" for entry in table.entries())


@pytest.mark.slow
def test_latex_of_all_tables_fits_a_page(tmp_path: Path) -> None:
    tables = []
    for name in trained():
        write_table(Home(tmp_path / name), name)
        tables += [filled(name, Home(tmp_path / name), against=against) for against in (None, "paper")]
    said = compiled("\\clearpage\n".join(map(latex.render, tables)), "adjustbox,amssymb,booktabs", tmp_path)
    assert [line for line in said.splitlines() if "Overfull" in line or "Warning" in line] == []
