"""How long objectives take beside the losses that people use, and how much memory: `python benchmarks/objectives.py`.

Forward and backward, with gradients to both embeddings (d = 1024), every case in turn in one process, median over
rounds. Ratios are to VSE++'s hinge loss written with autograd and dense cost matrices, in the same rounds. Memory is
the growth of the peak resident set over one step, each case in a process of its own (of the allocator on CUDA).

The pairs are synthetic, as early in training: unit vectors that vary in 32 directions, a text is 0.3 of its image and
0.7 of noise, so that positives are near 0.4, other pairs 0 ± 0.18, and most hardest negatives are above the positive.
What pytorch-metric-learning's miner keeps, and so what its loss costs, depends on that. Its losses are other
objectives than the mined triplet: their rows compare costs. Its triplet loss is measured with the miner of the hardest
negatives; without a miner it reads every triplet of the batch.

open_clip's losses are those of its own file, if it is installed (pip install --no-deps open_clip_torch==3.3.0: its
models need torchvision, its losses do not). In all cases numbers too small for a normal float count as zero: CLIP's
gradient has such numbers, and some processors multiply them by microcode. The process keeps freed memory, as one that
trains does (`runners/training/machine.py`): without it, fresh pages for gradients cost a fourth of a small step.

An operation is a call of torch that computes something and is no view. On a GPU each is at least one launch.
"""

import argparse
import importlib.util
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid, normalize
from torch.utils._python_dispatch import TorchDispatchMode

from goalgrid.grid.objectives import LOSSES
from goalgrid.grid.objectives.goal_matrix import GOAL
from goalgrid.grid.resources import Resources
from goalgrid.objectives import build
from goalgrid.runners.training.machine import Machine

Step = Callable[[Tensor, Tensor], Tensor]
DIM = 1024
HINGE = "hinge of VSE++ (autograd)"
PRODUCT = "bare product x y'"
PML_MS, PML_CIRCLE = "PML MultiSimilarity + miner", "PML Circle"
CLIP, SIGLIP = "ClipLoss of open_clip", "SigLipLoss of open_clip"

GOALS: dict[str, dict[int, float]] = {
    "con_con": {128: 0.65, 1024: 0.40, 4096: 0.25, 8192: 0.20},
    "cell": {128: 0.9, 1024: 0.55, 4096: 0.28, 8192: 0.22},
}
"""At most so many times the hinge; `cell` is each of the 15."""
FASTER_THAN_PML = {128: 5.0, 1024: 15.0, 4096: 15.0, 8192: 15.0}
MEMORY_GOAL = 0.10


def hinge(image: Tensor, text: Tensor) -> Tensor:
    """Max violation over dense costs, as VSE++ and VSE-infinity do it."""
    sim = image @ text.T
    positive = sim.diagonal()[:, None]
    of_text = (0.2 + sim - positive.expand_as(sim)).clamp(min=0)
    of_image = (0.2 + sim - positive.T.expand_as(sim)).clamp(min=0)
    mask = torch.eye(len(sim), device=sim.device) > 0.5
    of_text, of_image = of_text.masked_fill(mask, 0), of_image.masked_fill(mask, 0)
    return of_text.max(1)[0].sum() + of_image.max(0)[0].sum()


def product(image: Tensor, text: Tensor) -> Tensor:
    return image.detach() @ text.detach().T


def clip(image: Tensor, text: Tensor) -> Tensor:
    """open_clip's formula of CLIP's loss: two products, two cross-entropies."""
    labels = torch.arange(len(image), device=image.device)
    return (cross_entropy(100 * image @ text.T, labels) + cross_entropy(100 * text @ image.T, labels)) / 2


def siglip(image: Tensor, text: Tensor) -> Tensor:
    """open_clip's formula of SigLIP's loss: a product, a log-sigmoid of every pair."""
    signs = 2 * torch.eye(len(image), device=image.device) - 1
    return -logsigmoid(signs * (10 * image @ text.T - 10)).sum() / len(image)


