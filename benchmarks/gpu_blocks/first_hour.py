"""Blocks of `gpu.py`: what a step takes on this card, how it is fed, how many trials share it, and how it fails.

Models have the architecture of their published weights and random values; batches are made, and stay in pinned memory.
"""

import gc
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import measuring
import numpy as np
import torch
from PIL import Image

from benchmarks.gpu_blocks.sample import reading
from goalgrid.grid.expansion import expand, trials_of
from goalgrid.grid.gridfile import load
from goalgrid.grid.resources import Resources
from goalgrid.grid.settings import TrialSettings
from goalgrid.planning.gpu import untrained
from goalgrid.planning.gpu.footprint import around, estimate
from goalgrid.planning.gpu.shapes_of_data import LONGEST, PIECES, TYPICAL, Shapes
from goalgrid.runners.gpu import architectures
from goalgrid.runners.gpu.architectures import WORDS, expected_image
from goalgrid.runners.gpu.cards import CARDS
from goalgrid.runners.training.inputs import Batch, prepare
from goalgrid.runners.training.learner import Learner
from goalgrid.runners.training.machine import Machine
from goalgrid.runners.trial.run import classify

RECIPES = {
    False: ("fc-gru", "vse-inf-butd", "saf", "vsepp-r152-ft", "xvlm"),
    True: ("fc-gru", "cnn-gru", "saf-tiny", "vsepp-r152-tiny-ft", "xvlm-tiny"),
}
"""By whether the sizes are small: features of images, regions, sets, pixels, and a fusion encoder."""
FORMATS = {"fp32": (), "tf32": ("train.tf32=true",), "bf16": ("train.precision=bf16",)}
SMALLER = ("train.batch_size=8", "model.dim=16")
RECOMPUTED: dict[bool, tuple[tuple[str, tuple[str, ...]], ...]] = {
    False: (
        ("vsepp-r152-ft", ()),
        ("vsepp-r152-ft", ("train.checkpoint_activations=true",)),
        ("vsepp-r152-ft", ("train.micro_batch=16",)),
        ("vse-inf-wsl", ("train.checkpoint_activations=true",)),
        ("vse-inf-wsl", ("train.checkpoint_activations=true", "train.tf32=true")),
        ("vse-inf-wsl", ("train.checkpoint_activations=true", "train.precision=bf16")),
        ("vse-inf-wsl", ("train.micro_batch=32",)),
        ("vse-inf-wsl", ("train.micro_batch=16",)),
    ),
    True: (
        ("vsepp-r152-tiny-ft", ()),
        ("vsepp-r152-tiny-ft", ("train.checkpoint_activations=true", "model.image.norm_eval=true")),
        ("vsepp-r152-tiny-ft", ("train.micro_batch=4", "model.image.norm_eval=true")),
    ),
}
"""What keeps less between the passes, beside what is as it is."""
GROUPED = {False: ((256, 128), (512, 64), (1024, 32), (2048, 16)), True: ((64, 8),)}
"""Channels and sides of a ResNeXt's convolutions of 32 groups, for pictures of 512 pixels."""
CONVOLUTION = {False: "vsepp-r152-ft", True: "cnn-gru"}
PICTURES, SIDES = {False: 2000, True: 24}, {False: (640, 480), True: (96, 72)}
WATCHED_SECONDS = {False: 10.0, True: 1.0}
"""Seconds for which trials that share the card are watched."""


def settings_of(recipe: str, small: bool, *more: str) -> TrialSettings:
    words = (f'recipes=["{recipe}"]', 'datasets=["coco"]', 'objectives=["sig-ms_cir"]', "seeds=[0]")
    side = ("model.image.size=32",) if small and recipe.startswith(("cnn", "vsepp", "xvlm")) else ()
    smaller = tuple(word for word in SMALLER if not (recipe.startswith("xvlm") and "dim" in word)) if small else ()
    return trials_of(expand(load("demo", [*words, *smaller, *side, *more])))[-1].settings


def shapes_of(settings: TrialSettings) -> Shapes:
    """Captions and images as COCO has them."""
    model = settings.model
    words = PIECES if model.text.tokenizer else WORDS["coco"]
    longest = min(LONGEST, model.text.longest(settings.dataset.max_words))
    return Shapes(expected_image(model), words, min(TYPICAL, longest), longest, 1000, 5000)


