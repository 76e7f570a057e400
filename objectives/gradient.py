"""Training with the gradient directly: a surrogate whose backward is GOAL Eq. (3), weights held constant."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from objectives.triplets import Triplets, negatives

Direction = Callable[[Triplets], tuple[Float[Tensor, " b"], Float[Tensor, " b"], Float[Tensor, " b"]]]


class GradientObjective(torch.nn.Module):
    """One cell of GOAL's matrix: dl/ds_pos = -T P+ and dl/ds_neg = T P-, for every anchor of both directions.

    The value is the sum over both directions of T (P- s_neg - P+ s_pos) with T, P+, P- constant for autograd: its
    gradient is GOAL's, and whatever scales the loss (AMP, accumulation, coefficients) scales that gradient. The value
    itself is no measure of progress; `report` holds what is. Mined negatives receive their gradient too.

    Args:
        weigh: gives T, P+ and P- of one direction's triplets.
        ignore_same_image: captions of the same image are no negatives; needs `image_of_text` in the call.
    """

    report: dict[str, Tensor]
    """Of the last batch, detached: mean `s_pos`, mean `s_neg`, and `active`, the share of triplets with T > 0.01."""

    def __init__(self, weigh: Direction, *, ignore_same_image: bool = False) -> None:
        super().__init__()
        self.weigh = weigh
        self.ignore_same_image = ignore_same_image
        self.report = {}

    def forward(
        self,
        image: Float[Tensor, "b d"],
        text: Float[Tensor, "b d"],
        image_of_text: Int[Tensor, " b"] | None = None,
    ) -> Float[Tensor, ""]:
        """The surrogate of b aligned pairs of unit vectors; sums over the batch."""
        return self.from_similarity(image @ text.T, image_of_text)

    def from_similarity(
        self, sim: Float[Tensor, "b b"], image_of_text: Int[Tensor, " b"] | None = None
    ) -> Float[Tensor, ""]:
        """The same from a matrix of scores, images by texts, positives on the diagonal; any range.

        Raises:
            ValueError: the batch has fewer than two pairs, so that there is no negative.
        """
        batch = len(sim)
        if batch < 2:
            raise ValueError(f"a batch of {batch} pair has no negatives; the smallest batch is 2")
        if self.ignore_same_image and image_of_text is None:
            raise ValueError("ignore_same_image needs image_of_text: which image each caption belongs to")
        mask = negatives(batch, image_of_text if self.ignore_same_image else None, sim.device)
        i2t, active_i2t = self._direction(sim, mask)
        t2i, active_t2i = self._direction(sim.T, mask.T)
        self.report["active"] = (active_i2t + active_t2i) / 2
        return i2t + t2i

    def _direction(self, sim: Float[Tensor, "b b"], mask: Tensor) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        triplets = Triplets.mine(sim.float() if sim.dtype in (torch.float16, torch.bfloat16) else sim, mask)
        w_tri, w_pos, w_neg = self.weigh(triplets)
        has_negative = triplets.s_neg > -torch.inf
        w_tri = w_tri.where(has_negative, 0.0)
        w_neg = w_neg.where(has_negative, 0.0)
        s_pos = sim.diagonal()
        s_neg = sim.gather(1, triplets.hardest[:, None])[:, 0]
        self.report["s_pos"] = triplets.s_pos.mean()
        self.report["s_neg"] = triplets.s_neg.where(has_negative, 0.0).mean()
        loss = (w_tri * (w_neg * s_neg - w_pos * s_pos)).sum()
        return loss, (w_tri > 0.01).to(loss.dtype).mean()
