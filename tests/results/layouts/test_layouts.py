"""Tables from real records: every layout in every format, with equal numbers."""

import csv
import io
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from goalgrid.grid.errors import UserError
from goalgrid.grid.evaluations import Evaluate
from goalgrid.grid.expansion import Cell, expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.objectives.goal_matrix import GOAL
from goalgrid.grid.protocols import ECCV, JUDGED
from goalgrid.grid.store.home import Home
from goalgrid.results import renderers
from goalgrid.results.analysis.observations import marked
from goalgrid.results.layouts import LAYOUTS, arrange, natural
from goalgrid.results.layouts.captions import COLUMN_NAMES, by_direction
from goalgrid.results.records import record
from goalgrid.results.records.models import Speed
from goalgrid.results.records.provenance import Now, versioned
from goalgrid.results.records.scores import Score, Scores
from goalgrid.results.renderers import latex, markdown, parquet, terminal
from goalgrid.results.tables import Block, Group, Label, Row, Table, TableEntry
from goalgrid.results.tables.latex_style import LatexStyle
from goalgrid.results.tables.legend import Legend, Sentence
from goalgrid.runners.training.fingerprint import code_fingerprint
from tests.cases import every
from tests.tex import compiled, needed

from ...conftest import SMALL


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    """The full matrix, of which the trained home holds two cells."""
    return expand(load("demo", ["seeds=[0,1]", *(word for word in SMALL if word != "--set")]))


@pytest.fixture(scope="module")
def scores(trained: Home, cells: list[Cell]) -> Scores:
    return Scores.read(cells, trained)


def synthetic() -> Table:
    """Names and values that break careless renderers: special characters, ties, one seed, missing seeds and cells."""
    values = [(63.14, 63.2), (63.1, 63.22), (9.0,), ()]
    entries = tuple(TableEntry(Score(v, expected=2), {"objective": f"o_{i}"}) for i, v in enumerate(values))
    row, gap = Row(Label("a_b & 50% #1 | *x*"), entries), Row(Label("{~^\\}"), (None, *entries[:3]))
    groups = (Group(Label("A_1"), (Label("x^2"), Label("y"))), Group(Label("<B>"), (Label("$"), Label("z"))))
    return Table(
        "odd",
        Label("corner_"),
        groups,
        (Block("block_1 ± 100%", (row, gap)),),
        Legend(Sentence("caption_ with 5% & more")),
    )


@pytest.mark.parametrize("layout", ["losses", "methods"])
def test_a_cell_whose_objective_lacks_a_swept_parameter_is_a_single_row(layout: str, tmp_path: Path) -> None:
    words = ["sweep.objective.tau=[1,10]", 'objectives=["con_con","con_nca"]', *SMALL[1::2]]
    cells = expand(load("demo", words))
    table = arrange(cells, Scores.read(cells, Home(tmp_path)), layout=layout)
    names = ["con_con", "con_nca, objective.tau = 1", "con_nca, objective.tau = 10"]
    assert [row.label.text for row in table.blocks[0].rows] == names


def test_the_matrix_has_goals_rows_and_columns(cells: list[Cell], scores: Scores) -> None:
    table = arrange(cells, scores)
    assert [row.label.text for row in table.blocks[0].rows] == ["P^con", "P^lin", "P^sig", "P^lin-ms", "P^sig-ms"]
    assert [column.text for group in table.groups for column in group.columns] == ["T^con", "T^nca", "T^cir"] * 2
    assert [group.title.text for group in table.groups] == ["Image → Text", "Text → Image"]


def test_cells_hold_the_means_of_the_records(trained: Home, cells: list[Cell], scores: Scores) -> None:
    entry = arrange(cells, scores).blocks[0].rows[0].entries[0]
    assert entry
    frames = [pd.read_parquet(trained.trial(trial.id).record) for trial in cells[0].trials]
    values = pd.concat(frames)["test_i2t_r1"]
    assert entry.score.mean == pytest.approx(values.mean())
    assert entry.score.std == pytest.approx(values.std())
    assert entry.score.trials == tuple(trial.id for trial in cells[0].trials)


