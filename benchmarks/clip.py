"""A grid of CLIP's heads on cached features: `python benchmarks/clip.py`.

The 15 objectives of GOAL with three seeds train the layers of `clip-vit-l14-336`, with its own settings, on features of
768 values: 6,000 images with five captions each, and 1,000 of each other split. The towers are random ones of a single
layer: whatever they give takes the same time to train on. `goalgrid data features` computes the features first; then
steps of the first trial are measured in this process on one thread, whole, and their arithmetic alone (both layers and
the objective, forward and backward), which is the limit; then `goalgrid run` is, from the command to the table.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import numpy as np
from PIL import Image
from step import WARMING, Timed, arithmetic

from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.store.home import TrialFolder
from goalgrid.runners.training.inputs import batches, prepare
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.trainer import Hooks, Preempted, Trainer

WIDTH, EPOCHS = 768, 10
SIZES = {"train": 6000, "val": 1000, "test": 1000}
STEPS, TRIALS = EPOCHS * (5 * SIZES["train"] // 128), 15 * 3
MINUTES = 10
TOWER = (
    f"hidden_size = {WIDTH}, num_hidden_layers = 1, num_attention_heads = 12, intermediate_size = 8, "
    f"projection_dim = {WIDTH}"
)
RECIPE = f"""
extends = "clip-vit-l14-336"
[model.image]
weights = "random"
architecture = {{ model_type = "clip_vision_model", {TOWER}, image_size = 16, patch_size = 16 }}
size = 16
[model.text]
weights = "random"
architecture = {{ model_type = "clip_text_model", {TOWER}, eos_token_id = 3 }}
"""
GRID = """
name = "cached-clip"
datasets = ["random"]
recipes = ["./clip-random.toml"]
objectives = "goal"
seeds = [0, 1, 2]
[data.random]
root = "{root}"
"""


def write(folder: Path) -> str:
    """The grid file in a folder with its recipe and its data: pictures of noise, captions of random words."""
    rng, entries = np.random.default_rng(0), []
    (folder / "data" / "images").mkdir(parents=True)
    for split, count in SIZES.items():
        for number in range(count):
            name = f"{split}{number}.png"
            Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(folder / "data" / "images" / name)
            sentences = [{"raw": " ".join(f"w{word}" for word in rng.integers(0, 400, 5))} for _ in range(5)]
            entries.append({"filename": name, "split": split, "sentences": sentences})
    (folder / "data" / "dataset.json").write_text(json.dumps({"images": entries}))
    (folder / "clip-random.toml").write_text(RECIPE)
    (folder / "cached.toml").write_text(GRID.format(root=folder / "data"))
    return str(folder / "cached.toml")


def given(*words: str) -> tuple[float, float]:
    """Wall time and CPU time of a command and of processes that it waits for, in seconds."""
    used, began = _cpu(), time.monotonic()
    done = subprocess.run([sys.executable, "-m", "goalgrid", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began, _cpu() - used


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def step(grid: str, cache: Path, steps: int = 100) -> tuple[float, float]:
    """CPU seconds of a step of the grid's first trial, and of its arithmetic: medians, both in turn."""
    Machine().begin()
    trial, timed = trials_of(expand(load(grid)))[0], Timed(steps)
    inputs = prepare(trial.settings, Machine(roots=(("random", str(Path(grid).parent / "data")),), features=cache))
    read = cycle([batch for _, batch in islice(batches(trial.settings, inputs, 0).since(0), 10)])
    with tempfile.TemporaryDirectory() as folder, suppress(Preempted):
        hooks = Hooks(begin=timed.begin, beat=timed.beat)
        trainer = Trainer(trial.settings, inputs, TrialFolder(Path(folder)), hooks=hooks)
        timed.work = lambda: arithmetic(trainer, next(read))
        trainer.fit()
    whole, bare = (statistics.median(times[WARMING:]) for times in (timed.whole, timed.bare))
    return whole, bare


def main() -> None:
    """Measure and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-grid", action="store_true", help="features and a step alone")
    no_grid = parser.parse_args().no_grid
    measuring.begin("torch", "ray")
    with tempfile.TemporaryDirectory() as name:
        grid, runs = write(Path(name)), ["--runs", f"{name}/runs"]
        wall, cpu = given("data", "features", grid, *runs)
        what = "features of 8,000 images and 40,000 captions"
        measuring.show([measuring.row(what, f"{wall:.0f} s, {cpu:.0f} s of CPU")])
        whole, bare = step(grid, Path(name) / "runs" / "features")
        limit, ratio = f"{1e3 * bare:.2f} ms, layers and objective", f"{bare / whole:.2f}"
        measuring.show([measuring.row("a step of con_con", f"{1e3 * whole:.2f} ms of CPU", limit=limit, ratio=ratio)])
        if no_grid:
            return
        wall, _ = given("run", grid, "--mlflow-uri", "", *runs)  # Ray's processes are not counted as children
    minutes = bare * TRIALS * STEPS / 60
    what = f"{TRIALS} trials of CLIP's layers on cached features, {EPOCHS} epochs, with their table"
    found = measuring.row(
        what,
        f"{wall / 60:.1f} min",
        limit=f"{minutes:.1f} min of CPU",
        goal=f"<= {MINUTES} min",
        met=wall <= 60 * MINUTES,
    )
    measuring.show([found])


if __name__ == "__main__":
    main()
