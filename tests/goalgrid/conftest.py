"""The command line within this process, and a runs folder with two finished trials that tests may copy and change."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from goalgrid.cli.app import app
from goalgrid.cli.next_steps import worded
from goalgrid.grid.errors import UserError
from goalgrid.grid.store.home import Home
from goalgrid.state.grid_state import GridState
from goalgrid.state.named_grids import recall

from ..conftest import SMALL, made_once
from ..failing_disk.commands import Commands, unavailable

PAIR = ("--set", 'objectives=["con_con","sig-ms_cir"]', "--set", "seeds=[0]", *SMALL)
"""A grid of two trials, `demo` but for this."""

Verb = Callable[..., Result]


@pytest.fixture(scope="session")
def verb() -> Verb:
    """Run a verb in this process: `verb("status", "demo", runs=home)`. A mistake is raised, as it is printed."""

    def call(*arguments: str, runs: Home) -> Result:
        result = CliRunner().invoke(app, [*arguments, "--runs", str(runs.path)])
        if isinstance(result.exception, UserError):
            raise type(result.exception)(worded(result.exception)) from result.exception
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return call


@pytest.fixture(scope="session")
def trained_pair(verb: Verb, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Two finished trials; tests read them and leave them as they are."""

    def train(folder: Path) -> None:
        finished = verb("run", "demo", *PAIR, "--here", "--mlflow-uri", "", runs=Home(folder))
        assert finished.exit_code == 0, finished.stderr

    return Home(made_once("pair", tmp_path_factory, train))


@pytest.fixture
def pair(trained_pair: Home, tmp_path: Path) -> Home:
    """A copy of two finished trials, to be changed."""
    return Home(Path(shutil.copytree(trained_pair.path, tmp_path / "runs")))


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    """Gives commands in processes of their own, in which calls of the system may fail."""
    if why := unavailable():
        pytest.skip(why)
    with Commands() as found:
        yield found


def grid_state(home: Home) -> GridState:
    """The grid `demo` as it was last run under this home."""
    return GridState.of(recall("demo", home), home)
