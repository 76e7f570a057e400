"""The result of a cell's hyper-parameter search: its points, their validation values, and the chosen point."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from goalgrid.grid.errors import counted
from goalgrid.grid.select import Point
from goalgrid.grid.syntax import Scalar


class EarlierSearches(NamedTuple):
    """Numbers of searches that ended before the present one began, and of their search trials not shared with it."""

    searches: int = 0
    trials: int = 0

    def __str__(self) -> str:
        form = "{} earlier search here ({})" if self.searches == 1 else "{} earlier searches here ({})"
        return form.format(self.searches, counted(self.trials, "further search trial"))


@dataclass(frozen=True)
class Tried:
    """A search point whose trial is done, stopped or diverged, with its validation value."""

    trial: str
    point: Point
    """Values of the settings that have an effect on the cell."""
    value: float
    """Validation metric; -inf if its trial diverged."""
    done: bool = True
    """Whether its trial ran to the end; False if it was stopped early or diverged."""
    epochs: int = 0
    """Epochs that its trial trained."""
    of: int = 0
    """Epochs of a full training run."""
    default: bool = False
    """Whether these are the cell's default values."""
    confirmed: Mapping[str, float] = field(default_factory=dict)
    """Validation metric of each confirming trial that is done or diverged, by id; -inf if it diverged."""

    @property
    def diverged(self) -> bool:
        return self.value == -math.inf

    @property
    def mean(self) -> float:
        """Mean over the search seed and the confirming seeds."""
        return fmean([self.value, *self.confirmed.values()])

    @property
    def rank(self) -> tuple[bool, int, float, float]:
        """Sort key among confirmed points: finite mean first, then more seeds with a result, then a higher mean."""
        return self.mean > -math.inf, len(self.confirmed), self.mean, self.value


@dataclass(frozen=True)
class Chosen:
    """A cell's choice: the point with the best validation value; in a tie, the first.

    Stopped points are chosen only if no trial is done. Among confirmed points, the mean over seeds decides.
    """

    by: str
    draws: int
    """Number of points that the grid asks for."""
    points: int
    """Number of distinct points for this cell; points that differ only in settings without effect count once."""
    tried: tuple[Tried, ...]
    """The points whose trial is done, stopped or diverged, in the order of the draws."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Number of `draws` that were not tried, by reason: unread, failed or impossible."""
    earlier: EarlierSearches = field(default_factory=EarlierSearches)
    """Earlier searches of the grid whose test results were known when this search began."""
    confirm: int = 0
    """Number of best points that are trained with further seeds; 0: only the search seed decides."""
    confirm_seeds: int = 0
    """Number of further seeds per confirmed point."""
    search: str = ""
    """`search 2 of 3`; empty if the cell has only one search."""

    @property
    def possible(self) -> Sequence[Tried]:
        """The points that can be chosen: those that did not diverge."""
        return [tried for tried in self.tried if not tried.diverged]

    @property
    def stopped(self) -> int:
        return sum(not tried.done for tried in self.possible)

    @property
    def diverged(self) -> int:
        return len(self.tried) - len(self.possible)

    @property
    def epochs(self) -> tuple[int, int]:
        """Epochs that its search trials trained, and the epochs of as many full training runs."""
        return sum(tried.epochs for tried in self.tried), sum(tried.of for tried in self.tried)

    @property
    def candidates(self) -> Sequence[Tried]:
        """The points to confirm, best first; empty if there is only one, which needs no confirmation."""
        best = sorted(self._rivals, key=lambda tried: -tried.value)[: self.confirm]  # the first of several
        return best if len(best) > 1 else []

    @property
    def best(self) -> Tried:
        if candidates := self.candidates:
            return max(candidates, key=lambda tried: tried.rank)
        return max(self._rivals, key=lambda tried: tried.value)  # the first of several

    @property
    def value(self) -> float:
        """The value by which the best point was chosen: its mean over seeds if confirmed, else its search value."""
        return self.best.mean

    @property
    def default(self) -> Tried | None:
        """The point with the default values; None if it was not tried."""
        return next((tried for tried in self.tried if tried.default), None)

    @property
    def gain(self) -> float | None:
        """Difference between the best point and the default on their common seeds; None if the default has no value."""
        if self.default is None or self.default.diverged:
            return None
        both = self.default.confirmed and self.best.confirmed and self.default.mean > -math.inf
        return self.best.mean - self.default.mean if both else self.best.value - self.default.value

    @property
    def _rivals(self) -> Sequence[Tried]:
        return [tried for tried in self.tried if tried.done] or self.possible

    @property
    def runner_up(self) -> Tried | None:
        """The second-best point that could be chosen; None if there is only one."""
        others = [tried for tried in self.candidates or self._rivals if tried is not self.best]
        return max(others, key=lambda tried: tried.rank, default=None)

    @property
    def margin(self) -> float | None:
        """Difference between the best point and the runner-up, in units of the metric."""
        return _finite(self.best.mean - self.runner_up.mean) if self.runner_up else None

    @property
    def edges(self) -> list[str]:
        """The settings whose chosen value is the smallest or largest of three or more tried values."""
        at_edge = list[str]()
        for name, value in self.best.point:
            numbers = self._values(name)
            if len(numbers) > 2 and not any(isinstance(number, bool | str) for number in numbers):
                at_edge += [name] if value in (min(numbers), max(numbers)) else []
        return at_edge

    def range(self, name: str) -> str:
        """Return the range of tried values of a numeric setting: `1 to 40`."""
        numbers = self._values(name)
        return f"{min(numbers)} to {max(numbers)}"

    def _values(self, name: str) -> set[Scalar]:
        """The tried values of a setting; the default may lack one."""
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
    """The value, or None if it is infinite (a diverged trial), because JSON has no infinity."""
    return value if math.isfinite(value) else None
