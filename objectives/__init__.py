"""Training objectives: GOAL's matrix of pair weights (rows) by triplet weights (columns), and related losses.

>>> for pair in GOAL_ROWS:
...     names = (KNOWN_AS.get(f"{pair}_{triplet}", "new in GOAL") for triplet in GOAL_COLUMNS)
...     print("  ".join(f"{name:31}" for name in names).rstrip())
Triplet-HN                       NT-Xent on the hardest negative  new in GOAL
new in GOAL                      new in GOAL                      Circle loss
Binomial deviance                new in GOAL                      new in GOAL
new in GOAL                      new in GOAL                      new in GOAL
Multi-Similarity loss            new in GOAL                      new in GOAL

A cell of the matrix is named PAIR_TRIPLET. The losses in `LOSSES` are built by the same call:

>>> objective = build("sig-ms_cir", tau=10, alpha=2, beta=10, lam=0.5, eps=0.1)
>>> objective = build("unified", gamma=60, margin=0.2)
"""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

from goalgrid.grid.global_state import contained
from goalgrid.grid.objectives import FAMILIES, OURS, Objectives, resolve
from goalgrid.grid.objectives.goal_matrix import GOAL_COLUMNS, GOAL_ROWS, KNOWN_AS
from goalgrid.grid.objectives.parameters import ObjectiveEntry
from goalgrid.grid.registration import equations
from goalgrid.grid.settings import ObjectiveSettings
from goalgrid.objectives import assisted, contrastive, hinge, pairwise, polynomial  # noqa: F401, they register their losses
from goalgrid.objectives.assisted import row_margins
from goalgrid.objectives.objective import GradientSurrogate, Loss, Objective, ScoresObjective
from goalgrid.objectives.pair_weights import PAIR_WEIGHTS, RELATIVE
from goalgrid.objectives.triplet_weights import TRIPLET_WEIGHTS
from goalgrid.objectives.triplets import Triplets

__all__ = [
    "GOAL_COLUMNS",
    "GOAL_ROWS",
    "KNOWN_AS",
    "LOSSES",
    "PAIR_WEIGHTS",
    "TRIPLET_WEIGHTS",
    "Objective",
    "Triplets",
    "build",
    "built",
]

LOSSES: dict[str, Callable[..., Any]] = {
    name: equation for file in FAMILIES for name, equation in equations(f"{__name__}.{file}", "objective").items()
}
"""Losses outside GOAL's matrix: functions, or classes for losses with learnt parameters."""


def build(name: str, known: Objectives = OURS, /, *, variant: str = "paper", **parameters: Any) -> Objective:
    """Build an objective by name. Parameters that are not given take the defaults of the variant.

    Args:
        name: PAIR_TRIPLET, e.g. "sig-ms_cir", or a loss, e.g. "unified".
        known: the available objectives by name; those of a grid's plugins are in `LoadedGrid.objective`.
        variant: "paper" follows the papers' equations, "released" their published code.

    Raises:
        UserError: the name, the variant or a parameter is unknown.
    """
    values = resolve(name, known, variant=variant, **parameters)
    read = {key: value for key, value in values.items() if known[name].parameters[key].read(values)}
    objective = _built(name, known[name], values)
    objective.built_of = ", ".join([name, *(f"{key}={value!r}" for key, value in read.items())])
    return objective


def built(goal: ObjectiveSettings) -> Objective:
    """Build the objective that these settings name, including plugins; UserError if it is unknown."""
    return build(goal.name, {goal.name: goal.entry}, variant=goal.variant, **goal.parameters)


def _built(name: str, entry: ObjectiveEntry, values: dict[str, Any]) -> Objective:
    user_loss = (name, entry.equation) if entry.equation else None
    if user_loss and entry.on == "scores":
        return ScoresObjective(_with(user_loss[1], values), user_loss)
    loss: Loss
    if equation := LOSSES.get(name) or entry.equation:
        loss, relative = _with(equation, values), None
    else:
        pair, triplet = name.split("_")
        loss = GradientSurrogate(_with(TRIPLET_WEIGHTS[triplet], values), _with(PAIR_WEIGHTS[pair], values))
        relative = _with(RELATIVE[pair], values)() if pair in RELATIVE else None
    return Objective(
        loss,
        k=None if values.get("mining", entry.negatives) == "all" else values.get("k", 1),
        remines=entry.remines,
        relative=relative,
        reduction=values["reduction"],
        ignore_same_image=values["ignore_same_image"],
        row_margin=_with(row_margins, values) if values.get("margins") == "row" else None,
        user_loss=user_loss,
    )


def _with(equation: Callable[..., Any], values: dict[str, Any]) -> Callable[..., Any]:
    """Bind the parameters that an equation takes; instantiate it if it is a class."""
    given = partial(equation, **{key: values[key] for key in signature(equation).parameters if key in values})
    if not isinstance(equation, type):
        return given
    with contained(equation):
        return given()
