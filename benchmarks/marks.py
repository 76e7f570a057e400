"""The marks of tables (†), simulated: how often an equal cell is told from the best, and how many worse cells are told.

    python benchmarks/marks.py [--tables 2000] [--draws 999] [--seed 1]

Each table is told by `pairs.leads` and `pairs.critical`, the latter with so many draws and a seed of the table's own. A
null: all cells have the same true mean, and a table errs if any cell is told from the best. Twelve kinds of nulls; of a
kind as the 15 cells of GOAL's Tables 3 to 5 are printed (±0.0 as ±0.05), there is one for each block and metric, four a
table, and the one with the most errors is shown. A share of errors counts as 5 % within two standard errors of the
simulation. The peers: Tukey's test with one error for all cells, seeds as blocks; and the t intervals of "until
resolved" (Games and Howell, Bonferroni) at a single look.
"""

import argparse
from collections.abc import Callable, Iterator
from zlib import crc32

import measuring
import numpy as np
from numpy.typing import NDArray
from seeds import CELLS, TABLES, kept, percent, spreads, tukey

from goalgrid.grid.groups import nested
from goalgrid.results.analysis.claims import as_entry
from goalgrid.results.reference.reading import results_of
from goalgrid.results.statistics.pairs import critical, half_widths, leads
from goalgrid.results.statistics.pairs import spreads as observed
from goalgrid.results.statistics.significance import LEVEL

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int, int], Array]
"""(tables, cells, seeds) of errors, of a generator and the numbers of tables and seeds."""


def normal(std: Array, *, of_seeds: float = 0.0, in_common: float = 0.0) -> Draw:
    """Normal errors; `of_seeds`: what a seed adds to all cells; `in_common`: correlation of the cells of a seed."""

    def draw(generator: np.random.Generator, tables: int, n: int) -> Array:
        shared = generator.normal(size=(tables, 1, n))
        own = np.sqrt(1 - in_common) * generator.normal(size=(tables, len(std), n))
        return std[:, None] * (own + np.sqrt(in_common) * shared) + of_seeds * shared

    return draw


def heavy(generator: np.random.Generator, tables: int, n: int) -> Array:
    return 0.5 * generator.standard_t(3, (tables, CELLS, n))


def stepped(generator: np.random.Generator, tables: int, n: int) -> Array:
    return np.round(0.1 * generator.normal(size=(tables, CELLS, n)), 1)


def random(generator: np.random.Generator, tables: int, n: int) -> Array:
    return generator.uniform(0.1, 2.0, (tables, CELLS, 1)) * generator.normal(size=(tables, CELLS, n))


def wild(cells: int) -> Array:
    return np.array([3.0] + [0.2] * (cells - 1))


EQUAL, UNEQUAL, WILD, FOURTH = "spread 0.5", "spread 0.25 to 1", "spread 0.2, one cell 3", "GOAL Table 4"
NULLS: dict[str, list[Draw]] = {
    EQUAL: [normal(np.full(CELLS, 0.5))],
    "spread 0.5, seeds add 1": [normal(np.full(CELLS, 0.5), of_seeds=1.0)],
    UNEQUAL: [normal(np.linspace(0.25, 1.0, CELLS))],
    "spread 0.1 to 2": [normal(np.linspace(0.1, 2.0, CELLS))],
    WILD: [normal(wild(CELLS))],
    **{name: [normal(block) for block in spreads(name, CELLS)] for name in TABLES},
    "spread 0.25 to 1, correlation 0.7": [normal(np.linspace(0.25, 1.0, CELLS), in_common=0.7)],
    "0.5 x t(3)": [heavy],
    "spread 0.1 in steps of 0.1": [stepped],
    "spread random, 0.1 to 2": [random],
}
LONG = (EQUAL, UNEQUAL, WILD, FOURTH)
"""Kinds of nulls that are simulated with ten seeds, too."""
SMALL = {
    f"{cells} cells, {what}": [normal(std)]
    for cells in (2, 3, 5)
    for what, std in ((EQUAL, np.full(cells, 0.5)), (WILD, wild(cells)))
}


