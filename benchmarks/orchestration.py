"""What a trial costs beyond its training: `python benchmarks/orchestration.py`.

Trials as short as real ones can be (a linear map on 8 features of 8 images, one step, one validation, one test) through
`goalgrid run`, two at a time, on a terminal with the live matrix, with attempts, weights and records, and once with
MLflow's mirror; beside trivial trainables through Ray Tune as it comes, and with actors that are reused. All in
processes of their own.

A trial's cost is the time from the first that is finished to the last, divided by how many came between. Of ours, the
same training without any file, in one process and divided by the number of workers, is taken off. Starting, planning
and the table at the end are in the time of the whole command. The exit code is 1 if a goal is missed.
"""

import argparse
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import measuring
import numpy as np
from peers import WORKERS, tune_alone

GOAL_MS, GOAL_START, GOAL_FLAT = 40.0, 12.0, 1.25
"""Milliseconds a trial beyond its training; seconds to the end of the first epoch; most trials against fewest."""

PEERS = {"new for each trial": 8, "used again": 200}
"""Trials through Ray Tune, by how it treats its actors."""

BARE = 300
"""Trials that are trained without files."""


def write_data(folder: Path) -> None:
    """A data set of precomputed features of which one batch is an epoch."""
    rng = np.random.default_rng(0)
    for split, images in (("train", 8), ("dev", 4), ("test", 4)):
        np.save(folder / f"{split}_ims.npy", rng.standard_normal((images, 8)).astype(np.float32))
        captions = [f"a word{image} beside word{number}\n" for image in range(images) for number in range(5)]
        (folder / f"{split}_caps.txt").write_text("".join(captions), encoding="utf-8")


def grid_file(folder: Path, trials: int) -> Path:
    """A grid of so many trials, which differ in their seeds."""
    path = folder / f"{trials}.toml"
    path.write_text(
        f'name = "short-{trials}"\ndatasets = ["short"]\nrecipes = ["fc-bow"]\nobjectives = ["sig-ms_cir"]\n'
        f'seeds = {list(range(trials))}\n[set]\n"train.epochs" = 1\n"model.dim" = 8\n"model.text.word_dim" = 8\n'
        f'[data.short]\nroot = "{folder}"\n[resources]\nconcurrency = {WORKERS}\n',
        encoding="utf-8",
    )
    return path


def bare(path: Path) -> float:
    """Milliseconds of one trial's training and evaluations, without a file."""
    import torch

    from goalgrid.grid.expansion import expand, trials_of
    from goalgrid.grid.gridfile import load
    from goalgrid.grid.store.home import Home, TrialFolder
    from goalgrid.runners.launch.jobs import jobs_for
    from goalgrid.runners.training.inputs import prepare
    from goalgrid.runners.training.progress import Progress
    from goalgrid.runners.training.trainer import Trainer

    class Unwritten(Progress):
        def end_epoch(self, *_: object) -> None:
            self.epoch += 1

    torch.set_num_threads(1)
    grid = load(str(path), [])
    jobs = jobs_for(grid, trials_of(expand(grid))[: BARE + 1], Home(path.parent), gpus=0)
    began = 0.0
    for number, job in enumerate(jobs):
        if number == 1:  # the first one opens the data
            began = time.perf_counter()
        settings, folder = job.trials[0], TrialFolder(path.parent / "nowhere")
        inputs = prepare(settings, job.machine)
        trainer = Trainer(settings, inputs, folder)
        trainer.progress = Unwritten(settings.train, folder, inputs.device, print)
        trainer.fit()
        trainer.evaluate("test")
    return 1000 * (time.perf_counter() - began) / BARE


def trivial_by_tune(trials: int, *, reuse: bool) -> float:
    """Milliseconds of a trivial trainable through Ray Tune."""
    ends = tune_alone(lambda number: None, trials, reuse=reuse)
    return 1000 * (ends[-1] - ends[0]) / (trials - 1)


