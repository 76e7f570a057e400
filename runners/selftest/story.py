"""The self-test: kills and damages a tiny grid on the user's machine or cluster, and checks that nothing is lost."""

import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Cell, expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.attempts import Attempt
from goalgrid.grid.store.failures import Failure
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results.checks.run_comparison import differences
from goalgrid.results.records import record
from goalgrid.runners.selftest import shared_folder_check
from goalgrid.runners.selftest.faults import Command, Unmet, live, strike, trained_after_done, wait_for
from goalgrid.runners.training import checkpoints
from goalgrid.runners.trial.stopping import INCOMPLETE, OTHERS_TRAIN, Stop

if TYPE_CHECKING:
    from goalgrid.runners.launch.ray_tune import RayTune

SETTINGS = (
    'recipes=["cnn-bow"]',
    "train.batch_size=250",
    "model.image.size=16",
    "seeds=[0]",
    "reliability.checkpoint_steps=5",
)
TWO, THREE = 'objectives=["con_con","sig-ms_cir"]', 'objectives=["con_con","sig-ms_cir","sig_cir"]'
"""Trials of the embedded data, of a few seconds each; the third joins when two drivers share the work."""

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
    """A claim, what speaks against it (empty where it holds), and what to do then."""

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
                claim, f"{unmet}. Its log: {story.command.log}, which ends: {story.command.said()}", advice
            )


