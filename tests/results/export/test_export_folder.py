"""An export: tables are what their commands print; README and list of trials say how each number comes again."""

import csv
import hashlib
import json
import os
import re
import shlex
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand, select
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.plugins import Use
from goalgrid.grid.store.files import write_text
from goalgrid.grid.store.home import Home
from goalgrid.results import renderers
from goalgrid.results.export.export_folder import _tables, export, readme, trial_list
from goalgrid.results.export.report_page import Measured
from goalgrid.results.export.staging import SUMS, staged
from goalgrid.results.export.table_request import TableRequest
from goalgrid.results.records.provenance import Now, versioned
from goalgrid.results.records.scores import Scores
from goalgrid.runners.training.fingerprint import code_fingerprint

from ...conftest import SMALL, swapped
from ...goalgrid.processes import forked
from ..layouts.test_pivot import made

AXES = ['objectives=["con_con","sig-ms_cir"]', "seeds=[0,1,2]", *(word for word in SMALL if word != "--set")]


@pytest.fixture(scope="module")
def grid() -> Grid:
    """Six trials, of which four are done."""
    return load("demo", AXES)


@pytest.fixture(scope="module")
def cells(grid: Grid) -> list[Cell]:
    return expand(grid)


@pytest.fixture(scope="module")
def folder(grid: Grid, cells: list[Cell], trained: Home, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target, home = tmp_path_factory.mktemp("export"), Home(tmp_path_factory.mktemp("changed") / "runs")
    shutil.copytree(trained.path, home.path)
    changed = home.trials()[0].settings
    changed.write_text(swapped(changed.read_text(), '"size": 16', '"size": 24'))
    measured = Measured.of(grid.name, cells, Scores.read(cells, home), home)
    export(grid, cells, measured, home, target, report="<!doctype html>")
    return target


def test_settings_and_history_of_a_trial_are_those_of_its_record(trained: Home, folder: Path) -> None:
    """In the folder that was exported, somebody changed the settings of the first trial."""
    for trial in trained.trials():
        for file in (trial.settings, trial.history):
            assert (folder / "trials" / trial.trial_id / file.name).read_text() == file.read_text()
        exported = json.loads((folder / "trials" / trial.trial_id / "environment.json").read_text())
        assert exported.items() >= json.loads(trial.environment.read_text()).items()
        assert "vocabulary" in exported


def test_it_holds_records_effects_figures_and_tables_in_every_format(folder: Path) -> None:
    assert pq.read_metadata(folder / "records.parquet").num_rows == 4
    assert (folder / "effects.md").exists()
    assert (folder / "figures" / "training-cnn-bow-on-shapes.pdf").exists()
    names = {path.name for path in (folder / "tables").iterdir()}
    assert {f"goal.{ending}" for ending in renderers.ENDINGS.values()} <= names


def test_every_table_is_what_its_command_prints(cells: list[Cell], trained: Home, folder: Path) -> None:
    scores = Scores.read(cells, trained)
    for path in (folder / "tables").iterdir():
        table = TableRequest("demo").draw(cells, scores)
        assert path.read_bytes() == renderers.encoded(table, str(renderers.format_of(path)))


def test_the_readme_names_what_there_is(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# demo\n\n4 of 6 trials are done.\n")
    assert all((folder / name.rstrip("/")).exists() for name in re.findall(r"^- `([^`*]+)`:", text, re.MULTILINE))
    assert "- `tables/goal.*`: `goalgrid table demo --format FORMAT`" in text
    (drawn,) = re.findall(r"^- `figures/`: (.*), each as PDF, SVG and PNG$", text, re.MULTILINE)
    assert set(drawn.split(", ")) == {path.name.partition("-")[0] for path in (folder / "figures").iterdir()}
    assert re.search(r"^- 4 trials: Python 3\.\d+\.\d+, goalgrid \S+, .*torch ", text, re.MULTILINE)


def test_every_trials_command_names_that_trial_alone(cells: list[Cell], folder: Path) -> None:
    rows = list(csv.DictReader((folder / "trials.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["trial_id"] for row in rows] == [trial.id for cell in cells for trial in cell.trials]
    for row in rows:
        *command, only = shlex.split(row["command"])
        assert command == ["goalgrid", "run", "grid.toml", "--only"]
        assert [trial.id for trial in select(cells, only)] == [row["trial_id"]]
        assert row["missing"] == ("never run" if row["seed"] == "2" else "")


def test_the_grid_file_gives_the_same_trials(cells: list[Cell], folder: Path) -> None:
    assert expand(load(str(folder / "grid.toml"))) == cells


def test_the_checksums_are_those_of_every_file(folder: Path) -> None:
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    files = {path for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS"}
    assert {folder / name for name in sums} == files
    assert all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())


def test_a_grid_that_a_paper_reports_is_put_beside_it() -> None:
    grid = load("goal-table3-coco")
    cells = expand(grid)
    tables = dict(_tables(TableRequest(grid.name), cells, made(cells), Home(Path())))
    assert list(map(str, tables)) == ["tables/goal", "tables/against", "tables/coco-5x1k/goal"]
    assert tables[Path("tables/against")].command == "goalgrid table goal-table3-coco --against paper"
    assert tables[Path("tables/coco-5x1k/goal")].command == "goalgrid table goal-table3-coco --protocol coco-5x1k"
    text = readme(TableRequest(grid.name), grid, cells, Measured(), tables, Counter(), False)
    assert "- `tables/against.*`: `goalgrid table goal-table3-coco --against paper --format FORMAT`" in text
    assert "No trial is done yet." in text
    assert "`goalgrid report goal-table3-coco`" in text
    narrowed = readme(
        TableRequest(grid.name, only="objective=con_con seed=0"), grid, cells, Measured(), tables, Counter(), False
    )
    assert "`goalgrid report goal-table3-coco --only 'objective=con_con seed=0'`" in narrowed


def test_the_readme_says_what_a_grid_needs_on_another_machine(tmp_path: Path) -> None:
    grid = load("goal-table3-coco", roots=[f"coco={tmp_path}"])
    own = grid.model_copy(update={"uses": [Use(path="/home/author/l.py", source="")]})
    about = (expand(grid), Measured(), {}, Counter[str](), False)
    plain, theirs = (readme(TableRequest(grid.name), of, *about) for of in (load("demo"), own))
    assert (
        "\n```\ngoalgrid run grid.toml\n```\n\ntrains all unfinished trials and prints the first table.\nThen, in"
        in plain
    )
    assert "\n```\ngoalgrid run grid.toml --trust-code --root coco=DIR\n```\n" in theirs
    assert "runs the code of /home/author/l.py given under `[[uses]]` in `grid.toml`: read it first." in theirs


def test_the_readme_says_how_many_trials_other_code_trained(grid: Grid, cells: list[Cell], trained: Home) -> None:
    scores = Scores.read(cells, trained)
    for now, said in ((code_fingerprint, ""), (lambda _: versioned("f"), "4 of 4 trials were trained with older code")):
        measured = Measured(rows=scores.rows, scores=replace(scores, now=Now(now)))
        text = readme(TableRequest(grid.name), grid, cells, measured, {}, Counter(), False)
        assert text.startswith(f"# demo\n\n4 of 6 trials are done.\n{said}")
        assert ("use the current code" in text) == bool(said)


def test_swept_values_are_part_of_a_trials_command() -> None:
    cells = expand(load("demo", ["sweep.train.lr=[1e-3, 5e-4]", 'objectives=["con_con"]', "seeds=[4]"]))
    rows = list(csv.DictReader(trial_list(cells, Scores({})).splitlines()))
    assert [row["train.lr"] for row in rows] == ["0.001", "0.0005"]
    assert all(
        [trial.id for trial in select(cells, shlex.split(row["command"])[-1])] == [row["trial_id"]] for row in rows
    )


def test_an_export_that_was_cut_off_is_given_again(tmp_path: Path) -> None:
    target = tmp_path / "paper"
    with suppress(KeyboardInterrupt), staged(target) as staging:
        write_text(staging / "tables" / "half.csv", "half")
        raise KeyboardInterrupt
    assert list(target.iterdir()) == []
    with staged(target) as staging:
        write_text(staging / "whole.csv", "whole")
    assert [path.name for path in target.iterdir()] == ["whole.csv"]
    with (
        pytest.raises(UserError, match=r"paper is not empty: it contains whole\.csv; give a new folder"),
        staged(target),
    ):
        pass
    with pytest.raises(UserError, match=r"whole\.csv is a file"), staged(target / "whole.csv"):
        pass
    assert [path.name for path in target.iterdir()] == ["whole.csv"]


def fill(target: Path) -> None:
    files = {"a.csv": "1", "tables/b.csv": "2", "z.txt": "3"}
    with staged(target) as staging:
        for name, text in files.items():
            write_text(staging / name, text)
        sums = (f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in files.items())
        write_text(staging / SUMS, "".join(sums))


@pytest.mark.parametrize("number", range(1, 10))
def test_wherever_an_export_is_killed_the_same_command_makes_it_whole(number: int, tmp_path: Path) -> None:
    """Four renamings give files their names in the hidden folder, four move them up, and the folder is removed."""
    target = tmp_path / "paper"
    target.mkdir()
    child = forked(lambda: fill(target), lambda event, _: event in ("os.rename", "os.rmdir"), number)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    if number < 9:
        fill(target)
    else:  # it was whole, but for the hidden folder
        next(target.glob(".*")).rmdir()
    found = {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}
    assert found.pop(SUMS)
    assert found == {"a.csv": "1", "tables/b.csv": "2", "z.txt": "3"}
    assert sorted(path.name for path in target.iterdir()) == [SUMS, "a.csv", "tables", "z.txt"]


@pytest.mark.parametrize("mine", ["paper.tex", ".unfinished", "tables/mine.csv", "a.csv", ".export.old"])
def test_files_of_others_stay_and_refuse_an_export(mine: str, tmp_path: Path) -> None:
    """Also next to what a killed export left, which had moved the same name up."""
    target = tmp_path / "paper"
    for cut_off in (False, True):
        if cut_off:
            shutil.rmtree(target)
            target.mkdir()
            child = forked(lambda: fill(target), lambda event, _: event == "os.rename", 7)
            os.waitpid(child, 0)
        (target / mine).parent.mkdir(parents=True, exist_ok=True)
        (target / mine).write_text("my thesis", encoding="utf-8")
        before = sorted(target.rglob("*"))
        with pytest.raises(UserError, match=f"paper is not empty: it contains {re.escape(mine.partition('/')[0])}"):
            fill(target)
        assert (target / mine).read_text() == "my thesis"
        assert sorted(target.rglob("*")) == before
