"""Searches that ended here before the present one: what counts, and where a reader sees it."""

import json
from pathlib import Path

import pytest

from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import Grid, load
from goalgrid.grid.store.home import Home
from goalgrid.grid.store.saved_grid import save_grid
from goalgrid.state.grid_state import GridState

from ...paper_records import write_trial
from ..conftest import Verb

GRID = """
name = "mixed"
datasets = ["flickr8k"]
recipes = ["fc-bow"]
objectives = ["infonce", "con_con"]
seeds = [0]

[select]
over = { "train.lr" = [1, 2, 3] }
"""
FIRST, SECOND, THIRD = "[1, 2, 3]", "[2, 3, 4]", "[5, 6, 7]"
KNOWN = "est results of {} were known when this search began"


def changed(over: str, *overrides: str) -> Grid:
    return load("mixed.toml", [f'select.over={{"train.lr"={over}}}', *overrides])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    (tmp_path / "mixed.toml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    return Home(tmp_path / "runs")


def search(over: str, home: Home, *overrides: str, final: bool = True) -> None:
    """Write what a run leaves: the saved grid, the search trials, and then the trials with chosen values."""
    text = GRID.replace(FIRST, over)
    Path("mixed.toml").write_text(text)
    grid = load("mixed.toml", overrides)
    for step in (True, False) if final else (True,):
        grid_state = GridState.of(grid, home)
        save_grid(grid, grid_state.trials, home)
        for trial in grid_state.trials:
            if (trial.seed in grid.search_seeds) is step and not grid_state.folder(trial).is_done():
                write_trial(home, trial, {}, val_rsum=200 + trial.shared.train.lr)
    save_grid(grid, GridState.of(grid, home).trials, home)


def told(verb: Verb, home: Home, name: str = "mixed") -> dict[str, int]:
    """What `status --json` counts, after a look whether its text, the caption and effects say the same."""
    counts: dict[str, int] = json.loads(verb("status", name, "--json", runs=home).stdout).get("earlier_searches", {})
    shown = {
        command: " ".join(verb(*command.split(), runs=home).stdout.split())
        for command in (f"status {name}", f"plan {name}", f"table {name} --format html", f"effects {name}")
    }
    several = "es" if counts.get("searches") != 1 else ""
    words = "{searches} earlier search{several} here ({trials} further search trials)"
    for command, text in shown.items():
        assert (KNOWN.format(words.format(**counts, several=several)) in text) if counts else "earlier" not in text, (
            command, text,
        )  # fmt: skip
    return counts


def test_a_range_edited_after_test_was_seen_is_counted(home: Home, verb: Verb) -> None:
    search(FIRST, home)
    assert told(verb, home) == {}
    search(SECOND, home)  # keeps two of three points of both cells
    assert told(verb, home) == {"searches": 1, "trials": 2}
    search(THIRD, home)
    assert told(verb, home) == {"searches": 2, "trials": 2 + 6}
    search(FIRST, home)  # beyond its own: 4 of the second, 5 to 7 of the third
    assert told(verb, home) == {"searches": 2, "trials": 2 + 6}
    noted = [json.loads(line) for line in home.grid("mixed").searches.read_text().splitlines()]
    assert [row["select"]["over"]["train.lr"] for row in noted] == [[1, 2, 3], [2, 3, 4], [5, 6, 7]]


def test_plan_says_it_before_the_search_begins(home: Home, verb: Verb) -> None:
    search(FIRST, home)
    Path("mixed.toml").write_text(GRID.replace(FIRST, THIRD))
    planned = verb("plan", "mixed.toml", runs=home).stdout
    assert KNOWN.format("1 earlier search here (6 further search trials)") in planned
    assert not home.grid("mixed").searches.exists()


def test_a_range_edited_before_test_was_seen_is_not(home: Home, verb: Verb) -> None:
    search(FIRST, home, final=False)
    search(SECOND, home)
    assert told(verb, home) == {}


def test_more_draws_are_the_same_search(home: Home, verb: Verb) -> None:
    search(FIRST, home, "name=mixed", "select.draws=2")
    search(FIRST, home)
    assert told(verb, home) == {}


def test_another_seed_is_another_search_also_under_a_name_of_its_own(home: Home, verb: Verb) -> None:
    search(FIRST, home)
    search(FIRST, home, "select.seed=7")
    variant = "mixed@select.seed=7"
    assert told(verb, home) == {}  # it was first
    assert told(verb, home, variant) == {"searches": 1, "trials": 6}
    search(THIRD, home)
    assert told(verb, home) == {"searches": 2, "trials": 12}
    assert told(verb, home, variant) == {"searches": 1, "trials": 6}


def test_values_set_by_hand_between_two_searches_hide_none(home: Home, verb: Verb) -> None:
    search(FIRST, home)
    fixed = load("mixed.toml", ["name=mixed", "train.lr=3"])
    assert fixed.select is None
    save_grid(fixed, [trial for cell in expand(fixed) for trial in cell.trials], home)
    search(THIRD, home)
    assert told(verb, home) == {"searches": 1, "trials": 6}


def test_a_run_killed_between_note_and_saved_ids_notes_no_search_twice(home: Home, verb: Verb) -> None:
    search(FIRST, home)
    folder = home.grid("mixed")
    before = {path: path.read_bytes() for path in (folder.grid, folder.trials)}
    search(THIRD, home, final=False)
    for path, content in before.items():
        path.write_bytes(content)
    search(THIRD, home)
    assert told(verb, home) == {"searches": 1, "trials": 6}


@pytest.mark.parametrize("damage", ["", "[1, 2]\n", '{"trials": 3}\n', '{"trials": [3, null]}\n', "\0\0"])
def test_damaged_notes_are_left_out(home: Home, verb: Verb, damage: str) -> None:
    search(FIRST, home)
    search(THIRD, home)
    notes = home.grid("mixed").searches
    notes.write_text(f"{damage}\n{notes.read_text()}")
    assert told(verb, home) == {"searches": 1, "trials": 6}


def test_a_merge_brings_the_searches_that_were_noted_there_once(home: Home, verb: Verb) -> None:
    search(FIRST, home)
    search(THIRD, home)
    here = Home(home.path.with_name("here"))
    search(THIRD, here, final=False)
    for _ in range(2):
        verb("merge", str(home.path), runs=here)
    assert here.grid("mixed").searches.read_bytes() == home.grid("mixed").searches.read_bytes()
    verb("merge", str(here.path), "--dry-run", runs=Home(home.path.with_name("other")))
    assert not (home.path.with_name("other")).exists()
