"""A grid whose cells differ in settings and whose searches chose values, in every format, from records."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import Home

from ...paper_records import write_trial
from ..conftest import Verb

GRID = """
name = "mixed"
datasets = ["flickr8k"]
recipes = ["fc-bow"]
objectives = ["infonce", "con_con", "sig-ms_cir"]
seeds = [0, 1]

[set]
"train.epochs" = 3
"train.lr" = 0.002
"""
WHERE = """
[[where]]
objective = "infonce"
set."train.epochs" = 9
set."train.lr" = 0.003
"""
SELECT = """
[select]
over = { "objective.tau" = [1, 10], "train.lr" = [0.0001, 0.01] }
"""
UNEQUAL = "Unequal settings (train.epochs, train.lr): infonce: 9, 0.003; all others: 3, 0.002."
CHOSEN = "Chosen (train.lr, objective.tau): sig-ms_cir: 0.01, 10; all others: 0.01, --."
OF_CELLS = {
    "infonce": {"train.epochs": 9, "train.lr": 0.003},
    "con_con": {"train.epochs": 3, "train.lr": 0.002},
    "sig-ms_cir": {"train.epochs": 3, "train.lr": 0.002},
}


def grid_of(folder: Path, text: str) -> tuple[str, Home]:
    """The file of a grid whose trials all have records: a higher learning rate and tau, a higher recall."""
    file, home = folder / "mixed.toml", Home(folder / "runs")
    file.write_text(text)
    for trial in {trial.id: trial for cell in expand(load(str(file))) for trial in cell.trials}.values():
        good = 1000 * trial.shared.train.lr + float(trial.shared.objective.parameters.get("tau") or 0)
        shown = {(trial.shared.dataset.protocol, name): good + trial.seed for name in ("i2t_r1", "t2i_r1")}
        write_trial(home, trial, shown, val_rsum=200 + good)
    return str(file), home


def table(verb: Verb, file: str, home: Home, kind: str) -> str:
    return verb("table", file, "--format", kind, runs=home).stdout


def long(verb: Verb, file: str, home: Home, folder: Path) -> list[dict[str, Any]]:
    verb("table", file, "--output", str(folder / "t.long.parquet"), runs=home)
    rows: list[dict[str, Any]] = pq.read_table(folder / "t.long.parquet").to_pylist()
    return rows


@pytest.mark.parametrize("kind", ["terminal", "markdown", "html"])
def test_every_caption_names_unequal_settings(tmp_path: Path, verb: Verb, kind: str) -> None:
    text = " ".join(table(verb, *grid_of(tmp_path, GRID + WHERE), kind).replace("\\_", "_").split())
    assert UNEQUAL in text


def test_latex_names_unequal_settings_in_words(tmp_path: Path, verb: Verb) -> None:
    text = table(verb, *grid_of(tmp_path, GRID + WHERE), "latex")
    assert "Unequal settings (epochs, learning rate): InfoNCE: 9, 0.003; all others: 3, 0.002." in text


def test_an_honest_grid_names_none(tmp_path: Path, verb: Verb) -> None:
    file, home = grid_of(tmp_path, GRID)
    assert "Unequal" not in table(verb, file, home, "terminal")
    assert not {"settings", "chosen"} & long(verb, file, home, tmp_path)[0].keys()
    assert not {"settings", "chosen"} & set(table(verb, file, home, "csv").splitlines()[0].split(","))


def test_data_hold_the_settings_of_each_value(tmp_path: Path, verb: Verb) -> None:
    file, home = grid_of(tmp_path, GRID + WHERE)
    for rows in (long(verb, file, home, tmp_path), json.loads(table(verb, file, home, "json"))["records"]):
        assert {row["objective"]: row["settings"] for row in rows} == OF_CELLS
    lines = csv.DictReader(io.StringIO(table(verb, file, home, "csv")))
    assert {line["objective"]: line["settings"] for line in lines} == {
        "infonce": "train.epochs=9 train.lr=0.003",
        "con_con": "train.epochs=3 train.lr=0.002",
        "sig-ms_cir": "train.epochs=3 train.lr=0.002",
    }
    verb("table", file, "--output", str(tmp_path / "t.parquet"), runs=home)
    assert UNEQUAL in pq.read_schema(tmp_path / "t.parquet").metadata[b"caption"].decode()


def test_chosen_values_are_in_captions_and_data(tmp_path: Path, verb: Verb) -> None:
    file, home = grid_of(tmp_path, GRID.replace('"train.lr" = 0.002', "") + SELECT)
    caption = " ".join(table(verb, file, home, "html").split())
    assert CHOSEN in caption
    assert "Unequal" not in caption
    for rows in (long(verb, file, home, tmp_path), json.loads(table(verb, file, home, "json"))["records"]):
        assert {row["objective"]: row["chosen"] for row in rows} == {
            "infonce": {"train.lr": 0.01, "objective.tau": None},
            "con_con": {"train.lr": 0.01, "objective.tau": None},
            "sig-ms_cir": {"train.lr": 0.01, "objective.tau": 10},
        }
    lines = csv.DictReader(io.StringIO(table(verb, file, home, "csv")))
    assert {line["objective"]: line["chosen"] for line in lines} == {
        "infonce": "train.lr=0.01", "con_con": "train.lr=0.01", "sig-ms_cir": "train.lr=0.01 objective.tau=10",
    }  # fmt: skip


def test_effects_name_unequal_settings(tmp_path: Path, verb: Verb) -> None:
    file, home = grid_of(tmp_path, GRID + WHERE)
    shown = " ".join(verb("effects", file, "--metric", "r1", "--direction", "i2t", runs=home).stdout.split())
    assert UNEQUAL in shown
    (analysis,) = json.loads(verb("effects", file, "--direction", "i2t", "--json", runs=home).stdout)
    assert (analysis["conditions"], analysis["settings"], analysis["chosen"]) == ([UNEQUAL], OF_CELLS, {})
    lines = list(csv.reader(io.StringIO(verb("effects", file, "--format", "csv", runs=home).stdout)))
    assert {tuple(line[3:]) for line in lines if line[2] == "setting"} == {
        (name, key, str(value)) for name, values in OF_CELLS.items() for key, value in values.items()
    }


def test_effects_say_the_conditions_of_a_block_once(tmp_path: Path, verb: Verb) -> None:
    file, home = grid_of(tmp_path, GRID + WHERE)
    sections = verb("effects", file, "--format", "markdown", runs=home).stdout.split("\n## ")[-2:]
    assert [UNEQUAL in " ".join(section.split()) for section in sections] == [True, False]


def test_claims_of_a_grid_end_with_its_conditions(tmp_path: Path, verb: Verb) -> None:
    where = '[[where]]\nobjective = "con_con"\nset."train.epochs" = 9\n'
    text = GRID.replace('"infonce", ', "").replace('"train.lr" = 0.002', "") + where + SELECT
    file, home = grid_of(tmp_path, text)
    told = (
        "Chosen (train.lr, objective.tau): con_con: 0.01, --; sig-ms_cir: 0.01, 10.",
        "Unequal settings (train.epochs): con_con: 9; sig-ms_cir: 3.",
    )
    shown = " ".join(verb("claims", "goal", file, runs=home).stdout.split())
    assert shown.endswith(" ".join(f"- mixed: {sentence}" for sentence in told))
    claims = json.loads(verb("claims", "goal", file, "--json", runs=home).stdout)
    assert {(claim["source"], tuple(claim.get("conditions", ()))) for claim in claims} == {
        ("printed", ()), ("mixed", told),
    }  # fmt: skip


def test_a_report_says_the_conditions_once_in_sight_and_a_site_with_its_findings(tmp_path: Path, verb: Verb) -> None:
    """Of the tables by metric one is seen at a time, each with its caption."""
    file, home = grid_of(tmp_path, GRID + WHERE)
    verb("report", file, "--output", str(tmp_path / "r.html"), runs=home)
    page = " ".join((tmp_path / "r.html").read_text().split())
    assert page.count(UNEQUAL) == len(re.findall(f"<figcaption>[^<]*{re.escape(UNEQUAL)}", page)) > 0
    verb("site", str(tmp_path / "site"), file, runs=home)
    assert (tmp_path / "site" / "index.html").read_text().count(UNEQUAL) == 1


def test_compare_names_what_searches_differ_in(tmp_path: Path, verb: Verb) -> None:
    file, home = grid_of(tmp_path, GRID.replace('"train.lr" = 0.002', "") + SELECT)
    other = tmp_path / "other.toml"
    text = Path(file).read_text().replace("[1, 10]", "[1]")
    other.write_text(text.replace('"mixed"', '"other"') + 'seed = 7\nstop = "asha"\nfactor = 4\n')
    for trial in {trial.id: trial for cell in expand(load(str(other))) for trial in cell.trials}.values():
        if not home.trial(trial.id).is_done():
            write_trial(home, trial, {}, val_rsum=1000 * trial.shared.train.lr)
    compared = json.loads(verb("compare", file, str(other), "--json", runs=home).stdout)
    assert {entry["name"]: (entry["a"], entry["b"]) for entry in compared["settings"]} == {
        "objective.tau": ("10", "1"), "select.over.objective.tau": ("[1, 10]", "[1]"), "select.seed": ("100", "7"),
        "select.stop": ("none", "asha"), "select.grace": ("--", "2"), "select.factor": ("--", "4"),
    }  # fmt: skip
    same = json.loads(verb("compare", file, file, "--other-runs", str(home.path), "--json", runs=home).stdout)
    assert same["settings"] == []
