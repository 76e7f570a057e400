"""Blocks of `gpu.py`: time and memory of objectives, of a step and of an evaluation beside those of peers."""

import gc
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import evaluation
import measuring
import torch
from torch import nn
from torch.nn import functional

from benchmarks import objectives as cells
from benchmarks.gpu_blocks.sample import Size, inputs_of, reading, settings_of, trained
from goalgrid import objectives
from goalgrid.grid.objectives import OURS
from goalgrid.grid.objectives.goal_matrix import GOAL
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.home import TrialFolder
from goalgrid.retrieval.encoders.reasoning import PaddedGru
from goalgrid.retrieval.model import DualEncoder
from goalgrid.runners.training.graphed import Graphs
from goalgrid.runners.training.inputs import Inputs
from goalgrid.runners.training.learner import objective_of
from goalgrid.runners.training.optimizers import optimizer


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


def graph_rows(batch: int, rounds: int) -> list[str]:
    """Every objective of the catalogue, its gradient included: its kernels one by one, and as a CUDA graph."""
    rows = []
    for name in OURS:
        objective, graphs = objectives.build(name).cuda(), Graphs(enabled=True, pairs=batch)
        image, text = (functional.normalize(torch.randn(batch, 256, device="cuda")).requires_grad_() for _ in range(2))
        owners = torch.arange(batch, device="cuda")
        if not graphs.suit(objective, image, text):
            continue
        plain, graphed = partial(objective, image, text, owners), partial(graphs, objective, 0, image, text, owners)
        cases = {"plain": lambda of=plain: several(of), "graphed": lambda of=graphed: several(of)}
        several(plain), several(graphed)
        times = {case: 1e3 * taken / EACH for case, taken in measuring.interleaved(cases, rounds, "cuda").items()}
        ratio = f"{times['graphed'] / times['plain']:.2f}"
        rows.append(measuring.row(name, f"{times['graphed']:.2f} ms", peer=f"{times['plain']:.2f} ms", ratio=ratio))
    return rows


EACH = 10


def several(loss: Callable[[], torch.Tensor]) -> None:
    for _ in range(EACH):
        loss().backward()


def tuned(settings: TrialSettings, inputs: Inputs) -> Callable[[], None]:
    """The next step of one trial, as one would write it for speed."""
    device, read = inputs.device, reading(settings, inputs)
    shape, words = inputs.pairs.train.images.shape, len(inputs.reader)
    model = DualEncoder(settings.model, shape, words, seed=0).to(device).train()
    adam = optimizer(model, objective_of(settings, device), settings.train)

    def step() -> None:
        images, tokens, _ = next(read).on(device)
        loss = cells.hinge(model.embed_images(images), model.embed_texts(*tokens))
        adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.train.clip_norm)
        adam.step()

    return step


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
