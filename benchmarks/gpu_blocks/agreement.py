"""Blocks of `gpu.py`: the numbers of a GPU beside a CPU's, and beside those of the same training once more."""

import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path

import measuring
import torch

from benchmarks.gpu_blocks.sample import Size, reading
from goalgrid.grid import catalog
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.resources import Resources
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.retrieval.encoders.reasoning import PaddedGru
from goalgrid.runners.training.inputs import Inputs, prepare
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.training.progress import Cadence
from goalgrid.runners.training.replicas import Replicas
from goalgrid.runners.training.trainer import Hooks, Preempted, Trainer


def rows_of_tests() -> list[str]:
    """The last line of the tests that need a GPU."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "tests/runners/gpu", "tests/goalgrid/planning/gpu"]
    command += ["tests/runners/training"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=measuring.ROOT)
    print(done.stdout)
    return [measuring.row("tests", done.stdout.strip().rpartition("\n")[2], met=done.returncode == 0)]


def recipe_rows(device: str, steps: int) -> list[str]:
    """Each small recipe on the embedded data: first and last loss on the device and on the CPU, and waits a step."""
    rows = []
    for name in [name for name in catalog.names("recipes") if name.endswith("-tiny") or name.startswith("cnn-")]:
        recipe = catalog.recipe(name)
        if recipe.ensemble or recipe.model.image.view is None:  # the embedded data have images alone
            continue
        settings = trials_of(expand(load("demo", [f'recipes=["{name}"]', "train.batch_size=32"])))[0].settings
        if not settings.train.epochs:
            continue
        with tempfile.TemporaryDirectory() as folder:
            ours, waits = losses(settings, device, steps, Path(folder))
            peer, _ = losses(settings, "cpu", steps, Path(folder))
        here, there = (f"loss {found[0]:.6g} to {found[-1]:.5g}" for found in (ours, peer))
        rows.append(measuring.row(name, f"{here}, {waits:.1f} waits a step", peer=f"{there}, the CPU"))
    return rows


def losses(settings: TrialSettings, device: str, steps: int, cache: Path) -> tuple[list[float], float]:
    """The loss of each of so many steps, and how often a step waited for the GPU."""
    inputs = prepare(settings, Machine(gpu=device == "cuda", features=cache))
    learner, read = Learner(settings, inputs), reading(settings, inputs)
    learner.begin(0)
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        measured = list[torch.Tensor]()
        for _ in range(steps):
            measured.append(learner.gradient(next(read), 0.0)["loss"].clone())
            learner.optimizer.step()
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("default")
    return [float(loss) for loss in measured], sum("synchroniz" in str(wait.message) for wait in waits) / steps


def recurrent_rows(device: str, size: Size) -> list[str]:
    """A GRU under bfloat16 beside the same in float32."""
    torch.manual_seed(0)
    gru = PaddedGru(size.word, size.hidden).to(device)
    values, lengths = torch.randn(size.batch, 12, size.word, device=device), torch.full((size.batch,), 12)
    gradients, kinds = list[torch.Tensor](), list[str]()
    for half in (False, True):
        with torch.autocast(device, torch.bfloat16, enabled=half):
            states = gru.last(values, lengths)
        (gradient,) = torch.autograd.grad(states.float().square().sum(), [gru.weight_hh_l0])
        gradients.append(gradient.float())
        kinds.append(str(states.dtype))
    apart = float((gradients[1] - gradients[0]).norm() / gradients[0].norm())
    return [measuring.row("GRU under bf16", f"{kinds[1]}, gradient {apart:.1e} from float32's", peer=kinds[0])]


Weights = dict[str, torch.Tensor]


def difference(one: Weights, other: Weights) -> float:
    """The largest difference between two models' weights."""
    return max(float((one[key] - other[key]).abs().max()) for key in one)


def weights_of(trainer: Trainer) -> Weights:
    return {key: value.float().cpu() for key, value in trainer.model.weights().items()}


def weights_after(settings: TrialSettings, inputs: Inputs, *, cut: bool = False) -> Weights:
    """The weights after a whole training, or after one that is asked to end in the middle of an epoch and goes on."""
    with tempfile.TemporaryDirectory() as name:
        trainer = Trainer(settings, inputs, TrialFolder(Path(name)), cadence=Cadence(steps=1))
        if cut:
            ending = Hooks(beat=lambda step: step == 3)
            with suppress(Preempted):
                Trainer(settings, inputs, TrialFolder(Path(name)), hooks=ending, cadence=Cadence(steps=1)).fit()
        trainer.fit()
        return weights_of(trainer)


def repeat_rows(settings: TrialSettings, inputs: Inputs) -> list[str]:
    """Two equal trainings of an epoch."""
    spread = difference(weights_after(settings, inputs), weights_after(settings, inputs))
    return [measuring.row("two equal trainings", f"weights at most {spread:.1e} apart", limit="0, as on a CPU")]


def resume_rows(settings: TrialSettings, inputs: Inputs) -> list[str]:
    """A training that is cut off in mid-epoch and goes on, beside two that are not cut off."""
    whole, again, cut = (weights_after(settings, inputs, cut=late) for late in (False, False, True))
    ours, spread = difference(whole, cut), difference(whole, again)
    said = f"weights at most {spread:.1e} apart: two that are not cut off"
    return [measuring.row("a resumed training", f"weights at most {ours:.1e} apart", limit=said)]


REPLICATED = {
    "batch norms": ('recipes=["cnn-gru"]',),
    "layer norms": ('recipes=["vsepp-vit-b16-tiny"]', "model.image.frozen=false"),
}
"""Recipes that replicas train. PyTorch's batch norm of pictures on a CPU, channels last, is exact to 2e-4 for 1,000 of
them, since it adds their values one after another; that of replicas is exact to 1e-6, as layer norms are."""
APART = 1e-4
"""How far the first losses may be apart, relatively. Adam makes whole steps of rounding errors, so later ones part."""


def replica_rows(device: str) -> list[str]:
    """An epoch of two replicas that exchange by gloo and share the device, beside one process."""
    rows = []
    for what, overrides in REPLICATED.items():
        small = (*overrides, "train.batch_size=1000", "train.epochs=1", "train.trace_every=1", "seeds=[0]")
        settings = trials_of(expand(load("demo", small)))[0].settings
        (alone, _, before), (both, ends, after) = (replicated(settings, device, count) for count in (1, 2))
        first = abs(both[0] / alone[0] - 1)
        losses = [f"loss {own[0]:.7g} in the first step, {own[-1]:.5g} in the last" for own in (both, alone)]
        rows.append(
            measuring.row(
                f"two replicas over gloo on one device, {what}",
                f"{losses[0]}, {after:.1f} s, left with {ends}",
                peer=f"{losses[1]}, {before:.1f} s, one process",
                ratio=f"first losses {first:.0e} apart",
                goal=f"<= {APART:.0e}",
                met=first <= APART,
            )
        )
    return rows


def replicated(settings: TrialSettings, device: str, count: int) -> tuple[list[float], list[int | None], float]:
    """The losses of the steps of so many replicas, what the others ended with, and seconds."""
    with tempfile.TemporaryDirectory() as name:
        machine = Machine(Resources(replicas=count, exchange="gloo"), gpu=device == "cuda", features=Path(name))
        with Replicas(settings, machine) as replicas:
            trainer = Trainer(settings, prepare(settings, machine), TrialFolder(Path(name)), replicas=replicas)
            began = time.monotonic()
            trainer.fit()
            took = time.monotonic() - began
    ends = [other.process.returncode for other in replicas._others]
    return [row["loss"] for row in trainer.progress.trace.rows()], ends, took
