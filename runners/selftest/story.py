"""The self-test: kills a worker of a tiny grid, here or on a cluster, and verifies that nothing is lost."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.attempts import Attempt
from goalgrid.grid.store.files import readable_text
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results.records.record import differences
from goalgrid.runners.trial.stopping import Stop

SETTINGS = (
    'objectives=["con_con","sig-ms_cir"]', 'recipes=["cnn-bow"]', "train.batch_size=250", "train.epochs=12",
    "model.image.size=16", "seeds=[0]", "reliability.checkpoint_steps=5",
)  # fmt: skip
"""Grid of two trials on the built-in data, a few seconds each."""

PATIENCE = 180.0
"""Timeout of each step in seconds; on a slow machine, Ray alone takes half a minute to start."""

ADVICE = (
    "Your own trials are untouched; those of this test are kept in {place}, with their log. The runs folder must be on "
    "a local disk, NFS or Lustre, with hard links, atomic renames and the same content on every node."
)


class Unmet(Exception):
    """A claim does not hold, or an expected event did not happen in time."""


def selftest(runs: Path, address: str | None) -> Iterator[str]:
    """Test the claims in a new folder below `runs`, yield each that holds, and remove the folder if all do.

    Raises:
        UserError: the folder cannot be created, or no cluster answers.
        Unmet: a claim does not hold; the message has the evidence and the next step.
    """
    try:
        runs.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="selftest-", dir=runs.absolute()))
    except OSError as error:
        raise UserError(f"cannot write {runs}: {error.strerror}. Choose another folder with --runs.") from error
    log, undisturbed, disturbed = place / "log.txt", Home(place / "undisturbed"), Home(place / "disturbed")
    claims: dict[str, Callable[[], str]] = {
        "a tiny grid trains here": partial(_train, undisturbed, log),
        "a killed worker is replaced, and its trial resumes": partial(_kill_worker, disturbed, log, address),
        "all results are bit-identical to those of an undisturbed run": lambda: "; ".join(
            differences(expand(load("demo", SETTINGS)), undisturbed, disturbed)
        ),
    }
    for claim, counter_evidence in claims.items():
        try:
            problem = counter_evidence()
        except (Unmet, subprocess.TimeoutExpired) as unmet:
            problem = f"{unmet}. Its log: {log}, which ends: {_last_line(log)}"
        if problem:
            advice = f"Results may be lost in {runs}: do not train there yet. {ADVICE.format(place=place)}"
            raise Unmet(f"{claim}: {problem}\n{advice}")
        yield claim
    shutil.rmtree(place)


def _train(home: Home, log: Path) -> str:
    with _launched(home, log, "--here") as driver:
        return _last_line(log) if driver.wait(PATIENCE) else ""


def _kill_worker(home: Home, log: Path, address: str | None) -> str:
    from goalgrid.runners.launch.ray_tune import RayTune

    cluster = RayTune(Stop(), address=address, grace=0.0, warn=lambda message: None)
    options = ("--address", address) if address else ()
    with cluster if address else nullcontext(), _launched(home, log, *options) as driver:
        victim = _moving(home, driver)
        cluster.kill(victim)
        if code := driver.wait(PATIENCE):
            return f"the driver ended with exit code {code}: {_last_line(log)}"
    after = TrialFolder(victim.folder.parent).attempts()[victim.number :]
    return (
        ""
        if after and "resumes from step" in readable_text(after[0].log)
        else f"{victim.folder.parent} began from scratch"
    )


@contextmanager
def _launched(home: Home, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a launch in a new session, so that Ctrl-C here does not reach it; kill it after the block."""
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    command = [sys.executable, "-m", "goalgrid", "run", "demo", *settings, *options]
    command += ["--runs", str(home.path), "--mlflow-uri", ""]
    with (
        log.open("ab") as out,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def _moving(home: Home, driver: subprocess.Popen[bytes]) -> Attempt:
    """Wait for a live, running attempt at a trial that has a checkpoint."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if driver.poll() is not None:
            raise Unmet(f"the driver ended with exit code {driver.returncode}")
        for folder in home.trials():
            attempt = folder.latest()
            if (
                attempt
                and attempt.live()
                and " from " in readable_text(attempt.log)
                and folder.last_checkpoint.exists()
            ):
                return attempt
        time.sleep(0.02)
    raise Unmet(f"no trial made progress within {PATIENCE:g} s")


def _last_line(log: Path) -> str:
    return (readable_text(log).strip().splitlines() or ["nothing"])[-1]
