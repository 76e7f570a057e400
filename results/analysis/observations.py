"""A metric of several cells over their common seeds as a complete array; marks cells that tie with the best."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from goalgrid.results.layouts.captions import about
from goalgrid.results.records.scores import Score
from goalgrid.results.statistics.pairs import ahead, test_of
from goalgrid.results.statistics.significance import LEVEL
from goalgrid.results.tables import LIKE_BEST, Place, Table, TableEntry, shared_keys
from goalgrid.results.tables.legend import Sentence


@dataclass(frozen=True)
class Observations:
    """A complete array of values: one for each cell and seed."""

    names: tuple[str, ...]
    seeds: tuple[int, ...]
    values: NDArray[np.float64]
    """(cells, seeds)"""
    notes: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    """Sentences on finished trials that are not used here."""

    @classmethod
    def shared(cls, scores: Mapping[str, Score]) -> "Observations":
        """Return the values of the cells with finished trials, over their common seeds.

        If fewer than two seeds are common, the cells with the fewest seeds are left out.
        """
        cells = {name: dict(zip(score.seeds, score.values, strict=True)) for name, score in scores.items() if score.n}
        empty = [name for name in scores if name not in cells]
        notes = [f"no finished trial: {_listed(empty)}"] if empty else []
        left_out = list[str]()
        while len(seeds := _common(cells)) < 2 and (poorest := _poorest(cells)):
            notes += [f"{name} is left out: it has only seed {_listed(cells.pop(name))}" for name in poorest]
            left_out += poorest
        further = dict.fromkeys(seed for values in cells.values() for seed in values if seed not in seeds)
        for seed in further:
            lacking = [name for name, values in cells.items() if seed not in values]
            notes.append(f"seed {seed} is left out, missing in: {_listed(lacking)}")
        values = np.array([[cells[name][seed] for seed in seeds] for name in cells], dtype=float)
        caveats = ["Only seeds that all of these cells have count here."] if further else []
        if left_out:
            caveats.append(f"Not compared, since too few of their seeds are shared: {_listed(left_out)}.")
        return cls(tuple(cells), tuple(seeds), values.reshape(len(cells), len(seeds)), tuple(notes), tuple(caveats))

    @property
    def means(self) -> NDArray[np.float64]:
        return self.values.mean(axis=1)

    def ranked(self, *, lowest: bool = False) -> list[str]:
        """Return the cells' names, best first; cells with equal means keep their order."""
        order = np.argsort(self.means if lowest else -self.means, kind="stable")
        return [self.names[place] for place in order]

    def like_best(self, *, lowest: bool = False) -> list[str]:
        """Return the cells that are not distinguishable from the best, including the best.

        Empty if no test is possible: there are fewer than two cells or seeds, or the values do not vary over seeds.
        """
        if min(self.values.shape) < 2:
            return []
        verdicts = ahead(-self.values if lowest else self.values)
        return [] if verdicts is None else list(compress(self.names, np.logical_not(verdicts.any(axis=1)).tolist()))


def _common(cells: Mapping[str, Mapping[int, float]]) -> list[int]:
    first = next(iter(cells.values()), {})
    return [seed for seed in first if all(seed in values for values in cells.values())]


def _poorest(cells: Mapping[str, Mapping[int, float]]) -> list[str]:
    """Return the cells with the fewest seeds; empty if all cells have equally many."""
    fewest = min(map(len, cells.values()), default=0)
    poorest = [name for name, values in cells.items() if len(values) == fewest]
    return poorest if len(poorest) < len(cells) else []


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))


def rule(sizes: Iterable[int]) -> Sentence:
    """Return the sentence that explains the mark in a caption; `sizes`: numbers of compared cells."""
    tests = "; ".join(dict.fromkeys(map(test_of, sorted(sizes))))
    return Sentence(
        f"{LIKE_BEST} not distinguishable from the best: no other cell is ahead by more than seeds explain "
        f"({100 * LEVEL:.0f} % for all cells together; each cell with its own spread; {tests}).",
        f"{LIKE_BEST}: not distinguishable from the best ({100 * LEVEL:.0f} % for all cells together; {tests}).",
    )


def marked(table: Table) -> Table:
    """Mark the entries of a table that are not distinguishable from the best of the entries they are compared with.

    The caption gets the rule, if anything was tested, and notes on what was not compared and in which blocks.
    """
    blocks, notes, tested = [], dict[str, dict[str, None]](), set[int]()
    for block in table.blocks:
        marks, bold = dict[Place, bool](), table.best_of(block)
        for contest in table.contests(block):
            alike, remarks = _marks(contest, bold)
            marks |= alike
            tested |= {len(alike)} - {0}
            for note in remarks:
                notes.setdefault(note, {})[block.title] = None
        rows = []
        for number, row in enumerate(block.rows):
            places = ((entry, marks.get((number, column))) for column, entry in enumerate(row.entries))
            entries = tuple(replace(entry, like_best=mark) if entry else None for entry, mark in places)
            rows.append(replace(row, entries=entries))
        blocks.append(replace(block, rows=tuple(rows)))
    every = {block.title for block in table.blocks}
    of_marks = [rule(tested)] if tested else []
    of_blocks = (about(note, titles, every) for note, titles in notes.items())
    return replace(table, blocks=tuple(blocks)).saying(*of_marks, *of_blocks)


def _marks(contest: dict[Place, TableEntry], bold: set[Place]) -> tuple[dict[Place, bool], tuple[str, ...]]:
    """Return whether to mark each compared entry, by its place in the block, and notes for the caption."""
    alike_in = {"pair_weight", "triplet_weight", *shared_keys(contest.values())}
    names = {
        place: " ".join(value for axis, value in entry.keys.items() if axis not in alike_in)
        for place, entry in contest.items()
    }
    measured = {names[place]: entry.score for place, entry in contest.items() if isinstance(entry.score, Score)}
    if all(score.at_chance for score in measured.values() if score.n):  # or none has a value
        return {}, ()
    observations = Observations.shared(measured)
    if min(observations.values.shape) < 2:
        return {}, ("Fewer than two cells share two seeds, so nothing is marked.",)
    lowest = next(iter(contest.values())).lowest
    alike = observations.like_best(lowest=lowest)
    if not alike:
        return {}, ("The cells show no spread over seeds, so nothing is marked.",)
    top = next(name for name in observations.ranked(lowest=lowest) if not measured[name].at_chance)
    alone = alike == [top] or top in map(names.get, bold)  # by all seeds of each cell, another may be best
    daggers = set(alike) - {top} if alone else set(alike)
    marks = {place: name in daggers for place, name in names.items() if name in observations.names}
    quoted = any(entry.score.quoted for entry in contest.values())
    return marks, (*observations.caveats, *["Printed numbers have no seeds and are not compared."] * quoted)
