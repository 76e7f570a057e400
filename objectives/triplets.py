"""Inputs of weights and losses: the pairs of a batch, the positive of each anchor, and its mined negatives."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Extra = Mapping[str, Float[Tensor, "*#a e"]]
NOTHING: Extra = MappingProxyType({})


@dataclass(frozen=True)
class BatchPairs:
    """A batch of pairs: text k belongs to image k.

    Raises:
        ValueError: the batch has no negatives, or `image_of_text` is missing or has a wrong length.
    """

    size: int
    image_of_text: Int[Tensor, " b"] | None = None
    """Index of each pair's image in the data set; pairs may share an image. None if unknown."""
    masked: bool = False
    """Whether all texts of the anchor's image are excluded from the negatives, not only the positive."""
    row_margin: Float[Tensor, " b"] | None = None
    """Margin added to each image's row of scores before mining; None: no margin."""

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(f"a batch of {self.size} has no negatives; it needs at least 2 pairs")
        if self.masked and self.image_of_text is None:
            raise ValueError("ignore_same_image needs image_of_text, the index of each caption's image")
        if self.image_of_text is not None and self.image_of_text.shape != (self.size,):
            raise ValueError(f"image_of_text must have one index for each of the {self.size} pairs")

    def of_same_image(self, rows: slice = slice(None), columns: slice = slice(None)) -> Bool[Tensor, "r c"] | None:
        """Return a mask of the pairs (row, column) that share an image; None if unknown."""
        if self.image_of_text is None:
            return None
        return self.image_of_text[rows, None] == self.image_of_text[columns]

    def prepare(self, sim: Float[Tensor, "r c"], row: int = 0, column: int = 0) -> None:
        """Prepare a tile of similarities that starts at (row, column) for mining, in place.

        Add each row's margin, and set every pair that is not a negative to -inf. (-1 would not do: cross-attention
        scores can be below -1, and the positive must never be mined.)
        """
        if self.row_margin is not None:
            sim += self.row_margin[row : row + len(sim), None]
        same = self.of_same_image(slice(row, row + sim.shape[0]), slice(column, column + sim.shape[1]))
        if self.masked and same is not None:
            sim.masked_fill_(same, -torch.inf)
        else:
            sim.diagonal(row - column).fill_(-torch.inf)

    def false_negatives(self, mined: Int[Tensor, "2 b"]) -> Bool[Tensor, "2 b 1"] | None:
        """Return a mask of the mined negatives that belong to the anchor's own image; None if unknown."""
        if self.image_of_text is None:
            return None
        return (self.image_of_text[mined] == self.image_of_text)[..., None]


@dataclass(frozen=True)
class Triplets:
    """Anchors with the similarities of their positive and their k mined negatives.

    With one mined negative (k = 1, as published), one object holds both directions: a = (2, t), image-to-text first, so
    code written for one anchor works for both. With more negatives, each direction is a separate Triplets.
    """

    s_pos: Float[Tensor, "*#a 1"]
    s_neg: Float[Tensor, "*a k"]
    """-inf if an anchor has fewer negatives."""
    m_pos: Float[Tensor, "*a 1"] | None = None
    """Mean over the relative positives; only for the -ms pair weights."""
    m_neg: Float[Tensor, "*a k"] | None = None
    """Mean over the relative negatives; only for the -ms pair weights."""
    row_margin: Float[Tensor, "*a k"] | None = None
    """Margin added to each negative's similarity during mining; None: no margin."""
    extra: Extra = field(default_factory=dict)
    """Additional values of each anchor's pair, by name; set by training methods."""
    false_negative: Bool[Tensor, "*#a #k"] | None = None
    """Whether the negative belongs to the anchor's own image; None if unknown."""
    always: bool = True
    """Whether every anchor is known to have k negatives, so that no s_neg is -inf."""
    notes: dict[str, Tensor] = field(default_factory=dict)
    """Values that the loss adds to the report of the objective."""

    @property
    def exists(self) -> Bool[Tensor, "*a k"]:
        return self.s_neg > -torch.inf

    @property
    def hardest(self) -> Float[Tensor, "*a 1"]:
        """Return the similarity with the hardest mined negative."""
        return self.s_neg if self.s_neg.shape[-1] == 1 else self.s_neg.amax(-1, keepdim=True)

    def detach(self) -> "Triplets":
        """Return the same values without gradient, to compute weights from."""
        return replace(self, s_pos=self.s_pos.detach(), s_neg=self.s_neg.detach())

    def finite(self) -> "Triplets":
        """Replace the -inf of masked negatives by 0, where -inf would produce NaN."""
        return self if self.always else replace(self, s_neg=self.s_neg.masked_fill(~self.exists, 0.0))
