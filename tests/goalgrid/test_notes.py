"""Notes in Python: they are routed and silenced by `logging`, and name calls as their next steps."""

import logging
from collections.abc import Iterator

import pytest

import goalgrid
from goalgrid.cli.next_steps import worded
from goalgrid.grid.messages import LOGGER, Note, Step, tell
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import Home, State

from ..states import fail
from .conftest import PAIR, Verb

ONE_MORE = [*(word for word in PAIR if word != "--set"), "seeds=[0,1]", 'objectives=["con_con"]']
"""The grid of two trials with another seed, which takes a quarter of a second, and without its second objective."""


class Received(logging.Handler):
    """A callback of a user: keeps the notes."""

    def __init__(self) -> None:
        super().__init__()
        self.notes = list[Note]()

    def emit(self, record: logging.LogRecord) -> None:
        assert isinstance(record.msg, Note)
        self.notes.append(record.msg)


@pytest.fixture
def received() -> Iterator[Received]:
    """A handler that the user added to the logger, which has the level of before afterwards."""
    handler, level = Received(), LOGGER.level
    LOGGER.addHandler(handler)
    yield handler
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(level)


def test_a_user_routes_the_notes_of_a_run_and_nothing_is_printed(
    pair: Home, received: Received, capfd: pytest.CaptureFixture[str]
) -> None:
    goalgrid.load("demo", pair.path, set=ONE_MORE).run(here=True, mlflow_uri="")
    texts = [str(note) for note in received.notes]
    assert "demo: 2 trials: 1 done, 1 planned; training 1" in texts
    assert [text.split()[0] for text in texts if " R@1 " in text] == ["done"]
    assert {note.kind for note in received.notes} <= {"", "note", "warning"}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("level", "kinds"), [(logging.INFO, ["", "note", "warning"]), (logging.WARNING, ["warning"])])
def test_a_level_silences_progress_and_keeps_warnings(level: int, kinds: list[str], received: Received) -> None:
    LOGGER.setLevel(level)
    for kind in ("", "note", "warning"):
        tell("something", kind=kind)
    assert [note.kind for note in received.notes] == kinds


def test_without_a_handler_notes_go_to_stderr_where_no_terminal_obeys_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # pytest has some
    tell("training 1")
    tell("a name\x1b[31m. Retrain: {step}", Step.of("resume", "demo", stale=True), kind="warning")
    assert capsys.readouterr() == ("", "training 1\nwarning: a name\\x1b[31m. Retrain: grid.run(stale=True)\n")
    logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
    tell("training 1")
    assert capsys.readouterr() == ("", "INFO goalgrid training 1\n")
    for handler in logging.root.handlers:
        handler.close()


def test_the_call_that_a_status_names_trains_what_failed(pair: Home, verb: Verb) -> None:
    folder = pair.trials()[0]
    fail(folder, Failure.KILLED, "its process is gone")
    grid = goalgrid.load("demo", pair.path)
    (alone,) = (line for line in str(grid.status()).splitlines() if line.startswith("    alone: "))
    call = alone.removeprefix("    alone: ")
    assert call == grid.status().data["failed"][0]["alone"]
    assert call.startswith("grid.run('objective=")
    eval(call.replace("here=True", "here=True, mlflow_uri=''"), {"grid": grid})
    assert folder.state() is State.DONE
    assert "alone" not in verb("status", "demo", runs=pair).stdout


@pytest.mark.parametrize(
    ("step", "call", "command"),
    [
        (Step.of("resume", "demo", stale=True), "grid.run(stale=True)", "goalgrid resume demo --stale"),
        (
            Step.of("run", "a b.toml", set=("seeds=[0]",), only="seed=0 tau=1"),
            "grid.run('seed=0 tau=1')",
            "goalgrid run 'a b.toml' --set 'seeds=[0]' --only 'seed=0 tau=1'",
        ),
        (
            Step.of("table", "demo@seeds=4", load=True),
            "goalgrid.load('demo@seeds=4').table()",
            "goalgrid table demo@seeds=4",
        ),
        (
            Step.of("resume", "demo", set=("seeds=[0]",), load=True),
            "goalgrid.load('demo', set=['seeds=[0]']).run()",
            "goalgrid resume demo --set 'seeds=[0]'",
        ),
        (
            Step.of("evaluate", "FILE", into="demo"),
            "goalgrid evaluate FILE --into demo on the command line",
            "goalgrid evaluate FILE --into demo",
        ),
    ],
)
def test_a_step_is_a_call_in_python_and_a_command_in_the_shell(step: Step, call: str, command: str) -> None:
    note = Note("Next: {step}.", step, "warning")
    assert str(note) == f"Next: {call}."
    assert worded(note) == f"warning: Next: {command}."
    error = goalgrid.UserError("Next: {step}.", step)
    assert (str(error), worded(error)) == (f"Next: {call}.", f"Next: {command}.")
