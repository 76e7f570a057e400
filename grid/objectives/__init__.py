"""The catalogue of objectives: their names, equations, parameters and published defaults, without torch.

The mathematics is in the package `objectives`, where each loss is declared above its function.
"""

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from goalgrid.grid.errors import UserError, nearest, several, unknown
from goalgrid.grid.objectives.declared import Declared, declarations
from goalgrid.grid.objectives.goal_matrix import CELLS, PAIR_WEIGHTS, TRIPLET_WEIGHTS
from goalgrid.grid.objectives.parameters import VARIANTS, ObjectiveEntry, Value

FAMILIES = {
    "hinge": "hinge", "contrastive": "contrastive", "pairwise": "pairwise", "polynomial": "polynomial",
    "assisted": "hinge",
}  # fmt: skip
"""The files in `objectives/` that declare losses, each with the family of its losses."""


LOSSES = Declared(
    lambda: {
        name: replace(entry, family=family)
        for file, family in FAMILIES.items()
        for name, entry in declarations(f"objectives/{file}.py")
    }
)
"""Our losses that are no cells of GOAL's matrix."""


OURS = Declared(lambda: {**CELLS, **LOSSES})
"""The objectives that every grid may name."""

own_objectives: dict[str, ObjectiveEntry] = {}
"""The objectives of the files that the present grid uses."""

CATALOGUE: Mapping[str, ObjectiveEntry] = ChainMap(own_objectives, cast("dict[str, ObjectiveEntry]", OURS))
"""Every objective that a grid may name: ours, then the user's own."""


def resolve(name: str, *, variant: str = "paper", **overrides: Any) -> dict[str, Any]:
    """All parameters of an objective: the variant's defaults, then the overrides.

    >>> resolve("con_cir", tau=5)  # doctest: +NORMALIZE_WHITESPACE
    {'tau': 5.0, 'offset': 0.0, 'reduction': 'sum', 'ignore_same_image': False, 'mining': 'hardest', 'k': 1}
    """
    if name not in CATALOGUE:
        raise UserError(
            f"{unknown_objective(name)} In Python, goalgrid.load(GRID) registers the losses that a grid uses."
        )
    problems = []
    if variant not in VARIANTS:
        problems.append(unknown("variant", variant, VARIANTS))
    parameters = CATALOGUE[name].parameters
    values = {key: parameter.of_variant(variant) for key, parameter in parameters.items()}
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


def warms_up(name: str, parameters: Mapping[str, Value]) -> bool:
    """Whether a trainer may warm up for the objective's sake: it mines the hardest negatives, and may mine all."""
    entry = CATALOGUE[name]
    return entry.remines and parameters.get("mining", entry.negatives) == "hardest"


def needs(name: str) -> tuple[str, ...]:
    """What training adds for the objective; nothing for an unknown name."""
    return CATALOGUE[name].needs if name in CATALOGUE else ()


def identifying(name: str, parameters: Mapping[str, Value]) -> dict[str, Value]:
    """The parameters, without those that have the value that was in effect before they existed.

    >>> identifying("con_nca", resolve("con_nca"))
    {'tau': 10.0, 'ignore_same_image': False}
    """
    known = CATALOGUE[name].parameters
    return {key: value for key, value in parameters.items() if value not in known[key].silent}


def known_parameters() -> set[str]:
    return {key for entry in CATALOGUE.values() for key in entry.parameters}


def accepted(name: str, overrides: Mapping[str, Any], variant: str = "paper") -> dict[str, Any]:
    """The overrides of parameters that this objective has and reads: not every cell has a tau.

    >>> accepted("con_nca", {"tau": 5, "alpha": 3, "k": 2}), accepted("con_con", {"mining": "all", "k": 2})
    ({'tau': 5, 'k': 2}, {'mining': 'all'})
    """
    parameters = CATALOGUE[name].parameters
    declared = {key: value for key, value in overrides.items() if key in parameters}
    values = {key: parameter.of_variant(variant) for key, parameter in parameters.items()} | declared
    return {key: value for key, value in declared.items() if parameters[key].read(values)}


def check_objective(name: str) -> None:
    """Raise a UserError if a verb that has --uses is given an objective that nobody knows."""
    if name not in CATALOGUE:
        raise UserError(unknown_objective(name, option=True))


def unknown_objective(name: str, where: str = "", *, option: bool = False) -> str:
    """Say that there is no such objective; of PAIR_TRIPLET, which half. `option`: whether the verb has --uses."""
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
    names = [*CATALOGUE, *["goal"] * (not option)]
    near = nearest(name, names, count=8, cutoff=0.0)
    known = [*near, f"and {len(names) - len(near)} more"] if nearest(name, names) else names
    return unknown("objective", name, known, where=where, hint=hint)
