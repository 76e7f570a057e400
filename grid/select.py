"""[select]: settings that each cell chooses by validation: the points of the search, and the choice among them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, NonNegativeInt, PlainValidator, PositiveInt, ValidationInfo, field_validator

from goalgrid.grid.errors import counted
from goalgrid.grid.identity import digest
from goalgrid.grid.settings.base import Settings, Unit
from goalgrid.grid.syntax import DISTRIBUTIONS, Scalar

Point = tuple[tuple[str, Scalar], ...]
"""A value of every setting, with its dotted name."""
Range = list[Scalar] | dict[str, list[int | float]]
"""The values of a setting, or a distribution: `{"log_uniform": [1e-5, 1e-3]}`."""

_DIGITS = 3
"""Significant digits of a number that is drawn between two ends."""
_CANDIDATES = 100
"""Points that are drawn at most for each point that is asked for: points that repeat an earlier one do not count."""


@dataclass(frozen=True)
class Halving:
    """When search trials of one cell stop: beyond the best `1/factor` at epochs `grace`, `grace * factor`, ..."""

    cell: str
    """Trials of one cell are compared with one another alone."""
    by: str
    """A validation metric as in the history, e.g. "val_rsum"; larger is better."""
    grace: int = 2
    factor: int = 3


def _range(value: Any) -> Range:
    if isinstance(value, list) and value and all(isinstance(entry, Scalar) for entry in value):
        return value
    if isinstance(value, dict) and len(value) == 1:
        ((kind, ends),) = value.items()
        numbers = isinstance(ends, list) and all(type(end) in (int, float) and math.isfinite(end) for end in ends)
        ordered = numbers and len(ends) == 2 and ends[0] < ends[1]
        if kind in DISTRIBUTIONS and ordered and (kind == "uniform" or ends[0] > 0):
            return value
    form = "{ uniform = [low, high] } or { log_uniform = [low, high] }"
    raise ValueError(f"it should be a list of values, or {form} with low below high, in a log scale both above 0")


class Select(Settings):
    """[select]: what each cell chooses by validation, before it is trained with the grid's seeds."""

    over: Annotated[dict[str, Annotated[Range, PlainValidator(_range)]], Field(min_length=1)] = Field(
        description="settings that each cell chooses, with a list of values, { uniform = [low, high] } or "
        "{ log_uniform = [low, high] }; uniform draws whole numbers between whole ends"
    )
    draws: Annotated[PositiveInt | None, Unit("points"), Field(validate_default=True)] = Field(
        default=None, description="points that each cell tries; none: all points of a finite product"
    )
    seed: NonNegativeInt = Field(default=100, description="of the search trials; it may not stand in seeds")
    by: Literal["val_rsum", "val_i2t_r1", "val_i2t_r5", "val_i2t_r10", "val_t2i_r1", "val_t2i_r5", "val_t2i_r10"] = (
        Field(default="val_rsum", description="the metric that decides, on the validation split")
    )
    stop: Literal["none", "asha"] = Field(
        default="none", description="asha: stop search trials that are behind others of their cell"
    )
    grace: Annotated[PositiveInt, Unit("epochs")] = Field(
        default=2, description="epochs before a search trial may be stopped; asha looks again factor times later"
    )
    factor: Annotated[int, Field(ge=2)] = Field(default=3, description="one of so many search trials goes on, by asha")

    @field_validator("draws")
    @classmethod
    def _possible(cls, draws: int | None, info: ValidationInfo) -> int | None:
        over: dict[str, Range] = info.data.get("over", {})
        if not over:  # which is wrong itself
            return draws
        ranges = [name for name, values in over.items() if _count(values) == math.inf]
        most = math.prod(map(_count, over.values()))
        if draws is None and ranges:
            raise ValueError(
                f"{ranges[0]} is drawn from a range, so say how many points each cell tries, e.g. draws = 12"
            )
        if draws is not None and draws > most:
            raise ValueError(f"the product has {counted(int(most), 'point')}; leave draws out to try all of them")
        return draws

    def points(self) -> list[Point]:
        """The points that every cell tries, in the order in which they are drawn; more draws extend this list."""
        if self.draws is None:
            every = ([*values] if isinstance(values, list) else _whole(values) for values in self.over.values())
            return [tuple(zip(self.over, values, strict=True)) for values in product(*every)]
        points = dict[Point, None]()
        for number in range(_CANDIDATES * self.draws):
            shares = {name: int(digest([self.seed, name, number])[:13], 16) / 16**13 for name in self.over}
            points[tuple((name, _at(values, shares[name])) for name, values in self.over.items())] = None
            if len(points) == self.draws:
                break
        return list(points)