def open_clip() -> dict[str, Step]:
    """open_clip's own losses, of its file alone; or their formulas, where it is not installed."""
    package = importlib.util.find_spec("open_clip")
    if package is None or package.origin is None:
        return {f"{CLIP}, by its formula": clip, f"{SIGLIP}, by its formula": siglip}
    spec = importlib.util.spec_from_file_location("open_clip_loss", Path(package.origin).with_name("loss.py"))
    assert spec is not None
    assert spec.loader is not None
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    of_clip, of_siglip = theirs.ClipLoss(cache_labels=True), theirs.SigLipLoss()
    return {CLIP: lambda x, y: of_clip(x, y, 100.0), SIGLIP: lambda x, y: of_siglip(x, y, 10.0, -10.0)}


def subnormal_share(batch: int) -> float:
    """The share of CLIP's gradient with respect to the similarities that is too small for a normal float, and not 0."""
    image, text = embeddings(batch, "cpu")
    similarity = (image @ text.T).detach().requires_grad_()
    labels = torch.arange(batch)
    torch.set_flush_denormal(False)
    (cross_entropy(100 * similarity, labels) + cross_entropy(100 * similarity.T, labels)).div(2).backward()
    assert similarity.grad is not None
    size = similarity.grad.abs()
    share = float(((size > 0) & (size < torch.finfo(torch.float32).tiny)).float().mean())
    torch.set_flush_denormal(True)
    return share


def row_loop(image: Tensor, text: Tensor) -> Tensor:
    """sig-ms_cir with dense relative terms and mined negatives scattered row by row, as the released code does it."""
    return _RowLoop.apply(image, text)


class _RowLoop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, image, text):  # type: ignore[no-untyped-def]
        sim = image @ text.T
        positive = sim.diagonal().clone()
        sim.fill_diagonal_(-1)
        to_image, to_text = torch.zeros_like(image), torch.zeros_like(text)
        for scores, x, y, to_x, to_y in (
            (sim, image, text, to_image, to_text),
            (sim.T, text, image, to_text, to_image),
        ):
            negative, index = scores.max(1)
            w_tri = torch.sigmoid(10 * (negative**2 - positive * (2 - positive) + 0.5))
            w_pos, w_neg = _dense_weights(scores, positive, negative, index)
            to_x += (w_tri * w_neg)[:, None] * y[index] - (w_tri * w_pos)[:, None] * y
            to_y -= (w_tri * w_pos)[:, None] * x
            for row, column in enumerate(index.tolist()):
                to_y[column] += w_tri[row] * w_neg[row] * x[row]
        ctx.save_for_backward(to_image, to_text)
        return sim.sum() * 0

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        to_image, to_text = ctx.saved_tensors
        return grad * to_image, grad * to_text