def test_missing_cells_are_shown_and_counted(cells: list[Cell], scores: Scores) -> None:
    table = arrange(cells, scores)
    assert "13 of 15 cells are missing (--): 26 trials never run." in table.caption
    assert markdown.render(table).count(" -- ") == 26


def test_a_spread_is_told_once_a_cell_has_two_seeds(cells: list[Cell], scores: Scores) -> None:
    assert "mean ± sample standard deviation over 2 seeds" in arrange(cells, scores).caption
    firsts = {trial.id: scores.rows[trial.id] for cell in cells for trial in cell.trials[:1] if trial.id in scores.rows}
    assert ": one seed so far, so no spread; " in arrange(cells, replace(scores, rows=firsts)).caption
    more = expand(load("demo", ["seeds=[0,1,2]", *SMALL[1::2]]))
    assert "over 2 of 3 seeds" in arrange(more, scores).caption


def test_cells_that_are_not_of_the_grid_are_gaps(scores: Scores, cells: list[Cell]) -> None:
    table = arrange([cells[0]], scores)
    assert sum(1 for _ in table.entries()) == 2
    assert "missing" not in table.caption


def test_every_format_says_how_many_trials_other_code_trained(cells: list[Cell], scores: Scores) -> None:
    compared = replace(scores, now=Now(code_fingerprint))
    assert "code" not in arrange(cells, compared).caption
    first, second, *rest = scores.rows.values()
    changed = [{**first, "code_fingerprint": versioned("f")}, {**second, "code_fingerprint": "older"}, *rest]
    table = arrange(cells, replace(compared, rows={row["trial_id"]: row for row in changed}))
    assert "1 of 4 trials were recorded by a version that compared code differently" in table.caption
    sentence = "1 of 4 trials were trained with older code."
    assert sentence in latex.render(table)
    assert sentence in markdown.render(table)
    assert sentence in table.caption
    assert sentence in parquet.tidy(table).schema.metadata[b"caption"].decode()


@every("layout", LAYOUTS)
@every("metric", COLUMN_NAMES)
def test_every_layout_shows_the_metric_that_is_asked_for(
    layout: str, metric: str, cells: list[Cell], scores: Scores
) -> None:
    if metric in JUDGED:
        scores = replace(scores, protocol=ECCV, evaluate=Evaluate(protocols=[ECCV]))
    if layout == "known" and metric != "r1":
        with pytest.raises(UserError, match="the layout 'known' shows names of losses, not metrics"):
            arrange(cells, scores, layout=layout, metric=metric)
        return
    table = arrange(cells, scores, layout=layout, metric=metric)
    shown = {entry.keys["metric"] for entry in table.entries()}
    assert layout == "known" or by_direction(metric).keys() <= shown
    for kind in renderers.TEXT:
        assert renderers.TEXT[kind].render(table)
    assert parquet.tidy(table).num_rows == sum(1 for _ in table.entries()) > 0


def test_weights_and_speed_stand_beside_the_recalls(cells: list[Cell], trained: Home, tmp_path: Path) -> None:
    """As VSE+2AD Table 2 prints them; a speed counts for all cells of the same model."""
    home = Home(tmp_path / "runs")
    shutil.copytree(trained.path, home.path)
    done = [cell for cell in cells if cell.objective in ("con_con", "sig-ms_cir")]
    unmeasured = arrange(done, Scores.read(done, home), layout="losses", metric="parameters,kpps")
    assert "kpps is measured by goalgrid evaluate --trial ID --speed; one trial of each model" in unmeasured.caption
    (row,) = record.collect([home.trial(done[0].trials[0].id).record]).to_pylist()
    weights = [entry.score for entry in unmeasured.entries() if entry.keys["metric"] == "parameters"]
    assert [score.tidy()["mean"] for score in weights] == [row["parameters"] / 1e6] * 2
    trial = done[0].trials[1].id
    Speed(393_750_000.0, 5_374.0, row["parameters"], row["parameters"], "a device", 1).write(home.trial(trial).speed)
    table = arrange(done, Scores.read(done, home), layout="losses", metric="parameters,kpps")
    assert table.heads[-3:] == ["RSUM", "weights (M)", "kpps"]
    assert [row.entries[-1] and row.entries[-1].text for row in table.blocks[0].rows] == ["393,750"] * 2
    assert "here on a device, 1 thread." in table.caption
    assert all(not bold for _, line in table.lines(table.blocks[0]) for _, bold in line[-2:])
    assert [entry.score.trials for entry in table.entries() if entry.keys["metric"] == "kpps"] == [(trial,)] * 2
    home.trial(trial).speed.write_bytes(b"PAR1 cut off")
    with pytest.raises(UserError, match=rf"the speed .* cannot be read: .*goalgrid evaluate --trial {trial} --speed"):
        arrange(done, Scores.read(done, home), metric="kpps")
    said = list[str]()
    left = arrange(done, Scores.read(done, home, leave=said.append), layout="losses", metric="kpps")
    assert [row.entries[-1] and row.entries[-1].text for row in left.blocks[0].rows] == ["--"] * 2
    assert [message.partition(" cannot")[0] for message in said] == [f"the speed {home.trial(trial).speed}"]
    for options, message in (
        (
            {"metric": "r5,medr"},
            "the layout 'goal' shows one metric, but --metric r5,medr names 2. Use --layout listing",
        ),
        ({"metric": "r5,medr", "against": "paper"}, "--against paper shows one metric"),
    ):
        with pytest.raises(UserError, match=message):
            arrange(done, Scores.read(done, home), **options)


