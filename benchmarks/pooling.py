"""Throughput of every pooling beside mean pooling: `python benchmarks/pooling.py`.

One thread, CPU time; on a GPU the time of its events. 128 images of 36 regions, a linear map from 2,048 to 1,024
values, then the pooling: vectors alone, as in evaluation, and with their gradient. The ratio is the throughput over
that of the mean. The peer is VSE+2AD's #OIPs, items per second over GCN on hardware that the paper does not name
(Table 4); beside our time stands ours over our GCN.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import measuring
import torch
from torch import Tensor, nn

from goalgrid.grid.settings.poolings import PoolingSettings
from goalgrid.results.reference.reading import results_of
from goalgrid.retrieval.encoders.pooling import POOLING, Pooling, pooling

REGIONS, WIDTH, DIM = 36, 2048, 1024
PRINTED = {
    "lip": "LIP", "seq2seq": "Seq2Seq", "gcn": "GCN", "selfattn": "SelfAttn", "adapool": "AdaPool",
    "softmax": "SoftPool", "gpo": "GPO", "kmax": "Manual", "adpool": "ADPOOL",
}  # fmt: skip
"""The paper's names; of Manual the side of the images."""


def pooled(project: nn.Module, pool: Pooling, features: Tensor, present: Tensor, *, learn: bool) -> None:
    """Vectors of all images, or their gradient."""
    with torch.set_grad_enabled(learn):
        vectors = pool(project(features), present)
        if learn:
            vectors.sum().backward()


def main() -> None:
    """Measure and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    features = torch.randn(given.batch, REGIONS, WIDTH, device=given.device)
    present = torch.ones(features.shape[:2], dtype=torch.bool, device=given.device)
    project = nn.Linear(WIDTH, DIM).to(given.device)
    pools = {name: pooling(PoolingSettings(pooling=name), DIM) for name in POOLING if name != "none"}
    for pool in pools.values():
        if isinstance(pool, nn.Module):
            pool.to(given.device)
    note = f"{given.batch} images of {REGIONS} regions, {WIDTH:,} to {DIM:,} values, on {given.device}"
    measuring.begin("torch", note=note)
    told = {(row.model, row.metric): row.value.text for row in results_of("2ad-table4")}
    for what, learn in (("vectors", False), ("gradient", True)):
        for pool in pools.values():
            if isinstance(pool, nn.Module):
                pool.train(learn)
        works = {name: partial(pooled, project, pool, features, present, learn=learn) for name, pool in pools.items()}
        measuring.interleaved(works, 1, given.device)
        times = measuring.interleaved(works, given.rounds, given.device)
        for name, seconds in sorted(times.items(), key=lambda pair: pair[1]):
            printed = told.get((PRINTED.get(name, ""), "oips"), "")
            over = f"; {times['gcn'] / seconds:.1f}x gcn"
            measuring.show(
                [
                    measuring.row(
                        f"{name}: {what}",
                        f"{1e3 * seconds:.0f} ms{over}",
                        peer=f"{printed} gcn, as printed" if printed and not learn else "",
                        ratio=f"{times['mean'] / seconds:.2f}",
                    )
                ]
            )


if __name__ == "__main__":
    main()
