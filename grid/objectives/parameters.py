"""Catalogue entries of objectives, and parameters with their default under each variant."""

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal

from goalgrid.grid.errors import UserError, nearest, several, unknown

Variant = Literal["paper", "released"]
VARIANTS: tuple[Variant, ...] = ("paper", "released")

Value = int | float | bool | str | None

On = Literal["hardest", "all", "scores"]
"""The argument of a loss: triplets with the hardest negative, triplets with all negatives, or the score matrix."""

REDUCTIONS = ("sum", "mean", "average", "negatives")
"""Ways to reduce the values of all pairs and directions to a single number."""

MEAN_LOSS = '"train.mean_loss" = true'
"""The line of a grid file that averages a loss over the pairs of a batch instead of summing it."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a loss, an encoder or a scorer, with its default under each variant; `goalgrid.Parameter`.

    Args:
        default: also sets the type: 10.0 accepts any number, 10 whole numbers from 1, True booleans, a text `choices`.
        meaning: a one-line description with the unit, printed by `goalgrid objectives NAME`.
        released: the default under the variant "released", if it differs.
        choices: the allowed texts.
        optional: whether "none" is also allowed, e.g. for a margin, where it means no hinge.
        only_with: (name, value) of another parameter; this one has an effect only with that value. None: always.
        silent: for a parameter added later, the value in effect before it existed; with it, trials keep their ids.

    Raises:
        UserError: the default is not a valid value of the parameter.
    """

    default: Value
    meaning: str
    _: KW_ONLY
    released: Value = "as paper"
    choices: tuple[str, ...] = ()
    optional: bool = False
    only_with: tuple[str, Value] | None = None
    silent: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        if self.released == "as paper":
            object.__setattr__(self, "released", self.default)
        for name in ("choices", "silent"):  # which may be lists of a user's
            object.__setattr__(self, name, tuple(getattr(self, name)))
        this = f"Parameter({self.default!r}, ...)"
        if not all(isinstance(choice, str) for choice in self.choices):
            raise UserError(f"{this}: choices must be texts; a number takes no choices")
        for value in (self.default, self.released):
            if isinstance(value, str) and not self.choices:
                raise UserError(f"{this}: a text parameter needs choices, e.g. ('a', 'b')")
            if isinstance(value, float) and not math.isfinite(value):  # no grid file may say it again
                raise UserError(f"{this}: the default must be finite")
            try:
                self.parse(value)
            except ValueError as error:
                raise UserError(f"{this}: the default {error}") from None

    def read(self, values: Mapping[str, Any]) -> bool:
        """Return whether this parameter has an effect, given the values of the others."""
        return self.only_with is None or values[self.only_with[0]] == self.only_with[1]

    def of_variant(self, variant: str) -> Value:
        """Return the default under this variant."""
        return self.released if variant == "released" else self.default

    def parse(self, value: Any) -> Value:
        """Convert `value` to this parameter's type, so that 10 equals 10.0; raise a ValueError if it is invalid."""
        if self.optional and value in (None, "none"):
            return None
        if self.choices:
            if value not in self.choices:
                close = nearest(str(value), self.choices)
                hint = f". Did you mean {close[0]!r}?" if close else ""
                raise ValueError(f"must be one of {', '.join(self.choices)}, not {value!r}{hint}")
            return str(value)
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise ValueError(f"must be true or false, not {value!r}")
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"must be a number, not {value!r}")
        if isinstance(self.default, int):
            if value != int(value) or value < 1:
                raise ValueError(f"must be a whole number from 1 up, not {value!r}")
            return int(value)
        return float(value)


