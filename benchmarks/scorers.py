"""How long cross-attention scorers take beside the loops of their own code: `python benchmarks/scorers.py`.

One thread, CPU time, same weights and inputs: random unit vectors, 36 regions an image, captions of 8 to 17 words, or
of more by `--words 12 30`. The peer is the published loop over captions, each with all images, written again in
`tests/retrieval/literal_scorers.py`.
A step is scores, objective and backward pass: of hardest negatives (Triplet-HN) and of all negatives (InfoNCE).
Evaluation is a sample of the 1,000 x 5,000 scores; each pair costs the same. Memory is the growth of the peak resident
set in a process of its own. The limit is the time of our matrix products alone, at the rate of a product of 4,096 x
1,024 by 1,024 x 256: of one forward pass in evaluation, of three in a step on all negatives. `--products` says instead
how long each work takes beside its own matrix products in their own shapes, by torch's profiler.
"""

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import torch
from torch import Tensor
from torch.nn.functional import normalize

from goalgrid import objectives
from goalgrid.grid.settings import components
from goalgrid.grid.settings.scorers import BfanSettings, SafSettings, ScanSettings, ScorerSettings, SgrSettings
from goalgrid.retrieval.scorers.sets import TokenSets
from tests.retrieval import literal_scorers

REGIONS, DIM = 36, 1024
WORDS = 8, 17
"""Of the shortest and the longest caption."""
CASES: dict[str, tuple[ScorerSettings, float, float]] = {
    "scan t2i": (ScanSettings(kind="scan", direction="t2i", sharpness=9), 20, 8),
    "scan i2t, LSE": (ScanSettings(kind="scan", direction="i2t", sharpness=4, pooling="lse", lse_sharpness=5), 20, 8),
    "bfan equal": (BfanSettings(kind="bfan", focal="equal"), 20, 8),
    "bfan prob": (BfanSettings(kind="bfan", focal="prob"), 20, 8),
    "sgr": (SgrSettings(kind="sgr", dropout=0.0), 3, 8),
    "saf": (SafSettings(kind="saf", dropout=0.0), 1.3, 8),
}
"""Settings, and how many times faster a step is to be: of hardest negatives, and of all negatives."""
EVALUATION = 8
MEMORY = 0.2


class Case:
    """A scorer with inputs, in our form and in the published one."""

    def __init__(self, name: str, batch: int, words: tuple[int, int], *, training: bool = True) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.settings = CASES[name][0]
        self.scorer = components.loaded(self.settings.network)(self.settings, REGIONS, DIM).train(training)
        shortest, longest = words
        self.lengths = torch.randint(shortest, longest + 1, (batch,))
        self.images = normalize(torch.randn(batch, REGIONS, DIM), dim=2).requires_grad_(training)
        vectors = normalize(torch.randn(batch, longest, DIM), dim=2)
        vectors *= (torch.arange(longest) < self.lengths[:, None])[..., None]
        self.words = vectors.requires_grad_(training)

    def sets(self) -> tuple[TokenSets, TokenSets]:
        images = TokenSets(self.images, torch.full((len(self.images),), REGIONS))
        return self.scorer.image_whole(images), self.scorer.text_whole(TokenSets(self.words, self.lengths))

    def ours(self) -> Tensor:
        return self.scorer(*self.sets())

    def theirs(self) -> Tensor:
        captions = [self.words[row, :length] for row, length in enumerate(self.lengths.tolist())]
        if isinstance(self.settings, SgrSettings | SafSettings):
            return literal_scorers.sgraf(self.scorer, self.images, captions)
        work = literal_scorers.WORK[type(self.settings)]
        return torch.stack([work(self.images, caption[None], self.settings) for caption in captions], 1)

    def step(self, objective: str, *, literal: bool) -> Tensor:
        """The gradient of the objective with respect to all vectors, in one."""
        goal = objectives.build(objective)
        if literal:
            loss = goal.from_similarity(self.theirs())
        else:
            images, texts = self.sets()
            few = goal.learns_from_few and self.scorer.by_pair
            with torch.set_grad_enabled(not few):
                scores = self.scorer(images, texts)
            loss = goal.from_similarity(scores, rescore=partial(self.scorer.pairs, images, texts) if few else None)
        found = torch.autograd.grad(loss, [self.images, self.words])
        return torch.cat([part.flatten() for part in found])


def rate() -> float:
    """Multiplications a second of a large matrix product on this thread."""
    a, b = torch.randn(4096, 1024), torch.randn(1024, 256)
    seconds = measuring.interleaved({"product": lambda: a @ b}, 5)["product"]
    return 4096 * 1024 * 256 / seconds


def multiplications(settings: ScorerSettings, length: int) -> float:
    """Of our matrix products for the score of an image by a caption of so many words."""
    dots, gram = REGIONS * length * DIM, REGIONS * (REGIONS + length) * length
    if not isinstance(settings, SgrSettings | SafSettings):
        return dots + gram
    nodes, width = length + 1, settings.width
    given = 2 * dots + gram + nodes * DIM * width
    if isinstance(settings, SafSettings):
        return given
    read = nodes * (settings.steps - 1) + 1  # of the last step the first node alone
    return given + 2 * read * width * (width + nodes)


