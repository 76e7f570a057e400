"""What a shell completes, asked by a real bash with the script that goalgrid prints for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from goalgrid.cli import completion
from goalgrid.cli.app import app
from goalgrid.grid import catalog
from goalgrid.grid.store.home import State
from tests.cases import every

from ...conftest import ROOT

HEAVY = {"torch", "ray", "pandas", "pyarrow", "mlflow", "numpy"}
PROGRAM = f"""#!{sys.executable}
import atexit, sys
atexit.register(lambda: open("loaded", "a").write("".join(sorted({HEAVY!r} & set(sys.modules)))))
from goalgrid.cli.app import main
main()
"""
ASK = """
source <(goalgrid --show-completion)
complete -p goalgrid | grep -q _goalgrid_completion
COMP_WORDS=(goalgrid "$@") COMP_CWORD=$#
_goalgrid_completion goalgrid
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_bash_completes_a_grid_with_the_script_that_is_printed(tmp_path: Path) -> None:
    (tmp_path / "goalgrid").write_text(PROGRAM)
    (tmp_path / "goalgrid").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for words, found in (
        (("run", "goal-table3"), ["goal-table3-coco", "goal-table3-f30k"]),
        (("run", "demo", "--only", "recipe", "=", "fc-"), ["fc-bigru", "fc-bow", "fc-gru"]),
    ):
        command = ["bash", "-ec", ASK, "bash", *words]
        told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert told.stdout.split() == found, told.stderr
    assert (tmp_path / "loaded").read_text() == ""


@every(
    ("words", "found"),
    [
        ("res", ["resume"]),
        ("data ch", ["check"]),
        ("recipes vse-inf-butd-g", ["vse-inf-butd-grid", "vse-inf-butd-grid-bigru"]),
        ("objectives sig-ms_c", ["sig-ms_con", "sig-ms_cir"]),
        ("data where flickr8", ["flickr8k"]),
        ("settings train.ep", ["train.epochs"]),
        ("run demo --set train.w", ["train.weight_decay=", "train.warmup_epochs="]),
        ("plan demo --set see", ["seeds="]),
        ("table goal-table5", ["goal-table5-coco", "goal-table5-f30k"]),
        ("status demo --js", ["--json"]),
        ("status demo goal-table3", ["goal-table3-coco", "goal-table3-f30k"]),
        ("run demo --only obj", ["objective="]),
        ("run demo --only objective=sig-ms_c", ["objective=sig-ms_con", "objective=sig-ms_cir"]),
        ("run demo --only objective = sig-ms_c", ["sig-ms_con", "sig-ms_cir"]),
        ("run demo --only state =", [state.value for state in State]),
        ("run demo --set datasets = coc", ["coco"]),
    ],
)
def test_words_are_completed(words: str, found: list[str]) -> None:
    typed = ["goalgrid", *words.split()]
    asked = {"_GOALGRID_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(typed), "COMP_CWORD": str(len(typed) - 1)}
    told = CliRunner().invoke(app, env=asked, prog_name="goalgrid")
    assert told.stdout.split() == found


NOWHERE = typer.Context(get_command(app))


def test_grids_that_ran_and_grid_files_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOALGRID_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    for folder in ("runs/grids/mine@seeds=0", "mine-too"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "mine.toml").touch()
    (tmp_path / "mine-too" / "other.toml").touch()
    assert completion.grids(NOWHERE, "min") == ["mine@seeds=0", "mine.toml", "mine-too/"]
    assert completion.grids(NOWHERE, "mine-too/") == ["mine-too/other.toml"]
    assert completion.grids(NOWHERE, f"{tmp_path}/mine.") == [f"{tmp_path}/mine.toml"]
    assert set(catalog.names("presets")) <= set(completion.grids(NOWHERE, ""))
