"""The papers' tables through our layouts and renderers, and grids beside the papers' numbers."""

import csv
import html
import io
import math
import re
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.objectives.goal_matrix import GOAL, KNOWN_AS
from goalgrid.grid.store.home import Home
from goalgrid.results import renderers
from goalgrid.results.layouts import LAYOUTS, arrange
from goalgrid.results.records import record
from goalgrid.results.records.scores import Score, Scores
from goalgrid.results.reference.matching import Difference
from goalgrid.results.reference.reading import Paper, Printed, results_of, table_names
from goalgrid.results.renderers import latex, markdown, parquet, terminal
from goalgrid.results.tables import Block, Group, Label, Row, Table, TableEntry
from goalgrid.results.tables.legend import Legend, Sentence
from goalgrid.results.tables.notation import escape
from tests.cases import every
from tests.tex import compiled, needed

from ...conftest import PAPERS, Goalgrid

GOAL_TABLES = [name for name in table_names() if name.startswith("goal-") and Paper.read(name).content.layout == "goal"]
SEEDS = {0: -0.3, 1: 0.0, 2: 0.6}
"""By how much a seed's recall differs from 50."""


def drawn(name: str, layout: str | None = None, metric: str = "r1") -> Table:
    paper = Paper.read(name)
    return arrange(list(paper.rows), paper, layout=layout, metric=metric)


def row_of(trial_id: str, cell: Cell, protocol: str, value: float) -> dict[str, object]:
    metrics = {f"test_{name}": 6 * value if name == "rsum" else value for name in record.METRICS}
    names = {"trial_id": trial_id, "dataset": cell.dataset, "recipe": cell.recipe, "protocol": protocol}
    origin = {"data_fingerprint": "d", "code_fingerprint": "code", "train_seconds": 1.0}
    return {**names, **origin, "other_metrics": None, **metrics}


def synthetic(cells: Iterable[Cell]) -> Scores:
    """Records in which every recall is 50 plus what is the seed's."""
    return Scores({
        trial.id: row_of(trial.id, cell, trial.settings.dataset.protocol, 50 + SEEDS[trial.settings.seed])
        for cell in cells
        for trial in cell.trials
    })  # fmt: skip


@pytest.fixture(scope="module")
def third() -> list[Cell]:
    return expand(load("goal-table3-coco"))


@pytest.mark.parametrize("name", GOAL_TABLES)
def test_goals_tables_are_reproduced_digit_for_digit(name: str) -> None:
    if not (PAPERS / "goal.md").exists():
        pytest.skip("the papers are not here")
    table = (PAPERS / "goal.md").read_text(encoding="utf-8").replace(r"\pm", "±").split("\n")
    printed = [re.sub(r"[{}]", "", line).split("\t") for line in table if "±" in line]
    shown = [line.replace("*", "").strip("| ").split(" | ") for line in markdown.render(drawn(name)).split("\n")]
    rows = [[row[0].replace("\\", ""), *row[1:]] for row in shown if row[0].startswith("P^")]
    assert len(rows) == 10
    assert [row for row in printed if row in rows] == rows


def test_the_best_of_a_direction_is_bold_by_its_digits() -> None:
    table = drawn("goal-table3-coco")
    bold = [
        {block.rows[row].entries[column].score.text for row, column in table.best_of(block)}  # type: ignore[union-attr]
        for block in table.blocks
    ]
    assert bold == [{"35.6 ± 0.1", "24.1 ± 0.1"}, {"43.8 ± 0.5", "31.3 ± 0.2"}]
    assert markdown.render(table).count("**43.8 ± 0.5**") == 2


@every("name", table_names())
def test_every_format_shows_every_printed_value(name: str) -> None:
    table = drawn(name)
    texts = {entry.score.text for entry in table.entries()}
    assert texts == {result.value.text for result in results_of(name)}
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(terminal.render(table))
    screen, source = console.export_text(), latex.render(table)
    for text in texts:
        assert text in screen
        assert text in markdown.render(table).replace("\\", "")
        assert escape(re.sub(r" \[\d+\]", "", text)) in source, "references of another paper are not ours"
    rows = list(csv.DictReader(io.StringIO(renderers.TEXT["csv"].render(table))))
    assert len(rows) == len(results_of(name))
    assert {row["text"] for row in rows} == texts
    assert parquet.tidy(table).num_rows == len(rows)


