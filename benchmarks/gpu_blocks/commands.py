"""Blocks of `gpu.py`: whole grids, by goalgrid's own commands, one with failures on purpose."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measuring
import torch

from goalgrid.grid.store.home import Home
from goalgrid.runners.gpu.cards import CARDS

FAULTS = '''
import os
from pathlib import Path

import goalgrid
import torch

def first(name):
    """Whether this is the first process that asks; another process gets False from then on."""
    mark = Path(__file__).parent / name
    if not mark.exists():
        mark.write_text(str(os.getpid()))
    return mark.read_text() == str(os.getpid())


@goalgrid.objective("hungry")
def hungry(t):
    """Takes more than its share of the GPU, once."""
    mark = Path(__file__).parent / "hungry"
    if not mark.exists():
        mark.touch()
        if t.s_pos.is_cuda:
            torch.empty(torch.cuda.get_device_properties(0).total_memory // 2, dtype=torch.uint8, device="cuda")
        raise torch.OutOfMemoryError("CUDA out of memory")
    return t.s_neg - t.s_pos


@goalgrid.objective("sticky")
def sticky(t):
    """Breaks its process's use of the GPU, once: an index that is out of bounds ends in an assertion of the device."""
    if first("sticky"):
        if t.s_pos.is_cuda:
            torch.zeros(1, device="cuda")[torch.tensor([5], device="cuda")].item()
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")
    return t.s_neg - t.s_pos
'''

GRID = """
name = "gpu-f8k"
datasets = ["flickr8k"]
recipes = ["fc-bow", "fc-gru"]
objectives = ["con_con", "sig-ms_cir"]
seeds = [0]

[set]
"""

SHORTER = """
"train.epochs" = 1
"train.batch_size" = 1000
"model.dim" = 32
"model.text.word_dim" = 32
"""
"""So that a CPU trains the grid in minutes."""


def call(*words: str, runs: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "goalgrid", *words, "--runs", str(runs)]
    return subprocess.run(command, capture_output=True, text=True, cwd=measuring.ROOT)


def failure_rows(device: str) -> list[str]:
    """A trial that takes more than its share and a trial whose GPU fails for good, beside two neighbours."""
    expected = {
        "hungry": ["out-of-memory", "done"],
        "sticky": ["device-error", "done"],
        "con": ["done"],
        "sig-ms": ["done"],
    }
    with tempfile.TemporaryDirectory() as name:
        own, runs = Path(name) / "faults.py", Path(name) / "runs"
        own.write_text(FAULTS, encoding="utf-8")
        changed = [
            'objectives=["hungry","sticky","con_con","sig-ms_cir"]', f'uses=["{own}"]', "seeds=[0]", "train.epochs=2",
            'recipes=["cnn-bow"]', "train.batch_size=500", "model.image.size=16", "model.dim=32",
            *(["resources.gpu=0.25"] if device == "cuda" else []),
        ]  # fmt: skip
        words = [word for override in changed for word in ("--set", override)]
        began = time.monotonic()
        done = call("run", "demo", "--jobs", "4", "--mlflow-uri", "", *words, runs=runs)
        took = time.monotonic() - began
        ends = {folder.trial_id.split("_")[2]: folder.attempts() for folder in Home(runs).trials()}
        found = {key: [attempt.outcome() for attempt in attempts] for key, attempts in ends.items()}
    if done.returncode:
        print(done.stderr)
    told = "; ".join(f"{key}: {', '.join(map(str, outcomes))}" for key, outcomes in found.items())
    return [measuring.row(f"four trials, two of them fail once, {took:.0f} s", told, met=found == expected)]


def grid_rows(root: Path, device: str, *, small: bool) -> list[str]:
    """A small grid on Flickr8k's features: what `plan --device` says before, and what `run` takes."""
    gpu = torch.cuda.get_device_name() if device == "cuda" else ""
    card = next((name for name, known in CARDS.items() if known.says and known.says in gpu), "h100")
    with tempfile.TemporaryDirectory() as name:
        grid, runs = Path(name) / "grid.toml", Path(name) / "runs"
        grid.write_text(GRID + (SHORTER if small else '"train.epochs" = 5\n'), encoding="utf-8")
        there = ("--root", f"flickr8k={root}")
        planned = call("plan", str(grid), "--device", card, "--json", *there, runs=runs)
        print(planned.stderr)
        low, high = json.loads(planned.stdout)["device"]["seconds"]
        began = time.monotonic()
        done = call("run", str(grid), "--mlflow-uri", "", *there, runs=runs)
        took = time.monotonic() - began
        table = call("table", "gpu-f8k", runs=runs)
    print(done.stderr, table.stdout, sep="\n")
    said = f"{low:.0f} to {high:.0f} s, the plan for one {card}; starts of processes and reading are not in it"
    return [measuring.row("a grid on Flickr8k", f"{took:.0f} s", limit=said, met=done.returncode == 0)]
