"""What the program does on the pretended GPU beside the CPU, as JSON: `rehearsal.py objectives recipe:cnn-gru`.

Each word is a function below, with its arguments after colons. A process of its own: the guard must be loaded before
torch, and stays.
"""

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import loading

loading.load()

import device  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

device.install()
sys.path[0] = str(device.ROOT)

from goalgrid import objectives as losses  # noqa: E402
from goalgrid.grid.expansion import expand, trials_of  # noqa: E402
from goalgrid.grid.gridfile import Grid, load  # noqa: E402
from goalgrid.grid.objectives import OURS  # noqa: E402
from goalgrid.grid.objectives.parameters import VARIANTS  # noqa: E402
from goalgrid.grid.settings import TrialSettings  # noqa: E402
from goalgrid.grid.settings.poolings import PoolingSettings  # noqa: E402
from goalgrid.grid.store.home import Home, TrialFolder  # noqa: E402
from goalgrid.grid.store.saved_grid import save_grid  # noqa: E402
from goalgrid.inspection import evaluated  # noqa: E402
from goalgrid.results.records import record  # noqa: E402
from goalgrid.retrieval.encoders.pooling import POOLING, pooling  # noqa: E402
from goalgrid.runners.gpu import memory_probe  # noqa: E402
from goalgrid.runners.training import checkpoints  # noqa: E402
from goalgrid.runners.training.inputs import Batch, prepare, protocols_of  # noqa: E402
from goalgrid.runners.training.learner import Learner  # noqa: E402
from goalgrid.runners.training.machine import Machine  # noqa: E402
from goalgrid.runners.training.progress import Cadence  # noqa: E402
from goalgrid.runners.training.trainer import Trainer  # noqa: E402
from goalgrid.runners.trial.loaded_model import LoadedModel  # noqa: E402
from goalgrid.runners.trial.loaded_model import settings_of as settings_in  # noqa: E402
from goalgrid.runners.trial.run import run_trial  # noqa: E402
from tests.runners.training.interruptions import Killed, killed_after  # noqa: E402

torch.set_num_threads(1)
warnings.filterwarnings("ignore", "PyTorch was compiled without cuDNN")
SMALL = (
    "train.epochs=2",
    "train.trace_every=1",
    "train.batch_size=250",
    "model.dim=16",
    "seeds=[0]",
    'objectives=["sig-ms_cir"]',
)
FIVE_STEPS = ("train.epochs=1", "train.batch_size=1000", "model.text.word_dim=16", "model.image.channels=4")
"""Of a whole training of `cnn-gru`."""
SHORTER = {"cnn-gru": FIVE_STEPS, "clip-zero-shot-tiny": ("train.epochs=0",)}
PIXELS = {"cnn": 16, "vsepp-r152": 32, "vsepp-vit": 64, "vse-inf-wsl": 32, "vse-2ad-grid": 32, "vse-2ad-patch": 64}
"""Sides of images, by what recipes' names begin with."""


def settings_of(recipe: str, root: str = "", *more: str) -> TrialSettings:
    """A small trial of a recipe, on the embedded data, or on data with features in the folder `root`."""
    return trials_of(expand(grid_of(recipe, root, *more)))[-1].settings


def grid_of(recipe: str, root: str = "", *more: str) -> Grid:
    """The grid of `settings_of`."""
    side = [f"model.image.size={size}" for name, size in PIXELS.items() if recipe.startswith(name)]
    side += ["model.dim=64"] if recipe.startswith("clip-zero-shot") else []  # it has no head
    data = [f'data.few.root="{root}"', 'datasets=["few"]', "train.batch_size=50"] if root else []
    return load("demo", [f'recipes=["{recipe}"]', "name=demo", *SMALL, *side, *data, *more])


def read(value: torch.Tensor) -> float:
    """A number of either device, without a wait that would be counted."""
    return float(value.on_cpu if isinstance(value, device.Cuda) else value)


class Counted(Trainer):
    """A trainer that keeps loss, norm, waits and pageable copies of each of its steps."""

    def _step(self, batch: Batch, passed: float) -> dict[str, torch.Tensor]:
        self.steps = [*getattr(self, "steps", []), {}]
        before = device.waits.copy(), device.pageable.copy()
        measured = super()._step(batch, passed)
        names = ("waits", "pageable")
        for name, then, now in zip(names, before, (device.waits, device.pageable), strict=True):
            self.steps[-1][name] = dict(now - then)
        self.steps[-1] |= {name: read(measured[name]) for name in ("loss", "grad_norm")}
        return measured


