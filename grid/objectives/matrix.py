"""GOAL's matrix: the pair and triplet weights with their parameters and equations, and the 15 cells that they make."""

from grid.objectives.parameters import COMMON, MINING, Entry, Parameter, same

ALPHA = same("steepness of P+ over s_pos", 2.0)
BETA = same("steepness of P- over s_neg", 10.0)
LAM = same("similarity at which P+ and P- are one half", 0.5)
EPS = same("slack of the relative sets, in similarity", 0.1)
TAU = same("steepness of the triplet weight, per unit of similarity", 10.0)
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


CELLS: dict[str, Entry] = {name: _cell(name) for name in GOAL}
"""The 15, in their order."""
