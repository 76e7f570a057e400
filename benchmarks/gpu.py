"""A GPU put to the test, in blocks of which each is useful alone: `python benchmarks/gpu.py`, about 20 minutes.

Each block runs in a process of its own under a time limit; one that fails or takes too long leaves the others alone.
All that they print goes into one JSON file (`--output`, gpu.json); docs/gpu.md says how to send it in. Without a GPU,
blocks that need it say so; `--device cpu --small` runs the others on the CPU, to see that they run: their figures say
nothing.

tests       the tests that are skipped without a GPU
recipes     20 steps of each small recipe: the loss beside the CPU's, and how often a step waits for the GPU
recurrent   a GRU under bfloat16: the format of its states, and its gradient beside float32's
repeat      two equal trainings: how far their weights are apart, which on a GPU need not be 0
resume      a training that was cut off in mid-epoch beside two that were not
failures    a trial beyond its share and a GPU that fails for good, beside two trials that must not notice
replicas    two replicas over gloo on one GPU beside one process
estimate    the estimate of `goalgrid plan --device` beside the real peak of the same steps
objectives  as `objectives.py`, and what they take beyond their inputs
step        the trainer's step beside a step written for speed: fused Adam, clipping, batches pinned and read ahead
evaluation  as `evaluation.py`, both tile sizes
memory      the probe's prediction for one trial, from three steps on the longest captions, beside a whole epoch's peak
tf32        a product and a GRU with TF32 off and on
profile     the operations of the trainer's step that take most time
flickr8k    with `--root DIR`: a small grid on its features, and the hours that `plan --device` says before

Times are between CUDA events, medians, after everything before has ended. The step: VSE++'s heads, a GRU of 1,024 units
and a linear map on 2,048 values of an image, batches of 128.
"""

import argparse
import gc
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import evaluation
import gpu_launches
import measuring
import numpy as np
import torch
from torch import nn

from benchmarks import objectives as cells
from grid import catalog
from grid.expansion import expand, trials_of
from grid.gridfile import load
from grid.objectives.goal_matrix import GOAL
from grid.settings import TrialSettings
from grid.settings.image_encoders import FeatureSettings
from grid.settings.model import ModelSettings
from grid.settings.text_encoders import GruSettings
from grid.store.gpu_needs import MARGIN
from grid.store.home import TrialFolder
from results.records.provenance import environment
from retrieval.data.content import Content
from retrieval.encoders.recurrent import PaddedGru
from retrieval.model import Vse
from retrieval.splits.pairs import WHOLE as ALL
from retrieval.splits.pairs import Pairs, Split
from runners.gpu import memory_probe
from runners.gpu.estimate import Shapes, estimate
from runners.training.inputs import Batch, Inputs, batches, prepare
from runners.training.learner import Learner, objective_of
from runners.training.machine import Machine
from runners.training.optimizers.groups import optimizer
from runners.training.trainer import Trainer


@dataclass(frozen=True)
class Size:
    """What a trial is made of.

    Args:
        hidden: units of the GRU, and dimensions of the embedding.
        batch: pairs.
        word: values of a word vector.
        features: values of an image.
        words: of the vocabulary.
        images: to train on; a tenth as many to validate and to test on.
    """

    hidden: int
    batch: int
    word: int
    features: int = 64
    words: int = 400
    images: int = 400


WHOLE: dict[str, Any] = {
    "batches": (128, 1024, 4096),
    "size": Size(hidden=1024, batch=128, word=300, features=2048, words=10_000, images=4000),
    "images": 5000,
    "steps": 20,
    "rounds": 7,
}
SMALL: dict[str, Any] = {
    "batches": (32,),
    "size": Size(hidden=16, batch=32, word=16, images=100),
    "images": 200,
    "steps": 2,
    "rounds": 2,
}