def test_every_sweep_point_is_a_block(scores: Scores) -> None:
    swept = expand(load("demo", ["sweep.train.lr=[1e-3, 1e-4]", "seeds=[0]"]))
    titles = [block.title for block in arrange(swept, scores).blocks]
    assert titles == ["frozen-bow on shapes, train.lr = 0.001", "frozen-bow on shapes, train.lr = 0.0001"]


def test_a_matrix_of_few_cells_is_a_list_in_a_terminal(scores: Scores) -> None:
    small = ["seeds=[0,1]", *(word for word in SMALL if word != "--set")]
    few = arrange(expand(load("demo", [*small, 'objectives=["con_con","sig-ms_cir"]'])), scores)
    assert terminal.mostly_empty(few)
    listed = terminal.as_list(few)
    assert [row.label.text for row in listed.blocks[0].rows] == ["P^con T^con", "P^sig-ms T^cir"]
    assert listed.heads == ["Image → Text", "Text → Image"]
    assert {entry.text for entry in listed.entries()} == {entry.text for entry in few.entries()}
    assert not terminal.mostly_empty(arrange(expand(load("demo")), scores))
    assert not terminal.mostly_empty(arrange(expand(load("demo", ['objectives=["infonce"]'])), scores))


def test_the_goal_layout_refuses_other_objectives(cells: list[Cell], scores: Scores) -> None:
    stranger = Cell("shapes", "cnn-bow", "unknown", (), cells[0].trials)
    several = [replace(stranger, recipe=name, objective=loss) for name in "ab" for loss in "cd"]
    assert natural([stranger], scores) == "listing"
    assert natural([stranger, replace(stranger, recipe="cnn-gru")], scores) == "losses"
    assert natural(several, scores) == "listing"
    assert natural(cells, scores) == "goal"
    with pytest.raises(UserError, match="cannot show unknown"):
        arrange([stranger], scores, layout="goal")


def test_ties_as_shown_are_all_bold() -> None:
    text = markdown.render(synthetic())
    assert text.count("**63.2 ± 0.0**") == text.count("**63.2 ± 0.1**") == 2


def test_parquet_reads_back_with_the_numbers_of_the_table(cells: list[Cell], scores: Scores, tmp_path: Path) -> None:
    table = arrange(cells, scores)
    renderers.write(table, "parquet-long", tmp_path / "table.parquet")
    frame = pd.read_parquet(tmp_path / "table.parquet")
    assert list(frame["objective"].unique()) == list(GOAL)
    for entry, row in zip(table.entries(), frame.itertuples(), strict=True):
        assert row.n == entry.score.n
        assert row.text == entry.score.text
        assert list(row.trials) == list(entry.score.trials)
        if entry.score.n:
            assert row.mean == entry.score.mean


