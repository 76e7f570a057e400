"""The catalogue of objectives: their names, equations, parameters and published defaults, without torch.

The mathematics is in the room `objectives/`; here stands what a grid file may name, what a trial's identity contains,
and what `goalgrid objectives` prints.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from grid.errors import UserError, several, unknown

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


def _same(meaning: str, value: Value, choices: tuple[str, ...] = ()) -> Parameter:
    return Parameter(meaning, value, value, choices)


def _reduction(paper: str, released: str) -> dict[str, Parameter]:
    meaning = "sum over pairs and directions; mean over pairs, sum of directions; average over both"
    choices = ("sum", "mean", "average")
    return {"reduction": Parameter(meaning, paper, released, choices=choices, silent=("sum",))}


ALPHA = _same("steepness of P+ over s_pos", 2.0)
BETA = _same("steepness of P- over s_neg", 10.0)
LAM = _same("similarity at which P+ and P- are one half", 0.5)
EPS = _same("slack of the relative sets, in similarity", 0.1)
TAU = _same("steepness of the triplet weight, per unit of similarity", 10.0)
MARGIN = _same("by how much the positive is to lead, in similarity", 0.2)
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

COMMON: dict[str, Parameter] = {
    **_reduction("sum", "sum"),
    "ignore_same_image": _same("captions of the same image are no negatives", False),
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

GOAL_PARAMETERS: dict[str, Parameter] = {**COMMON, **MINING}
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

_TRIPLET_FORMULA = {
    "con": ("T = [s_neg + margin > s_pos]", "Eq. (5)"),
    "nca": ("T = sigmoid(tau (s_neg - s_pos))", "Eq. (7)"),
    "cir": ("T = sigmoid(tau (s_neg^2 - s_pos (2 - s_pos) + offset))", "Eq. (8)"),
}
_PAIR_FORMULA = {
    "con": ("P+ = P- = 1", "Eq. (9)"),
    "lin": ("P+ = 1 - s_pos, P- = s_neg", "Eq. (10)"),
    "sig": ("P+ = sigmoid(-alpha (s_pos - lam)), P- = sigmoid(beta (s_neg - lam))", "Eq. (11)"),
    "lin-ms": ("P+ = (1 - m+)(1 - s_pos), P- = (1 + m-) s_neg", "Eq. (13)"),
    "sig-ms": (
        "P+ = 1 / (m+ + exp(alpha (s_pos - lam))), P- = 1 / (m- + exp(-beta (s_neg - lam)))",
        "Eq. (12)",
    ),
}


def _cell(name: str) -> Entry:
    pair, triplet = name.split("_")
    (t_formula, t_equation), (p_formula, p_equation) = _TRIPLET_FORMULA[triplet], _PAIR_FORMULA[pair]
    return Entry(
        family="GOAL",
        source=f"GOAL {t_equation}, {p_equation}",
        formula=f"{t_formula}; {p_formula}",
        parameters={**TRIPLET_WEIGHTS[triplet], **PAIR_WEIGHTS[pair], **GOAL_PARAMETERS},
        known_as=KNOWN_AS.get(name, ""),
    )


_ALL = _same("which negatives of an anchor make triplets", "all", ("hardest", "all"))
_GAMMA = Parameter("how hard the mining is: the hardest alone as it grows", 60.0, 50.0)
_UNIFIED = {
    "gamma": _GAMMA,
    "margin": MARGIN,
    "scaled": Parameter("the factor 1/gamma", True, False),
}
_BASE = _same("base of the exponential from clean probability to margin", 10.0)

LOSSES: dict[str, Entry] = {
    "triplet": Entry(
        "hinge",
        "SelHN Eq. (2)",
        "sum over all negatives of [s_neg - s_pos + margin]+",
        {"margin": MARGIN, **COMMON, **MINING, "mining": _ALL},
        "sum of hinges",
    ),
    "triplet-hn": Entry(
        "hinge",
        "SelHN Eq. (3), Unified Eq. (1)",
        "[max s_neg - s_pos + margin]+",
        {"margin": MARGIN, **COMMON, **MINING},
        "Triplet-HN, VSE++",
    ),
    "shn": Entry(
        "hinge",
        "SelHN Eq. (13), (14)",
        "[s - s_pos + margin]+ with s the hardest negative below s_pos",
        {"margin": MARGIN, **COMMON},
        "semi-hard negatives",
    ),
    "sct": Entry(
        "hinge",
        "SelHN Eq. (15), (16)",
        "lam s_neg where s_neg >= s_pos, else [s_neg - s_pos + margin]+",
        {
            "margin": MARGIN,
            "tau": _same("steepness on the easy triplets under easy = softmax", 10.0),
            "lam": _same("weight of a hard negative", 1.0),
            "ceiling": Parameter("a negative above it is hard whatever its positive", None, 0.8, optional=True),
            "easy": Parameter("what an easy triplet costs", "hinge", "softmax", choices=("hinge", "softmax")),
            **COMMON,
            **_reduction("sum", "average"),
        },
        "Selectively Contrastive Triplet",
    ),
    "selhn": Entry(
        "hinge",
        "SelHN Eq. (9)-(12)",
        "[max s_neg - s_pos + margin]+ where |max s_neg - s_pos| > epsilon, else 1/B sum of [s_neg - s_pos + margin]+",
        {
            "margin": MARGIN,
            "epsilon": _same("|s_neg - s_pos| up to which all negatives are used", 0.01),
            "divisor": Parameter(
                "what the sum over negatives is divided by: B or B - 1",
                "batch",
                "negatives",
                choices=("batch", "negatives"),
            ),
            **COMMON,
            **_reduction("sum", "average"),
        },
        "RVSE++",
    ),
    "nt-xent-hn": Entry(
        "contrastive",
        "GOAL Eq. (6)",
        "log(1 + exp(tau (max s_neg - s_pos)))",
        {"tau": _same("inverse temperature", 10.0), **COMMON, **MINING},
        "NT-Xent on the hardest negative",
    ),
    "infonce": Entry(
        "contrastive",
        "Unified Eq. (3), (4); released: open_clip",
        "log(1 + sum of exp(gamma (s_neg - s_pos)))",
        {
            "gamma": Parameter("inverse temperature", 50.0, 1 / 0.07),
            **COMMON,
            **_reduction("sum", "average"),
        },
        "VLC, CLIP's loss",
    ),
    "unified": Entry(
        "contrastive",
        "Unified Eq. (5)",
        "1/gamma log(1 + sum of exp(gamma (s_neg - s_pos + margin)))",
        {**_UNIFIED, **COMMON, **_reduction("sum", "mean")},
        "Unified loss of pair similarity",
    ),
    "unified-weighted": Entry(
        "contrastive",
        "Unified Eq. (24)",
        "1/gamma log(1 + sum of exp(gamma (w_neg s_neg - w_pos s_pos + margin)))",
        {
            **_UNIFIED,
            "weights": _same("GOAL's pair weights as w, constant", "lin", ("con", "lin", "sig")),
            **COMMON,
            **_reduction("sum", "mean"),
        },
    ),
    "unified-adaptive": Entry(
        "contrastive",
        "Unified Eq. (26)",
        "1/gamma log(1 + sum of exp(gamma (s_neg - s_pos + m_i))), m_i from the pair's clean probability",
        {**_UNIFIED, "base": _BASE, **COMMON, **_reduction("sum", "mean")},
    ),
    "adopt": Entry(
        "contrastive",
        "VSE+2AD Eq. (6) and after",
        "log(sum over the K hardest of exp((s_neg + margin) / temperature)) - s_pos / temperature, K by maturity",
        {
            "temperature": _same("divides the similarities", 0.05),
            "margin": Parameter("added to the negatives, in similarity", 0.0, 0.2),
            "positive": Parameter("whether the positive is in the sum", False, True),
            "count": Parameter("which formula gives K", "paper", "released", choices=("paper", "released")),
            "scale": _same("exponent in the released K", 1.25),
            **COMMON,
            **_reduction("mean", "average"),
        },
        "ADOPT",
    ),
    "binomial": Entry(
        "pairwise",
        "GOAL Eq. (11), integrated",
        "1/alpha log(1 + exp(-alpha (s_pos - lam))) + 1/beta mean of log(1 + exp(beta (s_neg - lam)))",
        {"alpha": ALPHA, "beta": BETA, "lam": LAM, **COMMON, **MINING},
        "Binomial deviance",
    ),
    "multi-similarity": Entry(
        "pairwise",
        "Multi-Similarity loss, with its miner",
        "1/alpha log(1 + exp(-alpha (s_pos - lam))) + 1/beta log(1 + sum of exp(beta (s_neg - lam)))",
        {
            "alpha": _same("steepness over s_pos", 2.0),
            "beta": Parameter("steepness over s_neg", 50.0, 40.0),
            "lam": Parameter("similarity around which pairs are weighed", 1.0, 0.5),
            "eps": _same("slack of the miner, in similarity", 0.1),
            **COMMON,
            **_reduction("mean", "mean"),
        },
        "Multi-Similarity loss",
    ),
    "circle": Entry(
        "pairwise",
        "Circle loss",
        "log(1 + sum of exp(gamma (a_neg (s_neg - margin) - a_pos (s_pos - 1 + margin))))",
        {
            "gamma": _same("scale", 80.0),
            "margin": _same("relaxation: optimum at s_pos = 1 + margin, s_neg = -margin", 0.4),
            **COMMON,
            **MINING,
            "mining": _ALL,
            **_reduction("mean", "average"),
        },
        "Circle loss",
    ),
    "ssp": Entry(
        "polynomial",
        "Universal Weighting, as in Unified §4",
        "[a0 + a1 s_pos + a2 s_pos^2 + b0 + b1 s_neg + b2 s_neg^2]+",
        {
            "a0": _same("constant coefficient for s_pos", 0.5),
            "a1": _same("linear coefficient for s_pos", -0.7),
            "a2": _same("quadratic coefficient for s_pos", 0.2),
            "b0": _same("constant coefficient for s_neg", 0.03),
            "b1": _same("linear coefficient for s_neg", -0.4),
            "b2": _same("quadratic coefficient for s_neg", 0.9),
            "margin": _same("under hinges = two, only triplets with s_neg + margin > s_pos count", 0.2),
            "hinges": Parameter("one on the sum, or two on its parts", "one", "two", choices=("one", "two")),
            **COMMON,
            **MINING,
            **_reduction("mean", "mean"),
        },
        "Self-Similarity Polynomial",
    ),
    "rsp": Entry(
        "polynomial",
        "Unified Eq. (25)",
        "[(c0 + c1 r + c2 r^2) r + margin]+ with r = s_neg - s_pos and the polynomial constant",
        {
            "c0": _same("constant coefficient of the weight", 1.0),
            "c1": _same("linear coefficient of the weight", 1.0),
            "c2": _same("quadratic coefficient of the weight", 0.0),
            "margin": MARGIN,
            **COMMON,
            **MINING,
        },
        "Relative-Similarity Polynomial",
    ),
    "ncr": Entry(
        "noisy",
        "Unified Eq. (27)",
        "[max s_neg - s_pos + m_i]+ with m_i = margin (base^y - 1) / (base - 1), y the pair's clean probability",
        {"margin": MARGIN, "base": _BASE, **COMMON, **MINING},
        "Noisy Correspondence Rectifier",
    ),
}
"""The losses that are no cells of GOAL's matrix."""