class Vectors:
    """Random feature vectors as the images of a split."""

    def __init__(self, count: int, width: int) -> None:
        self.values = torch.randn(count, width, generator=torch.Generator().manual_seed(count))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.values.shape[1],)

    def __len__(self) -> int:
        return len(self.values)

    def gather(self, rows: np.ndarray, draw: int | None = None, part: slice = ALL) -> torch.Tensor:
        return self.values[torch.from_numpy(rows[part])]


def split(images: int, size: Size) -> Split:
    """Images with five captions of 6 to 19 random words each."""
    rng = np.random.default_rng(images)
    captions = [
        " ".join(f"w{word}" for word in rng.integers(0, size.words, rng.integers(6, 20))) for _ in range(5 * images)
    ]
    return Split(Vectors(images, size.features), captions, np.repeat(np.arange(images), 5))


def settings_of(size: Size) -> TrialSettings:
    """A trial of this size, of one epoch."""
    image = FeatureSettings(encoder="linear")
    model = ModelSettings(image=image, text=GruSettings(encoder="gru", word_dim=size.word), dim=size.hidden)
    trials = trials_of(expand(load("demo", [f"train.batch_size={size.batch}", "train.epochs=1"])))
    return trials[0].settings.model_copy(update={"model": model})


def inputs_of(size: Size, device: str) -> Inputs:
    """What it reads."""
    settings, pairs = settings_of(size), Pairs(*(split(size.images // part, size) for part in (1, 10, 10)))
    held = Content("random", "random", ())
    return Inputs.prepare(pairs, settings.dataset, settings.model.text, held, Machine(gpu=device == "cuda"))


def one_of(size: Size, device: str) -> tuple[TrialSettings, Inputs]:
    """A trial of this size, and what it reads."""
    return settings_of(size), inputs_of(size, device)


def objective_rows(batch: int, device: str, rounds: int) -> list[str]:
    """Cells beside the hinge; and what they take beyond their inputs."""
    selected = {name: case for name, case in cells.cases(list(GOAL)).items() if not name.startswith("PML")}
    rows = cells.table(batch, cells.measure(selected, batch, device, rounds))
    if device == "cpu":  # there, a fresh process each: `objectives.py` measures it
        return rows
    peer = f"{cells.peak_megabytes(cells.HINGE, batch, device):.1f} MB, {cells.HINGE}"
    used = {name: cells.peak_megabytes(name, batch, device) for name in ("con_con", "sig-ms_cir")}
    return [
        *rows,
        *(measuring.row(f"{name}, {batch}: memory", f"{value:.1f} MB", peer=peer) for name, value in used.items()),
    ]


def reading(settings: TrialSettings, inputs: Inputs) -> Iterator[Batch]:
    """Batch after batch, each read while the one before is learnt from."""
    for epoch in count():
        for _, batch in batches(settings, inputs, epoch).since(0):
            yield batch


def tuned(settings: TrialSettings, inputs: Inputs) -> Callable[[], None]:
    """The next step of one trial, as one would write it for speed."""
    device, read = inputs.device, reading(settings, inputs)
    shape, words = inputs.pairs.train.images.shape, len(inputs.reader)
    model = Vse(settings.model, shape, words, seed=0).to(device).train()
    adam = optimizer(model, objective_of(settings, device), settings.train)

    def step() -> None:
        images, tokens, _ = next(read).on(device)
        loss = cells.hinge(model.embed_images(images), model.embed_texts(*tokens))
        adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.train.clip_norm)
        adam.step()

    return step


def trained(settings: TrialSettings, inputs: Inputs, folder: TrialFolder) -> Callable[[], None]:
    """The next step of the trainer."""
    trainer, read = Trainer(settings, inputs, folder), reading(settings, inputs)
    trainer.model.train()
    return lambda: trainer._step(next(read), 0.0) and None


def cost(make: Callable[[], Callable[[], None]], device: str, steps: int, rounds: int) -> tuple[float, float]:
    """Seconds of a step, median of rounds of so many, and the most megabytes that its tensors take."""
    found: list[float] = []

    def run() -> None:
        step = make()

        def several() -> None:
            for _ in range(steps):
                step()

        several()  # moments, and kernels that are chosen at first
        found.extend(measuring.seconds(several, device) / steps for _ in range(rounds))

    gc.collect()
    peak = measuring.peak_megabytes(run, device)
    return statistics.median(found), peak


def step_rows(size: Size, device: str, steps: int, rounds: int) -> list[str]:
    inputs, settings = inputs_of(size, device), settings_of(size)
    with tempfile.TemporaryDirectory() as name:
        alone, alone_peak = cost(lambda: tuned(settings, inputs), device, steps, rounds)
        ours, ours_peak = cost(lambda: trained(settings, inputs, TrialFolder(Path(name))), device, steps, rounds)
    return [
        measuring.row(
            f"the trainer's step, hidden {size.hidden}, batch {size.batch}",
            f"{1e3 * ours:.2f} ms and {ours_peak:.0f} MB",
            peer=f"{1e3 * alone:.2f} ms and {alone_peak:.0f} MB, a tuned step",
            ratio=f"{ours / alone:.2f}",
        )
    ]


def evaluation_rows(images: int, device: str, rounds: int) -> list[str]:
    image, text = evaluation.embeddings(images, device)
    rows, size = [], f"{images:,} x {evaluation.EACH * images:,}"
    for chunk in (evaluation.CHUNK, 1024):
        times, peak, _ = evaluation.beside_product(image, text, rounds, chunk)
        product, ours = times[evaluation.PRODUCT], times[evaluation.OURS]
        within, what = ours / product, f"{size}, {chunk:,} images at a time"
        goal = chunk == evaluation.CHUNK
        rows.append(
            measuring.row(
                f"ranks, {what}",
                f"{1e3 * ours:.1f} ms and {peak:.0f} MB",
                limit=f"{1e3 * product:.1f} ms, the bare product",
                ratio=f"{within:.2f}",
                goal=f"<= {evaluation.WITHIN}" if goal else "",
                met=within <= evaluation.WITHIN if goal else None,
            )
        )
    return rows


def memory_rows(size: Size, device: str) -> list[str]:
    """The probe's prediction for a trial beside what an epoch of it takes."""
    inputs, settings = inputs_of(size, device), settings_of(size)
    peak_of = memory_probe.peak_of if device == "cuda" else lambda work: 2**20 * measuring.peak_megabytes(work)
    few = memory_probe.longest(inputs, memory_probe.STEPS * size.batch)
    predicted = peak_of(partial(memory_probe.train, memory_probe.heavy(settings), few))
    real = peak_of(partial(memory_probe.train, settings, inputs))
    within = real / max(predicted, 1)
    return [
        measuring.row(
            "memory of a trial",
            f"{predicted / 2**20:.0f} MB, as the probe predicts",
            limit=f"{real / 2**20:.0f} MB, the peak of an epoch and its tests",
            ratio=f"{within:.2f} of it",
            goal=f"<= {MARGIN}",
            met=within <= MARGIN,
        )
    ]


def test_rows() -> list[str]:
    """The last line of the tests that need a GPU."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "tests/runners/gpu", "tests/runners/training"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=measuring.ROOT)
    print(done.stdout)
    return [measuring.row("tests", done.stdout.strip().rpartition("\n")[2], met=done.returncode == 0)]


def recipe_rows(device: str, steps: int) -> list[str]:
    """Each small recipe on the embedded data: its loss on the device and on the CPU, and waits a step."""
    rows = []
    for name in [name for name in catalog.names("recipes") if name.endswith("-tiny") or name.startswith("cnn-")]:
        recipe = catalog.recipe(name)
        if recipe.ensemble or recipe.model.image.view is None:  # the embedded data have images alone
            continue
        settings = trials_of(expand(load("demo", [f'recipes=["{name}"]', "train.batch_size=32"])))[0].settings
        with tempfile.TemporaryDirectory() as folder:
            ours, waits = losses(settings, device, steps, Path(folder))
            peer, _ = losses(settings, "cpu", steps, Path(folder))
        rows.append(measuring.row(name, f"loss {ours:.5g}, {waits:.1f} waits a step", peer=f"loss {peer:.5g}, the CPU"))
    return rows


def losses(settings: TrialSettings, device: str, steps: int, cache: Path) -> tuple[float, float]:
    """The loss after so many steps, and how often a step waited for the GPU."""
    inputs = prepare(settings, Machine(gpu=device == "cuda", features=cache))
    learner, read = Learner(settings, inputs), reading(settings, inputs)
    learner.begin(0)
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        for _ in range(steps):
            measured = learner.gradient(next(read), 0.0)
            learner.optimizer.step()
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("default")
    return float(measured["loss"]), sum("synchroniz" in str(wait.message) for wait in waits) / steps


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


def estimate_rows(size: Size) -> list[str]:
    """Two steps: what the estimate says, and what the allocator of the GPU holds."""
    settings = memory_probe.heavy(settings_of(size))
    shapes = Shapes((size.features,), size.words, 12, 20, 0)
    found = estimate(settings, shapes, {})
    inputs = inputs_of(size, "cuda")
    few = memory_probe.longest(inputs, 2 * size.batch)
    real = memory_probe.peak_of(partial(memory_probe.train, settings, few))
    return [
        measuring.row(
            "estimate of memory",
            f"{found.reserved / 2**20:.0f} MB",
            limit=f"{real / 2**20:.0f} MB, the real peak",
            ratio=f"{found.reserved / real:.2f}",
        )
    ]


def tf32_rows(rounds: int) -> list[str]:
    """A product of 4,096 x 4,096 and a GRU of 1,024 units with TF32 off and on."""
    matrix = torch.randn(4096, 4096, device="cuda")
    gru = PaddedGru(300, 1024).cuda()
    values, lengths = torch.randn(128, 12, 300, device="cuda"), torch.full((128,), 12)
    works = {"product": lambda: matrix @ matrix, "GRU": lambda: gru.last(values, lengths)}
    rows = []
    for name, work in works.items():
        times = []
        for on in (False, True):
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = on
            work()
            times.append(statistics.median(measuring.seconds(work, "cuda") for _ in range(rounds)))
        rows.append(measuring.row(f"{name} in TF32", f"{1e3 * times[1]:.2f} ms", peer=f"{1e3 * times[0]:.2f} ms, off"))
    return rows


def profile_rows(size: Size, device: str, steps: int) -> list[str]:
    """The operations of the trainer's step that take most time."""
    with tempfile.TemporaryDirectory() as name:
        step = trained(settings_of(size), inputs_of(size, device), TrialFolder(Path(name)))
        step()
        kinds = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] * (device == "cuda"))]
        with torch.profiler.profile(activities=kinds) as found:
            for _ in range(steps):
                step()
    print(found.key_averages().table(sort_by=f"self_{device}_time_total", row_limit=20))
    spent = {
        event.key: getattr(event, f"self_{'device' if device == 'cuda' else 'cpu'}_time_total")
        for event in found.key_averages()
    }
    first = sorted(spent, key=spent.__getitem__, reverse=True)[:5]
    return [measuring.row("the step's time", ", ".join(f"{name} {spent[name] / 1e3 / steps:.2f} ms" for name in first))]