@dataclass(frozen=True)
class ObjectiveEntry:
    """The catalogue entry of an objective."""

    family: str
    """The family of its loss: the file in `objectives/` that defines the equation."""
    source: str
    formula: str
    own: dict[str, Parameter]
    """Parameters of its equation, named as in the function, and of the components it needs."""
    known_as: str = ""
    """An established name of the same loss."""
    reductions: tuple[Value, Value] = ("sum", "sum")
    """The default reduction over pairs and directions under each variant."""
    needs: tuple[str, ...] = ()
    """Names of the components that training adds for it."""
    columns: tuple[str, ...] = ()
    """Columns of the user's table that it reads, with one number per caption."""
    on: On = "hardest"
    remines: bool = True
    """Whether a grid may choose other negatives and use warm-up; False if the equation requires those of `on`."""
    surrogate: bool = False
    """Whether its gradient deliberately differs from the derivative of its value."""
    equation: Callable[..., Any] | None = None
    """The function or class; only set for user-defined objectives, because the shipped ones import torch."""

    @property
    def negatives(self) -> Literal["hardest", "all"]:
        """The default negatives of each anchor."""
        return "hardest" if self.on == "hardest" else "all"

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters of the equation, of the reduction over a batch, and of mining if it is configurable."""
        if self.on == "scores":
            return self.own
        return {**self.own, **_of_a_batch(*self.reductions), **(self._of_mining() if self.remines else {})}

    def defaults(self, variant: str) -> dict[str, Value]:
        """Return the default of each parameter under a variant."""
        return {key: parameter.of_variant(variant) for key, parameter in self.parameters.items()}

    def resolve(self, name: str, variant: str, overrides: Mapping[str, Any]) -> dict[str, Value]:
        """Return the variant's defaults, replaced by the overrides; raise a UserError that lists all problems."""
        problems = [] if variant in VARIANTS else [unknown("variant", variant, VARIANTS)]
        values = self.defaults(variant)
        for key, value in overrides.items():
            if key not in values:
                problems.append(unknown("parameter", key, values))
                continue
            try:
                values[key] = self.parameters[key].parse(value)
            except ValueError as error:
                problems.append(f"{key} {error}")
        if problems:
            raise several(f"objective {name!r}", problems)
        return values

    def accepted(self, overrides: Mapping[str, Any], variant: str = "paper") -> dict[str, Any]:
        """Return only the overrides of parameters that have an effect on this objective.

        >>> from goalgrid.grid.objectives import OURS
        >>> OURS["con_nca"].accepted({"tau": 5, "alpha": 3, "k": 2})
        {'tau': 5, 'k': 2}
        >>> OURS["con_con"].accepted({"mining": "all", "k": 2})
        {'mining': 'all'}
        """
        declared = {key: value for key, value in overrides.items() if key in self.parameters}
        values = self.defaults(variant) | declared
        return {key: value for key, value in declared.items() if self.parameters[key].read(values)}

    def warms_up(self, parameters: Mapping[str, Value]) -> bool:
        """Return whether warm-up is possible, i.e. it mines the hardest negatives and can also use all of them."""
        return self.remines and parameters.get("mining", self.negatives) == "hardest"

    def identifying(self, parameters: Mapping[str, Value]) -> dict[str, Value]:
        """Return the parameters that enter the trial id: all but those at the value in effect before they existed.

        >>> from goalgrid.grid.objectives import OURS
        >>> OURS["con_nca"].identifying(OURS["con_nca"].defaults("paper"))
        {'tau': 10.0, 'ignore_same_image': False}
        """
        return {key: value for key, value in parameters.items() if value not in self.parameters[key].silent}

    def _of_mining(self) -> dict[str, Parameter]:
        usual = self.negatives == "hardest"
        meaning = "negatives of each anchor that form triplets"
        if usual:
            meaning = "negatives of each anchor that form triplets; all: as in VSE-infinity's warm-up"
        silent: tuple[Value, ...] = ("hardest",) if usual else ()
        return {
            "mining": Parameter(self.negatives, meaning, choices=("hardest", "all"), silent=silent),
            "k": Parameter(1, "number of hardest negatives per anchor", silent=(1,), only_with=("mining", "hardest")),
        }


def _of_a_batch(paper: Value, released: Value) -> dict[str, Parameter]:
    meaning = "sum over pairs and directions; mean over pairs, sum of directions; average over both, and over negatives"
    return {
        "reduction": Parameter(paper, meaning, released=released, choices=REDUCTIONS, silent=("sum",)),
        "ignore_same_image": Parameter(False, "exclude captions of the same image from the negatives"),
    }


MARGIN = Parameter(0.2, "margin by which the positive's similarity must exceed the negative's")
BASE = Parameter(10.0, "base of the exponential that maps the clean probability to the margin")
MIXTURE = Parameter(
    "quartiles",
    "initialisation of the two-component Gaussian mixture that finds clean pairs. quartiles: fitted to convergence; "
    "k-means: ten steps, as in NCR's code",
    choices=("quartiles", "k-means"),
    silent=("quartiles",),
)
ALPHA = Parameter(2.0, "steepness of P+ over s_pos")
BETA = Parameter(10.0, "steepness of P- over s_neg")
LAM = Parameter(0.5, "similarity at which P+ and P- equal 1/2")
