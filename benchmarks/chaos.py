"""What twenty kills cost: `python benchmarks/chaos.py`.

A grid is trained twice: undisturbed, and on a Ray cluster of three nodes on this machine (a head without CPUs, two
nodes with one each) while workers, drivers and nodes at work are killed with -9 in turn, each when the grid has come to
a random step, and a random moment later. A driver that is gone is started again by the same command, a node by another
one. Then every column of every record, the ranks of every query included, and every table are compared with the
undisturbed run.

Steps are counted exactly: attempts keep theirs in a file (GOALGRID_COUNT_STEPS). The exit code is 1 if anything was
lost, trained twice or came out different, or if a kill cost more steps than lie between two checkpoints.
"""

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ |= {
    "GOALGRID_COUNT_STEPS": "1",
    "PYTHONPATH": os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")])),
    "OMP_NUM_THREADS": "1",
}

import measuring
import psutil
from ray.cluster_utils import Cluster

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.objectives.goal_matrix import GOAL
from goalgrid.grid.store import processes
from goalgrid.grid.store.attempts import Attempt
from goalgrid.grid.store.home import Home, TrialFolder
from goalgrid.results.records.record import differences
from tests.goalgrid.processes import done_at, trained_after_done

EVERY, EPOCHS = 10, 10
"""Steps between two checkpoints; epochs, of 20 steps each, of a trial."""

KINDS = ("worker", "driver", "node")
MOMENT = 0.5
"""Seconds, at most, from the step at which a kill is due to the kill: it may meet an evaluation or a start."""

COMMANDS = 4
"""One may end incomplete, say where a trial was killed three times; given so often without a kill, the grid is lost."""


@dataclass(frozen=True)
class Command:
    """`goalgrid run`, with a grid and options as a user gives them, as often as needed; the log collects its output."""

    words: tuple[str, ...]
    home: Home
    log: Path

    def start(self) -> subprocess.Popen[bytes]:
        """Start the command in its own session, so that a Ctrl-C here does not reach it."""
        command = [sys.executable, "-m", "goalgrid", "run", *self.words]
        command += ["--runs", str(self.home.path), "--mlflow-uri", ""]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def live(home: Home) -> list[Attempt]:
    """Attempts that a process makes now."""
    latest = (folder.latest() for folder in home.trials())
    return [attempt for attempt in latest if attempt and attempt.live()]


def strike(lease: dict[str, Any]) -> bool:
    """Kill -9 the process of this lease if it runs on this machine; returns whether it does."""
    here = lease["machine"] == processes.machine() and processes.started(lease["pid"]) == lease["started"]
    if here:
        os.kill(lease["pid"], signal.SIGKILL)
    return here


@dataclass(frozen=True)
class Cost:
    """What disturbances cost.

    Args:
        attempts: at all trials together.
        steps: trained in all, those that were lost included.
        lost: by each attempt that was cut off, as counted when the next one began.
    """

    attempts: int
    steps: int
    lost: tuple[int, ...]


def cost(trials: Iterable[TrialFolder]) -> Cost:
    """By the exact steps that attempts count where `GOALGRID_COUNT_STEPS` is set."""
    attempts, steps, lost = 0, 0, list[int]()
    for folder in trials:
        found = folder.attempts()
        attempts += len(found)
        spans = [span for attempt in found if (span := counted(attempt))]
        steps += sum(last - first for first, last in spans)
        lost += _lost(spans)
    return Cost(attempts, steps, tuple(lost))


def counted(attempt: Attempt) -> tuple[int, int] | None:
    """From which step it went on and which it reached, exactly; None where nobody asked to count."""
    if not attempt.steps.exists():
        return None
    first, last = map(int, attempt.steps.read_text(encoding="ascii").split() or (0, 0))
    return first, last


def _lost(spans: Sequence[tuple[int, int]]) -> list[int]:
    """Between each attempt and the next: how far that one fell back.

    >>> _lost([(0, 12), (10, 31), (31, 40)])
    [2, 0]
    """
    return [last - first for (_, last), (first, _) in itertools.pairwise(spans)]


