"""Observations: one metric of several cells over the seeds that they share, whole enough to be analysed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.scores import Score
from results.statistics import LEVEL, tukey


@dataclass(frozen=True)
class Observations:
    """A complete array: every cell in every seed."""

    names: tuple[str, ...]
    seeds: tuple[int, ...]
    values: NDArray[np.float64]
    """(cells, seeds)"""
    notes: tuple[str, ...] = ()
    """What had to be left out, and why."""

    @classmethod
    def shared(cls, scores: Mapping[str, Score]) -> "Observations":
        """The cells that have trials, in the seeds that all of them have; what that leaves out is noted.

        Only where fewer than two seeds would be left are cells left out instead, those with the fewest seeds first.
        """
        kept = {name: dict(zip(score.seeds, score.values, strict=True)) for name, score in scores.items() if score.n}
        notes = _without_trials([name for name in scores if name not in kept])
        while len(seeds := _common(kept)) < 2 and (poorest := _poorest(kept)):
            notes += [f"{name} is left out: it has only seed {_listed(kept.pop(name))}" for name in poorest]
        for seed in dict.fromkeys(seed for values in kept.values() for seed in values if seed not in seeds):
            lacking = [name for name, values in kept.items() if seed not in values]
            notes.append(f"seed {seed} is left out: {_listed(lacking)} {'lack' if lacking[1:] else 'lacks'} it")
        values = np.array([[kept[name][seed] for seed in seeds] for name in kept], dtype=float)
        return cls(tuple(kept), tuple(seeds), values.reshape(len(kept), len(seeds)), tuple(notes))

    @property
    def means(self) -> NDArray[np.float64]:
        return self.values.mean(axis=1)

    def best(self, *, lowest: bool = False) -> int:
        """Place of the cell with the best mean."""
        return int(self.means.argmin() if lowest else self.means.argmax())

    def like_best(self, *, lowest: bool = False) -> list[str]:
        """Cells that cannot be told from the best, the best included; none where fewer than two seeds are shared."""
        if len(self.seeds) < 2:
            return []
        p = tukey(self.values, self.best(lowest=lowest)) if len(self.names) > 1 else np.ones(1)
        return [name for name, each in zip(self.names, p, strict=True) if each >= LEVEL]


def _common(kept: Mapping[str, Mapping[int, float]]) -> list[int]:
    """Seeds that every cell has, in their order."""
    first = next(iter(kept.values()), {})
    return [seed for seed in first if all(seed in values for values in kept.values())]


def _poorest(kept: Mapping[str, Mapping[int, float]]) -> list[str]:
    """The cells with the fewest seeds, unless that is all of them."""
    fewest = min(map(len, kept.values()), default=0)
    poorest = [name for name, values in kept.items() if len(values) == fewest]
    return poorest if len(poorest) < len(kept) else []


def _without_trials(names: list[str]) -> list[str]:
    return [f"{_listed(names)} {'have' if names[1:] else 'has'} no finished trial"] if names else []


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))