def apart() -> Iterator[tuple[str, Array, Array]]:
    """Cells that differ: what they are, their true means and spreads."""
    yield "15 cells over 3 points, spread 0.5", np.linspace(0.0, 3.0, CELLS), np.full(CELLS, 0.5)
    first, *_ = nested(
        ((r.model, r.metric), r.objective, as_entry(r).sample) for r in results_of(TABLES[FOURTH])
    ).values()
    means, std = (np.array([getattr(sample, what) for sample in first.values()]) for what in ("mean", "std"))
    yield f"{FOURTH} as printed, first block", means, std


def told(y: Array, draws: int, seeds: Array) -> NDArray[np.bool_]:
    """(tables, cells): the cells of each table that are told from the best."""
    return np.array([
        (leads(table) > critical(observed(table), table.shape[-1], draws=draws, seed=int(seed))).any(1)
        for table, seed in zip(y, seeds, strict=True)
    ])  # fmt: skip


def by_intervals(y: Array) -> NDArray[np.bool_]:
    means = y.mean(-1)
    return np.array([
        (mean - mean[:, None] > half_widths(table, LEVEL)).any(1) for mean, table in zip(means, y, strict=True)
    ])  # fmt: skip


def shares(y: Array, draws: int, seeds: Array) -> list[NDArray[np.bool_]]:
    """What the rule, Tukey's test and the intervals tell from the best."""
    return [told(y, draws, seeds), tukey(y), by_intervals(y)]


def null_row(title: str, ways: list[Draw], n: int, given: argparse.Namespace, *, goal: bool = True) -> str:
    generator = np.random.default_rng([given.seed, n, crc32(title.encode())])
    most = [0.0, 0.0, 0.0]
    for draw in ways:
        seeds = generator.integers(2**31, size=given.tables)
        found = [each.any(1).mean() for each in shares(draw(generator, given.tables, n), given.draws, seeds)]
        most = [max(pair) for pair in zip(most, found, strict=True)]
    return measuring.row(
        f"{title}, {n} seeds: wrong",
        percent(most[0]),
        peer=f"{percent(most[1])}, Tukey; {percent(most[2])}, intervals",
        goal="<= 5 %" if goal else "",
        met=kept(most[0], given.tables) if goal else None,
    )


def apart_row(title: str, means: Array, std: Array, n: int, given: argparse.Namespace) -> str:
    generator, worse = np.random.default_rng([given.seed, n, crc32(title.encode())]), means < means.max()
    y = means[:, None] + normal(std)(generator, given.tables, n)
    found = [each[:, worse].mean() for each in shares(y, given.draws, generator.integers(2**31, size=given.tables))]
    ours, peer, other = (f"{100 * share:.0f} %" for share in found)
    return measuring.row(f"{title}, {n} seeds: worse cells told", ours, peer=f"{peer}, Tukey; {other}, intervals")


def rows(given: argparse.Namespace) -> Iterator[str]:
    for n in (3, 5, 10):
        for title, ways in NULLS.items():
            if n < 10 or title in LONG:
                yield null_row(f"{CELLS} cells, {title}", ways, n, given)
    for n in (3, 5):
        for title, ways in SMALL.items():
            yield null_row(title, ways, n, given, goal=False)
    for title, means, std in apart():
        for n in (3, 5, 10):
            yield apart_row(title, means, std, n, given)


def main() -> None:
    """Simulate and print a table for RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=2000, help="of each null")
    parser.add_argument("--draws", type=int, default=999, help="of the bootstrap, for each table")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    measuring.begin("numpy", note=f"{given.tables} tables, {given.draws} draws, seed {given.seed}")
    for row in rows(given):
        measuring.show([row])


if __name__ == "__main__":
    main()
