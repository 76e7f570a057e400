"""GOAL's matrix: the pair and triplet weights with their parameters and equations, and the 15 cells that they make."""

from collections.abc import Collection
from dataclasses import dataclass

from goalgrid.grid.objectives.parameters import Mining, ObjectiveEntry, Parameter, same


@dataclass(frozen=True)
class Weight:
    """A triplet weight or a pair weight, with the source of its equation."""

    formula: str
    source: str
    parameters: dict[str, Parameter]
    """Parameters of its equation and of its relative sets, named as in the function."""


ALPHA = same("steepness of P+ over s_pos", 2.0)
BETA = same("steepness of P- over s_neg", 10.0)
LAM = same("similarity at which P+ and P- are one half", 0.5)
EPS = same("slack of the relative sets, in similarity", 0.1)
TAU = same("steepness of the triplet weight, per unit of similarity; the released class defaults to 1", 10.0)
SLACK = Parameter("a triplet is active while s_neg + margin > s_pos; none: always", 0.2, None, optional=True)
OFFSET = Parameter("moves the contour T = 1/2 to (1 - s_pos)^2 + s_neg^2 = 1 - offset", 0.0, 0.5)
SIGMOIDS = {"alpha": ALPHA, "beta": BETA, "lam": LAM}
SETS = Parameter(
    "which pairs the relative sets hold: 'paper' beyond the threshold; 'released' also at it, and exact ties "
    "do not count in the mean of lin-ms",
    "paper",
    "released",
    choices=("paper", "released"),
)

TRIPLET_WEIGHTS: dict[str, Weight] = {
    "con": Weight(
        "T = [s_neg + margin > s_pos]",
        "GOAL Eq. (5)",
        {"margin": SLACK},
    ),
    "nca": Weight("T = sigmoid(tau (s_neg - s_pos))", "GOAL Eq. (7)", {"tau": TAU}),
    "cir": Weight(
        "T = sigmoid(tau (s_neg^2 - s_pos (2 - s_pos) + offset))",
        "GOAL Eq. (8)",
        {"tau": TAU, "offset": OFFSET},
    ),
}
"""Columns of the matrix; GOAL's in its order."""

PAIR_WEIGHTS: dict[str, Weight] = {
    "con": Weight("P+ = P- = 1", "GOAL Eq. (9)", {}),
    "lin": Weight("P+ = 1 - s_pos, P- = s_neg", "GOAL Eq. (10)", {}),
    "sig": Weight(
        "P+ = sigmoid(-alpha (s_pos - lam)), P- = sigmoid(beta (s_neg - lam))",
        "GOAL Eq. (11)",
        SIGMOIDS,
    ),
    "lin-ms": Weight(
        "P+ = (1 - m+)(1 - s_pos), P- = (1 + m-) s_neg",
        "GOAL Eq. (13)",
        {"eps": EPS, "empty": Parameter("m of an empty relative set", 0.0, 0.0), "sets": SETS},
    ),
    "sig-ms": Weight(
        "P+ = 1 / (m+ + exp(alpha (s_pos - lam))), P- = 1 / (m- + exp(-beta (s_neg - lam)))",
        "GOAL Eq. (12)",
        {
            **SIGMOIDS,
            "eps": EPS,
            "empty": Parameter("m of an empty relative set; 1 is neutral", 1.0, 0.0),
            "sets": SETS,
        },
    ),
}
"""Rows of the matrix; GOAL's in its order."""

KNOWN_AS: dict[str, str] = {
    "con_con": "Triplet-HN",
    "con_nca": "NT-Xent on the hardest negative",
    "lin_cir": "Circle loss",
    "sig_con": "Binomial deviance",
    "sig-ms_con": "Multi-Similarity loss",
}
"""GOAL Table 1: the cells that had a name before. The other cells are new in GOAL."""

GOAL_ROWS = ("con", "lin", "sig", "lin-ms", "sig-ms")
GOAL_COLUMNS = ("con", "nca", "cir")
GOAL: tuple[str, ...] = tuple(f"{pair}_{triplet}" for pair in GOAL_ROWS for triplet in GOAL_COLUMNS)
"""The 15 names PAIR_TRIPLET, row by row, that "goal" stands for in a grid, whatever weights are added."""


def _cell(name: str) -> ObjectiveEntry:
    pair, triplet = name.split("_")
    t, p = TRIPLET_WEIGHTS[triplet], PAIR_WEIGHTS[pair]
    return ObjectiveEntry(
        family="GOAL" if name in GOAL else "added cell",
        source=f"{t.source}; {p.source}",
        formula=f"{t.formula}; {p.formula}",
        own={**t.parameters, **p.parameters},
        mining=Mining("hardest", fixed=False),
        known_as=KNOWN_AS.get(name, ""),
    )


CELLS: dict[str, ObjectiveEntry] = {
    name: _cell(name) for name in (f"{pair}_{triplet}" for pair in PAIR_WEIGHTS for triplet in TRIPLET_WEIGHTS)
}
"""Every pair weight with every triplet weight: GOAL's 15 cells, and the cells of weights that were added."""


def of_a_loss(name: str) -> bool:
    """Whether a cell of GOAL's matrix is the gradient of a loss, with m+ and m- held constant and without a hinge.

    -T P+ and T P- are the derivatives of a loss if dT/ds_neg P+ = -dT/ds_pos P-. A constant T has that for any P; T^nca
    needs P+ = P-, and T^cir s_neg P+ = (1 - s_pos) P-.

    >>> [name for name in GOAL if of_a_loss(name)]
    ['con_con', 'con_nca', 'lin_con', 'lin_cir', 'sig_con', 'lin-ms_con', 'sig-ms_con']
    """
    return name.endswith("_con") or name in ("con_nca", "lin_cir")


def is_matrix(objectives: Collection[str]) -> bool:
    """Whether objectives are shown as a matrix: all have a place in it, and they fill half of GOAL's cells or more.

    >>> is_matrix(GOAL), is_matrix(GOAL[:8]), is_matrix(GOAL[:7]), is_matrix([*GOAL, "infonce"])
    (True, True, False, False)
    """
    return set(objectives) <= set(CELLS) and 2 * len(set(objectives)) >= len(GOAL)
