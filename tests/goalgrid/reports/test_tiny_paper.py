"""A paper's table, from one command through Ray to the Parquet matrix: a program with a table of tiny models."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from ...program import copied

GRID = """
name = "goal-table99"
datasets = ["shapes"]
recipes = ["frozen-bow", "cnn-bow"]
objectives = ["con_con", "unified"]
seeds = [0, 1]
tables = ["goal-table99"]
exclude = [{ recipe = "frozen-bow", objective = "unified" }]

[set]
"train.epochs" = 1

[[where]]
objective = "unified"
set."objective.gamma" = 20.0
"""
TABLE = """
paper = "GOAL"
table = "99"
title = "Two small models"
layout = "methods"

[[parts]]
dataset = "shapes"
protocol = "shapes-500"
columns = "i2t_r1 i2t_r5 t2i_r1"

[[blocks]]
rows = [
    { model = "Frozen", recipe = "frozen-bow", objective = "con_con", values = "10.0±0.1 20.0±0.2 30.0±0.3" },
    { model = "CNN", recipe = "cnn-bow", objective = "con_con", values = "11.0 21.0 31.0" },
    { model = "CNN", loss = "+ L_Unified", recipe = "cnn-bow", objective = "unified", values = "12.0 22.0 -" },
    { model = "Another [1]", quoted = "[1]", values = "13.0 23.0 33.0" },
]
"""


@pytest.mark.slow
def test_a_papers_table_goes_from_one_command_to_the_printed_matrix(tmp_path: Path) -> None:
    program = copied(tmp_path / "program")
    (program / "grid" / "presets" / "goal-table99.toml").write_text(GRID)
    (program / "results" / "reference" / "goal-table99.toml").write_text(TABLE)
    environment = {**os.environ, "PYTHONPATH": str(program), "GOALGRID_RUNS": str(tmp_path / "runs"), "COLUMNS": "160"}

    def goalgrid(*words: str) -> str:
        command = [sys.executable, "-m", "goalgrid", *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "6 trials: 6 planned" in goalgrid("plan", "--paper", "goal-table99")
    trained = goalgrid("run", "--paper", "goal-table99", "--mlflow-uri", "")
    assert "13.0" in trained  # the quoted row, which the grid does not have
    assert "6 trials: 6 done" in goalgrid("plan", "--paper", "goal-table99")
    goalgrid("table", "--paper", "goal-table99", "--format", "parquet", "--output", str(tmp_path / "t.parquet"))
    frame = pd.read_parquet(tmp_path / "t.parquet")
    assert [label.partition(" [")[0] for label in frame["row"]] == ["Frozen", "CNN", "CNN + L_Unified", "Another"]
    means = frame.filter(like="_mean")
    assert means.shape == (4, 3)
    assert list(frame["n"][:3]) == list(frame["expected"][:3]) == [2, 2, 2]
    assert list(means.iloc[3]) == [13.0, 23.0, 33.0]
    assert frame.filter(like="_quoted").iloc[3].all()
    terminal = goalgrid("table", "--paper", "goal-table99")
    assert "13.0 ‡" in terminal or "13.0‡" in terminal