def on_both(work: Callable[[Machine, Path], Any]) -> dict[str, Any]:
    """What some work returns on the CPU and on the pretended GPU."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        for kind in ("cpu", "gpu"):
            with ExitStack() as stack:
                if kind == "gpu":
                    stack.enter_context(device.Present())
                found[kind] = work(Machine(gpu=kind == "gpu", features=Path(name) / "features"), Path(name) / kind)
    return found


def objectives() -> dict[str, Any]:
    """Objectives whose value or gradient differs between the two devices, or which wait for the device."""
    torch.manual_seed(0)
    image, text = (torch.nn.functional.normalize(torch.randn(6, 8), dim=1) for _ in range(2))
    owners = torch.tensor([0, 0, 1, 2, 3, 4])
    differ, count = [], 0
    for name in OURS:
        for variant in VARIANTS:
            for warming in (False, True):
                found = []
                for there in (False, True):
                    with ExitStack() as stack:
                        if there:
                            stack.enter_context(device.Present())
                        place = "cuda" if there else "cpu"
                        pair = [part.clone().to(place).requires_grad_() for part in (image, text)]
                        objective = losses.build(name, variant=variant).to(place)
                        objective = objective.with_all_negatives() if warming else objective
                        of_images = owners.to(place)
                        device.waits.clear()
                        value = objective(*pair, of_images)
                        value.backward()
                        waited = dict(device.waits)
                        found.append([part.detach().to("cpu") for part in (value, *(part.grad for part in pair))])
                count += 1
                same = all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found, strict=True))
                if not same or waited:
                    differ.append([name, variant, warming, same, waited])
    return {"count": count, "differ": differ}


def poolings() -> dict[str, Any]:
    """Poolings whose vectors or gradient differ between the two devices, or which wait for the device."""
    present = torch.tensor([[1, 1, 1, 1, 0], [1, 0, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    differ, held = [], torch.randn(3, 5, 8)
    for name in POOLING:
        found = []
        for there in (False, True) if name != "none" else ():
            with ExitStack() as stack:
                if there:
                    stack.enter_context(device.Present())
                place = "cuda" if there else "cpu"
                torch.manual_seed(0)
                made, values = pooling(PoolingSettings(pooling=name), 8), held.clone().to(place).requires_grad_()
                for module in made.to(place).modules() if isinstance(made, torch.nn.Module) else ():
                    for share in ("p", "dropout"):  # which the two devices draw in other ways
                        if isinstance(getattr(module, share, None), float):
                            setattr(module, share, 0.0)
                there_too = present.to(place)
                device.waits.clear()
                vectors = made(values, there_too)
                vectors.square().sum().backward()
                waited = dict(device.waits)
                found.append([part.detach().to("cpu") for part in (vectors, values.grad)])
        same = all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found, strict=True)) if found else True
        if not same or (found and waited):
            differ.append([name, same, waited])
    return {"count": len(POOLING), "differ": differ}


def seeds() -> dict[str, bool]:
    """Whether the GPU's generator is seeded, kept and restored, and draws a training's dropout by the trial's seed."""
    settings = settings_of("cnn-gru", "", *FIVE_STEPS, "train.batch_size=20", "model.text.dropout=0.5")
    with device.Present():
        drawn = []
        for seed in (5, 5, 6):
            checkpoints.seed_all(seed, device.CUDA)
            drawn.append(torch.rand(4, device="cuda").tolist())
        states = checkpoints.random_states(device.CUDA)
        before = torch.rand(4, device="cuda").tolist()
        checkpoints.restore_random_states(states, device.CUDA)
        after = torch.rand(4, device="cuda").tolist()
        inputs, losses = prepare(settings, Machine(gpu=True)), []
        for _ in range(2):
            learner = Learner(settings, inputs)
            _, batch = next(learner.begin(0).since(0))
            losses.append(read(learner.gradient(batch, 0.0)["loss"]))
    return {
        "equal seeds draw alike": drawn[0] == drawn[1],
        "other seeds draw otherwise": drawn[1] != drawn[2],
        "a restored state draws again": before == after,
        "learners draw alike": losses[0] == losses[1],
    }