def learner_of(settings: TrialSettings, shapes: Shapes, device: str) -> Learner:
    """A learner on the device, in an epoch in which all learns that ever does."""
    settings = settings.model_copy(update={"model": architectures.in_architecture(settings.model, {})})
    inputs = replace(untrained.inputs_of(shapes, settings, {}), device=torch.device(device))
    learner = Learner(settings, inputs)
    architectures.as_resnext(learner.model)
    learner.model.to(device)
    learner.take_weights()
    learner.begin(settings.train.epochs - 1)
    learner.model.hold_image_backbone(False)
    return learner


def batch_of(settings: TrialSettings, shapes: Shapes, device: str) -> Batch:
    count = settings.train.batch_size
    pixels = len(shapes.image) == 3
    images = torch.randint(256, (count, *shapes.image)).byte() if pixels else torch.randn(count, *shapes.image)
    lengths = torch.from_numpy(around(shapes.typical, count))
    texts = torch.randint(1, shapes.words, (count, int(lengths.max())))
    batch = Batch(torch.arange(count), images, (texts, lengths))
    return batch.pinned() if device == "cuda" else batch


def step_of(learner: Learner, batch: Batch) -> Callable[[], None]:
    def step() -> None:
        learner.gradient(batch, 0.0)
        learner.optimizer.step()

    return step


def made(recipe: str, device: str, small: bool, *more: str) -> tuple[TrialSettings, Shapes, Callable[[], None]]:
    settings = settings_of(recipe, small, *more)
    shapes = shapes_of(settings)
    return settings, shapes, step_of(learner_of(settings, shapes, device), batch_of(settings, shapes, device))


def seconds_of(step: Callable[[], object], device: str, steps: int, rounds: int) -> float:
    """Seconds of a step, the median of rounds of so many; the first steps, which choose kernels, do not count."""

    def several() -> None:
        for _ in range(steps):
            step()

    several()
    return statistics.median(measuring.seconds(several, device) / steps for _ in range(rounds))


def launches_of(step: Callable[[], object], device: str) -> tuple[int, float]:
    """Kernels of a step, copies included, and the seconds that they take; on a CPU, operations that no other calls."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA if device == "cuda" else activity.CPU]) as traced:
        step()
        _now(device)
    if device == "cuda":
        kernels = [event for event in traced.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        return len(kernels), sum(event.device_time for event in kernels) / 1e6
    return sum(event.name.startswith("aten::") and event.cpu_parent is None for event in traced.events()), 0.0


def card_name() -> str:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return next((name for name, known in CARDS.items() if known.says and known.says in gpu), "h100")


def steps_rows(device: str, steps: int, rounds: int, *, small: bool) -> Iterator[str]:
    """Time, launches and memory of a step of five recipes by number formats, beside what `plan --device` says."""
    for recipe, (name, more) in product(RECIPES[small], FORMATS.items()):
        yield tried_row(f"{recipe} in {name}", recipe, more, device, steps, rounds, small)


def recomputation_rows(device: str, steps: int, *, small: bool) -> Iterator[str]:
    """Time and memory of a step that computes activations again, or embeds a batch in parts, beside the plan's."""
    for recipe, more in RECOMPUTED[small]:
        yield tried_row(" ".join((recipe, *more)), recipe, more, device, steps, 1, small)


