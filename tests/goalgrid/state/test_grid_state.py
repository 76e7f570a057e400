"""Grids by name: as declared, as they were last run, and run with overrides, which stands beside the plain grid."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import load
from goalgrid.grid.overrides import changed_name
from goalgrid.grid.store.home import Home, State
from goalgrid.state.grid_state import GridState, overall
from goalgrid.state.named_grids import grid_to_train, recall

from ...conftest import SMALL, Goalgrid
from ...states import attempt
from ..conftest import PAIR, Verb

ONE = tuple(word for word in (*SMALL, 'objectives=["con_con"]', "seeds=[0]") if word not in ("--set", "name=demo"))
"""One of the two trials that are done."""
SET = tuple(word for override in ONE for word in ("--set", override))


@pytest.fixture
def both(pair: Home, verb: Verb) -> Home:
    """A grid that was run, then run again with overrides; all its trials are done."""
    assert verb("run", "demo", *SET, "--here", "--mlflow-uri", "", runs=pair).exit_code == 0
    return pair


def test_a_run_with_overrides_stands_beside_the_plain_grid(both: Home, verb: Verb) -> None:
    plain, changed = both.grids()
    assert (plain, changed) == ("demo", load("demo", ONE).name)
    assert len(both.grid("demo").ids()) == 2
    assert len(both.grid(changed).ids()) == 1
    told = verb("status", "demo", runs=both).stdout
    assert "demo: 2 trials: 2 done" in told
    assert "left the grid" not in told
    assert f"also run with overrides: {changed}" in told
    assert "nothing to remove" in verb("prune", "--done", "--yes", runs=both).stdout


def test_every_verb_finds_it_by_the_same_overrides_and_by_name(both: Home, tmp_path: Path, verb: Verb) -> None:
    name, out, words = load("demo", ONE).name, tmp_path / "out", ("demo", *SET)
    assert verb("status", name, runs=both).stdout == verb("status", *words, runs=both).stdout
    assert f"{name}: 1 trial: 1 done" in verb("status", *words, runs=both).stdout
    assert "1 trial: 1 done" in verb("resume", *words, "--here", "--mlflow-uri", "", runs=both).stderr
    assert "con_con" in verb("effects", *words, runs=both).stdout
    assert "con}" in verb("table", *words, "--format", "latex", runs=both).stdout
    assert verb("figures", *words, "matrix", "-o", str(out), runs=both).exit_code == 0
    assert str(both.grid(name).report) in verb("report", *words, runs=both).stderr.replace("\n", "")


def test_overrides_that_never_ran_show_the_trials_that_are_done_all_the_same(pair: Home, verb: Verb) -> None:
    assert "1 trial: 1 done" in verb("status", "demo", *SET, runs=pair).stdout
    printed = verb("table", "demo", *SET, "--format", "markdown", runs=pair).stdout
    assert printed.startswith("<!-- goalgrid table demo --set 'recipes=[\"cnn-bow\"]' --set train.epochs=2 ")
    assert pair.grids() == ["demo"]


def test_a_launch_that_is_refused_saves_nothing(pair: Home, verb: Verb) -> None:
    before = pair.grid("demo").grid.read_bytes()
    refused = (*PAIR, "--set", "seeds=[0,1]", "--set", "resources.cpu=999", "--here")
    with pytest.raises(UserError, match="a job requests 999 CPU"):
        verb("run", "demo", *refused, runs=pair)
    assert pair.grid("demo").grid.read_bytes() == before


def test_a_grid_that_has_only_a_name_is_taken_by_every_verb(pair: Home, verb: Verb) -> None:
    pair.grid("demo").path.rename(pair.grid("mine").path)
    text = pair.grid("mine").grid.read_text()
    pair.grid("mine").grid.write_text(text.replace('name = "demo"', 'name = "mine"'))
    assert grid_to_train("mine", pair).name == recall("mine", pair).name == "mine"
    assert "mine: 2 trials: 2 done" in verb("plan", "mine", runs=pair).stdout
    assert "mine@seeds=1: 2 trials: 2 planned" in verb("plan", "mine", "--set", "seeds=1", runs=pair).stdout
    with pytest.raises(UserError, match=r"unknown grid 'mien'\. Did you mean 'mine'"):
        verb("plan", "mien", runs=pair)


def test_of_a_grid_that_ran_with_overrides_alone_every_verb_names_that_run(pair: Home, goalgrid: Goalgrid) -> None:
    pair.grid("demo").path.rename(pair.grid("demo@train.epochs=1").path)
    for verb, code in {"table": 3, "effects": 3, "figures": 3, "report": 0, "resume": 2}.items():
        finished = goalgrid(verb, "demo", runs=pair.path)
        assert finished.returncode == code
        advice = f"{'Continue it' if verb == 'resume' else 'Show it'}: goalgrid {verb} demo@train.epochs=1"
        assert f"It was run as demo@train.epochs=1. {advice}\n" in finished.stderr
    assert "warning: grid 'demo' under" in goalgrid("report", "demo", runs=pair.path).stderr
    other = goalgrid("table", "demo", "--set", "train.epochs=3", runs=pair.path)
    assert "Start it: goalgrid run demo --set train.epochs=3" in other.stderr


def test_a_grid_that_never_ran_cannot_be_resumed(tmp_path: Path, verb: Verb) -> None:
    with pytest.raises(UserError, match=f"'demo' has never run under .*: goalgrid run demo --runs {tmp_path}$"):
        verb("resume", "demo", runs=Home(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["train.epochs=1"], "demo@train.epochs=1"),
        (["set.train.epochs=1", "resources.cpu=2", "reliability.folder_seconds=9"], "demo@train.epochs=1"),
        (['objectives=["con_con","sig_con"]', "seeds=0"], "demo@objectives=con_con+sig_con,seeds=0"),
        (["seeds=[0]", "objectives=con_con"], "demo@objectives=con_con,seeds=0"),
        (["sweep.train.lr=[1e-3,2e-3]"], "demo@sweep.train.lr=0.001+0.002"),
        (["name=mine", "train.epochs=1"], "mine"),
        (["reliability.stall_minutes=5"], "demo"),
    ],
)
def test_the_name_says_what_was_changed(overrides: list[str], name: str) -> None:
    assert load("demo", overrides).name == name


@given(st.dictionaries(st.sampled_from(["train.lr", "seeds", "sweep.train.lr"]), st.text() | st.floats() | st.dates()))
def test_every_change_gives_a_name_that_is_allowed(changes: dict[str, object]) -> None:
    name = changed_name("demo", changes.items())
    assert name.isascii()
    assert re.fullmatch(r"demo(@[A-Za-z0-9._+,=-]{1,60})?", name)
    assert changed_name(name, changes.items()) == name


def test_long_overrides_have_a_short_name_of_their_own() -> None:
    first, second = (load("demo", [f"seeds={list(range(count))}"]).name for count in (80, 81))
    assert first != second
    assert len(first) == len("demo@01234567")


def test_a_plan_of_many_seeds_is_short_and_soon_there(tmp_path: Path, verb: Verb) -> None:
    file = tmp_path / "many.toml"
    file.write_text(load("demo", [f"seeds={list(range(3000))}", "name=many", "objectives=con_con"]).to_toml())
    told = verb("plan", str(file), runs=Home(tmp_path / "runs")).stdout
    assert "  seed       3000  0-2999\n" in told
    assert max(map(len, told.splitlines())) < 200


def test_a_double_in_many_values_is_found_in_linear_time() -> None:
    """A comparison of all pairs would take hours."""
    with pytest.raises(UserError, match="seeds: 7 is listed more than once"):
        load("demo", [f"seeds={[*range(300_000), 7]}"])


def test_a_trial_that_waits_for_a_running_parent_is_in_the_hands_of_the_same_process(tmp_path: Path) -> None:
    chain = ('recipes=["vsepp-r152-tiny-ft"]', 'objectives=["con_con"]', "seeds=[0]")
    found = GridState.of(load("demo", chain), Home(tmp_path))
    parent, child = found.trials
    assert [found.reached(trial) for trial in found.trials] == [State.PLANNED] * 2
    found = GridState.of(found.grid, found.home)
    found.states[parent.id] = State.RUNNING
    assert [found.reached(trial) for trial in (parent, child)] == [State.RUNNING] * 2


def test_a_trial_that_the_ended_launch_itself_holds_is_in_nobodys_hands(tmp_path: Path) -> None:
    """A driver that ends itself may leave a worker of another host without its checkpoint: the command exits with 3."""
    home = Home(tmp_path)
    trials = GridState.of(load("demo", ('objectives=["con_con"]', "seeds=[0,1]")), home).trials
    for trial, launch in zip(trials, ("mine", "anothers"), strict=True):
        attempt(home.trial(trial.id), launch=launch, machine="another host")
    found = GridState.of(load("demo", ('objectives=["con_con"]', "seeds=[0,1]")), home)
    assert [found.reached(trial) for trial in found.trials] == [State.RUNNING] * 2
    reached = [found.reached(trial, found.left_by({"mine"})) for trial in found.trials]
    assert reached == [State.INTERRUPTED, State.RUNNING]
    assert overall(reached) is State.INTERRUPTED
    assert overall([found.reached(trial, found.left_by({"another"})) for trial in found.trials]) is State.RUNNING
