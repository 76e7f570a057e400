"""The catalogue of objectives: names, parameters, published defaults; no torch.

The mathematics is in the room `objectives/`; here stands what a grid file may name, and what an identity contains.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from grid.errors import UserError, several, unknown

Variant = Literal["paper", "released"]
VARIANTS: tuple[Variant, ...] = ("paper", "released")


@dataclass(frozen=True)
class Parameter:
    """One number of an objective, with its default under each variant."""

    meaning: str
    paper: float | bool | str | None
    released: float | bool | str | None
    choices: tuple[str, ...] = ()
    optional: bool = False
    """Whether "none" is a value, as for the margin: no hinge."""

    def default(self, variant: Variant) -> float | bool | str | None:
        return self.released if variant == "released" else self.paper

    def parse(self, value: Any) -> float | bool | str | None:
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
        return float(value)


def _same(meaning: str, value: float | bool) -> Parameter:
    return Parameter(meaning, value, value)


ALPHA = _same("steepness of P+ over s_pos", 2.0)
BETA = _same("steepness of P- over s_neg", 10.0)
LAM = _same("similarity at which P+ and P- are one half", 0.5)
EPS = _same("slack of the relative sets, in similarity", 0.1)
TAU = _same("steepness of the triplet weight, per unit of similarity", 10.0)
SETS = Parameter(
    "which pairs the relative sets hold: 'paper' beyond the threshold; 'released' also at it, and exact ties "
    "do not count in the mean of lin-ms",
    "paper",
    "released",
    choices=("paper", "released"),
)

TRIPLET_WEIGHTS: dict[str, dict[str, Parameter]] = {
    "con": {
        "margin": Parameter("a triplet is active while s_neg + margin > s_pos; none: always", 0.2, None, optional=True)
    },
    "nca": {"tau": TAU},
    "cir": {
        "tau": TAU,
        "offset": Parameter("moves the contour T = 1/2 to (1 - s_pos)^2 + s_neg^2 = 1 - offset", 0.0, 0.5),
    },
}
"""Columns of GOAL's matrix, in its order."""

PAIR_WEIGHTS: dict[str, dict[str, Parameter]] = {
    "con": {},
    "lin": {},
    "sig": {"alpha": ALPHA, "beta": BETA, "lam": LAM},
    "lin-ms": {"eps": EPS, "empty": Parameter("m of an empty relative set", 0.0, 0.0), "sets": SETS},
    "sig-ms": {
        "alpha": ALPHA,
        "beta": BETA,
        "lam": LAM,
        "eps": EPS,
        "empty": Parameter("m of an empty relative set; 1 is neutral", 1.0, 0.0),
        "sets": SETS,
    },
}
"""Rows of GOAL's matrix, in its order."""

GOAL_PARAMETERS: dict[str, Parameter] = {
    "ignore_same_image": _same("captions of the same image are no negatives", False),
}
"""Parameters of every cell of the matrix."""

KNOWN_AS: dict[str, str] = {
    "con_con": "Triplet-HN",
    "con_nca": "NT-Xent on the hardest negative",
    "lin_cir": "Circle loss",
    "sig_con": "Binomial deviance",
    "sig-ms_con": "Multi-Similarity loss",
}
"""GOAL Table 1: the cells that had a name before. All others are new there."""

GOAL: tuple[str, ...] = tuple(f"{pair}_{triplet}" for pair in PAIR_WEIGHTS for triplet in TRIPLET_WEIGHTS)
"""The 15 names PAIR_TRIPLET, row by row."""

OBJECTIVES: dict[str, dict[str, Parameter]] = {
    name: {**TRIPLET_WEIGHTS[name.split("_")[1]], **PAIR_WEIGHTS[name.split("_")[0]], **GOAL_PARAMETERS}
    for name in GOAL
}
"""Every objective that a grid may name, with its parameters."""


def resolve(name: str, *, variant: str = "paper", **overrides: Any) -> dict[str, Any]:
    """All parameters of an objective: the variant's defaults, then the overrides.

    >>> resolve("con_cir", tau=5)
    {'tau': 5.0, 'offset': 0.0, 'ignore_same_image': False}

    Raises:
        UserError: the objective, the variant, or a parameter is unknown, or a value has the wrong type.
    """
    if name not in OBJECTIVES:
        raise UserError(unknown_objective(name))
    problems = []
    if variant not in VARIANTS:
        problems.append(unknown("variant", variant, VARIANTS))
        variant = "paper"
    parameters = OBJECTIVES[name]
    values = {
        key: parameter.default("released" if variant == "released" else "paper")
        for key, parameter in parameters.items()
    }
    for key, value in overrides.items():
        if key not in parameters:
            problems.append(unknown("parameter", key, parameters))
            continue
        try:
            values[key] = parameters[key].parse(value)
        except ValueError as error:
            problems.append(f"{key} {error}")
    if problems:
        raise several(f"objective {name!r}", problems)
    return values


def known_parameters() -> set[str]:
    """Every parameter name that some objective has."""
    return {key for parameters in OBJECTIVES.values() for key in parameters}


def accepted(name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Those overrides that this objective has: `objective.tau` in a grid file is for the cells with a tau."""
    return {key: value for key, value in overrides.items() if key in OBJECTIVES[name]}


def unknown_objective(name: str, where: str = "") -> str:
    """Name the half of PAIR_TRIPLET that is wrong, where the name has that form."""
    pair, separator, triplet = name.partition("_")
    if separator and triplet in TRIPLET_WEIGHTS and pair not in PAIR_WEIGHTS:
        return unknown("pair weight", pair, PAIR_WEIGHTS, where=f"of objective {name!r} {where}".strip())
    if separator and pair in PAIR_WEIGHTS and triplet not in TRIPLET_WEIGHTS:
        return unknown("triplet weight", triplet, TRIPLET_WEIGHTS, where=f"of objective {name!r} {where}".strip())
    return unknown("objective", name, OBJECTIVES, where=where, hint="'goal' stands for the 15 PAIR_TRIPLET.")
