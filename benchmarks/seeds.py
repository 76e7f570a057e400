"""Seeds until resolved, simulated: how often a cell is out that is not worse, and how many seeds are spent.

    python benchmarks/seeds.py [--draws 2000] [--budget 10]

Values are normal: what a seed adds to all cells, and an error of 0.5 points for every cell and seed, as the papers'
seeds spread; `unequal` has errors from 0.25 to 1 point. A **false finding** is a draw in which any cell is out that is
not worse than the best. The peers: Tukey's test at 5 % after every seed, without a correction for looking often; and
the same test once, after the whole budget for all cells.
"""

import argparse

import measuring
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from results.statistics.resolving import FIRST, resolve
from results.statistics.significance import LEVEL, error_of_blocks

ERROR = 0.5
DIFFERENCE = 0.5
Array = NDArray[np.float64]


def scenarios(cells: int) -> dict[str, tuple[Array, Array]]:
    """True means and standard deviations of the errors."""
    same, alike = np.zeros(cells), np.full(cells, ERROR)
    return {
        "all equal": (same, alike),
        "all equal, unequal spread": (same, np.linspace(0.25, 1.0, cells)),
        "one better by 1 point": (np.eye(cells)[0], alike),
        "steps of 0.5 points": (0.5 * np.arange(cells), alike),
        "half collapsed, the others equal": (np.where(np.arange(cells) < cells // 2, -20.0, 0.0), alike),
    }


def tukey(y: Array) -> NDArray[np.bool_]:
    """The cells that Tukey's test at LEVEL tells from the best."""
    cells, n = y.shape
    error, freedom = error_of_blocks(y)
    q = (y.mean(1).max() - y.mean(1)) / np.sqrt(error / n)
    return np.asarray(q > quantile(cells, freedom))


_QUANTILES: dict[tuple[int, int], float] = {}


def quantile(cells: int, freedom: int) -> float:
    if (cells, freedom) not in _QUANTILES:
        _QUANTILES[cells, freedom] = float(stats.studentized_range.ppf(1 - LEVEL, cells, freedom))
    return _QUANTILES[cells, freedom]


def rows(cells: int, name: str, means: Array, errors: Array, draws: int, budget: int) -> list[str]:
    generator, worse = np.random.default_rng(0), means < means.max()
    false = often = once = spent = right = told = told_once = 0
    for _ in range(draws):
        y = means[:, None] + generator.normal(size=budget) + errors[:, None] * generator.normal(size=(cells, budget))
        found = resolve({str(cell): own.tolist() for cell, own in enumerate(y)}, budget=budget, difference=DIFFERENCE)
        out = np.array([str(cell) in found.out for cell in range(cells)])
        looks = np.array([tukey(y[:, :n]) for n in range(FIRST, budget + 1)])
        false += bool((out & ~worse).any())
        often += bool((looks.any(0) & ~worse).any())
        once += bool((looks[-1] & ~worse).any())
        told, told_once = told + int((out & worse).sum()), told_once + int((looks[-1] & worse).sum())
        spent += sum(found.seeds.values())
        right += found.state == "resolved"
    what, whole = f"{cells} cells, {name}", draws * cells * budget
    lines = [
        measuring.row(
            f"{what}: false findings",
            f"{100 * false / draws:.1f} %",
            peer=f"{100 * often / draws:.1f} %, Tukey at every look; {100 * once / draws:.1f} %, once",
            goal="<= 5 %",
            met=false <= 0.05 * draws,
        ),
        measuring.row(
            f"{what}: seeds spent",
            f"{spent / draws:.1f}, resolved in {100 * right / draws:.0f} %",
            peer=f"{cells * budget}, a fixed number",
            ratio=f"{spent / whole:.2f}",
        ),
    ]
    if worse.any():
        all_worse = draws * int(worse.sum())
        ours, theirs = 100 * told / all_worse, 100 * told_once / all_worse
        lines.append(
            measuring.row(f"{what}: worse cells found", f"{ours:.0f} %", peer=f"{theirs:.0f} %, a fixed number")
        )
    return lines


def main() -> None:
    """Simulate and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--budget", type=int, default=10)
    given = parser.parse_args()
    measuring.begin("scipy", note=f"{given.draws} draws, at most {given.budget} seeds, difference {DIFFERENCE}")
    for cells in (2, 5, 15):
        for name, (means, errors) in scenarios(cells).items():
            measuring.show(rows(cells, name, means, errors, given.draws, given.budget))


if __name__ == "__main__":
    main()
