"""Kendall's tau in `goalgrid claims`, simulated: how often its test errs, and why there is no interval beside it.

    python benchmarks/claims.py [--draws 4000]

Two blocks order 15 cells by means over a few seeds, rounded to 0.1 as papers print them. True means lie evenly over 3
points; errors are normal, with a standard deviation of 0.5 points, or as GOAL Table 3 prints the 15 cells of its first
block, the same in both blocks. **Unrelated**: the order of the true means in one block says nothing about the other's.
**No order**: all true means are equal. **Same order**: the true means are the same in both blocks, so that the true tau
is 1. The interval in the last rows is sure to hold the true tau: it spans the taus of all orders in which no pair of
cells contradicts the intervals of all pairs of both blocks at once. A goal counts as met within two standard errors of
the simulation.
"""

import argparse
from collections.abc import Iterator

import measuring
import numpy as np
from numpy.typing import NDArray
from seeds import CELLS, EQUAL, kept, spreads

from goalgrid.results.statistics.pairs import half_widths
from goalgrid.results.statistics.significance import LEVEL, kendall, kendall_p

Array = NDArray[np.float64]
MEANS = np.linspace(0.0, 3.0, CELLS)


def drawn(truth: str, errors: Array, n: int, generator: np.random.Generator) -> Array:
    """Values of the cells of two blocks: (2, cells, n)."""
    means = {
        "unrelated": np.array([generator.permutation(MEANS), MEANS]),
        "no order": np.zeros((2, CELLS)),
        "same order": np.array([MEANS, MEANS]),
    }[truth]
    return means[..., None] + errors[:, None] * generator.normal(size=(2, CELLS, n))


def span(blocks: Array) -> tuple[float, float]:
    """The taus of all orders that the intervals of all pairs in both blocks allow."""
    pairs = np.triu_indices(CELLS, 1)
    signs = []
    for values in blocks:
        distance = values.mean(1)[:, None] - values.mean(1)
        signs.append(np.where(np.abs(distance) > half_widths(values, LEVEL / 2), np.sign(distance), 0.0)[pairs])
    known = signs[0] * signs[1]
    open_ = (known == 0).sum()
    return float(known.sum() - open_) / len(known), float(known.sum() + open_) / len(known)


def rows(draws: int) -> Iterator[str]:
    for n in (3, 10):
        for kind in (EQUAL, "GOAL Table 3"):
            errors, generator = spreads(kind, CELLS)[0], np.random.default_rng(0)
            told, tau = {}, {}
            for truth in ("unrelated", "no order", "same order"):
                means = [drawn(truth, errors, n, generator).mean(2).round(1) for _ in range(draws)]
                told[truth] = np.mean([kendall_p(*pair) < LEVEL for pair in means])
                tau[truth] = np.mean([kendall(*pair) for pair in means])
            title = f"spread {kind}, {n} seeds"
            for truth in ("unrelated", "no order"):
                yield measuring.row(
                    f"{truth}, {title}: told alike or opposite",
                    f"{100 * told[truth]:.1f} %",
                    goal="<= 5 %" if truth == "unrelated" else "",
                    met=kept(told[truth], draws) if truth == "unrelated" else None,
                )
            shown = f"{100 * told['same order']:.0f} %, mean tau {tau['same order']:.2f}"
            yield measuring.row(f"same order, {title}: told alike", shown)
            taus = np.array([span(drawn("same order", errors, n, generator)) for _ in range(draws // 10)])
            low, high = taus.mean(0)
            covered = f"mean {low:.2f} to {high:.2f}, holds 1 in {100 * (taus[:, 1] == 1).mean():.0f} %"
            yield measuring.row(f"same order, {title}: interval by all pairs at once", covered)


def main() -> None:
    """Simulate and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4000)
    draws = parser.parse_args().draws
    measuring.begin("scipy", note=f"{draws} draws of two blocks of {CELLS} cells")
    for row in rows(draws):
        measuring.show([row])


if __name__ == "__main__":
    main()
