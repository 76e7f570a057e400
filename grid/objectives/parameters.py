"""An objective's entry in the catalogue, and its parameters with their default under each variant."""

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
"""Argument of a loss: triplets with the hardest negative, triplets with all negatives, or all scores."""

REDUCTIONS = ("sum", "mean", "average", "negatives")
"""How the values of pairs and directions become a single number."""

MEAN_LOSS = '"train.mean_loss" = true'
"""The line of a grid file that divides losses which sum over a batch by its number of pairs."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a loss, an encoder or a scorer, with its default under each variant; `goalgrid.Parameter`.

    Args:
        default: 10.0 takes any number, 10 whole numbers from 1 up, True a truth value, a text one of the choices.
        meaning: one line, with its unit; `goalgrid objectives NAME` prints it.
        released: the default under the variant "released", where it differs.
        choices: the texts that it may be.
        optional: whether "none" is a value, too, as for the margin: no hinge.
        only_with: another parameter and the value of it with which this one is read; None: it is always read.
        silent: for a parameter that came later, the value in effect before: with it, trials keep their ids.

    Raises:
        UserError: the default is no value of such a parameter.
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
        """Return whether the equation reads this parameter when the others have these values."""
        return self.only_with is None or values[self.only_with[0]] == self.only_with[1]

    def of_variant(self, variant: str) -> Value:
        """Return the default under this variant."""
        return self.released if variant == "released" else self.default

    def parse(self, value: Any) -> Value:
        """Bring `value` to this parameter's type, so that 10 and 10.0 are one setting; ValueError: it does not fit."""
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
    """An objective in the catalogue, with the source of its equation."""

    family: str
    """The file in `objectives/` that has the loss's equation."""
    source: str
    formula: str
    own: dict[str, Parameter]
    """Parameters of its equation, named as in the function, and of what it needs."""
    known_as: str = ""
    """A name that it had before."""
    reductions: tuple[Value, Value] = ("sum", "sum")
    """How pairs and directions become a single number, under each variant."""
    needs: tuple[str, ...] = ()
    """Names of the parts that training adds for it."""
    columns: tuple[str, ...] = ()
    """Columns of the user's table that it reads, a number a caption."""
    on: On = "hardest"
    remines: bool = True
    """Whether a grid may choose other negatives, and a trainer warm up; else the equation means these alone."""
    surrogate: bool = False
    """Whether its gradient is, on purpose, another than the derivative of its value."""
    equation: Callable[..., Any] | None = None
    """The function or class; of a user's own objective alone, since ours import torch."""

    @property
    def negatives(self) -> Literal["hardest", "all"]:
        """The negatives of an anchor that it gets, unless a grid chooses others."""
        return "hardest" if self.on == "hardest" else "all"

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters of the equation, of the reduction over a batch, and of mining if a grid may choose it."""
        if self.on == "scores":
            return self.own
        return {**self.own, **_of_a_batch(*self.reductions), **(self._of_mining() if self.remines else {})}

    def defaults(self, variant: str) -> dict[str, Value]:
        """Return the default of each parameter under a variant."""
        return {key: parameter.of_variant(variant) for key, parameter in self.parameters.items()}

    def resolve(self, name: str, variant: str, overrides: Mapping[str, Any]) -> dict[str, Value]:
        """Return all parameters: the variant's defaults, then the overrides; UserError names what is wrong in them."""
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
        """Return the overrides of parameters that this objective has and reads: not every cell has a tau.

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
        """Return whether a trainer may warm up for it: it mines the hardest negatives, and may mine all."""
        return self.remines and parameters.get("mining", self.negatives) == "hardest"

    def identifying(self, parameters: Mapping[str, Value]) -> dict[str, Value]:
        """Return the parameters without those whose value was in effect before they existed.

        >>> from goalgrid.grid.objectives import OURS
        >>> OURS["con_nca"].identifying(OURS["con_nca"].defaults("paper"))
        {'tau': 10.0, 'ignore_same_image': False}
        """
        return {key: value for key, value in parameters.items() if value not in self.parameters[key].silent}

    def _of_mining(self) -> dict[str, Parameter]:
        usual = self.negatives == "hardest"
        meaning = "which negatives of an anchor make triplets"
        if usual:
            meaning = "which negatives of an anchor make triplets; all is VSE-infinity's warm-up"
        silent: tuple[Value, ...] = ("hardest",) if usual else ()
        return {
            "mining": Parameter(self.negatives, meaning, choices=("hardest", "all"), silent=silent),
            "k": Parameter(1, "how many hardest negatives", silent=(1,), only_with=("mining", "hardest")),
        }


def _of_a_batch(paper: Value, released: Value) -> dict[str, Parameter]:
    meaning = "sum over pairs and directions; mean over pairs, sum of directions; average over both, and over negatives"
    return {
        "reduction": Parameter(paper, meaning, released=released, choices=REDUCTIONS, silent=("sum",)),
        "ignore_same_image": Parameter(False, "exclude captions of the same image from the negatives"),
    }


MARGIN = Parameter(0.2, "lead in similarity that a positive must have")
BASE = Parameter(10.0, "base of the exponential from clean probability to margin")
MIXTURE = Parameter(
    "quartiles",
    "start of the two Gaussians that find clean pairs: quartiles, then to convergence; k-means, then ten steps, as "
    "NCR's code",
    choices=("quartiles", "k-means"),
    silent=("quartiles",),
)
ALPHA = Parameter(2.0, "steepness of P+ over s_pos")
BETA = Parameter(10.0, "steepness of P- over s_neg")
LAM = Parameter(0.5, "similarity at which P+ and P- are one half")