def test_a_tidy_row_says_what_a_printed_number_is(tmp_path: Path) -> None:
    renderers.write(drawn("goal-table3-coco"), "parquet-long", tmp_path / "t.parquet")
    row = pd.read_parquet(tmp_path / "t.parquet").iloc[-1]
    assert (row["paper"], row["table"], row["model"]) == ("GOAL", "3", "VSE++ (ResNet152, fine-tuned)")
    assert (row["recipe"], row["objective"], row["metric"]) == ("vsepp-r152-ft", "sig-ms_cir", "t2i_r1")
    assert (row["mean"], row["std"], row["n"]) == (31.1, 0.2, 3)


def test_a_paper_that_does_not_report_a_metric_says_so() -> None:
    with pytest.raises(UserError, match=r"Recall@5 \(%\) is not reported in this table; reported: i2t_r1, t2i_r1"):
        drawn("goal-table3-coco", metric="r5")
    with pytest.raises(UserError, match="cannot show rows without an objective; use --layout listing"):
        drawn("goal-table6", layout="goal")


def test_the_tables_of_the_papers_have_their_rows_and_columns() -> None:
    table = drawn("unified-table1")
    assert [block.title for block in table.blocks] == [""]
    assert table.blocks[0].rows[8].label.text == "VSE++ (BUTD) + L_Unified"
    assert [column.text for group in table.groups for column in group.columns] == (
        ["R@1", "R@5", "R@10"] * 2 + ["RSUM"]
    ) * 2
    six = drawn("goal-table6")
    assert [group.title.text for group in six.groups] == ["Image → Text", "Text → Image"] * 2
    assert len(six.blocks[0].rows) == 12


def test_methods_stand_data_sets_side_by_side_for_records_too() -> None:
    cells = expand(load("goal-table3-coco", ['objectives=["con_con"]']))
    cells += expand(load("goal-table3-f30k", ['objectives=["con_con", "con_nca"]']))
    table = arrange(cells, synthetic(cells), layout="methods")
    assert [row.label.text for row in table.blocks[0].rows][:2] == ["vsepp-r152, con_con", "vsepp-r152-ft, con_con"]
    assert [sum(entry is None for entry in row.entries) for row in table.blocks[0].rows] == [0, 0, 6, 6]


def test_the_map_of_known_objectives_holds_the_cells_of_the_grid() -> None:
    cells = expand(load("demo", ['objectives=["con_con", "con_cir"]']))
    table = arrange(cells, Scores({}), layout="known")
    assert [entry.score.text for entry in table.entries()] == [KNOWN_AS["con_con"], "new"]
    with pytest.raises(UserError, match="the layout 'known' cannot show unified"):
        arrange(expand(load("demo", ['objectives=["unified"]'])), Scores({}), layout="known")


def malformed(text: str) -> list[str]:
    """What is wrong with a table as LaTeX."""
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    body = re.sub(r"\\[&%#_{}$]", "", "\n".join(lines))
    rows = [line for line in body.splitlines() if line.endswith("\\\\") and "multicolumn" not in line]
    wrong = {
        "braces": body.count("{") != body.count("}"),
        "dollars": body.count("$") % 2 != 0,
        "a character that is not escaped": bool(re.search(r"[#%]", body)),
        "rows of different length": len({line.count("&") for line in rows}) != 1,
    }
    return [what for what, found in wrong.items() if found]


@every("name", table_names())
def test_latex_of_a_papers_table_is_well_formed(name: str) -> None:
    assert malformed(latex.render(drawn(name))) == []


@every("layout", [*LAYOUTS, "against"])
def test_latex_of_every_layout_is_well_formed(layout: str, third: list[Cell]) -> None:
    scores = synthetic(third)
    chosen = {"against": "paper"} if layout == "against" else {"layout": layout}
    assert malformed(latex.render(arrange(third, scores, **chosen))) == []


def test_latex_of_all_papers_and_layouts_fits_a_page(third: list[Cell], tmp_path: Path) -> None:
    scores = synthetic([*third, *(fourth := expand(load("goal-table3-f30k")))])
    tables = [drawn(name) for name in table_names()]
    tables += [arrange(third[:15], scores, layout=layout) for layout in LAYOUTS]
    tables += [
        arrange([*third[:15], *fourth[:15]], scores, layout="methods"),
        arrange(third, scores, against="paper"),
    ]
    said = compiled("\\clearpage\n".join(map(latex.render, tables)), "adjustbox,amssymb,booktabs", tmp_path)
    assert [line for line in said.splitlines() if "Overfull" in line or "Warning" in line] == []


