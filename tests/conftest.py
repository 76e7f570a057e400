"""What all tests share: the command line as a user calls it, one small trained grid, and the real data where it is."""

import gc
import io
import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import typer.main
import typer.testing
from filelock import FileLock
from hypothesis import settings

from goalgrid.grid.document import Text, content_of
from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.gridfile import Grid, check, load
from goalgrid.grid.store.home import Home
from goalgrid.retrieval.data import shapes
from tests import few
from tests.fork_server import client

gc.disable()  # until all is imported
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of processes that tests start
# Ray's workers would wait for all other tests.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
# Workers and hundreds of processes share what the first compiles.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
settings.register_profile("goalgrid", deadline=None, max_examples=25)  # no test asserts how long something takes
settings.load_profile("goalgrid")
typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)  # it inspects every verb
shapes._split = cache(shapes._split)  # all trials of a process read the same scenes

os.environ.setdefault("MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib"))  # where its list of fonts is
if "PYTEST_XDIST_WORKER" not in os.environ:  # else the first process set it
    CACHE = TemporaryDirectory(prefix="goalgrid-cache-")
    os.environ["XDG_CACHE_HOME"] = os.environ["XDG_STATE_HOME"] = CACHE.name
client.CLIENT.share(os.environ["XDG_CACHE_HOME"])


def pytest_addoption(parser: pytest.Parser) -> None:
    described = "of this folder, run only the tests of the gate: make shapes runs the others"
    parser.addoption("--gate-of", action="append", default=[], metavar="DIR", help=described)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what --gate-of says, and begin with the longest files, so that no process has one of them at the end.

    These are those with most tests of the gate, then those about the whole program, at the top of tests/.
    """
    folders = {config.rootpath / folder for folder in config.getoption("gate_of")}
    of_gate = {item for item in items if item.get_closest_marker("gate")}
    left_out = {item for item in items if item not in of_gate and folders.intersection(item.path.parents)}
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    gate = Counter(item.path for item in of_gate)
    items.sort(key=lambda item: (-gate[item.path], len(item.path.parts)))


def pytest_collection_finish() -> None:
    """Let garbage be looked for among what tests make, not in all modules."""
    gc.collect()
    gc.freeze()
    gc.enable()


ROOT = Path(__file__).parent.parent
FLICKR8K = Path(os.environ.get("GOALGRID_FLICKR8K", ROOT.parent / "shared" / "flickr8k"))
PAPERS = Path(os.environ.get("GOALGRID_PAPERS", ROOT.parent / "shared" / "papers"))

SMALL = (
    "--set", 'recipes=["cnn-bow"]', "--set", "train.epochs=2", "--set", "dataset.train_images=200",
    "--set", "train.batch_size=100", "--set", "model.image.size=16", "--set", "model.dim=32",
    "--set", "name=demo",
)  # fmt: skip
"""Overrides that make a trial of `demo` take a quarter of a second, and all of it train: nothing is frozen.

The grid keeps its name, so that other verbs find it without the overrides."""
LASTING = (*SMALL, "--set", "dataset.train_images=1000", "--set", "train.batch_size=500")
"""The same on all images, for tests that have to meet a trial while it trains."""


def checked(table: Mapping[str, Any]) -> Grid:
    """The grid of a file that says this."""
    return check(content_of(Text("grid", dict(table))))


def swapped(text: str, before: str, after: str) -> str:
    """The text with another in place of one that has to stand in it."""
    assert before in text, f"{before!r} does not stand there any more"
    return text.replace(before, after)


Goalgrid = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def goalgrid() -> Goalgrid:
    """Give a command as a user does: `goalgrid("status", "demo", runs=folder)`.

    `folder` is where the command is given. Launches through Ray run in a process of their own. All other commands run
    in this process, which is faster.
    """

    def call(
        *arguments: str, runs: Path, timeout: float = 240, folder: Path = ROOT
    ) -> subprocess.CompletedProcess[str]:
        launches = arguments[0] == "selftest" or (arguments[0] in ("run", "resume") and "--here" not in arguments)
        return _apart(arguments, runs, timeout, folder) if launches else _in_process(arguments, runs, folder)

    return call


def _apart(arguments: Sequence[str], runs: Path, timeout: float, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "goalgrid", *arguments]
    environment = {**os.environ, "GOALGRID_RUNS": str(runs), "COLUMNS": "160"}
    return client.run(command, timeout=timeout, env=environment, cwd=folder)


def _in_process(arguments: Sequence[str], runs: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    from goalgrid.cli.app import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")
        for silent in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", silent)  # as Python itself does for a user
        patch.setenv("GOALGRID_RUNS", str(runs))
        patch.setenv("COLUMNS", "160")
        patch.setattr(sys, "argv", ["goalgrid", *arguments])
        patch.chdir(folder)
        with redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def made_once(name: str, tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], None]) -> Path:
    """A folder that the processes of a test run share: the first process that needs it makes it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, made = shared / name, shared / f"{name}.made"
    with FileLock(shared / f"{name}.lock"):
        if not made.exists():
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


@pytest.fixture(scope="session")
def trained(goalgrid: Goalgrid, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A runs folder in which a 2 x 2 grid was trained; tests read it and leave it as it is."""
    return _two_by_two("trained", tmp_path_factory, goalgrid)


@pytest.fixture(scope="session")
def traced(goalgrid: Goalgrid, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The grid of `trained`, with the values of every fifth step."""
    return _two_by_two("traced", tmp_path_factory, goalgrid, "--set", "train.trace_every=5", "--mlflow-uri", "")


def _two_by_two(name: str, factory: pytest.TempPathFactory, goalgrid: Goalgrid, *more: str) -> Home:
    def train(folder: Path) -> None:
        axes = ("--set", 'objectives=["con_con","sig-ms_cir"]', "--set", "seeds=[0,1]")
        finished = goalgrid("run", "demo", "--here", *axes, *more, *SMALL, runs=folder)
        assert finished.returncode == 0, finished.stderr

    return Home(made_once(name, factory, train))


@pytest.fixture
def small_trial() -> Trial:
    """One fast trial on the embedded data."""
    return trials_of(expand(load("demo", [word for word in SMALL if word != "--set"])))[0]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that holds less than one checkpoint; remounted, it is larger or read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="session")
def flickr8k() -> Path:
    """Flickr8k in Karpathy's layout with features in `precomp/`; tests that need it are skipped where it is absent."""
    if not (FLICKR8K / "dataset.json").exists():
        pytest.skip(f"no Flickr8k at {FLICKR8K}; set GOALGRID_FLICKR8K to its folder")
    return FLICKR8K


@pytest.fixture(scope="session")
def few_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few pictures with their captions and features in the same layout, made by `tests/few.py`."""
    return made_once("few", tmp_path_factory, few.write)


def read_status(finished: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """The states counted by `goalgrid status --json`."""
    states: dict[str, int] = json.loads(finished.stdout)["states"]
    return states
