"""Training with the gradient directly: a surrogate whose gradient is GOAL Eq. (3), the weights held constant."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from goalgrid.objectives.pair_weights import PairWeight
from goalgrid.objectives.triplet_weights import TripletWeight
from goalgrid.objectives.triplets import Triplets


@dataclass(frozen=True)
class GradientSurrogate:
    """What stands for the loss in a cell of GOAL's matrix: T (P- s_neg - P+ s_pos) with T, P+, P- constant.

    So dl/ds_pos = -T P+ and dl/ds_neg = T P-. GOAL Eq. (3). Whatever scales the loss (AMP, accumulation, coefficients)
    scales that gradient, and mined negatives receive theirs too. The value is no measure of progress; the report holds
    what is: `active` is the share of T > 0.01.

    Args:
        triplet_weight, pair_weight: with their parameters set.
    """

    triplet_weight: TripletWeight
    pair_weight: PairWeight

    def __call__(self, t: Triplets) -> Float[Tensor, "*a k"]:
        """The value of each triplet."""
        triplet = t.finite()
        # Before any weight sees them: P- = s_neg would otherwise keep its graph.
        constants = triplet.detach()
        w_tri = self.triplet_weight(constants)
        w_pos, w_neg = self.pair_weight(constants)
        if not t.always:
            w_tri = w_tri.where(t.exists, 0.0)
        t.notes["active"] = w_tri > 0.01
        return (w_tri * w_neg) * triplet.s_neg - (w_tri * w_pos) * triplet.s_pos
