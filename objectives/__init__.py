"""What is optimised: GOAL's matrix of pair weights (rows) by triplet weights (columns), and how a cell is built.

>>> for pair in PAIR_WEIGHTS:
...     names = [KNOWN_AS.get(f"{pair}_{triplet}", "new in GOAL") for triplet in TRIPLET_WEIGHTS]
...     print("  ".join(f"{name:31}" for name in names).rstrip())
Triplet-HN                       NT-Xent on the hardest negative  new in GOAL
new in GOAL                      new in GOAL                      Circle loss
Binomial deviance                new in GOAL                      new in GOAL
new in GOAL                      new in GOAL                      new in GOAL
Multi-Similarity loss            new in GOAL                      new in GOAL

The names are PAIR_TRIPLET:

>>> objective = build("sig-ms_cir", tau=10, alpha=2, beta=10, lam=0.5, eps=0.1)
"""

from typing import Any

from grid.objectives import KNOWN_AS, resolve
from grid.objectives import PAIR_WEIGHTS as _PAIR_PARAMETERS
from grid.objectives import TRIPLET_WEIGHTS as _TRIPLET_PARAMETERS
from objectives.gradient import GradientObjective
from objectives.pair_weights import PAIR_WEIGHTS
from objectives.triplet_weights import TRIPLET_WEIGHTS
from objectives.triplets import Triplets

__all__ = ["KNOWN_AS", "PAIR_WEIGHTS", "TRIPLET_WEIGHTS", "GradientObjective", "Triplets", "build"]


def build(name: str, *, variant: str = "paper", **parameters: Any) -> GradientObjective:
    """The objective of that name, with its variant's defaults where no parameter is given.

    Args:
        name: PAIR_TRIPLET, e.g. "sig-ms_cir".
        variant: "paper" follows GOAL's equations, "released" its published code.

    Raises:
        UserError: the name, the variant or a parameter is unknown.
    """
    values = resolve(name, variant=variant, **parameters)
    pair, triplet = name.split("_")
    pair_values = {key: values[key] for key in _PAIR_PARAMETERS[pair]}
    triplet_values = {key: values[key] for key in _TRIPLET_PARAMETERS[triplet]}
    pair_weight, triplet_weight = PAIR_WEIGHTS[pair], TRIPLET_WEIGHTS[triplet]

    def weigh(t: Triplets) -> Any:
        return triplet_weight(t, **triplet_values), *pair_weight(t, **pair_values)

    return GradientObjective(weigh, ignore_same_image=values["ignore_same_image"])
