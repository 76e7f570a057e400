"""Who belongs to whom in a batch: the positive pairs, and what is no negative of what."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor


@dataclass(frozen=True)
class BatchPairs:
    """The positive pairs of a batch of n images and t texts: one pair for every text.

    A batch with n = t is *aligned*: text k belongs to image k, and `image_of_text` says which data-set image that
    is, so that two rows may hold the same one. A batch with n != t is *ragged*: `image_of_text` is then the row of
    each text's image, every image stands in one row, and its other captions are positives, never negatives.
    """

    images: int
    texts: int
    row: Int[Tensor, " t"] | None = None
    """Row of each text's image; None in an aligned batch, where it is the text's own."""
    same_image: tuple[Int[Tensor, " n"], Int[Tensor, " t"]] | None = None
    """Identity of each row's and of each text's image; None if unknown."""
    masked: bool = False
    """Whether texts of the same image are no negatives, beyond the pair itself."""

    @classmethod
    def of(
        cls,
        images: int,
        texts: int,
        image_of_text: Int[Tensor, " t"] | None = None,
        *,
        ignore_same_image: bool = False,
    ) -> "BatchPairs":
        """Read the correspondence of a batch from its shape and `image_of_text`.

        Raises:
            ValueError: there is no negative in the batch, or `image_of_text` is missing where it is needed.
        """
        if min(images, texts) < 2:
            raise ValueError(f"a batch of {images} images and {texts} texts has no negatives; the smallest has 2 pairs")
        if image_of_text is None:
            if images != texts:
                raise ValueError(f"{images} images and {texts} texts need image_of_text: the row of each text's image")
            if ignore_same_image:
                raise ValueError("ignore_same_image needs image_of_text: which image each caption belongs to")
            return cls(images, texts)
        if images == texts:
            return cls(images, texts, None, (image_of_text, image_of_text), ignore_same_image)
        rows = torch.arange(images, device=image_of_text.device)
        return cls(images, texts, image_of_text, (rows, image_of_text), masked=True)

    def of_pairs(self, image: Shaped[Tensor, "n *rest"]) -> Shaped[Tensor, "t *rest"]:
        """The image of each pair, where every image was given once."""
        return image if self.row is None else image.index_select(0, self.row)

    def of_same_image(self, rows: slice = slice(None), columns: slice = slice(None)) -> Bool[Tensor, "r c"] | None:
        """Which of these rows and columns belong to the same image; None if unknown."""
        if self.same_image is None:
            return None
        return self.same_image[0][rows, None] == self.same_image[1][columns]

    def hide(self, sim: Float[Tensor, "r c"], row: int = 0, column: int = 0) -> None:
        """Set every pair that is no negative to -inf, in place, in a tile of similarities that starts at row, column.

        Not to -1: cross-attention scores leave [-1, 1], and the positive must never be mined.
        """
        same = self.of_same_image(slice(row, row + sim.shape[0]), slice(column, column + sim.shape[1]))
        if self.masked and same is not None:
            sim.masked_fill_(same, -torch.inf)
        else:
            sim.diagonal(row - column).fill_(-torch.inf)

    def false_negatives(self, hardest: tuple[Int[Tensor, " t"], Int[Tensor, " t"]]) -> Bool[Tensor, "2 t 1"] | None:
        """Which mined negatives are captions of the anchor's own image; None if unknown.

        Args:
            hardest: the text mined for each pair's image, the image mined for each pair's text.
        """
        if self.same_image is None:
            return None
        image, text = self.same_image
        mined = torch.stack([text[hardest[0]], image[hardest[1]]])
        return (mined == text)[..., None]
