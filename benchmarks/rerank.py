"""How fast X-VLM's fusion encoder ranks candidates anew: `python benchmarks/rerank.py [--device cuda] [--size base]`.

The peer is the published way: for each pair keys and values of the image's tokens are computed again, captions are
padded to 40 tokens, and the last layer computes all tokens. Weights and tokens are random, captions have 8 to 20 tokens
with a mean of 13; a pair costs the same whatever it shows. Both have the same inputs, in float32. Memory is the growth
of the peak resident set on a CPU, in a process of its own, and what tensors take on a GPU.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import numpy as np
import torch

from goalgrid.retrieval.components.xvlm import rerank
from goalgrid.retrieval.components.xvlm.fusion import FusionEncoder
from goalgrid.retrieval.components.xvlm.settings import BertLayersSettings, XvlmFusionSettings

SIZES = {"tiny": (64, 4, 128, 64, 2, 16), "base": (768, 12, 3072, 1024, 6, 144)}
"""Width, heads and MLP of the text layers, width of an image's tokens, fusion layers, tokens of an image."""
PADDED, SHORTEST, LONGEST = 40, 8, 20
BATCH = {"cpu": 32, "cuda": 256}
"""Pairs that the published way takes at a time."""
GOAL = 4.0


class Case:
    """Images and captions by a fusion encoder of this size."""

    def __init__(self, size: str, device: str, images: int, candidates: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        width, heads, hidden, context, layers, cells = SIZES[size]
        text = BertLayersSettings(encoder="bert-layers", width=width, heads=heads, hidden=hidden)
        settings = XvlmFusionSettings(kind="x-vlm", layers=layers)
        self.fusion = FusionEncoder(settings, text, context).to(device).eval()
        self.device, self.count = device, candidates
        self.tokens = torch.randn(images, cells + 1, context, device=device)
        self.lengths = torch.from_numpy(np.random.default_rng(0).binomial(12, 5 / 12, candidates) + SHORTEST)
        self.states = torch.randn(candidates, LONGEST, width, device=device)
        self.pairs = np.arange(images * candidates)

    def ours(self) -> np.ndarray:
        """All pairs, as the evaluation scores them."""
        with torch.inference_mode():
            captions = rerank.PackedStates.of(
                self.fusion, self.lengths, lambda rows: self.states[rows, : int(self.lengths[rows].max())], 512
            )
            return rerank.pair_scores(self.fusion, captions, [self.tokens], self.pairs)

    def peer(self) -> np.ndarray:
        """All pairs, as published."""
        padded = torch.nn.functional.pad(self.states, (0, 0, 0, PADDED - LONGEST))
        found = []
        with torch.inference_mode():
            for part in np.array_split(self.pairs, -(-len(self.pairs) // BATCH[self.device])):
                image, caption = (torch.from_numpy(rows) for rows in np.divmod(part, self.count))
                on = caption.to(self.device)
                found.append(self.fusion(padded[on], self.lengths[caption], self.tokens[image.to(self.device)])[:, 1])
        return torch.cat(found).cpu().numpy()


def memory(size: str, device: str, images: int, candidates: int, name: str) -> float:
    """Megabytes of one way, in a process of its own."""
    case = Case(size, device, images, candidates)
    return measuring.peak_megabytes(getattr(case, name), device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--size", choices=list(SIZES), nargs="*", default=list(SIZES))
    parser.add_argument("--images", type=int, default=0, help="images; 0: 8 of tiny, 2 of base on a CPU, 32 on a GPU")
    parser.add_argument("--candidates", type=int, default=0, help="captions of each; 0: 64 on a CPU, 1,280 on a GPU")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    gpu = asked.device == "cuda"
    measuring.begin("torch", note=torch.cuda.get_device_name() if gpu else "one thread, CPU time")
    for size in asked.size:
        images = asked.images or (32 if gpu else 8 if size == "tiny" else 2)
        given = (size, asked.device, images, asked.candidates or (1280 if gpu else 64))
        case = Case(*given)
        differ = float(np.abs(case.ours() - case.peer()).max())
        times = measuring.interleaved({"ours": case.ours, "peer": case.peer}, asked.rounds, asked.device)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
            ours, peer = (pool.submit(memory, *given, name).result() for name in ("ours", "peer"))
        rates = {name: len(case.pairs) / seconds for name, seconds in times.items()}
        faster = rates["ours"] / rates["peer"]
        goal = f">= {GOAL:g}x, differs <= 1e-5"
        measuring.show(
            [
                measuring.row(
                    f"{size}: pairs a second",
                    f"{rates['ours']:,.0f}",
                    peer=f"{rates['peer']:,.0f}, as published",
                    ratio=f"{faster:.1f}x, differs {differ:.0e}",
                    goal=goal,
                    met=faster >= GOAL and differ <= 1e-5,
                ),
                measuring.row(f"{size}: memory", f"{ours:,.0f} MB", peer=f"{peer:,.0f} MB"),
            ]
        )


if __name__ == "__main__":
    main()