def measured(*arguments: str) -> float:
    """What this file prints when it is called with these."""
    command = [sys.executable, __file__, *arguments]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def launch(path: Path, runs: Path, *more: str) -> tuple[float, float, float]:
    """`goalgrid run` on a terminal: milliseconds a trial, seconds to the end of the first epoch, seconds in all."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "goalgrid", "run", str(path), "--runs", str(runs), *more]
    began, clock = time.time(), time.monotonic()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    drawn = threading.Thread(target=_drain, args=(ours,))
    drawn.start()
    assert process.wait() == 0, "the launch failed"
    whole = time.monotonic() - clock
    drawn.join()
    os.close(ours)
    done = sorted(path.stat().st_mtime for path in runs.glob("trials/*/done"))
    first = min(path.stat().st_mtime for path in runs.glob("trials/*/history.jsonl"))
    return 1000 * (done[-1] - done[0]) / (len(done) - 1), first - began, whole


def _drain(terminal: int) -> None:
    with suppress(OSError):  # Linux says so that the other side is closed
        while os.read(terminal, 1 << 16):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--no-peers", action="store_true", help="leave out Ray Tune alone")
    parser.add_argument("--peer", choices=list(PEERS), help=argparse.SUPPRESS)
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        print(trivial_by_tune(PEERS[arguments.peer], reuse=arguments.peer == "used again"))
        return
    if arguments.bare:
        print(bare(arguments.bare))
        return
    measuring.begin("torch", "ray", note=f"{WORKERS} workers")
    peers = {} if arguments.no_peers else {peer: measured("--peer", peer) for peer in PEERS}
    raise SystemExit(0 if all(_ours(sorted(arguments.trials), peers)) else 1)


def _ours(sizes: list[int], peers: dict[str, float]) -> list[bool]:
    """Measure and print our launches; which goals are met."""
    met, costs = list[bool](), list[float]()
    with tempfile.TemporaryDirectory(prefix="goalgrid-orchestration-") as name:
        folder = Path(name)
        write_data(folder)
        training = measured("--bare", str(grid_file(folder, BARE + 1))) / WORKERS
        for trials in sizes:
            cost, start, whole = launch(grid_file(folder, trials), folder / f"runs-{trials}", "--mlflow-uri", "")
            costs.append(cost - training)
            met += [costs[-1] <= GOAL_MS, start <= GOAL_START]
            words = {"goal": f"<= {GOAL_MS:g} ms", "limit": f"{training:.1f} ms of training, not counted"}
            what, ours = f"a trial beyond its training, of {trials:,}", f"{costs[-1]:.1f} ms"
            measuring.show([measuring.row(what, ours, **words, met=met[-2])])
            measuring.show(
                measuring.row(
                    what, ours, peer=f"{each:.0f} ms, Ray Tune, processes {how}", ratio=f"{each / costs[-1]:.0f}x"
                )
                for how, each in peers.items()
            )
            measuring.show(
                [
                    measuring.row(
                        f"from the command to the first epoch's end, {trials:,} trials",
                        f"{start:.1f} s",
                        goal=f"<= {GOAL_START:g} s",
                        met=met[-1],
                    ),
                    measuring.row(f"the whole command, {trials:,} trials", f"{whole:.0f} s"),
                ]
            )
        mirrored = launch(grid_file(folder, sizes[0]), folder / "runs-mirrored")[0] - training
        measuring.show([measuring.row(f"the same with MLflow's mirror, of {sizes[0]:,}", f"{mirrored:.1f} ms")])
    if len(sizes) > 1:
        growth = costs[-1] / costs[0]
        met.append(growth <= GOAL_FLAT)
        what = f"a trial of {sizes[-1]:,} against one of {sizes[0]:,}"
        measuring.show([measuring.row(what, "", ratio=f"{growth:.2f}", goal=f"<= {GOAL_FLAT:g}", met=met[-1])])
    return met


if __name__ == "__main__":
    main()