def limit(case: Case, pairs: float, passes: int) -> str:
    """The time of the matrix products of so many pairs, of the lengths of the case."""
    each = sum(multiplications(case.settings, length) for length in case.lengths.tolist()) / len(case.lengths)
    return f"{passes * pairs * each / rate():.{0 if pairs > 1e6 else 2}f} s"


def memory(name: str, batch: int, words: tuple[int, int], objective: str, literal: bool) -> float:
    """Megabytes that a step takes at its peak; call it in a process of its own."""
    case = Case(name, batch, words)
    Case(name, 4, words).step(objective, literal=literal)
    return measuring.peak_megabytes(lambda: case.step(objective, literal=literal))


def apart(work: Callable[..., float], *given: object) -> float:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


def steps(name: str, batch: int, rounds: int, words: tuple[int, int]) -> list[str]:
    """A row for each objective, of time and of memory."""
    rows, case = list[str](), Case(name, batch, words)
    _, few, every = CASES[name]
    with torch.no_grad():
        case.scorer.eval()
        ours, theirs = case.ours(), case.theirs()
        case.scorer.train()
    differ = float((ours - theirs).abs().max() / theirs.abs().max())
    rows.append(
        measuring.row(f"{name}: scores differ", f"{differ:.0e} of the largest", goal="<= 1e-06", met=differ <= 1e-6)
    )
    for objective, goal in (("triplet-hn", few), ("infonce", every)):
        Case(name, 4, words).step(objective, literal=False)
        cases = {
            "ours": partial(case.step, objective, literal=False),
            "theirs": partial(case.step, objective, literal=True),
        }
        times = measuring.interleaved(cases, rounds)
        ratio = times["theirs"] / times["ours"]
        what = f"{name}: step of {batch} pairs, {objective}"
        rows.append(
            measuring.row(
                what,
                f"{times['ours']:.2f} s",
                peer=f"{times['theirs']:.2f} s, its own loop",
                limit="" if objective == "triplet-hn" else limit(case, batch**2, 3),
                ratio=f"{ratio:.1f}x",
                goal=f">= {goal}x",
                met=ratio >= goal,
            )
        )
        if objective == "triplet-hn":
            held = [apart(memory, name, batch, words, objective, literal) for literal in (False, True)]
            share = held[0] / held[1]
            goals = not name.startswith("s") or name.startswith("scan")
            rows.append(
                measuring.row(
                    f"{what}: memory",
                    f"{held[0]:.0f} MB",
                    peer=f"{held[1]:.0f} MB",
                    ratio=f"{share:.2f}",
                    goal=f"<= {MEMORY}" if goals else "",
                    met=share <= MEMORY if goals else None,
                )
            )
    return rows


def evaluation(name: str, batch: int, rounds: int, words: tuple[int, int]) -> str:
    """A row of scores without a graph, times what 1,000 x 5,000 are of the sample."""
    case, share = Case(name, batch, words, training=False), 1000 * 5000 / batch**2
    with torch.inference_mode():
        cases = {"ours": case.ours, "theirs": case.theirs}
        times = measuring.interleaved(cases, rounds)
    ratio = times["theirs"] / times["ours"]
    return measuring.row(
        f"{name}: evaluation of 1,000 x 5,000, from {batch} x {batch}",
        f"{share * times['ours']:.0f} s",
        peer=f"{share * times['theirs']:.0f} s, its own loop",
        limit=limit(case, 1000 * 5000, 1),
        ratio=f"{ratio:.1f}x",
        goal=f">= {EVALUATION}x",
        met=ratio >= EVALUATION,
    )


PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}


def beside_products(name: str, batch: int, words: tuple[int, int]) -> list[str]:
    """A row for each work: its time, that of its own matrix products, and the next two operations."""
    evaluated, trained = Case(name, batch, words, training=False), Case(name, batch, words)
    works = {"evaluation": torch.inference_mode()(evaluated.ours)}
    works |= {objective: partial(trained.step, objective, literal=False) for objective in ("triplet-hn", "infonce")}
    rows = list[str]()
    for what, work in works.items():
        work()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            work()
        seconds = {event.key: event.self_cpu_time_total / 1e6 for event in profile.key_averages()}
        products, total = sum(seconds.pop(key, 0.0) for key in PRODUCTS), sum(seconds.values())
        longest = sorted(seconds, key=seconds.__getitem__)[:-3:-1]
        further = ", ".join(f"{seconds[key]:.2f} {key.removeprefix('aten::')}" for key in longest)
        ours = f"{products + total:.2f} s, of which {further}"
        ratio = f"{(products + total) / products:.2f}"
        label = f"{name}: {what} of {batch} x {batch}"
        rows.append(measuring.row(label, ours, limit=f"{products:.2f} s, its own products", ratio=ratio))
    return rows


def main() -> None:
    """Measure and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, nargs=2, default=WORDS, help="of the shortest and the longest caption")
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--products", action="store_true", help="ours beside its own matrix products")
    given = parser.parse_args()
    torch.set_num_threads(1)
    words = given.words[0], given.words[1]
    measuring.begin("torch", note=f"1 thread, d = {DIM}, {REGIONS} regions, captions of {words[0]} to {words[1]} words")
    for name in given.only:
        if given.products:
            measuring.show(beside_products(name, given.batch, words))
            continue
        measuring.show(steps(name, given.batch, given.rounds, words))
        measuring.show([evaluation(name, given.batch, given.rounds, words)])


if __name__ == "__main__":
    main()