MINES_ALL: frozenset[str] = frozenset(
    (
        "shn",
        "selhn",
        "infonce",
        "unified",
        "unified-weighted",
        "unified-adaptive",
        "adopt",
        "multi-similarity",
    )
)
"""Losses that choose among all negatives of an anchor themselves."""

CATALOGUE: dict[str, Entry] = {**{name: _cell(name) for name in GOAL}, **LOSSES}
"""Every objective that a grid may name."""

OBJECTIVES: dict[str, dict[str, Parameter]] = {name: entry.parameters for name, entry in CATALOGUE.items()}
"""Every objective that a grid may name, with its parameters."""


def resolve(name: str, *, variant: str = "paper", **overrides: Any) -> dict[str, Any]:
    """All parameters of an objective: the variant's defaults, then the overrides.

    >>> resolve("con_cir", tau=5)  # doctest: +NORMALIZE_WHITESPACE
    {'tau': 5.0, 'offset': 0.0, 'reduction': 'sum', 'ignore_same_image': False, 'mining': 'hardest', 'k': 1}

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


def identifying(name: str, parameters: Mapping[str, Value]) -> dict[str, Value]:
    """The parameters without those that still have the value in effect before they existed.

    >>> identifying("con_nca", resolve("con_nca"))
    {'tau': 10.0, 'ignore_same_image': False}
    """
    known = OBJECTIVES[name]
    return {key: value for key, value in parameters.items() if value not in known[key].silent}


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