def settings(trials: int) -> list[str]:
    """Overrides that make a grid of so many trials, a few seconds each."""
    seeds = next(number for number in (3, 2, 1) if trials % number == 0)
    names = ", ".join(
        f'"{name}"' for name in list(GOAL)[:: len(GOAL) // min(len(GOAL), trials // seeds)][: trials // seeds]
    )
    return [
        'recipes=["cnn-bow"]',
        f"objectives=[{names}]",
        f"seeds={list(range(seeds))}",
        f"train.epochs={EPOCHS}",
        "train.batch_size=250",
        "model.image.size=16",
        f"reliability.checkpoint_steps={EVERY}",
    ]


class Machines:
    """A Ray cluster on this machine, whose nodes can be lost."""

    def __init__(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes = [self.cluster.add_node(num_cpus=1) for _ in range(2)]

    def lose(self, node_id: str) -> None:
        """End a node with all its processes, as a power cut does, and put a new one in its place."""
        node = next(node for node in self.nodes if node.node_id == node_id)
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for process in [raylet, *raylet.children(recursive=True)]:
            process.kill()
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes[self.nodes.index(node)] = self.cluster.add_node(num_cpus=1)

    def __enter__(self) -> "Machines":
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.shutdown()


@dataclass
class Chaos:
    """One grid under kills."""

    command: Command
    machines: Machines
    steps: int
    kills: int
    rng: random.Random
    killed: Counter[str] = field(default_factory=Counter)
    commands: int = 0
    done: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of each trial, by which files it was done when that was first seen."""

    def run(self) -> None:
        """Give the command until the grid is complete, and disturb it meanwhile."""
        due = sorted(self.rng.uniform(0.02, 0.9) * self.steps for _ in range(self.kills))
        kinds, since = itertools.cycle(KINDS), 0
        kind = next(kinds)
        driver = self._start()
        try:
            while (code := driver.poll()) != 0:
                self._note()
                if code is not None:
                    since += 1
                    if since > COMMANDS:
                        return
                    driver = self._start()
                elif due and self._reached() >= due[0] and self._strike(kind, driver):
                    due.pop(0)
                    print(f"{len(due):3} to go: killed a {kind}", file=sys.stderr, flush=True)
                    kind, since = next(kinds), 0
                time.sleep(0.05)
        finally:
            driver.kill()
            driver.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self.commands += 1
        return self.command.start()

    def _strike(self, kind: str, driver: subprocess.Popen[bytes]) -> bool:
        """Kill one of this kind, if there is one that works."""
        time.sleep(self.rng.uniform(0, MOMENT))
        working = live(self.command.home)
        if not working:
            return False
        lease = self.rng.choice(working).content()
        if kind == "driver":
            driver.kill()
            driver.wait()
        elif kind == "node":
            self.machines.lose(lease["node"])
        elif not strike(lease):
            return False
        self.killed[kind] += 1
        return True

    def _reached(self) -> int:
        """Steps that all trials have come to."""
        spans = ([counted(a) for a in folder.attempts()] for folder in self.command.home.trials())
        return sum(max((span[1] for span in each if span), default=0) for each in spans)

    def _note(self) -> None:
        for trial_id, files in done_at(self.command.home).items():
            self.done.setdefault(trial_id, files)

    def twice(self) -> set[str]:
        """Trials that were trained again after they were done."""
        self._note()
        changed = {trial_id for trial_id, files in done_at(self.command.home).items() if files != self.done[trial_id]}
        return changed | set(trained_after_done(self.command.home))


def report(chaos: Chaos, spent: Cost, lost: int, wrong: list[str], seconds: dict[str, float]) -> bool:
    """Print the table; whether all goals are met."""
    kinds = ", ".join(f"{number} {kind}s" for kind, number in chaos.killed.items())
    twice, worst = len(chaos.twice()), max(spent.lost, default=0)
    repeated = spent.steps - chaos.steps
    rows: list[tuple[str, Any, str, bool | None]] = [
        (
            "given",
            f"{sum(chaos.killed.values())}: {kinds}",
            f"{chaos.kills}",
            sum(chaos.killed.values()) == chaos.kills,
        ),
        ("trials lost", lost, "0", lost == 0),
        ("trials trained twice", twice, "0", twice == 0),
        ("values and tables that differ from the undisturbed run", len(wrong), "0", not wrong),
        ("steps lost by one kill, at most", worst, f"<= {EVERY}", worst <= EVERY),
        ("steps lost in all", f"{repeated} of {spent.steps:,} ({100 * repeated / spent.steps:.1f} %)", "", None),
        ("attempts", spent.attempts, "", None),
        ("commands given", chaos.commands, "", None),
        *((f"time, {how}", f"{taken:.0f} s", "", None) for how, taken in seconds.items()),
    ]
    measuring.show(measuring.row(f"kills: {what}", str(found), goal=goal, met=met) for what, found, goal, met in rows)
    print(*wrong[:20], sep="\n")
    return all(met is not False for *_, met in rows)


def main() -> int:
    """Train both ways, compare, and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=45, help="up to 45: objectives of GOAL's matrix by seeds")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the victims")
    parser.add_argument("--folder", type=Path, help="keep everything here; default: a temporary folder")
    given = parser.parse_args()
    overrides = settings(given.trials)
    cells = expand(load("demo", overrides))
    trials = trials_of(cells)
    grid = f"{len(trials)} trials of {EPOCHS * 20} steps, a checkpoint every {EVERY}, seed {given.seed}"
    measuring.begin("torch", "ray", note=grid)
    with tempfile.TemporaryDirectory() as scratch:
        place = given.folder or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        calm, wild = Home(place / "undisturbed"), Home(place / "disturbed")
        words = ("demo", *(word for setting in overrides for word in ("--set", setting)))
        began = time.monotonic()
        code = Command(words, calm, place / "undisturbed.txt").start().wait()
        seconds = {"undisturbed": time.monotonic() - began}
        assert code == 0, (place / "undisturbed.txt").read_text()
        with Machines() as machines:
            began = time.monotonic()
            command = Command((*words, "--address", machines.cluster.address), wild, place / "disturbed.txt")
            chaos = Chaos(command, machines, len(trials) * EPOCHS * 20, given.kills, random.Random(given.seed))
            chaos.run()
            seconds["under kills"] = time.monotonic() - began
        lost = [trial.id for trial in trials if not wild.trial(trial.id).done.exists()]
        spent = cost(wild.trial(trial.id) for trial in trials)
        good = report(chaos, spent, len(lost), differences(cells, calm, wild), seconds)
        if not good:
            print((place / "disturbed.txt").read_text()[-4000:], file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