def test_csv_holds_the_same_rows(cells: list[Cell], scores: Scores) -> None:
    table = arrange(cells, scores)
    rows = list(csv.DictReader(io.StringIO(renderers.TEXT["csv"].render(table))))
    assert [row["text"] for row in rows] == [entry.score.text for entry in table.entries()]
    assert float(rows[0]["mean"]) == next(table.entries()).score.mean


@pytest.mark.parametrize("table", [synthetic()], ids=["synthetic"])
def test_latex_is_well_formed(table: Table) -> None:
    text = latex.render(table)
    body = re.sub(r"\\[&%#_{}$]", "", text.split("\n", 1)[1])
    assert body.count("{") == body.count("}")
    assert body.count("$") % 2 == 0
    assert not re.search(r"[#%]", body)
    cells_of = [line.count("&") for line in body.splitlines() if line.endswith("\\\\") and "multicolumn" not in line]
    assert set(cells_of) == {4}


def test_latex_of_siunitx_holds_the_same_numbers(cells: list[Cell], scores: Scores) -> None:
    table = marked(arrange(cells, scores))
    text = latex.render(replace(table, latex=LatexStyle(siunitx=True)))
    assert "% needs \\usepackage{adjustbox,booktabs,siunitx}" in text
    rows = [line.removesuffix(" \\\\").split(" & ")[1:] for line in text.splitlines() if line.startswith("$P^")]
    shown = [entry.text for block in table.blocks for row in block.rows for entry in row.entries if entry]
    plain = [re.sub(r"\\bfseries | ?\{\$\^\{\\dagger\}\$\}", "", number) for row in rows for number in row]
    assert [number.strip("{}").replace(r"\pm", "±") for number in plain] == [text.rstrip("†") for text in shown]


@pytest.mark.parametrize("siunitx", [False, True])
@pytest.mark.parametrize("layout", [*LAYOUTS, "synthetic"])
def test_latex_compiles(layout: str, siunitx: bool, cells: list[Cell], scores: Scores, tmp_path: Path) -> None:
    table = synthetic() if layout == "synthetic" else arrange(cells, scores, layout=layout)
    text = latex.render(replace(table, latex=LatexStyle(siunitx=siunitx)))
    said = compiled(text, needed(text), tmp_path)
    assert (layout == "synthetic") or "Overfull" not in said


@every("layout", ["goal", "listing", "methods"])
def test_the_terminal_shows_every_number_unbroken_at_any_width(layout: str, cells: list[Cell], scores: Scores) -> None:
    table = arrange(cells, scores, layout=layout)
    for width in (120, 80, 60, 40):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(terminal.render(table))
        text = console.export_text()
        assert text.count("±") == sum("±" in entry.text for entry in table.entries()) + table.caption.count("±")
        assert all(entry.score.text in text for entry in table.entries())


def test_every_column_of_a_record_says_what_it_is() -> None:
    for field in record.SCHEMA:
        assert field.metadata[b"meaning"], field.name


def test_a_torn_record_is_named(trained: Home, cells: list[Cell], tmp_path: Path) -> None:
    path = tmp_path / "record.parquet"
    path.write_bytes(trained.trial(cells[0].trials[0].id).record.read_bytes()[:100])
    with pytest.raises(UserError, match=r"record\.parquet cannot be read"):
        record.collect([path])


def test_a_record_older_than_a_column_reads_with_null(trained: Home, cells: list[Cell], tmp_path: Path) -> None:
    new = record.collect([trained.trial(cells[0].trials[0].id).record])
    pq.write_table(new.drop_columns(["diagnostic_spread"]), tmp_path / "old.parquet")
    both = record.collect([tmp_path / "old.parquet", trained.trial(cells[0].trials[0].id).record])
    assert both.schema.names == record.SCHEMA.names
    assert both["diagnostic_spread"].null_count == 1


def test_a_record_of_a_version_that_wrote_more_columns_reads_without_them(
    trained: Home, cells: list[Cell], tmp_path: Path
) -> None:
    new = record.collect([trained.trial(cells[0].trials[0].id).record])
    pq.write_table(new.append_column("of_another_version", [[1]]), tmp_path / "old.parquet")
    assert record.collect([tmp_path / "old.parquet"]).equals(new)


def test_no_records_are_an_empty_table() -> None:
    assert record.collect([]).num_rows == 0