def tried_row(what: str, recipe: str, more: Sequence[str], device: str, steps: int, rounds: int, small: bool) -> str:
    """The row of a step, or the class of its failure; memory is counted from here on."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        return step_row(what, made(recipe, device, small, *more), device, steps, rounds)
    except RuntimeError as error:
        return measuring.row(what, f"{classify(error)}: {' '.join(str(error).split())[:80]}")


def step_row(
    what: str, case: tuple[TrialSettings, Shapes, Callable[[], None]], device: str, steps: int, rounds: int
) -> str:
    settings, shapes, step = case
    taken, (launches, busy) = seconds_of(step, device, steps, rounds), launches_of(step, device)
    held = f", busy for {1e3 * busy:.1f} ms, {torch.cuda.max_memory_reserved() / 1e9:.1f} GB" if busy else ""
    planned, card = estimate(settings, shapes, {}), CARDS[card_name()]
    low, high = (1e3 * bound for bound in planned.step.seconds(card, tf32=settings.train.tf32))
    return measuring.row(
        f"{what}: a step of {settings.train.batch_size}",
        f"{1e3 * taken:.1f} ms, {launches:,} launches{held}",
        limit=f"{low:.1f} to {high:.1f} ms, {planned.step.launches:,.0f} launches, {planned.trained / 1e9:.1f} GB, "
        f"the plan for one {card.name}",
        ratio=f"{1e3 * taken / low:.2f} to {1e3 * taken / high:.2f}" if device == "cuda" else "",
    )


def convolutions_rows(device: str, rounds: int, *, small: bool) -> Iterator[str]:
    """Convolutions of 32 groups, batches of 32: forward, and both passes, by number format and order of channels."""
    for (channels, side), name, last in product(GROUPED[small], FORMATS, (False, True)):
        torch.backends.cudnn.allow_tf32 = name == "tf32"
        order = torch.channels_last if last else torch.contiguous_format
        layer = torch.nn.Conv2d(channels, channels, 3, padding=1, groups=32, bias=False)
        values = torch.randn(32, channels, side, side, device=device).contiguous(memory_format=order)
        forward = partial(_convolved, layer.to(device, memory_format=order), values.requires_grad_(), name == "bf16")
        both = partial(_both_passes, forward, [values, *layer.parameters()], torch.randn_like(forward()))
        times = [1e3 * seconds_of(work, device, 1, rounds) for work in (forward, both)]
        counts = [launches_of(work, device)[0] for work in (forward, both)]
        yield measuring.row(
            f"{channels} channels, {side} pixels, {name}{', channels last' * last}",
            "{:.2f} ms forward, {:.2f} ms both passes, {} and {} launches".format(*times, *counts),
        )


def _convolved(layer: torch.nn.Module, values: torch.Tensor, half: bool) -> torch.Tensor:
    with torch.autocast(values.device.type, torch.bfloat16, enabled=half):
        found: torch.Tensor = layer(values)
    return found


def _both_passes(forward: Callable[[], torch.Tensor], weights: list[torch.Tensor], gradient: torch.Tensor) -> None:
    torch.autograd.grad(forward(), weights, gradient)


def layouts_rows(device: str, steps: int, rounds: int, *, small: bool) -> Iterator[str]:
    """A convolution backbone by number format, order of channels, cuDNN's choice of kernels; on GPUs, compiled too."""
    first = 0.0
    ways = ((False, False), (True, False), (False, True)) if device == "cuda" else ((False, False), (False, True))
    for (name, more), last, (compiled, chosen) in product(FORMATS.items(), (False, True), ways):
        torch.backends.cudnn.benchmark = chosen
        settings = settings_of(CONVOLUTION[small], small, f"train.compile={str(compiled).lower()}", *more)
        shapes = shapes_of(settings)
        learner, batch = learner_of(settings, shapes, device), batch_of(settings, shapes, device)
        if last:
            learner.model.to(memory_format=torch.channels_last)
            images = batch.images.contiguous(memory_format=torch.channels_last)
            batch = replace(batch, images=images.pin_memory() if device == "cuda" else images)
        taken = seconds_of(step_of(learner, batch), device, steps, rounds)
        first = first or taken
        words = [name, *["channels last"] * last, *["cudnn.benchmark"] * chosen, *["compiled"] * compiled]
        what = f"{settings.recipe}: {', '.join(words)}"
        yield measuring.row(what, f"{1e3 * taken:.1f} ms a step", ratio=f"{taken / first:.2f}")
    torch.backends.cudnn.benchmark = False


def write_pictures(root: Path, small: bool) -> None:
    """Noisy pictures, as large as photographs, in the layout of Karpathy's files."""
    rng, entries = np.random.default_rng(0), list[dict[str, object]]()
    width, height = SIDES[small]
    (root / "images").mkdir()
    for number in range(PICTURES[small]):
        coarse = Image.fromarray(rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8))
        name = f"{number:05}.jpg"
        coarse.resize((width, height), Image.Resampling.BICUBIC).save(root / "images" / name, quality=90)
        sentences = [
            {
                "tokens": [f"w{number}", f"v{each}"],
                "raw": f"w{number} v{each}",
                "imgid": number,
                "sentid": 5 * number + each,
            }
            for each in range(5)
        ]
        split = ("val", "test")[number % 2] if number < 8 else "train"
        ids = [5 * number + each for each in range(5)]
        entries.append({"filename": name, "split": split, "sentences": sentences, "imgid": number, "sentids": ids})
    (root / "dataset.json").write_text(json.dumps({"images": entries, "dataset": "made"}), encoding="utf-8")