def recipe(name: str, root: str = "", objective: str = "sig-ms_cir") -> dict[str, Any]:
    """Three steps of its heaviest epochs, validated and tested: metrics, and what each step measured and waited for."""

    def train(machine: Machine, folder: Path) -> dict[str, Any]:
        settings = memory_probe.heavy(settings_of(name, root, f'objectives=["{objective}"]'))
        machine = replace(machine, roots=(("few", root),))
        inputs = memory_probe.longest(prepare(settings, machine), memory_probe.STEPS * settings.train.batch_size)
        folder.mkdir()
        trainer = Counted(settings, inputs, TrialFolder(folder))
        for module in trainer.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0  # which the two devices draw in other ways
        trainer.fit()
        ranks = trainer.by_protocols(protocols_of(settings))
        metrics = {f"{key}/rsum": found.metrics()["rsum"] for key, found in ranks.items()}
        return {"metrics": metrics, "steps": trainer.steps}

    return on_both(train)


def resumed(name: str) -> dict[str, Any]:
    """Weights on the GPU after a training that was cut off in mid-epoch, beside one that was not.

    And the bytes of the GPU that reading both checkpoints of a trained trial takes.
    """
    with tempfile.TemporaryDirectory() as scratch, device.Present():
        settings, machine = settings_of(name, "", *FIVE_STEPS), Machine(gpu=True, features=Path(scratch) / "features")
        inputs, found = prepare(settings, machine), []
        for cut in (False, True):
            folder = Path(scratch) / str(cut)
            folder.mkdir()
            hooks = [killed_after(3)] if cut else []
            for attempt in [*hooks, None]:
                further = {"hooks": attempt} if attempt else {}
                trainer = Trainer(settings, inputs, TrialFolder(folder), cadence=Cadence(steps=1), **further)
                with suppress(Killed):
                    trainer.fit()
            found.append({key: value.on_cpu for key, value in trainer.learner.model.weights().items()})
        trainer = Trainer(settings, inputs, TrialFolder(folder))
        device.Memory.forget_peak()
        before, state = device.Memory.peak, trainer.progress.restore()
        assert state is not None
        assert trainer.progress.selected
        first, second = found
        differ = [key for key in first if not first[key].equal(second[key])]
        return {"differ": differ, "weights": len(first), "restoring": device.Memory.peak - before}


def trial(name: str, folder: str = "") -> dict[str, Any]:
    """A trial to its record, and `goalgrid evaluate --embeddings` of it, beside its best weights on the CPU.

    Args:
        folder: where the runs folders `gpu` and `cpu` stay, in which each device has trained the trial.
    """
    with tempfile.TemporaryDirectory() as scratch:
        grid = grid_of(name, "", *SHORTER.get(name, ("train.epochs=1", "train.batch_size=1000")))
        (planned,) = trials = trials_of(expand(grid))
        for kind in ("cpu", "gpu") if folder else ():
            save_grid(grid, trials, Home(Path(folder) / kind))
        if folder:
            own = Home(Path(folder) / "cpu")
            run_trial(planned.settings, own.trial(planned.id), lambda event: None, Machine(features=own.features))
        home = Home(Path(folder or scratch) / "gpu")
        it, machine = home.trial(planned.id), Machine(gpu=True, features=home.features)
        with device.Present():
            state = run_trial(planned.settings, it, lambda event: None, machine)
            if not it.record.exists():
                return {"state": state, "why": it.reason()}
            again = evaluated.of_trial(planned.id, home, evaluated.EvaluationRequest())
            again.save(home.path / "there.npz")
        noted = json.loads(it.environment.read_text())
        here = (
            LoadedModel.of_trial(it, replace(machine, gpu=False))
            .evaluate("test", settings_in(it, machine.catalog).dataset.protocol)
            .arrays()
        )
        (row,) = record.collect([it.record]).to_pylist()
        program = again.to_dict()
        with np.load(home.path / "there.npz") as there:
            apart = {key: float(np.abs(there[key] - value).max()) for key, value in here.items()}
        return {
            "state": state,
            "device": noted["device"],
            "tf32": [noted["tf32"], torch.backends.cudnn.allow_tf32],
            "metrics": program["metrics"],
            "recorded": {key: row[f"test_{key}"] for key in program["metrics"]},
            "apart": apart,
        }


def probe(name: str) -> dict[str, Any]:
    """What the memory probe measures."""
    with tempfile.TemporaryDirectory() as scratch, device.Present():
        machine = Machine(gpu=True, features=Path(scratch) / "features")
        found = memory_probe.probe(
            {name: settings_of(name, "", *FIVE_STEPS).model_dump_json()}, machine, Home(Path(scratch))
        )
        return {"problem": found.problem, "alone": [need.alone for need in found.needs.values()]}


if __name__ == "__main__":
    for word in sys.argv[1:]:
        claim, *arguments = word.split(":")
        sys.stdout.write(json.dumps([word, globals()[claim](*arguments)]) + "\n")
        sys.stdout.flush()