class Nodes:
    """This machine, or all nodes of a cluster."""

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.onlookers = ONLOOKERS + (len(self._driver().nodes()) if address else 0)

    def look(self, folder: Path) -> list[shared_folder_check.Sighting]:
        """Have processes of this machine, and one on every node, check the folder together."""
        script = "import goalgrid; from goalgrid.runners.selftest import shared_folder_check as it; it.main()"
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
        self.command = self._command(TWO)
        self.started: list[subprocess.Popen[bytes]] = []

    def stages(self) -> dict[str, Callable[[], str]]:
        """The claims in the order of the story, each with the method that returns what speaks against it."""
        return {
            "a tiny grid trains here": self.trains,
            "a worker killed with -9 is replaced, and its trial goes on": self.worker_killed,
            "a driver killed with -9 costs nothing: the same command goes on": self.driver_killed,
            "SIGTERM leaves a checkpoint of the very last step": self.terminated,
            "a damaged checkpoint is set aside, and the one before is used": self.damaged,
            "two drivers share the work, and nothing is trained twice": self.shared,
            "all results equal those of an undisturbed run, to the bit": self.equal,
        }

    def trains(self) -> str:
        if self._alone() == 0 and (taken := self._shortest()) < SECONDS:
            self.epochs = math.ceil(self.epochs * SECONDS / taken)
            self._alone()
        return "" if self.started[-1].returncode == 0 else self.command.said()

    def worker_killed(self) -> str:
        self.command = self._command(TWO)
        self._start()
        victim = self._moving({})
        self.nodes.strike(victim)
        after = self._moving({}, lambda attempt: attempt.folder == victim.folder and attempt.number > victim.number)
        return "" if "goes on from step" in _log(after) else f"it started anew: {after.log}"

    def driver_killed(self) -> str:
        before = {attempt.content().get("launch") for attempt in live(self.home)}
        self.started[-1].kill()
        self.started[-1].wait()
        self._start()
        after = self._moving(self._checkpoints(), lambda attempt: attempt.content().get("launch") not in before)
        return "" if "goes on from step" in _log(after) else f"it started anew: {after.log}"

    def terminated(self) -> str:
        self.started[-1].send_signal(signal.SIGTERM)
        code = self.started[-1].wait(PATIENCE)
        if code != INCOMPLETE:
            return f"the driver ended with exit code {code}, not {INCOMPLETE}: {self.command.said()}"
        for folder in self._stopped():
            stands, ended = _step(folder.last_checkpoint), folder.attempts()[-1].ended_after()
            if stands != ended:
                return f"{folder.path}: it ended after step {ended}, its checkpoint is of step {stands}"
        return "" if self._stopped() else "no trial wrote a checkpoint in time; reliability.grace_seconds gives more"

    def damaged(self) -> str:
        folder = self._stopped()[0]
        content = bytearray(folder.last_checkpoint.read_bytes())
        content[len(content) // 2] ^= 1
        folder.last_checkpoint.write_bytes(content)
        number, expected = len(folder.attempts()), _step(folder.previous_checkpoint)
        self.command = self._command(THREE)
        drivers = [self._start(), self._start()]
        for driver in drivers:
            driver.wait(PATIENCE)
        log = _log(folder.attempts()[number])
        wanted = ("set aside as last.corrupt", f"goes on from step {expected:,}")
        return (
            "" if all(words in log for words in wanted) else f"its log says otherwise: {folder.attempts()[number].log}"
        )

    def shared(self) -> str:
        twice = trained_after_done(self.home)
        if twice:
            return f"trained again after it was done: {', '.join(twice)}"
        left = [folder.trial_id for folder in self.home.trials() if not folder.is_done()]
        codes = [driver.returncode for driver in self.started[-2:]]
        if left or not set(codes) <= {0, INCOMPLETE, OTHERS_TRAIN}:
            return f"exit codes {codes}, not done: {', '.join(left) or 'none'}: {self.command.said()}"
        return ""

    def equal(self) -> str:
        return "; ".join(differences(self._cells(), self.undisturbed, self.home))

    def end(self) -> None:
        """Kill all processes that were started."""
        for process in self.started:
            process.kill()
            process.wait()

    def _alone(self) -> int:
        """Train everything undisturbed and without Ray; returns the exit code."""
        self.command = self._command(THREE, "--here", home=self.undisturbed)
        return self._start().wait(PATIENCE)

    def _shortest(self) -> float:
        """Seconds that the shortest undisturbed trial took."""
        done = [self.undisturbed.trial(trial.id).record for trial in trials_of(self._cells())]
        return float(min(record.collect(done, ["train_seconds"]).column(0).to_pylist()))

    def _settings(self, objectives: str) -> list[str]:
        return [*SETTINGS, f"train.epochs={self.epochs}", objectives]

    def _cells(self) -> list[Cell]:
        return expand(load("demo", self._settings(THREE)))

    def _command(self, *words: str, home: Home | None = None) -> Command:
        objectives, *options = words
        settings = [word for setting in self._settings(objectives) for word in ("--set", setting)]
        cluster = ["--address", self.nodes.address] if self.nodes.address and not options else []
        return Command(("demo", *settings, *options, *cluster), home or self.home, self.place / "log.txt")

    def _start(self) -> subprocess.Popen[bytes]:
        self.started.append(self.command.start())
        return self.started[-1]

    def _moving(self, before: dict[str, int], wanted: Callable[[Attempt], bool] = lambda attempt: True) -> Attempt:
        """Wait for a wanted live attempt that has begun, at a trial with a newer checkpoint than in `before`."""

        def look() -> Attempt | None:
            if self.started[-1].poll() is not None:
                raise Unmet(f"the driver ended with exit code {self.started[-1].returncode}")
            now = self._checkpoints()
            for attempt in live(self.home):
                trial = attempt.folder.parent.name
                begun = " from " in _log(attempt)
                if begun and trial in now and now[trial] != before.get(trial) and wanted(attempt):
                    return attempt
            return None

        return wait_for(look, "a trial that moves on", PATIENCE)

    def _checkpoints(self) -> dict[str, int]:
        """Time of the last checkpoint of each trial."""
        found = {}
        for folder in self.home.trials():
            with suppress(FileNotFoundError):  # while a checkpoint is replaced there is none for a moment
                found[folder.trial_id] = folder.last_checkpoint.stat().st_mtime_ns
        return found

    def _stopped(self) -> list[TrialFolder]:
        """Trials whose last attempt ended on request."""
        found = [(folder, folder.latest()) for folder in self.home.trials()]
        return [folder for folder, latest in found if latest and latest.outcome() == Failure.PREEMPTED]


def _log(attempt: Attempt) -> str:
    return attempt.log.read_text(encoding="utf-8") if attempt.log.exists() else ""


def _step(checkpoint: Path) -> int | None:
    """The step of a checkpoint; None without a checkpoint."""
    content = checkpoints.load(checkpoint, torch.device("cpu"))
    return None if content is None else int(content["step"])
