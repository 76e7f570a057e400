"""What describes an objective: parameters with their default under each variant, and its entry of the catalogue."""

from dataclasses import dataclass
from typing import Any, Literal

Variant = Literal["paper", "released"]
VARIANTS: tuple[Variant, ...] = ("paper", "released")

Value = int | float | bool | str | None


@dataclass(frozen=True)
class Parameter:
    """One number of an objective, with its default under each variant."""

    meaning: str
    paper: Value
    released: Value
    choices: tuple[str, ...] = ()
    optional: bool = False
    """Whether "none" is a value, as for the margin: no hinge."""
    silent: tuple[Value, ...] = ()
    """For a parameter that came later: the value in effect before it (its frozen identity default); never changed."""

    def default(self, variant: Variant) -> Value:
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
class Entry:
    """One objective of the catalogue."""

    family: str
    source: str
    """Where its equation stands."""
    formula: str
    parameters: dict[str, Parameter]
    known_as: str = ""
    """The name it had before, if it had one."""


def same(meaning: str, value: Value, choices: tuple[str, ...] = ()) -> Parameter:
    """A parameter with one default under both variants."""
    return Parameter(meaning, value, value, choices)


def reduction(paper: str, released: str) -> dict[str, Parameter]:
    """How pairs and directions become one number."""
    meaning = "sum over pairs and directions; mean over pairs, sum of directions; average over both"
    choices = ("sum", "mean", "average")
    return {"reduction": Parameter(meaning, paper, released, choices=choices, silent=("sum",))}


COMMON: dict[str, Parameter] = {
    **reduction("sum", "sum"),
    "ignore_same_image": same("captions of the same image are no negatives", False),
}
"""Parameters of every objective."""

MINING: dict[str, Parameter] = {
    "mining": Parameter(
        "which negatives of an anchor make triplets; all is VSE-infinity's warm-up",
        "hardest",
        "hardest",
        choices=("hardest", "all"),
        silent=("hardest",),
    ),
    "k": Parameter("how many hardest negatives, under mining = hardest", 1, 1, silent=(1,)),
}
"""Parameters of the objectives that are a sum over whatever triplets are mined."""
