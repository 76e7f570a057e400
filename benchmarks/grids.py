"""Whole grids beside the ways in which people run them: `python benchmarks/grids.py [--root DIR]`.

`goalgrid run` of GOAL's matrix with three seeds, 45 trials, from the command to the table: on the embedded scenes
(`demo`), and on Flickr8k's features in DIR, as docs/flickr8k.md says. Beside it the same trainings, files and records
included: by a shell loop, a process a trial, one after the other; as one Ray Tune trial each, two at a time, with
Tune's defaults and with actors that are reused. Of a peer, a sample is run, and its pace from the first trial to the
last holds for the others. Wall time; every process computes in one thread.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measuring
from peers import WORKERS, tune_alone

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load

LOOP, REUSED, DEFAULTS = "a process each", "Ray Tune, actors reused", "Ray Tune's defaults"
GOALS = {"demo": {REUSED: 5.0, DEFAULTS: 40.0}, "flickr8k": {LOOP: 3.0}}


def ours(words: list[str]) -> float:
    """Seconds of the whole grid."""
    with tempfile.TemporaryDirectory() as runs:
        return _seconds([sys.executable, "-m", "goalgrid", "run", *words, "--runs", runs])


def loop(words: list[str], sample: int) -> float:
    """Seconds of all trials, from those of the first ones."""
    trials = trials_of(expand(load(words[0], words[2::2])))
    with tempfile.TemporaryDirectory() as runs:
        each = [
            _seconds(
                [
                    *(sys.executable, "-m", "goalgrid", "run", *words, "--runs", runs, "--here", "--mlflow-uri", ""),
                    *("--only", f"objective={trial.shared.objective.name} seed={trial.seed}"),
                ]
            )
            for trial in trials[:sample]
        ]
    return len(trials) * sum(each) / sample


def _seconds(command: list[str]) -> float:
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr  # 3: of the whole grid, trials are left
    return time.monotonic() - began


def by_tune(words: list[str], root: str, sample: int, *, reuse: bool) -> float:
    """Seconds of all trials as Tune trials, from the start of Ray on and the pace of the first ones."""
    from goalgrid.grid.store.home import Home
    from goalgrid.runners.training.machine import Machine
    from goalgrid.runners.trial.run import run_trial

    began = time.monotonic()
    trials = trials_of(expand(load(words[0], words[2::2])))
    machine = Machine(roots=(("flickr8k", root),) if root else ())
    with tempfile.TemporaryDirectory() as runs:
        home = Home(Path(runs))

        def train(number: int) -> None:
            run_trial(trials[number].settings, home.trial(trials[number].id), lambda event: None, machine)

        ends = tune_alone(train, sample, reuse=reuse)
        assert len(list(home.path.glob("trials/*/done"))) == sample
    pace = (ends[-1] - ends[1]) / (sample - 2)  # two at a time: the second one ends with the first
    return ends[1] - began + pace * (len(trials) - 2)


def compare(name: str, words: list[str], root: str, sample: int) -> list[str]:
    """Rows of one grid."""
    whole, what = ours(words), f"`{name}`, 45 trials of {words[-1].partition('=')[2]} epochs"
    peers = {LOOP: loop(words, sample)}
    for peer, reuse in ((REUSED, "reused"), (DEFAULTS, "defaults")):
        command = [sys.executable, __file__, "--peer", reuse, "--sample", str(2 * sample)]
        done = subprocess.run([*command, "--words", json.dumps(words), "--root", root], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        peers[peer] = float(done.stdout.split()[-1])
    rows = []
    for peer, seconds in peers.items():
        asked, ratio = GOALS[name].get(peer), seconds / whole
        goal, met = (f">= {asked:g}x", ratio >= asked) if asked else ("", None)
        rows.append(
            measuring.row(
                what, f"{whole:.0f} s", peer=f"{seconds:.0f} s, {peer}", ratio=f"{ratio:.1f}x", goal=goal, met=met
            )
        )
    return rows


def main() -> None:
    """Measure and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default="", help="of Flickr8k; without it, the embedded scenes alone")
    parser.add_argument("--epochs", type=int, default=5, help="of a trial")
    parser.add_argument("--sample", type=int, default=4, help="trials of a peer; twice as many of Ray Tune")
    parser.add_argument("--peer", choices=("reused", "defaults"), help=argparse.SUPPRESS)
    parser.add_argument("--words", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer:
        print(by_tune(given.words, given.root, given.sample, reuse=given.peer == "reused"))
        return
    measuring.begin("torch", "ray", note=f"{WORKERS} at a time")
    epochs = ["--set", f"train.epochs={given.epochs}"]
    measuring.show(compare("demo", ["demo", *epochs], "", given.sample))
    if given.root:
        words = ["flickr8k", "--set", "seeds=[0,1,2]", "--set", f'data.flickr8k.root="{given.root}"', *epochs]
        measuring.show(compare("flickr8k", words, given.root, given.sample))


if __name__ == "__main__":
    main()
