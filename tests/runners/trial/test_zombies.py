"""A suspended process that comes back after another process took its trial over writes nothing. Real processes, stopped
and continued by signals right before a file gets its name."""

import ctypes
import hashlib
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store import attempts, processes
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.progress import Cadence, best_of
from goalgrid.runners.trial import lease
from goalgrid.runners.trial.archive import replace
from goalgrid.runners.trial.run import run_trial

from ...conftest import SMALL
from ...goalgrid.processes import forked


@pytest.fixture(scope="module")
def trial() -> Trial:
    """A trial of two epochs of five steps."""
    small = [word for word in SMALL if word != "--set"]
    more = ["train.batch_size=1000", 'objectives=["con_con"]', "seeds=[0]"]
    return trials_of(expand(load("demo", [*small, *more])))[0]


@pytest.fixture(scope="module")
def undisturbed(trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("undisturbed"))
    train(trial, home)
    return home


def train(trial: Trial, home: Home) -> None:
    folder = home.trial(trial.id)
    run_trial(trial.settings, folder, lambda event: None, Machine(), launch="a", cadence=Cadence(steps=2))


def renamed_host() -> None:
    """Give this process a host name of its own, so that other processes cannot look it up."""
    new_host_names = 0x04000000
    name = b"another-host"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(new_host_names) or libc.sethostname(name, len(name)):
        os._exit(77)
    processes.machine.cache_clear()
    assert socket.gethostname() == name.decode()


def zombie(event: str, name: str, n: int, act: Callable[[], None]) -> int:
    """A process on another host that is stopped right before this happens to a file of this name the n-th time.

    Args:
        event: as Python tells its audit hooks: "open" is before the file is written aside, the others before it gets
            its name.
    """

    def work() -> None:
        renamed_host()
        lease.HEARTBEAT_SECONDS = lease.LOOK_SECONDS = 0.1
        act()

    def moment(what: str, arguments: tuple[object, ...]) -> bool:
        if what != event:
            return False
        target = Path(str(arguments[0 if what == "open" else 1])).name
        return target == name or (what == "open" and target.startswith(f".{name}."))

    # of a signal to the process, this thread would go on for a moment: best.ckpt is written in a thread of its own
    pid = forked(work, moment, n, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGSTOP))
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 77:
        pytest.skip("giving a process a host name of its own needs root")
    assert os.WIFSTOPPED(status), "the moment never came"
    return pid


def go_on(pid: int) -> None:
    """Let the zombie go on to its end."""
    os.kill(pid, signal.SIGCONT)
    os.waitpid(pid, 0)


def digests(home: Home) -> dict[str, str]:
    """The content of all files; a log may grow."""
    paths = (path for path in home.path.rglob("*") if path.is_file() and path.suffix != ".log")
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def numbers(trial: Trial, home: Home) -> dict[str, object]:
    row = record.collect([home.trial(trial.id).record]).to_pylist()[0]
    history = [logged for logged in row["history"] if logged["name"] != "seconds"]
    return {name: row[name] for name in row if name.startswith(("val_", "test_", "selected"))} | {"history": history}


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host's process seems dead at once."""
    monkeypatch.setattr(attempts, "LEASE_SECONDS", 0.0)
    monkeypatch.setattr(lease, "WATCH_SECONDS", 0.01)


MOMENTS = [("001.json", 1), ("best.ckpt", 1), ("record.parquet", 1), ("done", 1)]
FURTHER = [("settings.json", 1), ("vocabulary.json", 1), ("last.ckpt", 1), ("previous.ckpt", 2), ("history.jsonl", 2)]


@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize(
    ("name", "n"), [*MOMENTS, *(pytest.param(*moment, marks=pytest.mark.slow) for moment in FURTHER)]
)
def test_a_process_that_comes_back_writes_nothing_into_a_trial_that_was_taken_over(
    name: str, n: int, trial: Trial, undisturbed: Home, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    back = zombie("os.rename", name, n, lambda: train(trial, home))
    train(trial, home)
    before = digests(home)
    go_on(back)
    assert digests(home) == before
    assert numbers(trial, home) == numbers(trial, undisturbed)
    selected = record.collect([home.trial(trial.id).record])["selected_epoch"][0].as_py()
    assert best_of(home.trial(trial.id), Machine().device)["row"]["epoch"] == selected


@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize(
    "name",
    ["best.ckpt", "done", *(pytest.param(name, marks=pytest.mark.slow) for name in ("001.json", "001.end.json"))],
)
def test_a_process_that_comes_back_writes_nothing_into_a_trial_that_was_begun_anew(
    name: str, trial: Trial, undisturbed: Home, tmp_path: Path
) -> None:
    """The new trial's first attempt has the number of the old trial's first attempt."""
    home = Home(tmp_path)
    back = zombie("open", name, 1, lambda: train(trial, home))
    replace(home, trial.id)
    train(trial, home)
    before = digests(home)
    go_on(back)
    assert digests(home) == before
    assert numbers(trial, home) == numbers(trial, undisturbed)


def test_a_folder_is_not_moved_from_a_process_whose_clock_is_off(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeat looks old here, but it beats."""
    monkeypatch.setattr(attempts, "LEASE_SECONDS", 0.0)
    monkeypatch.setattr(lease, "WATCH_SECONDS", 0.5)
    home = Home(tmp_path)

    def beating() -> None:
        with lease.new_attempt(home.trial(trial.id), lease.Stop()):
            (tmp_path / "held").touch()
            os.kill(os.getpid(), signal.SIGSTOP)
            signal.sigtimedwait([signal.SIGUSR1], 20)

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    pid = zombie("none", "none", 1, beating)
    os.kill(pid, signal.SIGCONT)
    with pytest.raises(lease.UserError, match="it is being trained"):
        replace(home, trial.id)
    os.kill(pid, signal.SIGUSR1)
    os.waitpid(pid, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    replace(home, trial.id)
    assert not home.trial(trial.id).path.exists()
