"""The self-test: checks the runs folder, kills a worker of a tiny grid here or on a cluster, and looks for losses."""

import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.attempts import Attempt
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results.analysis.run_comparison import differences
from goalgrid.results.records import record
from goalgrid.runners.selftest import shared_folder_check
from goalgrid.runners.selftest.faults import Command, Unmet, live, strike, wait_for
from goalgrid.runners.trial.stopping import Stop

if TYPE_CHECKING:
    from goalgrid.runners.launch.ray_tune import RayTune

SETTINGS = (
    'objectives=["con_con","sig-ms_cir"]',
    'recipes=["cnn-bow"]',
    "train.batch_size=250",
    "model.image.size=16",
    "seeds=[0]",
    "reliability.checkpoint_steps=5",
)
"""Two trials of the embedded data, of a few seconds each."""

EPOCHS, SECONDS = 6, 3.0
"""Epochs of a trial, and its least duration: a fast machine trains more epochs, so that kills meet running trials."""

PATIENCE = 180.0
"""Seconds to wait for anything; on a slow machine Ray alone takes half a minute to start."""

ONLOOKERS = 4
"""Processes of this machine that check the folder together."""

ANOTHER_FOLDER = (
    "Choose another folder: on a local disk, NFS or Lustre, with hard links, renames in one step and the same content "
    "on every node."
)
REPORT = "Nothing of your own was touched; what was tried is kept in {place}, with the log that tells more."


@dataclass(frozen=True)
class TestedClaim:
    """A claim, its counter-evidence (empty if it holds), and the next step then."""

    claim: str
    problem: str = ""
    advice: str = ""


def selftest(runs: Path, address: str | None) -> Iterator[TestedClaim]:
    """Test the claims, one after the other, in a new folder below `runs`.

    The first claim that does not hold ends the test; if all hold, the folder is removed.

    Raises:
        UserError: the folder cannot be made, or no cluster answers.
    """
    nodes = Nodes(address)
    try:
        runs.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="selftest-", dir=runs.absolute()))
    except OSError as error:
        raise UserError(f"cannot write {runs}: {error.strerror}. Choose another folder with --runs.") from error
    story = Story(place, nodes)
    try:
        for verdict in _verdicts(place, nodes, story):
            yield verdict
            if verdict.problem:
                return
        shutil.rmtree(place)
    finally:
        story.end()


def _verdicts(place: Path, nodes: "Nodes", story: "Story") -> Iterator[TestedClaim]:
    shared = place / "shared"
    shared.mkdir()
    for claim, problem in shared_folder_check.faults(nodes.look(shared)).items():
        yield TestedClaim(claim, problem, ANOTHER_FOLDER)
    advice = REPORT.format(place=place)
    for claim, stage in story.stages().items():
        try:
            yield TestedClaim(claim, stage(), advice)
        except (Unmet, subprocess.TimeoutExpired) as unmet:
            yield TestedClaim(
                claim, f"{unmet}. Its log: {story.command.log}, which ends: {story.command.last_line()}", advice
            )


class Nodes:
    """This machine, or all nodes of a cluster."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.onlookers = ONLOOKERS + (len(self._driver().nodes()) if address else 0)

    def look(self, folder: Path) -> list[shared_folder_check.Sighting]:
        """Have processes of this machine, and one on every node, check the folder together."""
        script = "from goalgrid.runners.selftest import shared_folder_check as it; it.main()"
        command = [sys.executable, "-c", script, str(folder), str(self.onlookers)]
        here = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(ONLOOKERS)]
        there = self._driver().everywhere(shared_folder_check.look, str(folder), self.onlookers) if self.address else []
        return [*(json.loads(process.communicate()[0]) for process in here), *there]

    def strike(self, attempt: Attempt) -> None:
        """Kill -9 the process that makes this attempt, on any node."""
        lease = attempt.content()
        if not strike(lease) and self.address:
            self._driver().everywhere(strike, lease)

    def _driver(self) -> "RayTune":
        from goalgrid.runners.launch.ray_tune import RayTune

        return RayTune(Stop(), address=self.address, grace=0.0, warn=lambda message: None)


class Story:
    """A launch that is cut off in every way in turn; the same command always goes on."""

    def __init__(self, place: Path, nodes: Nodes) -> None:
        self.place, self.nodes, self.epochs = place, nodes, EPOCHS
        self.home, self.undisturbed = Home(place / "disturbed"), Home(place / "undisturbed")
        self.command = self._command()
        self.started: list[subprocess.Popen[bytes]] = []

    def stages(self) -> dict[str, Callable[[], str]]:
        """The claims in the order of the story, each with the method that returns the counter-evidence."""
        return {
            "a tiny grid trains here": self.trains,
            "a worker killed with -9 is replaced, and its trial goes on": self.worker_killed,
            "all results equal those of an undisturbed run, to the bit": self.equal,
        }

    def trains(self) -> str:
        if self._alone() == 0 and (taken := self._shortest()) < SECONDS:
            self.epochs = math.ceil(self.epochs * SECONDS / taken)
            self._alone()
        return "" if self.started[-1].returncode == 0 else self.command.last_line()

    def worker_killed(self) -> str:
        self.command = self._command()
        driver = self._start()
        victim = self._moving()
        self.nodes.strike(victim)
        if code := driver.wait(PATIENCE):
            return f"the driver ended with exit code {code}: {self.command.last_line()}"
        after = TrialFolder(victim.folder.parent).attempts()[victim.number :]
        return "" if after and "goes on from step" in _log(after[0]) else f"it started anew: {victim.folder.parent}"

    def equal(self) -> str:
        return "; ".join(differences(self._cells(), self.undisturbed, self.home))

    def end(self) -> None:
        """Kill all processes that were started."""
        for process in self.started:
            process.kill()
            process.wait()

    def _alone(self) -> int:
        """Train everything undisturbed, without Ray; returns the exit code."""
        self.command = self._command("--here", home=self.undisturbed)
        return self._start().wait(PATIENCE)

    def _shortest(self) -> float:
        """Seconds that the shortest undisturbed trial took."""
        done = [self.undisturbed.trial(trial.id).record for trial in trials_of(self._cells())]
        return float(min(record.collect(done, ["train_seconds"]).column(0).to_pylist()))

    def _settings(self) -> list[str]:
        return [*SETTINGS, f"train.epochs={self.epochs}"]

    def _cells(self) -> list[Cell]:
        return expand(load("demo", self._settings()))

    def _command(self, *options: str, home: Home | None = None) -> Command:
        settings = [word for setting in self._settings() for word in ("--set", setting)]
        cluster = ["--address", self.nodes.address] if self.nodes.address and not options else []
        return Command(("demo", *settings, *options, *cluster), home or self.home, self.place / "log.txt")

    def _start(self) -> subprocess.Popen[bytes]:
        self.started.append(self.command.start())
        return self.started[-1]

    def _moving(self) -> Attempt:
        """Wait for a live attempt that has begun, at a trial with a checkpoint."""

        def look() -> Attempt | None:
            if self.started[-1].poll() is not None:
                raise Unmet(f"the driver ended with exit code {self.started[-1].returncode}")
            begun = (attempt for attempt in live(self.home) if " from " in _log(attempt))
            return next((one for one in begun if TrialFolder(one.folder.parent).last_checkpoint.exists()), None)

        return wait_for(look, "a trial that moves on", PATIENCE)


def _log(attempt: Attempt) -> str:
    return attempt.log.read_text(encoding="utf-8") if attempt.log.exists() else ""
