"""The fairness sheet: each way in which cells have not the same chance is named in its row; an honest grid has none."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from goalgrid.grid.expansion import Trial
from goalgrid.grid.fair import RULES
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.files import write_json, write_json_lines
from goalgrid.grid.store.home import ENDED, Home
from goalgrid.grid.store.saved_grid import save_grid
from goalgrid.reports.fairness import sheet
from goalgrid.results.analysis.documents import text
from goalgrid.results.analysis.fairness import FairRow, document
from goalgrid.state.grid_state import GridState

from ...paper_records import ENVIRONMENT, write_trial
from ...states import fail
from ..conftest import Verb

GRID = """
name = "honest"
datasets = ["flickr8k"]
recipes = ["fc-bow"]
objectives = ["infonce", "con_con"]
seeds = [0, 1]

[select]
over = { "train.lr" = [1e-4, 1e-3, 2e-3, 1e-2] }
include = "default"
confirm = 2
confirm_seeds = 1
"""


@dataclass
class Leaves:
    """What the trials of a fixture leave on the disk, trial by trial."""

    values: Callable[[Trial], float] = lambda trial: 300 - abs(trial.shared.train.lr - 2e-3) * 1000
    """Validation rsum; NaN: its training failed."""
    selected: Callable[[Trial], int] = lambda trial: 2
    clipped: Callable[[Trial], float] = lambda trial: 0.1
    stopped: Callable[[Trial], bool] = lambda trial: False
    environment: dict[str, Any] = field(default_factory=dict)

    def write(self, home: Home, trial: Trial) -> None:
        folder, value = home.trial(trial.id), self.values(trial)
        rows = [
            {"epoch": epoch, "step": epoch, "seconds": 60.0, "val_rsum": value, "val_chance": 12.0}
            | {"clipped": self.clipped(trial)}
            for epoch in (1, 2, 3)
        ]
        if value != value:
            fail(folder, Failure.BUG, "why")
        elif self.stopped(trial):
            folder.path.mkdir(parents=True)
            write_json_lines(folder.history, rows[:1])
            write_json(folder.stopped, {"epoch": 1})
        else:
            environment = json.dumps(json.loads(ENVIRONMENT) | self.environment)
            write_trial(home, trial, {}, val_rsum=value, epochs=3, selected_epoch=self.selected(trial),
                        train_seconds=180.0, environment=environment)  # fmt: skip
            write_json_lines(folder.history, rows)


def finished(grid: Grid, home: Home, leaves: Leaves) -> GridState:
    """Leave the trials of each round, until nothing is left to train."""
    grid_state = GridState.of(grid, home)
    while todo := [trial for trial in grid_state.trials if grid_state.states[trial.id] not in ENDED]:
        save_grid(grid, grid_state.trials, home)
        for trial in todo:
            leaves.write(home, trial)
        grid_state = GridState.of(grid, home)
    save_grid(grid, grid_state.trials, home)
    return grid_state


HONEST = Leaves()


def rows_of(tmp_path: Path, words: Sequence[str] = (), leaves: Leaves = HONEST) -> dict[str, FairRow]:
    path = tmp_path / "honest.toml"
    path.write_text(GRID)
    grid = load(str(path), words)
    rows = sheet(finished(grid, Home(tmp_path / "runs"), leaves))
    return {row.cell.objective: row for row in rows}


def rules(row: FairRow) -> set[str]:
    return {fault.rule for fault in row.faults}


def of(objective: str, trial: Trial) -> bool:
    return trial.shared.objective.name == objective


def test_an_honest_grid_has_no_fault(tmp_path: Path) -> None:
    rows = rows_of(tmp_path)
    assert {name: row.faults for name, row in rows.items()} == {"infonce": (), "con_con": ()}
    row = rows["con_con"]
    assert (row.chosen, row.default, row.searched.epochs, row.trained.epochs) == (
        {"train.lr": 2e-3}, {"train.lr": 1e-3}, 4 * 3 + 2 * 3, 2 * 3,
    )  # fmt: skip
    assert row.searched.seconds == 6 * 180.0
    assert row.validation
    assert vars(row.validation) == {"search": 300.0, "default": 299.0, "gain": 1.0, "fresh": 300.0}
    shown = text(document(list(rows.values())))
    assert "No fault by any of the 13 rules: all cells had the same chance." in shown


FAILED = float("nan")
CASES: dict[str, tuple[list[str], Leaves, set[str], str]] = {
    "equal-epochs": (
        ['where=[{objective="infonce", set={"train.epochs"=9}}]'], Leaves(), {"equal-epochs", "equal-settings"},
        "trains 9 epochs, others in its block 15",
    ),
    "equal-settings": (
        ['where=[{objective="infonce", set={"train.batch_size"=64}}]'], Leaves(), {"equal-settings"},
        "train.batch_size = 64",
    ),
    "halved": (
        ["select.stop=asha", "select.grace=1", "train.epochs=3"],
        Leaves(stopped=lambda trial: of("infonce", trial) and trial.seed == 100 and trial.shared.train.lr == 1e-4),
        {"equal-epochs"}, "its search trained 83% of the epochs of full search trials, another one in its block 100%",
    ),
    "equal-points": (
        [], Leaves(values=lambda t: FAILED if of("infonce", t) and t.shared.train.lr == 1e-4 else HONEST.values(t)),
        {"equal-points"}, "chosen among 3 (1 failed) of 4 points",
    ),
    "default-tried": (["select.include=none"], Leaves(), {"default-tried"}, "its search does not include the default"),
    "confirmed": (
        ['select={over={"train.lr"=[1e-4,1e-3,2e-3,1e-2]}, include="default"}'], Leaves(), {"confirmed"},
        "chosen by the search's own seed alone",
    ),
    "gain-holds": (
        [], Leaves(values=lambda t: 22.0 if of("infonce", t) and t.seed in (0, 1) else HONEST.values(t)),
        {"gain-holds"}, "validation rsum 300.0 in the search, 22.0 on fresh seeds, below the 299.0 of the default",
    ),
    "no-edge": (
        [], Leaves(values=lambda t: 200 + t.shared.train.lr if of("infonce", t) else HONEST.values(t)),
        {"no-edge"}, "the chosen train.lr = 0.01 is at an edge of 0.0001 to 0.01",
    ),
    "no-collapse": (
        [], Leaves(values=lambda t: 11.0 if of("infonce", t) and t.seed == 1 else HONEST.values(t)),
        {"no-collapse", "gain-holds"}, "at chance or failed: seed 1 of 2",
    ),
    "failed": (
        [], Leaves(values=lambda t: FAILED if of("infonce", t) and t.seed == 1 else HONEST.values(t)),
        {"no-collapse"}, "at chance or failed: seed 1 of 2",
    ),
    "long-enough": (
        [], Leaves(selected=lambda t: 3 if of("infonce", t) and t.seed == 0 else 2), {"long-enough"},
        "the best epoch is the last in 1 of 2 seeds",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_named_in_the_row_of_its_cell_alone(name: str, tmp_path: Path) -> None:
    words, leaves, expected, said = CASES[name]
    rows = rows_of(tmp_path, words, leaves)
    assert expected <= rules(rows["infonce"])
    assert said in " ".join(fault.text for fault in rows["infonce"].faults)
    both = {"default-tried", "confirmed"} | ({"equal-epochs", "equal-settings"} if "where" in str(words) else set())
    assert rules(rows["infonce"]) - expected == set()
    assert rules(rows["con_con"]) <= both


def test_a_step_that_is_always_clipped_and_one_that_never_is_are_named_in_both_rows(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, [], Leaves(clipped=lambda trial: float(of("infonce", trial))))
    assert [rules(row) for row in rows.values()] == [{"equal-clipping"}] * 2
    assert "100% of its steps are clipped; range in its block: 0% to 100%" in rows["infonce"].faults[0].text


def test_an_older_history_has_no_share_of_clipped_steps_and_no_fault(tmp_path: Path) -> None:
    rows_of(tmp_path)
    grid_state = GridState.of(load(str(tmp_path / "honest.toml")), Home(tmp_path / "runs"))
    for trial in grid_state.trials:
        history = grid_state.folder(trial).history
        history.write_text(history.read_text().replace('"clipped"', '"other"'))
    rows = sheet(grid_state)
    assert [(row.clipped != row.clipped, row.faults) for row in rows] == [(True, ())] * 2


@pytest.mark.parametrize(
    ("kind", "rule"), [("tested validation", "val-apart-from-test"), ("leak", "train-apart-from-test")]
)
def test_choosing_or_training_on_test_images_is_named(kind: str, rule: str, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, [], Leaves(environment={"leaks": [[kind, "val and test share 9 images"]]}))
    assert [rules(row) for row in rows.values()] == [{rule}] * 2
    assert "val and test share 9 images" in rows["con_con"].faults[0].text


def test_an_edited_search_after_test_was_seen_is_named(tmp_path: Path) -> None:
    rows_of(tmp_path)
    grid = load(str(tmp_path / "honest.toml"), ['select.over={"train.lr"=[1e-4,2e-3,2e-2]}', "name=honest"])
    rows = sheet(finished(grid, Home(tmp_path / "runs"), Leaves()))
    assert [rules(row) for row in rows] == [{"no-earlier-search"}] * 2
    assert "test results of 1 earlier search here" in rows[0].faults[0].text


def test_every_rule_is_broken_by_a_fixture() -> None:
    named = set().union(*(expected for _, _, expected, _ in CASES.values()))
    further = {"equal-clipping", "val-apart-from-test", "train-apart-from-test", "no-earlier-search"}
    assert named | further == set(RULES)


def test_required_rules_end_run_and_table_with_4(tmp_path: Path, verb: Verb) -> None:
    rows_of(tmp_path, [], CASES["no-edge"][1])
    path, home = str(tmp_path / "honest.toml"), Home(tmp_path / "runs")
    held, broken = (("--set", f"fair.require={rules}") for rules in ('["equal-epochs"]', '["equal-epochs","no-edge"]'))
    assert verb("table", path, *held, runs=home).exit_code == 0
    for words in (("table", path), ("fair", path), ("run", path, "--here", "--mlflow-uri", "")):
        ended = verb(*words, *broken, runs=home)
        assert ended.exit_code == 4, ended.stderr
        assert "unfair: honest: no-edge: infonce by fc-bow on flickr8k: the chosen train.lr = 0.01" in ended.stderr
    (first, second) = json.loads(verb("fair", path, "--json", runs=home).stdout)
    assert ([fault["rule"] for fault in first["faults"]], second["faults"]) == (["no-edge"], [])
    latex = verb("table", path, "--format", "latex", runs=home).stdout
    assert r"InfoNCE\textsuperscript{a}" in latex
    assert r"\textsuperscript{a}\,chosen at an edge." in latex
    assert r"^{\mathrm{con}}$ &" in latex