def test_latex_of_the_papers_has_no_character_that_pdflatex_lacks_and_names_its_packages() -> None:
    tables = {name: latex.render(drawn(name)) for name in table_names()}
    assert [name for name, text in tables.items() if not text.isascii()] == []
    assert [name for name, text in tables.items() if needed(text) != "adjustbox,booktabs"] == ["goal-table6"]
    assert needed(tables["goal-table6"]) == "adjustbox,amssymb,booktabs"
    assert r"ALBEF & $\checkmark$ & 14M & 77.6" in tables["goal-table6"]


def test_latex_is_in_the_papers_notation(third: list[Cell]) -> None:
    losses = latex.render(drawn("selhn-table1"))
    assert r"RVSE (MLP) & $\mathcal{L}_{\mathrm{T\mathchar`-SelHN}}$ & " in losses
    assert r"with the gradient ($T^{\mathrm{con}}$, $P^{\mathrm{con}}$)" in latex.render(drawn("goal-table2-coco"))
    table = arrange(third, synthetic(third), against="paper")
    ours, copied = latex.render(table), html.unescape(renderers.TEXT["html"].render(table))
    assert r'data-latex="$P^{\mathrm{sig\mathchar`-ms}}\,T^{\mathrm{cir}}$">sig-ms_cir<' in copied
    assert r"$P^{\mathrm{sig\mathchar`-ms}}\,T^{\mathrm{cir}}$ & " in ours
    assert "con\\_con" not in ours


def test_differences_have_a_minus_and_no_negative_zero() -> None:
    below = Difference(Score((62.0, 62.2), expected=2), Printed("63.1±0.2", n=3))
    assert Difference(Score((63.08,), expected=1), Printed("63.1")).text == "+0.0"
    entries = (TableEntry(below, {"objective": "con_con"}),)
    group = Group(Label(""), (Label("difference"),))
    table = Table(
        "t", Label(""), (group,), (Block("block", (Row(Label("row"), entries),)),), Legend(Sentence("caption"))
    )
    assert below.text == "-1.0 ± 0.2"
    assert r"row & $-$1.0 $\pm$ 0.2 \\" in latex.render(table)


def test_a_difference_is_ours_minus_theirs_with_welchs_error() -> None:
    ours = Score((63.0, 64.0, 65.0), expected=3)
    difference = Difference(ours, Printed("63.1±0.2", n=3))
    assert difference.mean == pytest.approx(0.9)
    assert difference.error == pytest.approx(math.sqrt(1.0 / 3 + 0.04 / 3))
    assert difference.text == "+0.9 ± 0.6"
    assert math.isnan(difference.shown)


@every(
    ("ours", "theirs", "text"),
    [
        ((63.0,), Printed("63.1±0.2", n=3), "-0.1"),
        ((63.0, 64.0), Printed("63.1"), "+0.4"),
        ((63.0, 64.0), Printed("-"), "--"),
        ((), Printed("63.1±0.2", n=3), "--"),
    ],
)
def test_a_difference_without_two_spreads_has_no_error(ours: tuple[float, ...], theirs: Printed, text: str) -> None:
    assert Difference(Score(ours, expected=2), theirs).text == text


def test_no_number_is_judged_by_one_that_is_doubted() -> None:
    """Unified Table 6 misprints an RSUM; every number of SelHN Table 10 is that of another data set."""
    ours = Score((440.0, 440.5, 441.0), expected=3)
    (misprint,) = (r for r in results_of("unified-table6") if r.doubt)
    assert (misprint.value.printed, misprint.name_in_row) == ("429.5", "SGRAF* + L_Unified")
    assert Difference(ours, Printed("429.5")).verdict == "above"
    assert Difference(ours, misprint.value).verdict == ""
    assert all(Difference(ours, result.value).verdict == "" for result in results_of("selhn-table10"))


