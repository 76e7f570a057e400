"""Seeds until resolved, simulated: how often a finding is false, how many seeds are spent, and what is found.

    python benchmarks/seeds.py [--draws 4000]

Values are normal: what a seed adds to all cells, and an error for every cell and seed. Errors spread by 0.5 points in
every cell, or unequally: from 0.25 to 1 point; 0.1 in all cells but one with 1.5; or as the 15 cells of a block of
GOAL's Tables 3 to 5 are printed (±0.0 as ±0.05), where the block with the most false findings is shown. A **false
finding** is a draw in which a cell is out that is not worse than the best, or in which a cell still competes that is
worse by more than `difference` though all is resolved. A goal counts as met within two standard errors of the
simulation. The peers: Tukey's test at 5 % after every seed, without a correction for looking often; and the same test
once, after the whole budget for all cells.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import measuring
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from goalgrid.results.analysis.claims import as_entry
from goalgrid.results.reference.reading import results_of
from goalgrid.results.statistics.resolving import FIRST, resolve
from goalgrid.results.statistics.significance import LEVEL

DIFFERENCE = 0.5
CELLS = 15
Array = NDArray[np.float64]

EQUAL, UNEQUAL, WILD = "0.5", "0.25 to 1", "0.1, one cell 1.5"
TABLES = {f"GOAL Table {number}": f"goal-table{number}-coco" for number in (3, 4, 5)}


def spreads(kind: str, cells: int) -> list[Array]:
    """Standard deviations of the errors of the cells; of a paper's table, of each of its blocks and metrics."""
    if kind in TABLES:
        blocks: dict[tuple[str, str], list[float]] = {}
        for result in results_of(TABLES[kind]):
            blocks.setdefault((result.model, result.metric), []).append(as_entry(result).sample.std)
        return [np.array(block) for block in blocks.values()]
    known = {
        EQUAL: np.full(cells, 0.5),
        UNEQUAL: np.linspace(0.25, 1.0, cells),
        WILD: np.array([1.5] + [0.1] * (cells - 1)),
    }
    return [known[kind]]


def alike() -> Iterator[tuple[str, int, Array, str, int]]:
    """Cases in which the best cells are equal: what is equal, cells, true means, spread, budget."""
    for budget in (3, 4):
        yield "all equal", CELLS, np.zeros(CELLS), UNEQUAL, budget
    for budget in (5, 10):
        for kind in (EQUAL, UNEQUAL, WILD, *TABLES):
            yield "all equal", CELLS, np.zeros(CELLS), kind, budget
        for equal in (2, 8):
            collapsed = np.where(np.arange(CELLS) < equal, 0.0, -20.0)
            yield f"{equal} equal, the others collapsed", CELLS, collapsed, EQUAL, budget
        for cells in (2, 5):
            for kind in (EQUAL, UNEQUAL, WILD):
                yield "all equal", cells, np.zeros(cells), kind, budget


def apart() -> Iterator[tuple[str, int, Array, str, int]]:
    """Cases in which a single cell is the best."""
    for kind in (EQUAL, UNEQUAL, *TABLES):
        yield "over 3 points", CELLS, np.linspace(0.0, 3.0, CELLS), kind, 10
    yield "one better by 1 point", CELLS, np.eye(CELLS)[0], EQUAL, 10
    yield "over 3 points", 5, np.linspace(0.0, 3.0, 5), EQUAL, 10
    yield "one better by 1 point", 2, np.eye(2)[0], EQUAL, 10


@dataclass(frozen=True)
class Shares:
    """Of all draws, or of all cells in all draws."""

    false: float
    often: float
    """False findings of Tukey's test after every seed."""
    once: float
    """False findings of Tukey's test after all seeds."""
    seeds: float
    """Seeds of a cell."""
    resolved: float
    """Resolved without a false finding."""
    told: float
    """Cells that are out, of those that are worse than the best."""
    told_once: float


