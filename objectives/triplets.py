"""What a batch offers to a weight or a loss: its pairs, every anchor's positive, and its mined negatives."""

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
        ValueError: there is no negative in the batch, or `image_of_text` is of others or missing where needed.
    """

    size: int
    image_of_text: Int[Tensor, " b"] | None = None
    """Which image of the data set each pair has: two pairs may have the same image. None if unknown."""
    masked: bool = False
    """Whether texts of the same image are no negatives, beyond the pair itself."""
    row_margin: Float[Tensor, " b"] | None = None
    """Margin added to each row of scores, an image's, before negatives are mined; None: nothing."""

    def __post_init__(self) -> None:
        if self.size < 2:
            raise ValueError(f"a batch of {self.size} has no negatives; the smallest has 2 pairs")
        if self.masked and self.image_of_text is None:
            raise ValueError("ignore_same_image needs image_of_text: which image each caption belongs to")
        if self.image_of_text is not None and self.image_of_text.shape != (self.size,):
            raise ValueError(f"image_of_text must have one image for each of the {self.size} pairs")

    def of_same_image(self, rows: slice = slice(None), columns: slice = slice(None)) -> Bool[Tensor, "r c"] | None:
        """Return which of these rows and columns belong to the same image; None if unknown."""
        if self.image_of_text is None:
            return None
        return self.image_of_text[rows, None] == self.image_of_text[columns]

    def prepare(self, sim: Float[Tensor, "r c"], row: int = 0, column: int = 0) -> None:
        """Make a tile of similarities that starts at row, column what is mined, in place.

        Each row gets its margin, and every pair that is no negative becomes -inf. Not -1: cross-attention scores leave
        [-1, 1], and the positive must never be mined.
        """
        if self.row_margin is not None:
            sim += self.row_margin[row : row + len(sim), None]
        same = self.of_same_image(slice(row, row + sim.shape[0]), slice(column, column + sim.shape[1]))
        if self.masked and same is not None:
            sim.masked_fill_(same, -torch.inf)
        else:
            sim.diagonal(row - column).fill_(-torch.inf)

    def false_negatives(self, mined: Int[Tensor, "2 b"]) -> Bool[Tensor, "2 b 1"] | None:
        """Return which mined negatives are captions of the anchor's own image; None if unknown."""
        if self.image_of_text is None:
            return None
        return (self.image_of_text[mined] == self.image_of_text)[..., None]


@dataclass(frozen=True)
class Triplets:
    """Anchors with the similarities of their positive and of their k mined negatives.

    With one mined negative (k = 1, as published) one object has both directions: a = (2, t), image-to-text first, and
    whatever is written for one anchor holds for both directions. With more, each direction is a Triplets of its own.
    """

    s_pos: Float[Tensor, "*#a 1"]
    s_neg: Float[Tensor, "*a k"]
    """-inf where there is no such negative."""
    m_pos: Float[Tensor, "*a 1"] | None = None
    """Mean over the relative positives; of the -ms pair weights only."""
    m_neg: Float[Tensor, "*a k"] | None = None
    """Mean over the relative negatives; of the -ms pair weights only."""
    row_margin: Float[Tensor, "*a k"] | None = None
    """Margin added to each similarity with a negative while it was mined; None: nothing."""
    extra: Extra = field(default_factory=dict)
    """Further values of each anchor's pair, by name; training methods fill it."""
    false_negative: Bool[Tensor, "*#a #k"] | None = None
    """Whether the negative is a caption of the anchor's own image; None if unknown."""
    always: bool = True
    """Whether every anchor surely has its k negatives, so that none is -inf."""
    notes: dict[str, Tensor] = field(default_factory=dict)
    """Values that the loss adds to the report that every objective gives."""

    @property
    def exists(self) -> Bool[Tensor, "*a k"]:
        return self.s_neg > -torch.inf

    @property
    def hardest(self) -> Float[Tensor, "*a 1"]:
        """Similarity with the hardest of the mined negatives."""
        return self.s_neg if self.s_neg.shape[-1] == 1 else self.s_neg.amax(-1, keepdim=True)

    def detach(self) -> "Triplets":
        """Return the same values as constants, from which weights are computed."""
        return replace(self, s_pos=self.s_pos.detach(), s_neg=self.s_neg.detach())

    def finite(self) -> "Triplets":
        """Replace the -inf of masked negatives by 0, where -inf would produce NaN."""
        return self if self.always else replace(self, s_neg=self.s_neg.masked_fill(~self.exists, 0.0))