def _dense_weights(scores: Tensor, positive: Tensor, negative: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    others = positive.expand(len(positive), -1).clone()
    others[others > negative[:, None] + 0.1] = 0
    lead = torch.exp(2 * (positive[:, None] - others)) * (others != 0)
    m_pos = lead.sum(1) / (lead != 0).sum(1).clamp(min=1)
    rest = scores.clone()
    rest.scatter_(1, index[:, None], -1)
    rest[rest < positive.min() - 0.1] = 0
    lead = torch.exp(-10 * (negative[:, None] - rest)) * (rest != 0)
    m_neg = lead.sum(1) / (lead != 0).sum(1).clamp(min=1)
    return 1 / (m_pos + torch.exp(2 * (positive - 0.5))), 1 / (m_neg + torch.exp(-10 * (negative - 0.5)))


def metric_learning() -> dict[str, Step]:
    """The cross-modal losses of pytorch-metric-learning, both directions."""
    from pytorch_metric_learning.losses import CircleLoss, MultiSimilarityLoss, TripletMarginLoss
    from pytorch_metric_learning.miners import BatchHardMiner, MultiSimilarityMiner

    def both(loss: Callable, miner: Callable | None = None) -> Step:
        def one(x: Tensor, y: Tensor) -> Tensor:
            labels = torch.arange(len(x), device=x.device)
            # A clone: with one and the same tensor for both, the library takes x and y for one modality, and drops
            # the diagonal, which is every positive.
            mined = miner(x, labels, y, labels.clone()) if miner else None
            return loss(x, labels, mined, y, labels.clone())

        return lambda image, text: one(image, text) + one(text, image)

    return {
        PML_MS: both(MultiSimilarityLoss(), MultiSimilarityMiner()),
        PML_CIRCLE: both(CircleLoss()),
        "PML TripletMargin + BatchHard miner": both(TripletMarginLoss(), BatchHardMiner()),
    }


PLAIN: dict[str, Step] = {
    HINGE: hinge,
    PRODUCT: product,
    **open_clip(),
    "sig-ms_cir by row loop, as released": row_loop,
}


def peers() -> dict[str, Step]:
    try:
        return {**PLAIN, **metric_learning()}
    except ImportError as error:
        print(f"without pytorch-metric-learning: {error}", file=sys.stderr)
        return PLAIN


def cases(names: list[str]) -> dict[str, Step]:
    return {**peers(), **{name: build(name) for name in names}}


def embeddings(batch: int, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    directions = torch.linalg.qr(torch.randn(DIM, 32, generator=generator)).Q.T
    image, noise = (normalize(torch.randn(batch, 32, generator=generator) @ directions, dim=1) for _ in range(2))
    text = normalize(0.3 * image + 0.7 * noise, dim=1)
    return image.to(device).requires_grad_(), text.to(device).requires_grad_()


def step(case: Step, image: Tensor, text: Tensor) -> None:
    image.grad = text.grad = None
    loss = case(image, text)
    if loss.requires_grad:
        loss.backward()


def seconds(case: Step, image: Tensor, text: Tensor) -> float:
    """Of a step: CPU seconds on a CPU, those between two events on a GPU."""
    return measuring.seconds(lambda: step(case, image, text), image.device.type)


def is_slow(name: str, batch: int) -> bool:
    return name.startswith("PML") and batch > 1024


def measure(selected: dict[str, Step], batch: int, device: str, rounds: int) -> dict[str, float]:
    """Median milliseconds of each case, in another order each round. PML in large batches: one cold run.

    Below 2,048 a turn is one step that is not timed and three that are: what ran before leaves caches and an allocator
    that cost as much as a small step. Larger ones are their own warm-up.
    """
    image, text = embeddings(batch, device)
    times: dict[str, list[float]] = {name: [] for name in selected}
    fast = [name for name in selected if not is_slow(name, batch)]
    for name in fast:
        step(selected[name], image, text)
    for turn in range(rounds):
        for name in random.Random(turn).sample(fast, len(fast)):
            taken = [seconds(selected[name], image, text) for _ in range(4 if batch < 2048 else 1)]
            times[name] += taken[1:] or taken
    for name in selected:
        if is_slow(name, batch):
            times[name].append(seconds(selected[name], image, text))
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def peak_megabytes(name: str, batch: int, device: str) -> float:
    """Growth of the peak over one step, with both gradients in it; run in a fresh process."""
    case = PLAIN[name] if name in PLAIN else build(name)
    step(case, *embeddings(64, device))
    image, text = embeddings(batch, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(case, image, text)
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    return measuring.peak_megabytes(lambda: step(case, image, text))


class Operations(TorchDispatchMode):
    """Counts the operations that are no views."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def operations(selected: dict[str, Step]) -> list[str]:
    """Those of a step of each case, beside those of CLIP's loss."""
    counts = dict[str, int]()
    for name, case in selected.items():
        image, text = embeddings(64, "cpu")
        with Operations() as counted:
            step(case, image, text)
        counts[name] = counted.count
    clips = next(name for name in counts if name.startswith(CLIP))
    return [
        measuring.row(f"{name}: operations", str(count), peer=f"{counts[clips]}, {clips}")
        for name, count in counts.items()
        if name not in (clips, PRODUCT)
    ]


def memory(name: str, batch: int, device: str, threads: int) -> float:
    command = [sys.executable, __file__, "--peak-of", name, "--batch", str(batch)]
    command += ["--device", device, "--threads", str(threads)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def table(batch: int, times: dict[str, float]) -> list[str]:
    """Each cell beside the hinge and the product; then each other loss beside the slowest cell."""
    measured = {name: times[name] for name in times if name not in PLAIN and not name.startswith("PML")}
    slowest = max((value for name, value in measured.items() if name in GOAL), default=float("nan"))
    peer, limit = f"{times[HINGE]:.2f} ms, {HINGE}", f"{times[PRODUCT]:.2f} ms, {PRODUCT}"
    rows = []
    for name, value in measured.items():
        ratio = value / times[HINGE]
        asked = GOALS.get(name, GOALS["cell"] if name in GOAL else {}).get(batch)
        goal = "" if asked is None else f"<= {asked:.2f}"
        met = None if asked is None else ratio <= asked
        cost = f"{value:.2f} ms"
        rows.append(
            measuring.row(f"{name}, {batch}", cost, peer=peer, limit=limit, ratio=f"{ratio:.3f}", goal=goal, met=met)
        )
    for name in [name for name in times if name not in measured and name not in (HINGE, PRODUCT)]:
        ratio = times[name] / slowest
        beside = f", {times[name] / times[HINGE]:.2f} of the hinge"
        asked = FASTER_THAN_PML.get(batch) if name in (PML_MS, PML_CIRCLE) else None
        goal = "" if asked is None else f">= {asked:.0f}x"
        met = None if asked is None else ratio >= asked
        what, cost = f"slowest cell, {batch}", f"{slowest:.2f} ms"
        rows.append(
            measuring.row(
                what, cost, peer=f"{times[name]:.2f} ms, {name}{beside}", ratio=f"{ratio:.1f}x", goal=goal, met=met
            )
        )
    return rows


def memory_table(names: list[str], batch: int, device: str, threads: int) -> list[str]:
    """Peaks of these beside the hinge's."""
    hinge = memory(HINGE, batch, device, threads)
    rows = []
    for name in names:
        value = memory(name, batch, device, threads)
        asked = name in GOAL and batch == 8192
        goal, met = (f"<= {MEMORY_GOAL:.2f}", value / hinge <= MEMORY_GOAL) if asked else ("", None)
        cost, peer = f"{value:.0f} MB", f"{hinge:.0f} MB, {HINGE}"
        rows.append(
            measuring.row(f"{name}, {batch}: memory", cost, peer=peer, ratio=f"{value / hinge:.3f}", goal=goal, met=met)
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[128, 1024])
    parser.add_argument(
        "--objectives", nargs="+", default=list(GOAL), help=f"default: GOAL's 15; also {', '.join(LOSSES)}"
    )
    parser.add_argument("--rounds", type=int, help="default: 30 at a batch of 128, 3 from 4,096 on")
    parser.add_argument(
        "--memory", nargs="*", default=["con_con", "sig-ms_cir"], help="objectives whose peak is measured"
    )
    parser.add_argument("--no-pml", action="store_true", help="leave out pytorch-metric-learning, minutes at 8,192")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    if arguments.peak_of:
        print(peak_megabytes(arguments.peak_of, arguments.batch[0], arguments.device))
        return
    Machine(Resources(cpu=arguments.threads)).begin()
    chip = [torch.cuda.get_device_name()] if arguments.device == "cuda" else []
    measuring.begin("torch", note=", ".join([*chip, f"{arguments.threads} thread(s)", f"d = {DIM}"]))
    selected = cases(arguments.objectives)
    selected = {name: case for name, case in selected.items() if not (arguments.no_pml and name.startswith("PML"))}
    measuring.show(operations({name: case for name, case in selected.items() if not name.startswith("PML")}))
    for batch in arguments.batch:
        rounds = arguments.rounds or max(3, min(30, 2**23 // batch**2))
        measuring.show(table(batch, measure(selected, batch, arguments.device, rounds)))
        if arguments.device == "cpu":
            share = f"{subnormal_share(batch):.1%}"
            measuring.show([measuring.row(f"gradient of {CLIP}, {batch}: too small for a normal float", share)])
        if arguments.memory:
            measuring.show(memory_table(arguments.memory, batch, arguments.device, arguments.threads))


if __name__ == "__main__":
    main()
