"""Commands that messages name: each is a command of this version, and those of a grid that ran do what they say."""

import ast
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from goalgrid.cli.app import app
from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.gridfile import load
from goalgrid.grid.store import processes
from goalgrid.grid.store.attempts import Failure
from goalgrid.grid.store.home import Home
from goalgrid.reports.tables import NothingDone
from goalgrid.results.records import record
from goalgrid.runners.trial.retries import POLICY
from goalgrid.state.grid_state import GridState
from tests.program import FILES

from ..conftest import ROOT
from ..states import attempt, fail
from .conftest import PAIR, Verb

COMMAND = re.compile(r"(?<!\.)\bgoalgrid ((?:data )?[a-z]+)((?: (?:--?[a-z-]+|[A-Z]+|\'[^\']*\'|[\w.*=/-]+\b))*)")
PROSE = ("can", "cannot", "is", "starts")
"""Words behind the program's name that are no verb of it."""


def messages(tree: ast.AST) -> Iterator[str]:
    """The texts in code but for docstrings, with X for each value that is filled in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.JoinedStr):
            text = ""
            for part in node.values:
                value = "" if text[-1:].isalpha() else "X"
                text += str(part.value) if isinstance(part, ast.Constant) else value
            yield text
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        else:
            yield from messages(node)


def named() -> set[tuple[str, str]]:
    """The verb and the words behind it of all commands in messages and page templates."""
    texts = [text for path in FILES for text in messages(ast.parse(path.read_text()))]
    texts += [re.sub(r"{{.*?}}", "X", path.read_text()) for path in (ROOT / "results" / "pages").glob("*.*")]
    return {found.groups() for text in texts for found in COMMAND.finditer(text)}  # type: ignore[misc]


def steps() -> Iterator[tuple[str, str]]:
    """The verb and the words behind it of all next steps that are data, with X for each value that is filled in."""
    for node in (node for path in FILES for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Step.of", "step"):
            verb, *arguments = (each.value if isinstance(each, ast.Constant) else "X" for each in node.args)
            options = [f"--{word.arg}" for word in node.keywords if word.arg not in ("runs", "load")]
            if verb != "X":
                yield str(verb), " ".join(map(str, [*arguments, *options]))


def test_every_command_in_a_message_is_a_command_of_this_version() -> None:
    commands = named() | {*steps()}
    assert len({*steps()}) > 15
    for verb, words in {found for found in commands if found[0] not in PROSE}:
        command: Any = get_command(app)
        for part in verb.split():
            assert part in command.commands, f"goalgrid {verb}{words}"
            command = command.commands[part]
        known = {option for parameter in command.params for option in parameter.opts}
        given = words.split()
        options = {word for word in given if word.startswith("-")}
        assert options <= known | {"--help"}, f"goalgrid {verb}{words}"
        arguments = [part for part in command.params if part.param_type_name == "argument" and part.required]
        first = given[0] if given else ""
        placeholder = first.isupper() or first.endswith(".toml") or first in {*catalog.names("datasets"), "demo"}
        assert placeholder or not arguments, f"goalgrid {verb}{words} lacks its {arguments[0].name}"


def printed(text: str) -> list[list[str]]:
    """The commands at the end of a line."""
    return [shlex.split(line)[1:] for line in re.findall(r"goalgrid [^\n]*", text)]


@pytest.fixture
def troubled(pair: Home, tmp_path: Path, verb: Verb) -> Home:
    """A grid from a file, with a stale trial and a failed trial."""
    file = tmp_path / "mine.toml"
    grid = load("demo", [*(word for word in PAIR if word != "--set"), "name=mine"])
    file.write_text(grid.to_toml())
    assert verb("run", str(file), "--here", "--mlflow-uri", "", runs=pair).exit_code == 0
    file.write_text(grid.to_toml().replace('"sig-ms_cir"', '"con_nca"'))
    new = GridState.of(load(str(file)), pair)
    for trial in new.unfinished():
        fail(pair.trial(trial.id), Failure.DATA, "no such picture")
    assert verb("run", str(file), "--only", "objective=con_con", "--here", "--mlflow-uri", "", runs=pair).exit_code == 0
    (done,) = (pair.trial(trial.id) for trial in new.trials if pair.trial(trial.id).done.exists())
    (row,) = record.collect([done.record]).to_pylist()
    record.write(done.record, row | {"code_fingerprint": "older"})
    return pair


@pytest.mark.gate
def test_the_commands_of_a_status_and_a_report_do_what_they_say(troubled: Home, verb: Verb) -> None:
    told = verb("status", "mine", runs=troubled).stdout
    commands = printed(told)
    assert [words[0] for words in commands] == ["data", "resume", "resume"]
    assert "Find every fault of the copy: goalgrid data check NAME" in told
    assert "--stale" in commands[2]
    extra = ["--here", "--mlflow-uri", ""]
    for words in commands[1:]:
        result = verb(*words[: words.index("--runs")], *(word for word in extra if word not in words), runs=troubled)
        assert result.exit_code == 0, (words, result.output)
    assert "2 trials: 2 done\n" in verb("status", "mine", runs=troubled).stdout
    assert "stale" not in verb("status", "mine", runs=troubled).stdout
    verb("report", "mine", runs=troubled)
    page = troubled.grid("mine").report.read_text()
    shown = [shlex.split(words)[1:] for words in re.findall(r"<code>(goalgrid .*?)</code>", page)]
    assert {words[0] for words in shown} == {"resume", "status", "table", "export", "figures"}
    assert all("--runs" in words for words in shown)
    for words in {words[0]: words for words in shown if words[0] != "export"}.values():
        extra = ["--here", "--mlflow-uri", ""] if words[0] == "resume" else []
        assert verb(*words, *extra, runs=troubled).exit_code == 0, words


def test_a_launch_that_leaves_trials_names_the_command_that_goes_on(pair: Home, verb: Verb) -> None:
    folder = pair.trials()[0]
    folder.done.unlink()
    held = attempt(folder, pid=os.getppid(), started=processes.started(os.getppid()))
    left = verb("run", "demo", *PAIR, "--here", "--mlflow-uri", "", runs=pair)
    assert left.exit_code == 6, "another process trains what is left"
    (words,) = printed(left.stderr)
    assert words == ["resume", "demo", "--runs", str(pair.path)]
    held.end.write_text('{"outcome": "pre-empted"}')
    assert verb(*words[:2], "--here", "--mlflow-uri", "", runs=pair).exit_code == 0


def test_a_grid_without_results_names_the_command_that_starts_it(pair: Home, verb: Verb) -> None:
    with pytest.raises(NothingDone) as error:
        verb("table", "demo", "--set", 'objectives=["con_con"]', "--set", "seeds=7", runs=pair)
    (words,) = printed(str(error.value))
    runs = ["--runs", str(pair.path)]
    assert words == ["run", "demo", "--set", 'objectives=["con_con"]', "--set", "seeds=7", *runs]
    assert "1 trial: 1 planned" in verb("plan", *words[1:-2], runs=pair).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--root", "typo=/x"), "unknown data set 'typo' in --root typo=/x. Known: shapes. Or DIR alone."),
        (("--root", "shape=/x"), "Did you mean 'shapes'?"),
        (("--weights", "google/bert-base=/x"), "unknown weights 'google/bert-base' in --weights. Did you mean"),
    ],
)
@pytest.mark.parametrize("name", ["plan", "run"])
def test_a_place_of_nothing_in_the_grid_is_refused(
    name: str, words: tuple[str, str], message: str, tmp_path: Path, verb: Verb
) -> None:
    with pytest.raises(UserError) as caught:
        verb(name, "demo", *words, runs=Home(tmp_path))
    assert message in str(caught.value)


def test_advice_begins_with_a_word_and_no_command() -> None:
    assert not [policy.advice for policy in POLICY.values() if policy.advice.startswith("goalgrid")]