def test_a_grid_stands_beside_the_papers_numbers(third: list[Cell]) -> None:
    table = arrange(third, synthetic(third), against="paper")
    assert [block.title for block in table.blocks] == ["vsepp-r152 on coco", "vsepp-r152-ft on coco"]
    assert [row.label.text for row in table.blocks[0].rows] == list(GOAL)
    first = [entry.score.text for entry in table.blocks[0].rows[0].entries if entry]
    assert first == ["50.1 ± 0.5", "33.9 ± 0.9", "+16.2 ± 0.6", "50.1 ± 0.5", "22.8 ± 0.4", "+27.3 ± 0.4"]
    assert "Paper: as printed in goal-table3-coco, for 30 of 30 cells." in table.caption
    assert "Settings that differ from the published recipe" not in table.caption
    rows = parquet.tidy(table).to_pylist()
    assert [row["column"] for row in rows[:3]] == ["ours", "paper", "difference"]
    assert rows[2]["difference"] == pytest.approx(50.1 - 33.9)
    assert rows[2]["standard_error"] == pytest.approx(math.sqrt((0.21 + 0.81) / 3))
    assert {row["reported_in"] for row in rows} == {"goal-table3-coco"}


def test_of_two_tables_that_one_counts_which_has_most_of_the_grid() -> None:
    cells = expand(load("goal-table2-coco"))
    table = arrange(cells, synthetic(cells), against="paper")
    printed = {row.label.text: row.entries[1] for row in table.blocks[1].rows}
    assert table.blocks[1].title == "vsepp-r152-ft on coco"
    assert printed["con_con"].score.text == "41.0 ± 0.3"  # Table 3 prints 40.8 ± 0.3
    assert printed["triplet-hn"].score.text == "41.3"
    assert table.blocks[0].rows[0].entries[1] is None  # step 1 by the loss itself: nowhere
    assert "for 7 of 8 cells" in table.caption


def test_a_number_that_its_table_calls_wrong_has_the_note_beside_it() -> None:
    grid = ['recipes=["vse-2ad"]', 'objectives=["adopt"]', "seeds=[0]"]
    cells = expand(load("goal-table3-f30k", grid))
    table = arrange(cells, synthetic(cells), against="paper")
    entries = table.blocks[0].rows[0].entries
    assert [entry.text for entry in entries if entry][4] == "59.1 [1]"
    assert [entry.text for entry in entries if entry][1] == "81.8"
    note = "interchanged with R DIME(i2t): by its RSUM it is 64.6"
    assert f" [1]: {note}." in table.caption
    assert [row.get("note") for row in parquet.tidy(table).to_pylist()] == [None, None, None, None, note, note]
    assert r"59.1}\textsuperscript{a}" in latex.render(table)
    assert rf"\textsuperscript{{a}}\,{note}." in latex.render(table)
    assert note in renderers.TEXT["csv"].render(table)


def test_a_best_of_runs_gives_way_to_a_mean_and_is_noted_where_it_is_alone() -> None:
    cells = expand(load("goal-table3-coco", ['recipes=["vse-inf-butd"]', 'objectives=["sig-ms_cir"]', "seeds=[0]"]))
    first = arrange(cells, synthetic(cells), against="paper")
    assert [entry.text for entry in first.blocks[0].rows[0].entries if entry][1] == "63.2 ± 0.3"
    fifth = arrange(cells, synthetic(cells), metric="r5", against="paper")
    assert [entry.text for entry in fifth.blocks[0].rows[0].entries if entry][1] == "87.2 [1]"
    assert "[1]: the best improved result, not a mean over runs." in fifth.caption


def test_two_tables_that_print_different_values_are_both_named() -> None:
    cells = expand(load("goal-table5-coco", ['recipes=["vse-inf-butd"]', "seeds=[0]"]))
    table = arrange(cells, synthetic(cells), against="paper")
    assert [entry.text for entry in table.blocks[0].rows[0].entries if entry][1] == "58.9 ± 0.7 [1]"
    assert "[1]: printed as 58.9 ± 0.7 in goal-table5-coco, 58.3 ± 0.7 in goal-table2-coco." in table.caption


def test_settings_that_leave_the_recipe_are_named_beside_the_papers_numbers() -> None:
    cells = expand(load("goal-table3-coco", ["train.epochs=2", "objective.tau=5", 'objectives=["con_nca"]']))
    caption = arrange(cells, synthetic(cells), against="paper").caption
    assert "Settings that differ from the published recipe: train.epochs, objective.tau." in caption