@dataclass(frozen=True)
class Block:
    """A part of the benchmark.

    Args:
        rows: measures, by the device and the sizes.
        seconds: its time limit.
        needs_gpu: whether it says nothing on a CPU.
        needs_root: whether it reads Flickr8k.
    """

    rows: Callable[[str, dict[str, Any]], list[str]]
    seconds: int
    needs_gpu: bool = False
    needs_root: bool = False


BLOCKS = {
    "tests": Block(lambda device, chosen: test_rows(), 600, needs_gpu=True),
    "recipes": Block(lambda device, chosen: recipe_rows(device, chosen["steps"]), 300),
    "recurrent": Block(lambda device, chosen: recurrent_rows(device, chosen["size"]), 60),
    "repeat": Block(lambda device, chosen: gpu_launches.repeat_rows(*one_of(chosen["size"], device)), 120),
    "resume": Block(lambda device, chosen: gpu_launches.resume_rows(*one_of(chosen["size"], device)), 180),
    "failures": Block(lambda device, chosen: gpu_launches.failure_rows(device), 300),
    "replicas": Block(lambda device, chosen: gpu_launches.replica_rows(device), 180),
    "estimate": Block(lambda device, chosen: estimate_rows(chosen["size"]), 120, needs_gpu=True),
    "objectives": Block(
        lambda device, chosen: [
            row for batch in chosen["batches"] for row in objective_rows(batch, device, chosen["rounds"])
        ],
        300,
    ),
    "step": Block(lambda device, chosen: step_rows(chosen["size"], device, chosen["steps"], chosen["rounds"]), 180),
    "evaluation": Block(lambda device, chosen: evaluation_rows(chosen["images"], device, chosen["rounds"]), 120),
    "memory": Block(lambda device, chosen: memory_rows(chosen["size"], device), 180),
    "tf32": Block(lambda device, chosen: tf32_rows(chosen["rounds"]), 60, needs_gpu=True),
    "profile": Block(lambda device, chosen: profile_rows(chosen["size"], device, chosen["steps"]), 120),
    "flickr8k": Block(
        lambda device, chosen: gpu_launches.grid_rows(chosen["root"], device, small=chosen["small"]),
        600,
        needs_root=True,
    ),
}


