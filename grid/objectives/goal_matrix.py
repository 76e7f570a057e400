"""GOAL's matrix: the pair and triplet weights declared in `objectives/`, and the 15 objectives that combine them."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from goalgrid.grid.objectives.declared import Declared, declarations
from goalgrid.grid.objectives.parameters import ObjectiveEntry, Parameter


@dataclass(frozen=True)
class Weight:
    """A triplet weight or a pair weight, with the source of its equation."""

    formula: str
    source: str
    own: dict[str, Parameter]
    """Parameters of its equation and of `relative`, named as in the functions."""
    relative: Callable[..., Any] | None = None
    """For a pair weight that reads m+ and m-: builds the sets whose means they are."""
    equation: Callable[..., Any] | None = None
    """The function; None if the declaration was read without importing torch."""


TRIPLET_WEIGHTS: Declared[Weight] = Declared(lambda: dict(declarations("objectives/triplet_weights.py")))
"""Columns of the matrix, in GOAL's order."""

PAIR_WEIGHTS: Declared[Weight] = Declared(lambda: dict(declarations("objectives/pair_weights.py")))
"""Rows of the matrix, in GOAL's order."""

KNOWN_AS: dict[str, str] = {
    "con_con": "Triplet-HN",
    "con_nca": "NT-Xent on the hardest negative",
    "lin_cir": "Circle loss",
    "sig_con": "Binomial deviance",
    "sig-ms_con": "Multi-Similarity loss",
}
"""GOAL Table 1: the cells that were known under another name; the other cells are new in GOAL."""

GOAL_ROWS = ("con", "lin", "sig", "lin-ms", "sig-ms")
GOAL_COLUMNS = ("con", "nca", "cir")
GOAL: tuple[str, ...] = tuple(f"{pair}_{triplet}" for pair in GOAL_ROWS for triplet in GOAL_COLUMNS)
"""The 15 names PAIR_TRIPLET to which "goal" expands in a grid, row by row; added weights do not change them."""


def _cell(name: str) -> ObjectiveEntry:
    pair, triplet = name.split("_")
    t, p = TRIPLET_WEIGHTS[triplet], PAIR_WEIGHTS[pair]
    return ObjectiveEntry(
        family="GOAL" if name in GOAL else "added cell",
        source=f"{t.source}; {p.source}",
        formula=f"{t.formula}; {p.formula}",
        own={**t.own, **p.own},
        known_as=KNOWN_AS.get(name, ""),
    )


CELLS = Declared(
    lambda: {
        name: _cell(name) for name in (f"{pair}_{triplet}" for pair in PAIR_WEIGHTS for triplet in TRIPLET_WEIGHTS)
    }
)
"""All combinations of pair and triplet weights: GOAL's 15 cells, and those with added weights."""


def of_a_loss(name: str) -> bool:
    """Return whether a cell of GOAL's matrix is the gradient of a loss, with constant m+ and m- and without a hinge.

    -T P+ and T P- are the derivatives of a loss if dT/ds_neg P+ = -dT/ds_pos P-. A constant T has that for any P; T^nca
    needs P+ = P-, and T^cir s_neg P+ = (1 - s_pos) P-.

    >>> [name for name in GOAL if of_a_loss(name)]
    ['con_con', 'con_nca', 'lin_con', 'lin_cir', 'sig_con', 'lin-ms_con', 'sig-ms_con']
    """
    return name.endswith("_con") or name in ("con_nca", "lin_cir")


FAINT = "T^cir is below 0.01 where both similarities are near 1/2, so a model barely learns in a few epochs"
FAINT_HELPS = "objective.variant = released, which has the offset 0.5, or objective.tau = 1"


def is_faint(name: str, parameters: Mapping[str, Any]) -> bool:
    """Return whether T^cir is below 0.01 at similarities of 1/2, which training approaches; see docs/variants.md.

    >>> [is_faint("con_cir", {"tau": tau, "offset": offset}) for tau, offset in [(10, 0), (10, 0.5), (1, 0)]]
    [True, False, False]
    """
    return name in GOAL and name.endswith("_cir") and parameters["tau"] * (0.5 - parameters["offset"]) > math.log(99)


def is_matrix(objectives: Collection[str]) -> bool:
    """Return whether to show objectives as a matrix: all are cells, and at least half as many as GOAL's 15.

    >>> is_matrix(GOAL), is_matrix(GOAL[:8]), is_matrix(GOAL[:7]), is_matrix([*GOAL, "infonce"])
    (True, True, False, False)
    """
    return set(objectives) <= set(CELLS) and 2 * len(set(objectives)) >= len(GOAL)