def test_a_cell_without_a_record_shows_the_papers_number_alone(third: list[Cell]) -> None:
    table = arrange(third, synthetic(third[1:]), against="paper")
    texts = [entry.score.text for entry in table.blocks[0].rows[0].entries if entry]
    assert texts[:3] == ["--", "33.9 ± 0.9", "--"]


def test_a_grid_that_no_paper_reports_is_told_what_is_reported() -> None:
    demo = expand(load("demo"))
    alone = r"\(frozen-bow on shapes by shapes-500\)\. All reported tables: goalgrid table --reference\.$"
    with pytest.raises(UserError, match=rf"^no paper reports i2t_r1 or t2i_r1 for this grid's cells {alone}"):
        arrange(demo, synthetic(demo), against="paper")
    flickr = expand(load("goal-table3-f30k", ['recipes=["vsepp-r152"]']))
    with pytest.raises(UserError, match=r"Reported: vsepp-r152 on coco by coco-5k \(15 objectives\)"):
        arrange(flickr, synthetic(flickr), against="paper")
    with pytest.raises(UserError, match="has a fixed layout, so it cannot be combined with --layout goal"):
        arrange(demo, synthetic(demo), layout="goal", against="paper")


def test_the_unified_loss_meets_its_paper_by_its_protocols() -> None:
    grid = ['objectives=["triplet-hn", "unified"]', 'recipes=["vsepp-butd"]', "dataset.protocol=coco-5x1k"]
    cells = expand(load("goal-table3-coco", grid))
    table = arrange(cells, synthetic(cells), metric="rsum", against="paper")
    assert [row.entries[1].score.text for row in table.blocks[0].rows if row.entries[1]] == ["506.6", "508.6"]


def test_the_command_line_prints_a_papers_table(goalgrid: Goalgrid, tmp_path: Path) -> None:
    shown = goalgrid("table", "goal-table3-coco", "--reference", runs=tmp_path)
    assert re.search(r"P\^sig-ms +43.6 ± 0.3 +\*43.8 ± 0.5 +\*43.8 ± 0.5", shown.stdout)
    listed = goalgrid("table", "--reference", runs=tmp_path).stdout
    assert [line.split()[0] for line in listed.splitlines()] == list(table_names())
    one = goalgrid("table", "2ad", "--reference", runs=tmp_path).stdout
    assert {line.partition("-")[0] for line in one.splitlines()} == {"2ad"}
    wrong = goalgrid("table", "goal-table3-f30k", "--reference", runs=tmp_path)
    assert wrong.returncode == 2
    assert "Did you mean 'goal-table3-coco'?" in wrong.stderr
    assert "in its appendix, which is not shipped" in wrong.stderr
    both = goalgrid("table", "goal-table6", "--reference", "--protocol", "coco-5k", runs=tmp_path)
    assert both.returncode == 2
    assert "leave --protocol out" in both.stderr


def test_the_command_line_puts_a_grid_beside_the_paper(goalgrid: Goalgrid, trained: Home, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(
        'name = "small"\ndatasets = ["coco"]\nrecipes = ["vsepp-r152"]\nobjectives = ["con_con"]\nseeds = [0, 1]\n'
    )
    runs = Home(tmp_path / "runs")
    template = record.collect([next(trained.path.glob("trials/*/record.parquet"))]).to_pylist()[0]
    [cell] = expand(load(str(tmp_path / "small.toml")))
    for trial in trials_of([cell]):
        folder = runs.trial(trial.id)
        folder.path.mkdir(parents=True)
        row = row_of(trial.id, cell, "coco-5k", 34.0 + trial.settings.seed)
        record.write(folder.record, {**template, **row})
        folder.done.write_text("")
    beside = goalgrid("table", str(tmp_path / "small.toml"), "--against", "paper", runs=runs.path)
    assert re.search(r"con_con +\*34.5 ± 0.7 +\*33.9 ± 0.9 +\+0.6 ± 0.7", beside.stdout), beside.stderr
    wrong = goalgrid("table", "demo", "--against", "paper", runs=trained.path)
    assert wrong.returncode == 2
    assert "no paper reports" in wrong.stderr
    unknown = goalgrid("table", "demo", "--against", "papers", runs=trained.path)
    assert "unknown comparison 'papers'. Did you mean 'paper'?" in unknown.stderr
