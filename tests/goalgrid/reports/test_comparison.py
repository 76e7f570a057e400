"""Two grids beside one another, from their runs folders to the terminal: numbers as scipy's, and what differs."""

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from goalgrid.grid.store.home import Home
from goalgrid.results.records import provenance, record

from ...conftest import SMALL, Goalgrid

METRIC = "test_rsum"


@pytest.fixture(scope="module")
def runs(trained: Home, goalgrid: Goalgrid, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained 2 x 2 grid, beside it a grid of one objective with another margin in three seeds."""
    folder = tmp_path_factory.mktemp("compared")
    shutil.copytree(trained.path, folder, dirs_exist_ok=True)
    for name, seeds in (("wide", "[0,1]"), ("apart", "[1,2,3]")):
        axes = ("--set", "objectives=con_con", "--set", f"seeds={seeds}", "--set", "train.epochs=1")
        finished = goalgrid(
            "run", "demo", *SMALL, *axes, "--set", f"name={name}", "--here", "--mlflow-uri", "", runs=folder
        )
        assert finished.returncode == 0, finished.stderr
    return folder


def values(runs: Path, objective: str, seeds: list[int], epochs: int = 2) -> list[float]:
    """A test metric by seed, read from the records directly."""
    rows = record.collect(folder.record for folder in Home(runs).trials()).to_pylist()
    found = {row["seed"]: row[METRIC] for row in rows if (row["objective"], row["epochs"]) == (objective, epochs)}
    return [found[seed] for seed in seeds]


def compared(goalgrid: Goalgrid, runs: Path, *words: str) -> dict[str, Any]:
    finished = goalgrid("compare", *words, "--metric", "rsum", "--json", runs=runs)
    assert finished.returncode == 0, finished.stderr
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def test_cells_that_pair_by_seed_are_compared_as_scipy_does(runs: Path, goalgrid: Goalgrid) -> None:
    found = compared(goalgrid, runs, "demo", "wide")
    (row,) = found["differences"]
    x, y = values(runs, "con_con", [0, 1]), values(runs, "con_con", [0, 1], epochs=1)
    told = stats.ttest_rel(y, x)
    low, high = told.confidence_interval()
    assert (row["how"], row["pairs"]) == ("seed by seed", 2)
    assert row["p"] == pytest.approx(told.pvalue) == row["holm"]
    assert [row["interval"]["low"], row["interval"]["high"]] == pytest.approx([low, high])
    assert row["mean"] == pytest.approx(sum(y) / 2 - sum(x) / 2)
    assert [(d["name"], d["a"], d["b"]) for d in found["settings"]] == [("train.epochs", "2", "1")]
    assert found["alone"] == ["Only demo has 1 cell: shapes, cnn-bow, sig-ms_cir."]


def test_cells_with_one_seed_in_common_are_compared_by_welch_as_scipy_does(runs: Path, goalgrid: Goalgrid) -> None:
    (row,) = compared(goalgrid, runs, "demo", "apart")["differences"]
    x, y = values(runs, "con_con", [0, 1]), values(runs, "con_con", [1, 2, 3], epochs=1)
    told = stats.ttest_ind(y, x, equal_var=False)
    low, high = told.confidence_interval()
    assert (row["how"], row["n_a"], row["n_b"], row["pairs"]) == ("unpaired (Welch)", 2, 3, 0)
    assert row["p"] == pytest.approx(told.pvalue)
    assert [row["interval"]["low"], row["interval"]["high"]] == pytest.approx([low, high])


def test_another_runs_folder_tells_the_same_trials_and_other_code(
    runs: Path, goalgrid: Goalgrid, tmp_path: Path
) -> None:
    other = Home(tmp_path / "other")
    shutil.copytree(runs, other.path)
    first, *others = [other.trial(name) for name in other.grid("demo").ids() if "con_con_s" in name]
    (row,) = record.collect([first.record]).to_pylist()
    record.write(
        first.record, row | {"code_fingerprint": provenance.versioned("0123456789abcdef"), METRIC: row[METRIC] + 1}
    )
    for folder in others:
        folder.done.unlink()
    found = compared(goalgrid, runs, "demo", "--other-runs", str(other.path))
    con, sig = found["differences"]
    assert (con["how"], con["mean"], con["p"]) == ("one seed in common: no test", pytest.approx(1.0), None)
    assert (sig["how"], sig["mean"], sig["p"]) == ("the same trials", 0.0, None)
    assert found["settings"] == []
    assert [(d["name"], d["a"], d["b"]) for d in found["sources"]] == [
        ("code", "as now", "changed since for 1 of 3 trials")
    ]
    first.record.write_bytes(b"PAR1 cut off")
    told = goalgrid("compare", "demo", "--other-runs", str(other.path), runs=runs)
    assert (told.returncode, f"left out: the record {first.record} cannot be read" in told.stderr) == (0, True)


def test_trials_trained_anew_are_compared_with_those_before(runs: Path, goalgrid: Goalgrid, tmp_path: Path) -> None:
    home = Home(tmp_path / "runs")
    shutil.copytree(runs, home.path)
    nothing = goalgrid("compare", "wide", "--replaced", runs=home.path)
    assert nothing.returncode == 2
    assert "grid 'wide' has no trial under" in nothing.stderr
    for folder in home.trials():
        shutil.copytree(folder.path, home.replaced / f"{folder.trial_id}-20260101T000000000000")
    (row,) = compared(goalgrid, home.path, "wide", "--replaced")["differences"]
    assert (row["how"], row["mean"]) == ("the same trials", 0.0)
    for folder in home.trials():
        (before,) = record.collect([folder.record]).to_pylist()
        record.write(folder.record, before | {"finished_at": "2026-01-02T00:00:00+00:00"})
    (row,) = compared(goalgrid, home.path, "wide", "--replaced")["differences"]
    assert (row["how"], row["mean"]) == ("equal in every seed: no test", 0.0)


def test_of_trials_trained_anew_no_other_cells_are_compared(runs: Path, goalgrid: Goalgrid, tmp_path: Path) -> None:
    home = Home(Path(shutil.copytree(runs, tmp_path / "runs")))
    trial = next(home.trial(name) for name in home.grid("demo").ids() if "_con_con_s0-" in name)
    shutil.copytree(trial.path, home.replaced / f"{trial.trial_id}-20260101T000000000000")
    found = compared(goalgrid, home.path, "demo", "--replaced")
    assert [(row["name"], row["how"]) for row in found["differences"]] == [("con_con", "the same trials")]


def test_formats_hold_the_same_numbers(runs: Path, goalgrid: Goalgrid, tmp_path: Path) -> None:
    (row,) = compared(goalgrid, runs, "demo", "wide")["differences"]
    words = ("compare", "demo", "wide", "--metric", "rsum")
    (line,) = csv.DictReader(io.StringIO(goalgrid(*words, "--format", "csv", runs=runs).stdout))
    path = tmp_path / "compared.csv"
    assert goalgrid(*words, "--output", str(path), runs=runs).returncode == 0
    assert list(csv.DictReader(path.read_text().splitlines())) == [line]
    assert (float(line["p"]), float(line["interval_low"])) == (row["p"], row["interval"]["low"])
    text = goalgrid(*words, "--format", "markdown", runs=runs).stdout
    assert "| train.epochs | 2 | 1 | 1 |" in text
    assert "seed by seed" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demo"], "nothing to compare 'demo' with. Give a second grid"),
        (["demo", "wid"], "unknown grid 'wid'. Did you mean 'wide'?"),
        (["demo", "--other-runs", "nowhere"], "--other-runs nowhere: folder does not exist."),
        (["demo", "flickr8k"], "no trial of grid 'flickr8k' is done under"),
        (["demo", "wide", "--format", "parquet"], "unknown format 'parquet'"),
    ],
)
def test_a_wrong_comparison_is_one_message(runs: Path, goalgrid: Goalgrid, words: list[str], message: str) -> None:
    finished = goalgrid("compare", *words, runs=runs)
    assert finished.returncode == 2
    assert message in finished.stderr
    assert "Traceback" not in finished.stderr
