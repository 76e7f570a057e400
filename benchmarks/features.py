"""What the feature cache saves: `python benchmarks/features.py`.

Time: 45 trials (GOAL's matrix, three seeds) of the small VSE++ recipe on the embedded scenes, its frozen backbone
widened to ResNet-18's shape, once with cached features, extraction included, and once with `crops = "online"`, which
runs the backbone at every step as the papers' code does. Both in this process, the same trainer, one epoch a trial.

Memory: trials as processes that read a whole feature file, every row once in random order, through the data set that
training reads; the proportional set size (each shared page counted once over all processes) of three such processes
against one, less what a process holds without any features. A copy a process, as VSE-infinity's loader makes it, is
measured beside it.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import numpy as np
import torch

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.resources import Resources
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.settings.image_encoders import BackboneSettings
from goalgrid.grid.store.home import Home
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.run import run_trial

TIME_GOAL, MEMORY_GOAL = 5.0, 0.05
RESNET18 = {
    "model_type": "resnet",
    "embedding_size": 64,
    "hidden_sizes": [64, 128, 256, 512],
    "depths": [2, 2, 2, 2],
    "layer_type": "basic",
}
ROWS, REGIONS, WIDTH = 3000, 36, 2048
PROCESSES = 3


def settings(crops: int | str, trials: int) -> list[tuple[str, TrialSettings]]:
    """The first trials of the matrix, as (id, settings), with this treatment of the frozen backbone."""
    overrides = [
        'recipes=["vsepp-r152-tiny"]',
        "train.epochs=1",
        "train.batch_size=128",
        f"model.image.crops={crops!r}",
    ]
    found = []
    for trial in trials_of(expand(load("demo", overrides)))[:trials]:
        image = trial.settings.model.image
        assert isinstance(image, BackboneSettings)
        model = trial.settings.model.model_copy(update={"image": image.model_copy(update={"architecture": RESNET18})})
        found.append((trial.id, trial.settings.model_copy(update={"model": model})))
    return found


def seconds(crops: int | str, trials: int, threads: int) -> float:
    """Wall time of all these trials, from an empty runs folder."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        machine = Machine(Resources(cpu=threads), features=home.features)
        started = time.perf_counter()
        for trial_id, one in settings(crops, trials):
            state = run_trial(one, home.trial(trial_id), lambda event: None, machine)
            assert state == "done", home.trial(trial_id).reason()
        return time.perf_counter() - started


READER = """
import gc, sys
sys.path.insert(0, {root!r})
from pathlib import Path
import numpy as np, torch
from goalgrid.retrieval.data import opening
how = {how!r}
if how == "copy":
    array = np.load({folder!r} + "/train_ims.npy")
    total = float(array[::7].astype(np.float32).sum())
elif how == "mapped":
    images = opening.load("own", Path({folder!r}), None).train.images
    for rows in torch.randperm(len(images)).split(128):
        images.gather(rows.numpy())
gc.collect()
print("read", flush=True)
sys.stdin.readline()
print(next(line.split()[1] for line in open("/proc/self/smaps_rollup") if line.startswith("Pss:")), flush=True)
sys.stdin.readline()
"""


def resident(how: str, folder: Path, processes: int) -> float:
    """Proportional set size of this many readers together, in MB, when all have read everything."""
    code = READER.format(root=str(Path(__file__).parent.parent), how=how, folder=str(folder))
    command = [sys.executable, "-c", code]
    readers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    total = 0.0
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "read\n"
    for reader in readers:
        assert reader.stdin is not None
        assert reader.stdout is not None
        print(file=reader.stdin, flush=True)
        total += int(reader.stdout.readline()) / 1024
    for reader in readers:
        reader.communicate("\n")
    return total


def package(folder: Path) -> float:
    """A precomp package as large as a tenth of Flickr30k's; the size of its training features in MB."""
    rng = np.random.default_rng(0)
    for split, rows in (("train", ROWS), ("dev", 2), ("test", 2)):
        np.save(folder / f"{split}_ims.npy", rng.random((rows, REGIONS, WIDTH), dtype=np.float32))
        (folder / f"{split}_caps.txt").write_text("a caption\n" * rows * 5)
    return (folder / "train_ims.npy").stat().st_size / 2**20


def extra(how: str, folder: Path) -> float:
    """What one more reader adds, in MB, beyond a process that reads nothing."""
    bare = (resident("nothing", folder, PROCESSES) - resident("nothing", folder, 1)) / (PROCESSES - 1)
    return (resident(how, folder, PROCESSES) - resident(how, folder, 1)) / (PROCESSES - 1) - bare


def main() -> None:
    """Measure and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=45)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    measuring.begin("torch", note=f"{given.threads} thread(s)")
    cached, online = seconds(4, given.trials, given.threads), seconds("online", given.trials, given.threads)
    ratio = online / cached
    measuring.show(
        [
            measuring.row(
                f"{given.trials} trials with a frozen backbone",
                f"{cached:.1f} s, features cached, extraction included",
                peer=f"{online:.1f} s, the backbone at every step",
                ratio=f"{ratio:.1f}x",
                goal=f">= {TIME_GOAL:g}x" if given.trials >= 45 else "",
                met=ratio >= TIME_GOAL if given.trials >= 45 else None,
            )
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        size = package(Path(folder))
        copy, mapped = extra("copy", Path(folder)), extra("mapped", Path(folder))
    measuring.show(
        [
            measuring.row(
                f"one more trial on {size:.0f} MB of features: memory",
                f"{mapped:.1f} MB, mapped",
                peer=f"{copy:.0f} MB, a copy each",
                ratio=f"{mapped / size:.3f} of the file",
                goal=f"<= {MEMORY_GOAL}",
                met=mapped <= MEMORY_GOAL * size,
            )
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