def _whole(values: Mapping[str, Sequence[float]]) -> Sequence[Scalar]:
    """The whole numbers between whole ends; none for other distributions, of which no list has all values."""
    low, high = values.get("uniform", (0.0, 0.0))
    return range(low, high + 1) if isinstance(low, int) and isinstance(high, int) else ()


def _count(values: Range) -> float:
    return len(values) if isinstance(values, list) else len(_whole(values)) or math.inf


def _at(values: Range, share: float) -> Scalar:
    """The value at this share, in [0, 1), of a list or a distribution."""
    several = values if isinstance(values, list) else _whole(values)
    if several:
        return several[int(share * len(several))]
    ((kind, (low, high)),) = values.items()  # type: ignore[union-attr]
    exact = low * (high / low) ** share if kind == "log_uniform" else low + (high - low) * share
    return min(max(float(f"{exact:.{_DIGITS}g}"), low), high)


class EarlierSearches(NamedTuple):
    """How many searches ended before the present one began, and how many search trials they had beyond its own."""

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
    """Of the settings that the cell reads."""
    value: float
    """-inf: its trial diverged."""
    done: bool = True
    """False: its trial was stopped, behind others, or diverged."""
    epochs: int = 0
    """Epochs that its trial trained."""
    of: int = 0
    """Epochs of a whole training."""

    @property
    def diverged(self) -> bool:
        return self.value == -math.inf


@dataclass(frozen=True)
class Chosen:
    """A cell's choice: the best point by validation, the first of a tie; a stopped one only where no trial is done."""

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
    """Of the grid: what was searched here before, with test results known when this search began."""

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
    def best(self) -> Tried:
        return max(self._rivals, key=lambda tried: tried.value)  # the first of several

    @property
    def _rivals(self) -> Sequence[Tried]:
        return [tried for tried in self.tried if tried.done] or self.possible

    @property
    def runner_up(self) -> Tried | None:
        """The best of the others that may be chosen, if there are any."""
        return max((tried for tried in self._rivals if tried is not self.best), key=lambda t: t.value, default=None)

    @property
    def margin(self) -> float | None:
        """By how much the best point leads, in units of the metric."""
        return self.best.value - self.runner_up.value if self.runner_up else None

    @property
    def edges(self) -> list[str]:
        """The settings whose chosen number is the smallest or the largest of three or more that were tried."""
        at_edge = list[str]()
        for name, value in self.best.point:
            numbers = {dict(tried.point)[name] for tried in self.tried}
            if len(numbers) > 2 and not any(isinstance(number, bool | str) for number in numbers):
                at_edge += [name] if value in (min(numbers), max(numbers)) else []
        return at_edge

    def range(self, name: str) -> str:
        """`1 to 40`: the least and the most that was tried of a setting that is a number."""
        numbers = sorted(dict(tried.point)[name] for tried in self.tried)
        return f"{numbers[0]} to {numbers[-1]}"

    def to_dict(self) -> dict[str, Any]:
        other = self.runner_up
        return {
            "chosen": dict(self.best.point),
            "by": self.by,
            "value": self.best.value,
            "runner_up": other and {**dict(other.point), "value": other.value},
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
