"""[select]: settings that each cell chooses by validation: the points of its searches, and their seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, NonNegativeInt, PlainValidator, PositiveInt, ValidationInfo, field_validator

from goalgrid.grid.errors import counted
from goalgrid.grid.identity import digest
from goalgrid.grid.settings.base import Settings, Unit
from goalgrid.grid.syntax import DISTRIBUTIONS, Scalar

Point = tuple[tuple[str, Scalar], ...]
"""A value of every setting, with its dotted name."""
Range = list[Scalar] | dict[str, list[int | float]]
"""The values of a setting, or a distribution: `{"log_uniform": [1e-5, 1e-3]}`."""

DEFAULT: Point = ()
"""The point of the default: it sets nothing, so that the cell has the values of its recipe and its objective."""
STRIDE = 100
"""By how much the seeds of one search differ from those of the next."""
_DIGITS = 3
"""Significant digits of a number that is drawn between two ends."""
_CANDIDATES = 100
"""Points that are drawn at most for each point that is asked for: points that repeat an earlier one do not count."""


class Draw(NamedTuple):
    """A point of a search, with the seeds that a cell is trained with there."""

    point: Point
    seeds: tuple[int, ...]
    """Of its search trial, of the trials that confirm it, then those of the trials that it gets if chosen."""


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


def _several(value: int) -> int:
    if value == 1:
        raise ValueError("it should be 0, or 2 or more: a single point leaves nothing to decide")
    return value


class Select(Settings):
    """[select]: what each cell chooses by validation, before it is trained with the grid's seeds."""

    over: Annotated[dict[str, Annotated[Range, PlainValidator(_range)]], Field(min_length=1)] = Field(
        description="settings that each cell chooses, with a list of values, { uniform = [low, high] } or "
        "{ log_uniform = [low, high] }; uniform draws whole numbers between whole ends"
    )
    include: Literal["none", "default"] = Field(
        default="none",
        description="default: the values that recipe and objective have without a search are the first point, one of "
        "the draws",
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

    confirm: Annotated[NonNegativeInt, Unit("points"), AfterValidator(_several)] = Field(
        default=0,
        description="the best points of a cell are trained again, with confirm_seeds further seeds, and the mean over "
        "seeds decides; 0: the search seed alone decides",
    )
    confirm_seeds: Annotated[int, Field(ge=1, lt=STRIDE), Unit("seeds")] = Field(
        default=2, description="further seeds that confirm a point: those after select.seed"
    )
    repeats: PositiveInt = Field(
        default=1,
        description="whole searches of a cell, each with draws and seeds of its own; as many as seeds, of which each "
        "is trained with the values of one search, so that their spread is that of searches",
    )

    @property
    def searches(self) -> list[range]:
        """The seeds of each search: of its search trials, then of those that confirm."""
        seeds = 1 + (self.confirm_seeds if self.confirm else 0)
        return [range(first, first + seeds) for first in (self.seed + STRIDE * n for n in range(self.repeats))]

    @property
    def seeds(self) -> frozenset[int]:
        """All seeds by which validation chooses: no trial of a table has one."""
        return frozenset().union(*self.searches)

    @field_validator("draws")
    @classmethod
    def _possible(cls, draws: int | None, info: ValidationInfo) -> int | None:
        over: dict[str, Range] = info.data.get("over", {})
        if not over:  # which is wrong itself
            return draws
        ranges = [name for name, values in over.items() if _count(values) == math.inf]
        most = math.prod(map(_count, over.values())) + (info.data.get("include") == "default")
        if draws is None and ranges:
            raise ValueError(
                f"{ranges[0]} is drawn from a range, so say how many points each cell tries, e.g. draws = 12"
            )
        if draws is not None and draws > most:
            raise ValueError(f"the product has {counted(int(most), 'point')}; leave draws out to try all of them")
        return draws

    def points(self, search: int = 0) -> list[Point]:
        """The points that every cell tries in a search, in the order in which they are drawn; more draws extend them.

        The first is `DEFAULT` where it is included: one of the draws, or one more than a finite product.
        """
        included = [DEFAULT] if self.include == "default" else []
        if self.draws is None:
            every = ([*values] if isinstance(values, list) else _whole(values) for values in self.over.values())
            return included + [tuple(zip(self.over, values, strict=True)) for values in product(*every)]
        points, seed = dict[Point, None].fromkeys(included), self.seed + STRIDE * search
        for number in range(_CANDIDATES * self.draws):
            if len(points) == self.draws:
                break
            shares = {name: int(digest([seed, name, number])[:13], 16) / 16**13 for name in self.over}
            points[tuple((name, _at(values, shares[name])) for name, values in self.over.items())] = None
        return list(points)

    def tried(self, seeds: Sequence[int]) -> list[Draw]:
        """The points of all searches; each is trained with all of these seeds if chosen, or each search has one."""
        finals = [seeds] if self.repeats == 1 else [[seed] for seed in seeds]
        return [
            Draw(point, (*before, *after))
            for search, (before, after) in enumerate(zip(self.searches, finals, strict=True))
            for point in self.points(search)
        ]


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
