"""The self-test: kills a worker of a tiny grid, here or on a cluster, and looks for losses."""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import expand
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.attempts import Attempt
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results.records.record import differences
from goalgrid.runners.trial.stopping import Stop

SETTINGS = (
    'objectives=["con_con","sig-ms_cir"]',
    'recipes=["cnn-bow"]',
    "train.batch_size=250",
    "train.epochs=12",
    "model.image.size=16",
    "seeds=[0]",
    "reliability.checkpoint_steps=5",
)
"""Two trials of the embedded data, of a few seconds each."""

PATIENCE = 180.0
"""Seconds to wait for anything; on a slow machine Ray alone takes half a minute to start."""

ADVICE = (
    "Nothing of your own was touched; what was tried is kept in {place}, with the log that tells more. A folder has to "
    "be on a local disk, NFS or Lustre, with hard links, renames in one step and the same content on every node."
)


class Unmet(Exception):
    """A claim does not hold, or an awaited event did not happen in time."""


def selftest(runs: Path, address: str | None) -> Iterator[str]:
    """Test the claims, one after the other, in a new folder below `runs`, and give each that holds.

    If all hold, the folder is removed.

    Raises:
        UserError: the folder cannot be made, or no cluster answers.
        Unmet: a claim does not hold; with the counter-evidence and the next step.
    """
    try:
        runs.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="selftest-", dir=runs.absolute()))
    except OSError as error:
        raise UserError(f"cannot write {runs}: {error.strerror}. Choose another folder with --runs.") from error
    story = Story(place, address)
    try:
        for claim, stage in story.stages().items():
            try:
                problem = stage()
            except (Unmet, subprocess.TimeoutExpired) as unmet:
                problem = f"{unmet}. Its log: {story.log}, which ends: {story.last_line()}"
            if problem:
                advice = f"goalgrid cannot be trusted with {runs} yet. {ADVICE.format(place=place)}"
                raise Unmet(f"{claim}: {problem}\n{advice}")
            yield claim
        shutil.rmtree(place)
    finally:
        story.end()


class Story:
    """A launch whose worker is killed, beside an undisturbed launch of the same grid."""

    def __init__(self, place: Path, address: str | None) -> None:
        self.address, self.log = address, place / "log.txt"
        self.home, self.undisturbed = Home(place / "disturbed"), Home(place / "undisturbed")
        self.started: list[subprocess.Popen[bytes]] = []

    def stages(self) -> dict[str, Callable[[], str]]:
        """The claims in the order of the story, each with the method that returns the counter-evidence."""
        return {
            "a tiny grid trains here": self.trains,
            "a worker that is killed is replaced, and its trial goes on": self.worker_killed,
            "all results equal those of an undisturbed run, to the bit": self.equal,
        }

    def trains(self) -> str:
        return self.last_line() if self._start(self.undisturbed, "--here").wait(PATIENCE) else ""

    def worker_killed(self) -> str:
        from goalgrid.runners.launch.ray_tune import RayTune

        cluster = RayTune(Stop(), address=self.address, grace=0.0, warn=lambda message: None)
        with cluster if self.address else nullcontext():
            driver = self._start(self.home, *(("--address", self.address) if self.address else ()))
            victim = self._moving(driver)
            cluster.kill(victim)
        if code := driver.wait(PATIENCE):
            return f"the driver ended with exit code {code}: {self.last_line()}"
        after = TrialFolder(victim.folder.parent).attempts()[victim.number :]
        return "" if after and "goes on from step" in _log(after[0]) else f"it started anew: {victim.folder.parent}"

    def equal(self) -> str:
        return "; ".join(differences(expand(load("demo", SETTINGS)), self.undisturbed, self.home))

    def end(self) -> None:
        """Kill all processes that were started."""
        for process in self.started:
            process.kill()
            process.wait()

    def last_line(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing"

    def _start(self, home: Home, *options: str) -> subprocess.Popen[bytes]:
        """Start the launch in its own session, so that a Ctrl-C here does not reach it."""
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        command = [sys.executable, "-m", "goalgrid", "run", "demo", *settings, *options]
        command += ["--runs", str(home.path), "--mlflow-uri", ""]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.started.append(process)
        return process

    def _moving(self, driver: subprocess.Popen[bytes]) -> Attempt:
        """Wait for a live attempt that has begun, at a trial with a checkpoint."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if driver.poll() is not None:
                raise Unmet(f"the driver ended with exit code {driver.returncode}")
            for folder in self.home.trials():
                attempt = folder.latest()
                if attempt and attempt.live() and " from " in _log(attempt) and folder.last_checkpoint.exists():
                    return attempt
            time.sleep(0.02)
        raise Unmet(f"a trial that moves on did not come within {PATIENCE:g} s")


def _log(attempt: Attempt) -> str:
    return attempt.log.read_text(encoding="utf-8") if attempt.log.exists() else ""
