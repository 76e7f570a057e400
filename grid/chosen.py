"""What validation chose for a cell: the points of a search, what each reached, and the choice among them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from goalgrid.grid.errors import counted
from goalgrid.grid.select import Point
from goalgrid.grid.syntax import Scalar


class EarlierSearches(NamedTuple):
    """Counts of searches that ended before the present one began, and of their search trials beyond its own."""

    searches: int = 0
    trials: int = 0

    def __str__(self) -> str:
        form = "{} earlier search here ({})" if self.searches == 1 else "{} earlier searches here ({})"
        return form.format(self.searches, counted(self.trials, "further search trial"))


@dataclass(frozen=True)
class Tried:
    """A point of a cell's search whose trial is done, stopped or diverged, and what validation said of it."""

    trial: str
    point: Point
    """Values of the settings that the cell reads."""
    value: float
    """-inf: its trial diverged."""
    done: bool = True
    """False: its trial was stopped, behind others, or diverged."""
    epochs: int = 0
    """Epochs that its trial trained."""
    of: int = 0
    """Epochs of a whole training."""
    default: bool = False
    """Whether the cell has these values without a search."""
    confirmed: Mapping[str, float] = field(default_factory=dict)
    """Validation of the trials that confirm it and are done or diverged, by id; -inf: it diverged."""

    @property
    def diverged(self) -> bool:
        return self.value == -math.inf

    @property
    def mean(self) -> float:
        """Mean over the search seed and the confirming seeds."""
        return fmean([self.value, *self.confirmed.values()])

    @property
    def rank(self) -> tuple[bool, int, float, float]:
        """Rank among confirmed points: no collapse, then more seeds with a result, then their mean."""
        return self.mean > -math.inf, len(self.confirmed), self.mean, self.value


@dataclass(frozen=True)
class Chosen:
    """A cell's choice: the best point by validation, the first of a tie; a stopped one only where no trial is done.

    Of confirmed points it is the best by the mean over seeds.
    """

    by: str
    draws: int
    """Points that the grid asks for."""
    points: int
    """Points that differ for this cell: those that differ in a setting that it does not read are one."""
    tried: tuple[Tried, ...]
    """The points whose trial is done, stopped or diverged, in the order in which they were drawn."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """How many of `draws` were not tried, by the reason: unread, failed or impossible."""
    earlier: EarlierSearches = field(default_factory=EarlierSearches)
    """Earlier searches of the grid, with test results known when this search began."""
    confirm: int = 0
    """How many of the best points are trained again; 0: the search seed alone decides."""
    confirm_seeds: int = 0
    """With how many further seeds."""
    search: str = ""
    """`search 2 of 3`; empty where it is the only one of its cell."""

    @property
    def possible(self) -> Sequence[Tried]:
        """The points that may be chosen at all."""
        return [tried for tried in self.tried if not tried.diverged]

    @property
    def stopped(self) -> int:
        return sum(not tried.done for tried in self.possible)

    @property
    def diverged(self) -> int:
        return len(self.tried) - len(self.possible)

    @property
    def epochs(self) -> tuple[int, int]:
        """Epochs that its search trials trained, and those of whole trainings."""
        return sum(tried.epochs for tried in self.tried), sum(tried.of for tried in self.tried)

    @property
    def candidates(self) -> Sequence[Tried]:
        """The points that are confirmed, the best of the search first; a single one needs no confirmation."""
        best = sorted(self._rivals, key=lambda tried: -tried.value)[: self.confirm]  # the first of several
        return best if len(best) > 1 else []

    @property
    def best(self) -> Tried:
        if candidates := self.candidates:
            return max(candidates, key=lambda tried: tried.rank)
        return max(self._rivals, key=lambda tried: tried.value)  # the first of several

    @property
    def value(self) -> float:
        """Value that chose the best point: its mean over seeds if it is confirmed, else its value in the search."""
        return self.best.mean

    @property
    def default(self) -> Tried | None:
        """The point of the default, unless it was not tried."""
        return next((tried for tried in self.tried if tried.default), None)

    @property
    def gain(self) -> float | None:
        """By how much the best point leads the default on the seeds that both have; None: the default has no value."""
        if self.default is None or self.default.diverged:
            return None
        both = self.default.confirmed and self.best.confirmed and self.default.mean > -math.inf
        return self.best.mean - self.default.mean if both else self.best.value - self.default.value

    @property
    def _rivals(self) -> Sequence[Tried]:
        return [tried for tried in self.tried if tried.done] or self.possible

    @property
    def runner_up(self) -> Tried | None:
        """The best of the others that may be chosen, if there are any."""
        others = [tried for tried in self.candidates or self._rivals if tried is not self.best]
        return max(others, key=lambda tried: tried.rank, default=None)

    @property
    def margin(self) -> float | None:
        """By how much the best point leads, in units of the metric."""
        return _finite(self.best.mean - self.runner_up.mean) if self.runner_up else None

    @property
    def edges(self) -> list[str]:
        """The settings whose chosen number is the smallest or the largest of three or more that were tried."""
        at_edge = list[str]()
        for name, value in self.best.point:
            numbers = self._values(name)
            if len(numbers) > 2 and not any(isinstance(number, bool | str) for number in numbers):
                at_edge += [name] if value in (min(numbers), max(numbers)) else []
        return at_edge

    def range(self, name: str) -> str:
        """`1 to 40`: the least and the most that was tried of a setting that is a number."""
        numbers = self._values(name)
        return f"{min(numbers)} to {max(numbers)}"

    def _values(self, name: str) -> set[Scalar]:
        """What was tried of a setting; the default may have no value."""
        return {value for tried in self.tried for setting, value in tried.point if setting == name}

    def to_dict(self) -> dict[str, Any]:
        other, default = self.runner_up, self.default
        content: dict[str, Any] = {
            "chosen": dict(self.best.point),
            "by": self.by,
            "value": _finite(self.value),
            "runner_up": other and {**dict(other.point), "value": _finite(other.mean)},
            "margin": self.margin,
            "points": self.points,
            "done": sum(tried.done for tried in self.tried),
            "stopped": self.stopped,
            "diverged": self.diverged,
            "missing": {reason: count for reason, count in self.missing.items() if count},
            "epochs": self.epochs[0],
            "epochs_of_whole_trainings": self.epochs[1],
            "at_edge": self.edges,
        }
        if self.search:
            content["search"] = self.search
        if default:
            content |= {"default": {**dict(default.point), "value": _finite(default.value)}, "gain": self.gain}
        if self.candidates:
            content["confirmed"] = [
                {**dict(tried.point), "search": tried.value, "seeds": [*map(_finite, tried.confirmed.values())]}
                for tried in self.candidates
            ]
        return content


def _finite(value: float) -> float | None:
    """The value for JSON, which has no infinity: None of a trial that diverged."""
    return value if math.isfinite(value) else None
