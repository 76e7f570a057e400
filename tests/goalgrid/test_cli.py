"""The command line: what it lists, how it refuses, and with which exit code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from goalgrid.cli.app import GROUPS, app
from goalgrid.grid import catalog
from goalgrid.grid.objectives import OURS
from goalgrid.grid.store.home import Home

from ..conftest import SMALL, Goalgrid

WRONG = [
    (("run", "dmeo"), "unknown grid 'dmeo'. Did you mean 'demo'?"),
    (("plan", "selhn-table10"), "is a table of a paper; the grids that fill it: goalgrid tables selhn-table10."),
    (("run", "none.toml"), "grid 'none.toml': no file none.toml"),
    (("run", "demo", "--set", "train.epoch=1"), "Did you mean 'train.epochs'?"),
    (
        ("plan", "demo", "--set", "objectives=triplet-hn,selhn"),
        "unknown objective 'triplet-hn,selhn': give several as a list, 'objectives=[\"triplet-hn\",\"selhn\"]'",
    ),
    (("run", "demo", "--set", "train.epochs"), "is not KEY=VALUE"),
    (("run", "demo", "--set", "train.batch_size=1"), "train.batch_size: it should be at least 2"),
    (("run", "demo", "--only", "seeed=0"), "unknown axis 'seeed'"),
    (("run", "demo", "--set", "resources.cpu=999"), "a job requests 999 CPU"),
    (("run", "flickr8k"), "no root for data set 'flickr8k'"),
    (("run", "flickr8k", "--root", "/nowhere"), "no folder at /nowhere"),
    (
        ("plan", "demo", "--root", "shapes=/nowhere"),
        "--root shapes=/nowhere: data set 'shapes' is generated and",
    ),
    (
        ("plan", "demo", "--set", "data.shapes.root=/x"),
        "data.shapes.root = '/x': data set 'shapes' is generated",
    ),
    (("plan", "flickr8k", "--root", "~nobodyhere/f8k"), "'~nobodyhere/f8k': this machine knows no home folder of"),
    (("table", "demo", "--layout", "gaol"), "Did you mean 'goal'?"),
    (("table", "demo", "--metric", "r2"), "unknown metric 'r2'"),
    (("table", "demo", "--format", "latx"), "Did you mean 'latex'?"),
    (("effects", "demo", "--metric", "r2"), "unknown metric 'r2'"),
    (("effects", "demo", "--direction", "i2i"), "unknown direction 'i2i'. Did you mean"),
    (("effects", "demo", "--metric", "rsum", "--direction", "i2t"), "rsum is the sum over both directions: leave"),
    (("effects", "demo", "--format", "latx"), "Did you mean 'latex'?"),
    (("table", "--paper", "selhn-table1", "--reference"), "leave --reference out"),
    (("figures", "demo", "matix"), "unknown figure 'matix'. Did you mean 'matrix'?"),
    (("figures", "demo", "--format", "jpg"), "unknown format 'jpg'"),
    (("status", "dmeo"), "Did you mean 'demo'?"),
    (("settings", "train.lrr"), "unknown setting 'train.lrr'. Did you mean 'train.lr'?"),
    (("objectives", "slehn"), "Did you mean 'selhn'? Known: selhn, "),
    (("objectives", "slehn"), " and 28 more. In a grid file, 'goal' means"),
    (("diagrams", "goal"), "In a grid file, 'goal' means the 15 PAIR_TRIPLET. A loss"),
    (("list",), "error: unknown verb 'list'. Did you mean 'grids'? All verbs: goalgrid --help."),
    (("data", "whre"), "error: unknown verb 'whre'. Did you mean 'where'? All verbs: goalgrid data --help."),
    (("plan", "demo", "--rooot"), "error: no such option: --rooot"),
    (("settings", "batch"), "unknown setting 'batch'. Did you mean 'train.batch_size'?"),
    (("plan", "demo", "--set", "train.learning_rate=1"), "Did you mean 'train.lr'?"),
    (
        ("plan", "demo", "--set", "objectives=infoNCE"),
        "unknown objective 'infoNCE' in objectives[0]. Did you mean 'infonce'?",
    ),
    (("plan", "demo", "--set", "train.optimizer=adamm"), "(got 'adamm'). Did you mean 'adam'?"),
    (("plan", "demo", "--set", "objective.mining=hardst"), "not 'hardst'. Did you mean 'hardest'?"),
    (("check", ""), "uses contains an empty string; give a .py file or"),
    (("check", "nowhere.py"), "A path begins at the folder that you are in."),
    (("diagrams", "--format", "jpg"), "unknown format 'jpg'"),
    (("diagrams", "--set", "taau=3"), "Did you mean 'tau'?"),
    (("diagrams", "con_con", "--set", "tau=3"), "unknown parameter 'tau' in --set 'tau=3'. Known: variant,"),
    (("diagrams", "--set", "tau=nan"), "--set 'tau=nan': the value must be finite."),
    (("gradients",), "no trial given"),
    (("gradients", "--trial", "nothing"), "no trial has run"),
    (("diagrams", "infonec"), "Did you mean 'infonce'?"),
    (("data", "where", "flickr8q"), "unknown data set 'flickr8q'. Did you mean 'flickr8k'?"),
    (("data", "check", "flickr8k"), "missing option --root DIR: the folder of 'flickr8k'"),
    (("data", "check", "shapes", "--root", "/x"), "--root /x: data set 'shapes' is generated and needs no root"),
    (("data", "check", "../x\x1b[2J", "--root", "."), r"data set '../x\x1b[2J': a name begins with a letter or digit"),
    (("resume", "demo"), "grid 'demo' has never run"),
    (("prune", "--done", "--empty"), "run prune once with each"),
    (("data", "check", "flickr8k", "--root", ".", "--workers", "0"), "error: invalid value for '--workers'"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_a_mistake_is_one_message_and_exit_2(
    arguments: tuple[str, ...], message: str, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    here = ["--here"] if arguments[0] in ("run", "resume") else []  # both drivers refuse it alike
    finished = goalgrid(*arguments, *here, runs=tmp_path)
    assert finished.returncode == 2
    assert message in finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.stdout == ""


def test_a_file_where_a_folder_has_to_be_is_named(tmp_path: Path, goalgrid: Goalgrid) -> None:
    (tmp_path / "file").write_text("")
    for verb in ("plan", "run"):
        finished = goalgrid(verb, "demo", runs=tmp_path / "file")
        assert finished.returncode == 2
        assert "file/trials: Not a directory. --runs DIR names another." in finished.stderr
    drawn = goalgrid("diagrams", "-o", str(tmp_path / "file"), runs=tmp_path)
    assert drawn.returncode == 2
    assert "a file is in the place of its folder" in drawn.stderr
    assert "choose another folder (of trials: --runs)" in drawn.stderr


@pytest.mark.parametrize("verb", ["table", "effects", "figures"])
def test_a_grid_that_never_ran_has_nothing_to_show(verb: str, tmp_path: Path, goalgrid: Goalgrid) -> None:
    finished = goalgrid(verb, "demo", runs=tmp_path)
    assert finished.returncode == 3
    assert "Start it: goalgrid run demo" in finished.stderr


@pytest.mark.parametrize("verb", ["grids", "recipes", "datasets", "objectives"])
def test_lists_name_everything(verb: str, tmp_path: Path, goalgrid: Goalgrid) -> None:
    known = {
        "grids": catalog.names("presets"),
        "recipes": catalog.names("recipes"),
        "datasets": catalog.names("datasets"),
    }
    finished = goalgrid(verb, runs=tmp_path)
    assert finished.returncode == 0
    assert all(f"\n{name} " in f"\n{finished.stdout}" for name in known.get(verb, OURS))


@pytest.mark.parametrize(
    ("verb", "keys", "more"),
    [
        ("grids", "name datasets recipes objectives seeds sweep", ""),
        ("recipes", "name reads description gpu starts_from ensemble", "words reading settings"),
        ("datasets", "name description protocols embedded splits", ""),
        ("objectives", "name family known_as source of_a_loss", "formula parameters"),
    ],
)
def test_lists_are_json_for_programs(verb: str, keys: str, more: str, tmp_path: Path, goalgrid: Goalgrid) -> None:
    told = json.loads(goalgrid(verb, "--json", runs=tmp_path).stdout)
    lines = goalgrid(verb, runs=tmp_path).stdout.splitlines()
    assert len(told) == sum(not line.startswith(" ") for line in lines)
    assert all(entry.keys() == set(keys.split()) for entry in told)
    if more:
        one = json.loads(goalgrid(verb, told[0]["name"], "--json", runs=tmp_path).stdout)
        assert {key: one[key] for key in told[0]} == told[0]
        assert one.keys() == set(keys.split()) | set(more.split())


VERBS = get_command(app).commands  # type: ignore[attr-defined]


def test_the_first_line_of_every_verb_stands_whole_in_the_help(goalgrid: Goalgrid, tmp_path: Path) -> None:
    for words in ([], ["data"]):
        result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}, terminal_width=80)
        assert "..." not in result.stdout.partition("Commands:")[2]
        assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.parametrize("words", [[], ["plan"], ["data"], ["data", "check"]])
def test_the_short_option_shows_the_help(words: list[str]) -> None:
    short, long = (CliRunner().invoke(app, [*words, option]) for option in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (0, long.stdout)
    assert short.stdout.startswith("Usage: ")


def test_every_option_says_what_it_does() -> None:
    every = {**VERBS, **{f"data {name}": verb for name, verb in VERBS["data"].commands.items()}}
    assert [(name, p.name) for name, verb in every.items() for p in verb.params if not getattr(p, "help", "")] == []


def test_a_recipe_shows_all_its_settings(tmp_path: Path, goalgrid: Goalgrid) -> None:
    text = goalgrid("recipes", "vse-fc", runs=tmp_path).stdout
    assert all(f"\n  {setting} " in text for setting in catalog.SHIPPED.settings("vse-fc"))
    assert re.search(r"train.drop_last +true", text)
    assert "--set dataset.words=nltk" in text
    sizes = goalgrid("recipes", "sgraf-tiny", "--parameters", runs=tmp_path).stdout
    parts = [json.loads(goalgrid("recipes", name, "--parameters", "--json", runs=tmp_path).stdout)[0]["learning"]
             for name in ("sgr-tiny", "saf-tiny")]  # fmt: skip
    assert re.search(rf"^sgraf-tiny +{sum(parts) / 1e6:.2f} +{sum(parts) / 1e6:.2f} +0\.00$", sizes, re.MULTILINE)
    wrong = goalgrid("recipes", "vse-fcc", runs=tmp_path)
    assert wrong.returncode == 2
    assert "Did you mean 'vse-fc'?" in wrong.stderr


def test_an_objective_is_explained(tmp_path: Path, goalgrid: Goalgrid) -> None:
    text = goalgrid("objectives", "sig-ms_cir", runs=tmp_path).stdout
    assert "GOAL Eq. (8); GOAL Eq. (12)" in text
    assert "T = sigmoid(tau (s_neg^2 - s_pos (2 - s_pos) + offset))" in text
    assert all(f"\n  {parameter} " in text for parameter in OURS["sig-ms_cir"].parameters)
    assert "By default T^cir is below 0.01 where both similarities are near 1/2" in text
    assert "By default" not in goalgrid("objectives", "sig-ms_nca", runs=tmp_path).stdout


@pytest.mark.gate
def test_diagrams_are_drawn_for_all_cells_or_for_some(tmp_path: Path, goalgrid: Goalgrid) -> None:
    assert goalgrid("diagrams", "-o", str(tmp_path / "all"), "--format", "svg", runs=tmp_path).returncode == 0
    drawn = {path.name for path in (tmp_path / "all").iterdir() if path.stat().st_size > 5000}
    assert drawn == {"triplet-weights.svg", "pair-weights.svg", "cells.svg"}
    some = ("sig-ms_cir", "lin_con", "-o", str(tmp_path / "some"), "--set", "variant=released", "--set", "tau=5")
    assert goalgrid("diagrams", *some, runs=tmp_path).returncode == 0
    assert {path.name for path in (tmp_path / "some").iterdir()} == {"sig-ms_cir.png", "lin_con.png"}


def test_status_and_plan_speak_json(trained: Home, goalgrid: Goalgrid) -> None:
    status = json.loads(goalgrid("status", "demo", "--json", runs=trained.path).stdout)
    assert status["states"]["done"] == status["trials"] == 4
    plan = json.loads(goalgrid("plan", "demo", "--json", runs=trained.path).stdout)
    assert plan["trials"] == 45
    assert len(plan["left"]) == 45


def test_plan_estimates_from_what_is_done(trained: Home, goalgrid: Goalgrid) -> None:
    finished = goalgrid("plan", "demo", *SMALL, runs=trained.path)
    assert "45 trials: 4 done, 41 planned" in finished.stdout
    assert "cnn-bow on shapes: from 4 finished trials" in finished.stdout


def test_a_dry_run_says_what_plan_says_and_writes_nothing(tmp_path: Path, goalgrid: Goalgrid) -> None:
    told = goalgrid("run", "demo", "--dry-run", "--here", runs=tmp_path)
    planned = goalgrid("plan", "demo", runs=tmp_path)
    assert (told.returncode, told.stdout) == (0, planned.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "start"),
    [("latex", "% goalgrid table demo"), ("markdown", "<!-- goalgrid table demo"), ("csv", "dataset,")],
)
def test_tables_go_to_stdout_or_a_file(
    kind: str, start: str, trained: Home, tmp_path: Path, goalgrid: Goalgrid
) -> None:
    printed = goalgrid("table", "demo", "--format", kind, runs=trained.path)
    assert printed.stdout.startswith(start)
    written = goalgrid("table", "demo", "--format", kind, "-o", str(tmp_path / "t"), runs=trained.path)
    assert written.returncode == 0
    assert (tmp_path / "t").read_text().rstrip("\n") == printed.stdout.rstrip("\n")


def test_effects_say_what_matters_and_how_sure_that_is(trained: Home, goalgrid: Goalgrid) -> None:
    text = goalgrid("effects", "demo", runs=trained.path).stdout
    assert "cnn-bow on shapes: Image → Text, Recall@1 (%), 2 cells x 2 seeds" in text
    assert "The objective explains" in text
    assert "Differences from con_con, seed by seed" in text
    said = " ".join(text.split())
    assert "the true spread may be 0.4 to 31.9 times that of these 2 seeds" in said
    assert max(map(len, text.splitlines())) <= 100
    analyses = json.loads(goalgrid("effects", "demo", "--direction", "t2i", "--json", runs=trained.path).stdout)
    assert [one["metric"] for one in analyses] == ["t2i_r1"]


def test_a_baseline_that_the_grid_lacks_is_named(trained: Home, goalgrid: Goalgrid) -> None:
    finished = goalgrid("effects", "demo", "--baseline", "sig-ms_cri", runs=trained.path)
    assert finished.returncode == 2
    assert "Did you mean 'sig-ms_cir'?" in finished.stderr
    finished = goalgrid("effects", "demo", "--across", "train.lr", runs=trained.path)
    assert "unknown axis 'train.lr' in --across" in finished.stderr


def test_figures_are_drawn_by_name(trained: Home, tmp_path: Path, goalgrid: Goalgrid) -> None:
    finished = goalgrid("figures", "demo", "training", "-o", str(tmp_path), "--format", "svg", runs=trained.path)
    assert finished.returncode == 0, finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["training-cnn-bow-on-shapes.svg"]
    wrong = goalgrid("figures", "demo", "training", "--quantity", "val_s_po", runs=trained.path)
    assert wrong.returncode == 2
    assert "Did you mean 'val_s_pos'?" in wrong.stderr
    nothing = goalgrid("figures", "demo", "paper", runs=trained.path)
    assert (nothing.returncode, "nothing to draw for paper" in nothing.stderr) == (0, True)
    for words in (("matrix", "--reference", "2ad-figureA1"), ("attention", "--trial", "any", "--quantity", "loss")):
        wrong = goalgrid("figures", "demo", *words, runs=trained.path)
        assert "apply to training" in wrong.stderr


def test_the_help_lists_every_verb_once_and_no_verb_at_all_says_how_to_begin(
    goalgrid: Goalgrid, tmp_path: Path
) -> None:
    listed = [name for names in GROUPS.values() for name in names.split()]
    assert sorted(listed) == sorted(VERBS)
    text = goalgrid("--help", runs=tmp_path).stdout
    assert [line for line in text.splitlines() if re.fullmatch(r"\w+:", line)] == [
        "Options:",
        *(f"{name}:" for name in GROUPS),
    ]
    begin = CliRunner().invoke(app, [])
    assert begin.exit_code == 0
    assert re.findall(r"^  goalgrid (\w+)", begin.stdout, re.MULTILINE) == ["run", "new", "plan", "run"]


def test_a_name_that_the_locale_cannot_read_is_not_called_wrong(tmp_path: Path) -> None:
    """Python decodes what it is given by the locale's coding: ASCII, where UTF-8 is switched off in C."""
    switched_off = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "goalgrid", "data", "check", "mine", "--root", str(tmp_path / "Bären")]
    refused = subprocess.run(command, capture_output=True, text=True, env=switched_off, timeout=240)
    assert refused.returncode == 2
    assert "is UTF-8, but this locale makes Python decode file names as ascii. Set LC_ALL=C.UTF-8" in refused.stderr


def test_a_folder_that_no_file_could_name_is_refused(goalgrid: Goalgrid, tmp_path: Path) -> None:
    """MLflow, Parquet and JSON hold paths as UTF-8."""
    refused = goalgrid("status", "demo", "--runs", str(tmp_path / os.fsdecode(b"\xff\xfe")), runs=tmp_path)
    assert refused.returncode == 2
    assert "contains bytes that are not UTF-8. Rename it, or choose another" in refused.stderr