def simulated(means: Array, errors: Array, budget: int, draws: int) -> Shares:
    generator, worse, cells = np.random.default_rng(0), means < means.max(), len(means)
    near = means >= means.max() - DIFFERENCE
    y = means[:, None] + generator.normal(size=(draws, 1, budget))
    y += errors[:, None] * generator.normal(size=(draws, cells, budget))
    looks = np.array([tukey(y[..., :n]) for n in range(FIRST, budget + 1)])
    out, seeds, resolved = np.zeros((draws, cells), bool), np.zeros(draws), np.zeros(draws, bool)
    for draw, own in enumerate(y):
        found = resolve({str(cell): row.tolist() for cell, row in enumerate(own)}, budget=budget, difference=DIFFERENCE)
        out[draw] = [str(cell) in found.out for cell in range(cells)]
        seeds[draw], resolved[draw] = sum(found.seeds.values()) / cells, found.state == "resolved"
    false = (out & ~worse).any(1) | (resolved & (~out & ~near).any(1))
    return Shares(
        false.mean(), (looks.any(0) & ~worse).any(1).mean(), (looks[-1] & ~worse).any(1).mean(), seeds.mean(),
        (resolved & ~false).mean(), *(tell[:, worse].mean() if worse.any() else 0.0 for tell in (out, looks[-1])),
    )  # fmt: skip


def tukey(y: Array) -> NDArray[np.bool_]:
    """The cells of each draw that Tukey's test at LEVEL tells from the best."""
    _, cells, n = y.shape
    freedom = (cells - 1) * (n - 1)
    rest = y - y.mean(2, keepdims=True) - y.mean(1, keepdims=True) + y.mean((1, 2), keepdims=True)
    error = (rest**2).sum((1, 2)) / freedom
    q = (y.mean(2).max(1, keepdims=True) - y.mean(2)) / np.sqrt(error / n)[:, None]
    return np.asarray(q > quantile(cells, freedom))


_QUANTILES: dict[tuple[int, int], float] = {}


def quantile(cells: int, freedom: int) -> float:
    if (cells, freedom) not in _QUANTILES:
        _QUANTILES[cells, freedom] = float(stats.studentized_range.ppf(1 - LEVEL, cells, freedom))
    return _QUANTILES[cells, freedom]


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def kept(share: float, draws: int) -> bool:
    """Whether the true share of errors may be at most LEVEL: within two standard errors of the simulation."""
    return bool(share <= LEVEL + 2 * np.sqrt(LEVEL * (1 - LEVEL) / draws))


def rows_alike(draws: int) -> Iterator[str]:
    for what, cells, means, kind, budget in alike():
        found = max((simulated(means, errors, budget, draws) for errors in spreads(kind, cells)), key=lambda s: s.false)
        yield measuring.row(
            f"{cells} cells, {what}, spread {kind}, budget {budget}: false findings",
            percent(found.false),
            peer=f"{percent(found.often)}, Tukey at every look; {percent(found.once)}, once",
            goal="<= 5 %",
            met=kept(found.false, draws),
        )


def rows_apart(draws: int) -> Iterator[str]:
    for what, cells, means, kind, budget in apart():
        found = simulated(means, spreads(kind, cells)[0], budget, draws)
        title = f"{cells} cells, {what}, spread {kind}, budget {budget}"
        yield measuring.row(
            f"{title}: seeds a cell",
            f"{found.seeds:.1f}, resolved rightly in {100 * found.resolved:.0f} %",
            peer=f"{budget}, a fixed number",
            ratio=f"{found.seeds / budget:.2f}",
        )
        yield measuring.row(
            f"{title}: worse cells found",
            f"{100 * found.told:.0f} %; false findings {percent(found.false)}",
            peer=f"{100 * found.told_once:.0f} %, Tukey once",
            goal="<= 5 % false",
            met=kept(found.false, draws),
        )


def main() -> None:
    """Simulate and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4000, help="of each case; a quarter where cells lie apart")
    draws = parser.parse_args().draws
    measuring.begin("scipy", note=f"{draws} draws, cells closer than {DIFFERENCE} points need not be told apart")
    for row in rows_alike(draws):
        measuring.show([row])
    for row in rows_apart(draws // 4):
        measuring.show([row])


if __name__ == "__main__":
    main()
