"""An objective's entry in the catalogue, and its parameters with their default under each variant."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Variant = Literal["paper", "released"]
VARIANTS: tuple[Variant, ...] = ("paper", "released")

Value = int | float | bool | str | None


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
        """Bring `value` to this parameter's type, so that 10 and 10.0 are one setting.

        Raises:
            ValueError: it is of another type, or not among the choices.
        """
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
    """Parameters of its equation, named as in the function."""
    mining: Mining
    known_as: str = ""
    """A name that it had before."""
    reduction: tuple[Value, Value] = ("sum", "sum")
    """How pairs and directions become a single number, under each variant."""
    mixture: tuple[Value, Value] | None = None
    """Of an objective that reads the probability of each pair to be clean: how the mixture that estimates it starts and
    ends, under each variant."""
    reads_offline: bool = False
    """Whether it reads negatives that a trained model ranked in the whole training split."""
    learns_weights: bool = False
    """Whether weights of pairs learn beside the model, on one half of the validation split."""
    equation: Callable[..., Any] | None = None
    """Of a user's own objective: the function or class; the equations of ours stand in `objectives/`."""
    on: Literal["hardest", "all", "scores"] = "hardest"
    """Of a user's own objective, what its equation is a function of; from scores it computes the loss itself."""

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters of the equation, of the reduction over a batch, and of mining if a grid may choose it."""
        if self.on == "scores":
            return self.own
        estimate = _of_an_estimate(*self.mixture) if self.mixture else {}
        return {**self.own, **estimate, **_of_a_batch(*self.reduction), **self.mining.parameters}

    @property
    def reads_clean(self) -> bool:
        """Whether it reads the probability of each pair to be clean, which training estimates epoch by epoch."""
        return self.mixture is not None


def same(
    meaning: str, value: Value, choices: tuple[str, ...] = (), only_with: tuple[str, Value] | None = None
) -> Parameter:
    """A parameter with one default under both variants."""
    return Parameter(meaning, value, value, choices, only_with=only_with)


def _of_an_estimate(paper: Value, released: Value) -> dict[str, Parameter]:
    meaning = "two Gaussians tell clean pairs: quartiles, to convergence; k-means, ten steps, as NCR's code"
    choices = ("quartiles", "k-means")
    return {"mixture": Parameter(meaning, paper, released, choices=choices, silent=("quartiles",))}


def _of_a_batch(paper: Value, released: Value) -> dict[str, Parameter]:
    meaning = "sum over pairs and directions; mean over pairs, sum of directions; average over both"
    choices = ("sum", "mean", "average")
    return {
        "reduction": Parameter(meaning, paper, released, choices=choices, silent=("sum",)),
        "ignore_same_image": same("captions of the same image are no negatives", False),
    }
