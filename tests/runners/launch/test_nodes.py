"""Which nodes may do jobs, as attempts die on them and time goes by."""

from pathlib import Path

import pytest

from goalgrid.grid.store.attempts import Attempt
from goalgrid.runners.launch.nodes import PAUSE_SECONDS, Nodes


class Clock:
    """Seconds that the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def attempt(trial: str, number: int = 1) -> Attempt:
    return Attempt(Path("runs/trials") / trial / "attempts", number)


def died(nodes: Nodes, trials: str, *, node: str = "sick", spare: bool = True) -> list[Attempt]:
    """What is blamed on the node when attempts at these trials have died there."""
    return [one for trial in trials for one in nodes.died(node, attempt(trial), spare=lambda node: spare)]


def test_a_node_on_which_three_attempts_die_in_a_row_is_set_aside_and_to_blame_for_all_of_them(clock: Clock) -> None:
    nodes = Nodes(clock)
    assert died(nodes, "ab") == []
    assert not nodes.avoided()
    assert not nodes.changed()
    assert nodes.selector() == {}
    assert died(nodes, "c") == [attempt("a"), attempt("b"), attempt("c")]
    assert nodes.changed()
    assert not nodes.changed()
    assert nodes.avoided() == {"sick"}
    assert nodes.selector() == {"ray.io/node-id": "!in(sick)"}


def test_a_node_is_not_to_blame_if_it_finishes_trials_between_or_one_trial_alone_dies_or_no_other_fits() -> None:
    nodes = Nodes()
    died(nodes, "ab")
    nodes.finished("sick")
    assert died(nodes, "cd") == []
    assert died(Nodes(), "aaaaa") == []
    assert died(Nodes(), "abcd", spare=False) == []
    apart = Nodes()
    assert [*died(apart, "ab"), *died(apart, "cd", node="other")] == []


def test_each_death_on_a_node_that_is_back_doubles_the_time_for_which_it_is_set_aside(clock: Clock) -> None:
    nodes = Nodes(clock)
    died(nodes, "abcdef")
    assert nodes.changed()
    assert nodes.pauses["sick"] == PAUSE_SECONDS, "all that ran there died at once"
    for pause in (PAUSE_SECONDS, 2 * PAUSE_SECONDS, 4 * PAUSE_SECONDS):
        clock.now += pause - 1
        assert not nodes.changed()
        clock.now += 1
        assert nodes.changed(), "room is asked for anew"
        assert nodes.selector() == {}
        assert died(nodes, "d") == [attempt("d")]
        assert nodes.changed()
        assert nodes.selector() == {"ray.io/node-id": "!in(sick)"}


def test_a_node_that_finishes_a_trial_is_sound_again(clock: Clock) -> None:
    nodes = Nodes(clock)
    died(nodes, "abc")
    assert nodes.changed()
    nodes.finished("sick")
    assert nodes.changed()
    assert not nodes.avoided()
    assert died(nodes, "de") == []


def test_a_node_that_refused_a_job_gets_none_whatever_time_goes_by_until_the_next_launch(clock: Clock) -> None:
    nodes = Nodes(clock)
    nodes.refusing.add("other code")
    assert nodes.changed()
    clock.now += 100 * PAUSE_SECONDS
    assert not nodes.changed()
    assert nodes.selector() == {"ray.io/node-id": "!in(other code)"}
    nodes.reset()
    assert nodes.selector() == {}
