"""The shipped objectives: their names, equations, parameters and published defaults, without torch.

The mathematics is in the package `objectives`, where each loss is declared above its function.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from goalgrid.grid.errors import UserError, nearest, unknown
from goalgrid.grid.objectives.declared import Declared, declarations
from goalgrid.grid.objectives.goal_matrix import CELLS, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.objectives.parameters import ObjectiveEntry, Value

FAMILIES = {
    "hinge": "hinge", "contrastive": "contrastive", "pairwise": "pairwise", "polynomial": "polynomial",
    "assisted": "hinge",
}  # fmt: skip
"""The family of the losses declared in each file of `objectives/`."""


LOSSES = Declared(
    lambda: {
        name: replace(entry, family=family)
        for file, family in FAMILIES.items()
        for name, entry in declarations(f"objectives/{file}.py")
    }
)
"""The shipped losses that are not cells of GOAL's matrix."""


OURS = Declared(lambda: {**CELLS, **LOSSES})
"""All shipped objectives."""

Objectives = Mapping[str, ObjectiveEntry]
"""Objectives by name: the shipped ones, or all objectives available to a grid (`catalog.Catalog.objectives`)."""


def resolve(name: str, known: Objectives = OURS, /, *, variant: str = "paper", **overrides: Any) -> dict[str, Value]:
    """Return all parameters of an objective: the variant's defaults, replaced by the overrides.

    >>> resolve("con_cir", tau=5)  # doctest: +NORMALIZE_WHITESPACE
    {'tau': 5.0, 'offset': 0.0, 'reduction': 'sum', 'ignore_same_image': False, 'mining': 'hardest', 'k': 1}

    Raises:
        UserError: the name, the variant or a parameter is unknown, or a value is wrong.
    """
    if name not in known:
        raise UserError(
            f"{unknown_objective(name, known=known)} In Python, goalgrid.load(GRID).objective(NAME) builds a loss that "
            "the grid uses."
        )
    return known[name].resolve(name, variant, overrides)


def needs(name: str, known: Objectives = OURS) -> tuple[str, ...]:
    """Return the names of the components that training adds for the objective; empty for an unknown name."""
    return known[name].needs if name in known else ()


def known_parameters(known: Objectives = OURS) -> set[str]:
    """Return the names of all parameters of these objectives."""
    return {key for entry in known.values() for key in entry.parameters}


def check_objective(name: str, known: Objectives = OURS) -> None:
    """Raise a UserError if an objective given to a command with --uses is unknown."""
    if name not in known:
        raise UserError(unknown_objective(name, known=known, option=True))


def unknown_objective(name: str, where: str = "", *, known: Objectives = OURS, option: bool = False) -> str:
    """Return the message for an unknown objective; for PAIR_TRIPLET, name the unknown half.

    Args:
        where: the place of the name, e.g. `in objectives[2]`.
        option: whether the command has the option --uses.
    """
    pair, _, triplet = name.partition("_")
    within = f"of objective {name!r} {where}".strip()
    if triplet in TRIPLET_WEIGHTS and pair not in PAIR_WEIGHTS:
        return unknown("pair weight", pair, PAIR_WEIGHTS, where=within)
    if pair in PAIR_WEIGHTS and triplet and triplet not in TRIPLET_WEIGHTS:
        return unknown("triplet weight", triplet, TRIPLET_WEIGHTS, where=within)
    hint = "'goal' means the 15 PAIR_TRIPLET. A loss of your own: uses = [\"losses.py\"] in the grid file."
    if option:
        hint = (
            "In a grid file, 'goal' means the 15 PAIR_TRIPLET. "
            'A loss of your own: uses = ["losses.py"] in the grid file, or --uses losses.py.'
        )
    names = [*known, *["goal"] * (not option)]
    near = nearest(name, names, count=8, cutoff=0.0)
    shown = [*near, f"and {len(names) - len(near)} more"] if nearest(name, names) else names
    return unknown("objective", name, shown, where=where, hint=hint)