def apart(name: str, device: str, root: Path | None, *, small: bool) -> dict[str, Any]:
    """Run a block in a process of its own; how it ended, its rows and all that it printed."""
    block = BLOCKS[name]
    missing = not torch.cuda.is_available()
    if missing and (block.needs_gpu or device == "cuda"):
        return {"state": "needs a GPU", "seconds": 0.0, "rows": [], "said": ""}
    if block.needs_root and root is None:
        return {"state": "needs --root", "seconds": 0.0, "rows": [], "said": ""}
    command = [sys.executable, __file__, "--block", name, "--device", device, *(["--small"] if small else [])]
    command += ["--root", str(root)] if root else []
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=block.seconds)
        state = "broke off" if process.returncode else "done"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # also what the block has started
        out, err = process.communicate()
        state = f"took more than {block.seconds} s"
    said = out + err[-4000:]
    rows = [line for line in said.splitlines() if line.startswith("| ")]
    return {"state": state, "seconds": time.monotonic() - began, "rows": rows, "said": said}


def main() -> int:
    """Run blocks, print their rows, and write all to one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--only", nargs="+", choices=list(BLOCKS), default=list(BLOCKS), metavar="BLOCK")
    parser.add_argument("--root", type=Path, help="of Flickr8k with features, as docs/flickr8k.md says")
    parser.add_argument("--output", type=Path, default=Path("gpu.json"), help="the file to send in")
    parser.add_argument("--block", choices=list(BLOCKS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.block:
        chosen = {**(SMALL if given.small else WHOLE), "root": given.root, "small": given.small}
        measuring.show(BLOCKS[given.block].rows(given.device, chosen))
        return 0
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    measuring.begin("torch", note=gpu)
    found = dict[str, dict[str, Any]]()
    for name in given.only:
        found[name] = apart(name, given.device, given.root, small=given.small)
        measuring.show(found[name]["rows"])
        print(f"{name}: {found[name]['state']}, {found[name]['seconds']:.0f} s", file=sys.stderr, flush=True)
        about = environment("cuda" if gpu else "cpu", gpu, 1)
        given.output.write_text(json.dumps({"environment": about, "blocks": found}, indent=1), encoding="utf-8")
    return int(any(block["state"] not in ("done", "needs a GPU", "needs --root") for block in found.values()))


if __name__ == "__main__":
    sys.exit(main())
