"""How long exact ranks take beside the evaluation that people use: `python benchmarks/evaluation.py`.

Both directions, one thread, CPU time, in one process. The limit is the bare product of all images with all texts, in
float32, 256 images at a time into one buffer; it and ours are medians over rounds, the others one run. VSE-infinity's
and VSE++'s evaluation are written as their public code does it, in float64 as theirs: the whole matrix and an argsort
for every query (VSE-infinity), a product of its own and an argsort for every query (VSE++). At full size VSE++'s loop
runs over a sample of the queries, and its time is multiplied: each query costs the same. With a copy of VSE++'s own
file (--vsepp vsepp/evaluation.py), its functions i2t and t2i run in place of that loop. Memory is the growth of the
peak resident set.

Embeddings are random unit vectors, d = 1024, five texts an image, a text 0.3 of its image. Ranks are compared, too.
"""

import argparse
import ast
import os
import sys
from collections.abc import Callable
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import numpy as np
import torch
from torch.nn.functional import normalize

from goalgrid.retrieval.evaluation import Ranks, rank

DIM, EACH, CHUNK = 1024, 5, 256
WITHIN, FASTER_THAN_INFINITY, FASTER_THAN_VSEPP, MEMORY = 1.3, 4.0, 40.0, 150.0
OURS, PRODUCT, INFINITY, VSEPP = "ours", "bare product", "VSE-infinity's evaluation", "VSE++'s evaluation"


