"""An objective's entry in the catalogue, and its parameters with their default under each variant."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from goalgrid.grid.errors import UserError

Variant = Literal["paper", "released"]
VARIANTS: tuple[Variant, ...] = ("paper", "released")

Value = int | float | bool | str | None

On = Literal["hardest", "all", "scores"]
"""What a loss is a function of: triplets with the hardest negative, triplets with all negatives, or all scores."""

REDUCTIONS = ("sum", "mean", "average", "negatives")
"""How the values of pairs and directions become a single number."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of an objective, with its default under each variant."""

    meaning: str
    paper: Value
    released: Value
    choices: tuple[str, ...] = ()
    optional: bool = False
    """Whether "none" is a value, as for the margin: no hinge."""
    silent: tuple[Value, ...] = ()
    """For a parameter that came later: the value in effect before it, its frozen identity default."""
    only_with: tuple[str, Value] | None = None
    """Another parameter and the value of it with which this parameter is read; None: it is always read."""

    def read(self, values: Mapping[str, Any]) -> bool:
        """Whether the equation reads this parameter when the others have these values."""
        return self.only_with is None or values[self.only_with[0]] == self.only_with[1]

    def default(self, variant: str) -> Value:
        return self.released if variant == "released" else self.paper

    def parse(self, value: Any) -> Value:
        """Bring `value` to this parameter's type, so that 10 and 10.0 are one setting; ValueError: it does not fit."""
        if self.optional and value in (None, "none"):
            return None
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"must be one of {', '.join(self.choices)}, not {value!r}")
            return str(value)
        if isinstance(self.paper, bool):
            if not isinstance(value, bool):
                raise ValueError(f"must be true or false, not {value!r}")
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"must be a number, not {value!r}")
        if isinstance(self.paper, int):
            if value != int(value) or value < 1:
                raise ValueError(f"must be a whole number from 1 up, not {value!r}")
            return int(value)
        return float(value)


@dataclass(frozen=True)
class Mining:
    """The negatives of an anchor that an objective gets."""

    negatives: Literal["hardest", "all"]
    fixed: bool
    """Whether the equation has a meaning on these negatives alone; else a grid chooses, and a trainer may warm up."""

    @property
    def parameters(self) -> dict[str, Parameter]:
        if self.fixed:
            return {}
        usual = self.negatives == "hardest"
        meaning = "which negatives of an anchor make triplets" + "; all is VSE-infinity's warm-up" * usual
        silent: tuple[Value, ...] = ("hardest",) if usual else ()
        return {
            "mining": Parameter(meaning, self.negatives, self.negatives, choices=("hardest", "all"), silent=silent),
            "k": Parameter("how many hardest negatives", 1, 1, silent=(1,), only_with=("mining", "hardest")),
        }


@dataclass(frozen=True)
class ObjectiveEntry:
    """An objective in the catalogue, with the source of its equation."""

    family: str
    """Of a loss, the file in `objectives/` that its equation stands in."""
    source: str
    formula: str
    own: dict[str, Parameter]
    """Parameters of its equation, named as in the function, and of what it needs."""
    mining: Mining
    known_as: str = ""
    """A name that it had before."""
    reductions: tuple[Value, Value] = ("sum", "sum")
    """How pairs and directions become a single number, under each variant."""
    needs: tuple[str, ...] = ()
    """Names of the parts that training adds for it."""
    on: On = "hardest"
    equation: Callable[..., Any] | None = None
    """The function or class; in the catalogue of a user's own objective alone, since ours import torch."""

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters of the equation, of the reduction over a batch, and of mining if a grid may choose it."""
        if self.on == "scores":
            return self.own
        return {**self.own, **_of_a_batch(*self.reductions), **self.mining.parameters}


def parameter(
    default: Value,
    meaning: str,
    *,
    released: Value | Literal["as paper"] = "as paper",
    choices: tuple[str, ...] = (),
    optional: bool = False,
    only_with: tuple[str, Value] | None = None,
    silent: tuple[Value, ...] = (),
) -> Parameter:
    """A parameter of a loss; `goalgrid.Parameter`.

    Args:
        default: 10.0 takes any number, 10 whole numbers from 1 up, True a truth value, a text one of the choices.
        meaning: one line, with its unit; `goalgrid objectives NAME` prints it.
        released: the default under the variant "released", where it differs.
        choices: the texts that it may be.
        optional: whether "none" is a value, too.
        only_with: another parameter and the value with which this one is read.
        silent: for a parameter that came later, the value in effect before: with it, trials keep their ids.

    Raises:
        UserError: the default is no value of such a parameter.
    """
    both = default, default if released == "as paper" else released
    entry = Parameter(meaning, *both, tuple(choices), optional, tuple(silent), only_with)
    for value in both:
        if isinstance(value, str) and not choices:
            raise UserError(
                f"Parameter({default!r}, ...): a parameter that is a text needs its choices, e.g. ('a', 'b')"
            )
        try:
            entry.parse(value)
        except ValueError as error:
            raise UserError(f"Parameter({default!r}, ...): the default {error}") from None
    return entry


def _of_a_batch(paper: Value, released: Value) -> dict[str, Parameter]:
    meaning = "sum over pairs and directions; mean over pairs, sum of directions; average over both, and over negatives"
    return {
        "reduction": Parameter(meaning, paper, released, choices=REDUCTIONS, silent=("sum",)),
        "ignore_same_image": Parameter("captions of the same image are no negatives", False, False),
    }


MARGIN = parameter(0.2, "by how much the positive is to lead, in similarity")
BASE = parameter(10.0, "base of the exponential from clean probability to margin")
MIXTURE = parameter(
    "quartiles",
    "two Gaussians tell clean pairs: quartiles, to convergence; k-means, ten steps, as NCR's code",
    choices=("quartiles", "k-means"),
    silent=("quartiles",),
)
ALPHA = parameter(2.0, "steepness of P+ over s_pos")
BETA = parameter(10.0, "steepness of P- over s_neg")
LAM = parameter(0.5, "similarity at which P+ and P- are one half")
