"""[select]: hyper-parameter search of each cell on the validation split: its points and seeds."""

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
"""(setting, value) pairs, with dotted names."""
Range = list[Scalar] | dict[str, list[int | float]]
"""A list of values, or a distribution: `{"log_uniform": [1e-5, 1e-3]}`."""

DEFAULT: Point = ()
"""The default point: it sets nothing, so the cell has the values of its recipe and objective."""
STRIDE = 100
"""Offset between the seeds of consecutive searches."""
_DIGITS = 3
"""Significant digits of a number drawn from a distribution."""
_CANDIDATES = 100
"""Maximum number of candidates per requested point, because duplicates of earlier points are discarded."""


class Draw(NamedTuple):
    """A search point with the seeds of its trials."""

    point: Point
    seeds: tuple[int, ...]
    """Seeds of the search trial, of the confirming trials, and of the final trials (if the point is chosen)."""


@dataclass(frozen=True)
class Halving:
    """Successive halving: at epochs `grace`, `grace * factor`, ..., keep the best `1/factor` of a cell's trials."""

    cell: str
    """The cell; only its own trials are compared with one another."""
    by: str
    """A validation metric of the history, e.g. "val_rsum"; higher is better."""
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
    """[select]: the hyper-parameter search of each cell, before it is trained with the grid's seeds."""

    over: Annotated[dict[str, Annotated[Range, PlainValidator(_range)]], Field(min_length=1)] = Field(
        description="settings that each cell chooses, each with a list of values, { uniform = [low, high] } or "
        "{ log_uniform = [low, high] }; uniform draws integers if both ends are integers"
    )
    include: Literal["none", "default"] = Field(
        default="none",
        description="default: the first point has the default values of recipe and objective; it counts as one of the "
        "draws",
    )
    draws: Annotated[PositiveInt | None, Unit("points"), Field(validate_default=True)] = Field(
        default=None, description="number of points that each cell tries; none: all combinations of the listed values"
    )
    seed: NonNegativeInt = Field(
        default=100, description="seed of the search trials; must not be one of the grid's seeds"
    )
    by: Literal["val_rsum", "val_i2t_r1", "val_i2t_r5", "val_i2t_r10", "val_t2i_r1", "val_t2i_r5", "val_t2i_r10"] = (
        Field(default="val_rsum", description="validation metric by which points are chosen")
    )
    stop: Literal["none", "asha"] = Field(
        default="none", description="asha: stop search trials early that are worse than others of their cell"
    )
    grace: Annotated[PositiveInt, Unit("epochs")] = Field(
        default=2,
        description="epochs before a search trial may be stopped; later checks follow at grace x factor, "
        "grace x factor^2 and so on",
    )
    factor: Annotated[int, Field(ge=2)] = Field(
        default=3, description="asha continues the best 1 / factor of the search trials at each check"
    )

    confirm: Annotated[NonNegativeInt, Unit("points"), AfterValidator(_several)] = Field(
        default=0,
        description="number of best points per cell that are also trained with confirm_seeds further seeds; their mean "
        "over seeds then decides; 0: only the search seed decides",
    )
    confirm_seeds: Annotated[int, Field(ge=1, lt=STRIDE), Unit("seeds")] = Field(
        default=2, description="number of further seeds that confirm a point: those following select.seed"
    )
    repeats: PositiveInt = Field(
        default=1,
        description="independent searches per cell, each with its own draws and seeds; 1, or as many as seeds: each "
        "seed "
        "is then trained with the values of one search, so the spread over seeds includes that of the search",
    )

    @property
    def searches(self) -> list[range]:
        """The seeds of each search: that of its search trials, followed by the confirming seeds."""
        seeds = 1 + (self.confirm_seeds if self.confirm else 0)
        return [range(first, first + seeds) for first in (self.seed + STRIDE * n for n in range(self.repeats))]

    @property
    def seeds(self) -> frozenset[int]:
        """All seeds used in searches; no trial of a table has one of them."""
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
        """Return the points that every cell tries in a search, in draw order; more draws only append points.

        If included, `DEFAULT` comes first: as one of the draws, or in addition to all combinations of listed values.
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
        """Return the points of all searches with their seeds; with `repeats`, each search has one of `seeds`."""
        finals = [seeds] if self.repeats == 1 else [[seed] for seed in seeds]
        return [
            Draw(point, (*before, *after))
            for search, (before, after) in enumerate(zip(self.searches, finals, strict=True))
            for point in self.points(search)
        ]


def _whole(values: Mapping[str, Sequence[float]]) -> Sequence[Scalar]:
    """The integers of a uniform distribution with integer ends; empty for continuous distributions."""
    low, high = values.get("uniform", (0.0, 0.0))
    return range(low, high + 1) if isinstance(low, int) and isinstance(high, int) else ()


def _count(values: Range) -> float:
    return len(values) if isinstance(values, list) else len(_whole(values)) or math.inf


def _at(values: Range, share: float) -> Scalar:
    """The value at the quantile `share`, in [0, 1), of a list or distribution."""
    several = values if isinstance(values, list) else _whole(values)
    if several:
        return several[int(share * len(several))]
    ((kind, (low, high)),) = values.items()  # type: ignore[union-attr]
    exact = low * (high / low) ** share if kind == "log_uniform" else low + (high - low) * share
    return min(max(float(f"{exact:.{_DIGITS}g}"), low), high)