def embeddings(images: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    image = normalize(torch.randn(images, DIM, generator=generator), dim=1)
    noise = normalize(torch.randn(EACH * images, DIM, generator=generator), dim=1)
    text = normalize(0.3 * image.repeat_interleave(EACH, dim=0) + 0.7 * noise, dim=1)
    return image.to(device), text.to(device)


def product(image: torch.Tensor, text: torch.Tensor, chunk: int = CHUNK) -> None:
    out = torch.empty(chunk, len(text), device=image.device)
    for block in image.split(chunk):
        torch.mm(block, text.T, out=out[: len(block)])


def infinity(image: np.ndarray, text: np.ndarray) -> Ranks:
    """`lib/evaluation.py`: compute_sim, i2t and t2i."""
    sims = np.matmul(image, text.T)
    i2t, t2i = np.zeros(len(image)), np.zeros(len(text))
    for index in range(len(image)):
        inds = np.argsort(sims[index])[::-1]
        i2t[index] = min(np.where(inds == i)[0][0] for i in range(EACH * index, EACH * index + EACH))
    sims = sims.T
    for index in range(len(image)):
        for i in range(EACH * index, EACH * index + EACH):
            t2i[i] = np.where(np.argsort(sims[i])[::-1] == index)[0][0]
    return Ranks(i2t, t2i)


def vsepp(image: np.ndarray, text: np.ndarray, queries: int) -> Ranks:
    """`evaluation.py`: i2t and t2i; of so many images and their texts."""
    i2t, t2i = [], []
    for index in range(queries):
        inds = np.argsort(np.dot(image[index : index + 1], text.T).flatten())[::-1]
        i2t.append(min(np.where(inds == i)[0][0] for i in range(EACH * index, EACH * index + EACH)))
    for index in range(queries):
        d = np.dot(text[EACH * index : EACH * index + EACH], image.T)
        inds = np.zeros(d.shape)
        for i in range(len(inds)):
            inds[i] = np.argsort(d[i])[::-1]
            t2i.append(np.where(inds[i] == index)[0][0])
    return Ranks(np.array(i2t), np.array(t2i))


def of_file(path: Path) -> Callable[[np.ndarray, np.ndarray, int], Ranks]:
    """The same by the functions of VSE++'s own file, without what it imports for training."""
    functions = [part for part in ast.parse(path.read_text()).body if getattr(part, "name", "") in ("i2t", "t2i")]
    space = {"numpy": np}
    exec(compile(ast.Module(functions, []), str(path), "exec"), space)

    def ranks(image: np.ndarray, text: np.ndarray, queries: int) -> Ranks:
        images = image.repeat(EACH, axis=0)  # they want an image for each text
        return Ranks(*(space[name](images, text, queries, return_ranks=True)[1][0] for name in ("i2t", "t2i")))

    return ranks


def beside_product(
    image: torch.Tensor, text: torch.Tensor, rounds: int, chunk: int = CHUNK
) -> tuple[dict[str, float], float, Ranks]:
    """Seconds of the product and of ours, the megabytes that ours takes, and its ranks."""
    device, owner, found = image.device.type, np.repeat(np.arange(len(image)), EACH), list[Ranks]()
    memory = measuring.peak_megabytes(lambda: found.append(rank(image, text, owner, chunk=chunk)), device)
    cases = {PRODUCT: lambda: product(image, text, chunk), OURS: lambda: rank(image, text, owner, chunk=chunk)}
    return measuring.interleaved(cases, rounds, device), memory, found[0]


def compare(images: int, sample: int, rounds: int, theirs: Callable[[np.ndarray, np.ndarray, int], Ranks]) -> list[str]:
    """Rows of one size.

    Args:
        sample: images that VSE++'s loop is measured on, with their texts.
        theirs: VSE++'s loop.
    """
    image, text = embeddings(images)
    doubles = image.double().numpy(), text.double().numpy()
    found: dict[str, Ranks] = {}

    def keep(name: str, ranks: Ranks) -> None:
        found[name] = ranks

    times, memory, found[OURS] = beside_product(image, text, rounds)
    times[INFINITY] = measuring.cpu_seconds(lambda: keep(INFINITY, infinity(*doubles)))
    share = images / sample
    times[VSEPP] = share * measuring.cpu_seconds(lambda: keep(VSEPP, theirs(*doubles, sample)))
    within = times[OURS] / times[PRODUCT]
    size = f"{images:,} x {EACH * images:,}"
    measured = "" if share == 1 else f", {sample} images' queries times {share:.0f}"
    goals = images >= 5000  # a small product leaves more to the counting
    ours = f"{times[OURS]:.2f} s"
    rows = [
        measuring.row(
            f"ranks, {size}",
            ours,
            limit=f"{times[PRODUCT]:.2f} s, the bare product",
            ratio=f"{within:.2f}",
            goal=f"<= {WITHIN}" if goals else "",
            met=within <= WITHIN if goals else None,
        ),
        measuring.row(f"ranks, {size}: memory", f"{memory:.0f} MB", goal=f"<= {MEMORY:.0f} MB", met=memory <= MEMORY),
    ]
    for name, goal in ((INFINITY, FASTER_THAN_INFINITY), (VSEPP, FASTER_THAN_VSEPP)):
        factor = times[name] / times[OURS]
        rows.append(
            measuring.row(
                f"ranks, {size}",
                ours,
                peer=f"{times[name]:.1f} s, {name}{measured if name == VSEPP else ''}",
                ratio=f"{factor:.1f}x",
                goal=f">= {goal:.0f}x" if goals else "",
                met=factor >= goal if goals else None,
            )
        )
    differ = {
        INFINITY: np.sum(found[OURS].i2t != found[INFINITY].i2t) + np.sum(found[OURS].t2i != found[INFINITY].t2i),
        VSEPP: np.sum(found[OURS].i2t[:sample] != found[VSEPP].i2t)
        + np.sum(found[OURS].t2i[: EACH * sample] != found[VSEPP].t2i),
    }
    said = ", ".join(f"{count} from {name}" for name, count in differ.items())
    return [*rows, measuring.row(f"ranks, {size}: that differ", said)]


def main() -> None:
    """Measure and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sample", type=int, default=100, help="images that VSE++'s loop takes of 5,000")
    parser.add_argument("--vsepp", type=Path, help="VSE++'s own evaluation.py")
    given = parser.parse_args()
    theirs = of_file(given.vsepp) if given.vsepp else vsepp
    torch.set_num_threads(1)
    measuring.begin("torch", "numpy", note=f"1 thread, d = {DIM}")
    measuring.show(compare(1000, 1000, given.rounds, theirs))
    measuring.show(compare(5000, given.sample, given.rounds, theirs))


if __name__ == "__main__":
    main()