def feeding_rows(device: str, steps: int, *, small: bool) -> Iterator[str]:
    """The share of the time for which steps keep the card busy, by threads that decode pictures."""
    with tempfile.TemporaryDirectory(prefix="goalgrid-pictures-") as name:
        write_pictures(Path(name), small)
        more = (f'data.made.root="{name}"', 'datasets=["made"]', "dataset.min_count=1")
        settings = settings_of(CONVOLUTION[small], small, *more)
        shapes = shapes_of(settings)
        learner = learner_of(settings, shapes, device)
        busy = seconds_of(step_of(learner, batch_of(settings, shapes, device)), device, min(steps, 20), 3)
        for threads in (2, 8, 16):
            machine = Machine(Resources(workers=threads), gpu=device == "cuda", roots=(("made", name),))
            read = reading(settings, prepare(settings, machine))
            began, whole = 0.0, 0.0
            for number in range(steps + 2):
                if number == 2:
                    began = _now(device)
                step_of(learner, next(read))()
            whole = _now(device) - began
            pictures = steps * settings.train.batch_size / whole
            what = f"{settings.recipe}: {threads} threads decode"
            yield measuring.row(what, f"busy for {min(1.0, steps * busy / whole):.0%}, {pictures:,.0f} a second")


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _trial(device: str, small: bool, ready: "multiprocessing.Barrier", counts: "multiprocessing.Queue[int]") -> None:  # type: ignore[valid-type]
    """A process that trains for some seconds, once all are ready; how many steps."""
    torch.set_num_threads(1)
    _, _, step = made(RECIPES[small][0], device, small)
    step()
    ready.wait()
    until, steps = _now(device) + WATCHED_SECONDS[small], 0
    while _now(device) < until:
        step()
        steps += 1
    counts.put(steps)


def packing_rows(device: str, *, small: bool) -> Iterator[str]:
    """Steps a second of all trials that share the card, by their number."""
    alone, context = 0.0, multiprocessing.get_context("spawn")
    for trials in (1, 2) if small else (1, 2, 4, 8):
        ready, counts = context.Barrier(trials), context.Queue()
        processes = [context.Process(target=_trial, args=(device, small, ready, counts)) for _ in range(trials)]
        for process in processes:
            process.start()
        rate = sum(counts.get() for _ in processes) / WATCHED_SECONDS[small]
        for process in processes:
            process.join()
        alone = alone or rate
        what = f"{RECIPES[small][0]}: {trials} trials on the card"
        yield measuring.row(what, f"{rate:,.0f} steps a second in all", ratio=f"{rate / alone:.2f}")


BOUND = 0.05


def _fill(device: str, bound: float) -> list[torch.Tensor]:
    """Take what a process may have of the card but a few megabytes, in ever smaller blocks."""
    if device != "cuda":
        return []
    torch.cuda.set_per_process_memory_fraction(bound)
    blocks, size = list[torch.Tensor](), 2**34
    while size >= 2**21:
        try:
            blocks.append(torch.empty(size, dtype=torch.uint8, device=device))
        except torch.OutOfMemoryError:
            size //= 2
    return blocks


def _convolution(device: str) -> None:
    torch.nn.functional.conv2d(_huge((1, 8), device), torch.ones(8, 8, 3, 3, device=device))


def _gru(device: str) -> None:
    torch.nn.GRU(64, 64).to(device)(_huge((), device).reshape(-1, 1, 1).expand(-1, 2**12, 64))


def _product(device: str) -> None:
    if device == "cuda":  # small: cuBLAS starts, and finds no room for its handle
        torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)
    else:
        _huge((), device).reshape(2**10, -1) @ torch.ones(2**10, 2**30).expand(2**10, -1)


def _huge(shape: Sequence[int], device: str) -> torch.Tensor:
    """A value that looks like far more than any memory holds once it is copied; on a full card, like 1 GB."""
    side = 2**12 if device == "cuda" else 2**20
    return torch.zeros(1, device=device).expand(*shape, side, side)


FAULTS: dict[str, tuple[Callable[[str], None], float]] = {
    f"a convolution under a bound of {BOUND}": (_convolution, BOUND),
    f"a GRU under a bound of {BOUND}": (_gru, BOUND),
    f"cuBLAS's start under a bound of {BOUND}": (_product, BOUND),
    "cuBLAS's start on a full card": (_product, 1.0),
}


def _fault(name: str, device: str, answers: "multiprocessing.Queue[tuple[str, str]]") -> None:
    fault, bound = FAULTS[name]
    blocks = _fill(device, bound)
    try:
        fault(device)
        answers.put(("none", "it went well"))
    except Exception as error:
        answers.put((str(classify(error)), " ".join(str(error).split())))
    del blocks


def errors_rows(device: str) -> Iterator[str]:
    """The class that a lack of memory gets, wherever it shows; each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    for name in FAULTS:
        answers = context.Queue()
        process = context.Process(target=_fault, args=(name, device, answers))
        process.start()
        failure, message = answers.get(timeout=120)
        process.join()
        yield measuring.row(name, failure, peer=message[:100], met=failure in ("out-of-memory", "none"))
