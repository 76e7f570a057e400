"""What a batch offers to the weights: each anchor with its positive and its hardest negative, in one direction."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Triplets:
    """The b anchors of one direction of a batch, as constants: no member carries a graph.

    The other direction is the same thing on the transposed similarity matrix.
    """

    sim: Float[Tensor, "b b"]
    """Anchors by candidates; the positives are the diagonal."""
    negative: Bool[Tensor, "b b"]
    """Which entries of `sim` are negatives of their anchor."""
    hardest: Int[Tensor, " b"]
    """Column of each anchor's most similar negative; the first one of a tie."""
    s_pos: Float[Tensor, " b"]
    s_neg: Float[Tensor, " b"]
    """Similarity with the hardest negative; -inf for an anchor that has none."""

    @classmethod
    def mine(cls, sim: Float[Tensor, "b b"], negative: Bool[Tensor, "b b"]) -> "Triplets":
        """Find every anchor's hardest negative.

        Masked entries are -inf, not -1: cross-attention scores leave [-1, 1].
        """
        sim = sim.detach()
        s_neg, hardest = sim.masked_fill(~negative, -torch.inf).max(dim=1)
        return cls(sim=sim, negative=negative, hardest=hardest, s_pos=sim.diagonal(), s_neg=s_neg)

    @property
    def other_positive(self) -> Bool[Tensor, "b b"]:
        """[i, j]: whether pair j is another pair than i, so that its positive is relative to i's."""
        return ~torch.eye(len(self.sim), dtype=torch.bool, device=self.sim.device)

    @property
    def other_negative(self) -> Bool[Tensor, "b b"]:
        """[i, j]: whether j is a negative of i, but not the hardest."""
        return self.negative.scatter(1, self.hardest[:, None], False)


def negatives(batch: int, image_of_text: Int[Tensor, " b"] | None, device: torch.device) -> Bool[Tensor, "b b"]:
    """Everything off the diagonal; without the captions of the same image, where `image_of_text` is given."""
    if image_of_text is None:
        return ~torch.eye(batch, dtype=torch.bool, device=device)
    return image_of_text[:, None] != image_of_text[None, :]
