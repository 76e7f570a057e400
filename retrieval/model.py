"""VSE: two encoders into one space of unit vectors, where the similarity is the cosine."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from grid.settings import ModelSettings
from retrieval.encoders import IMAGE_ENCODERS, TEXT_ENCODERS


class Vse(nn.Module):
    """Visual-semantic embedding.

    Args:
        image_shape: of one image as the data set gives it.
        words: size of the vocabulary.
    """

    def __init__(self, settings: ModelSettings, image_shape: tuple[int, ...], words: int) -> None:
        super().__init__()
        self.image = IMAGE_ENCODERS[settings.image.encoder](settings.image, image_shape, settings.dim)
        self.text = TEXT_ENCODERS[settings.text.encoder](settings.text, words, settings.dim)

    def embed_images(self, images: Tensor) -> Float[Tensor, "b d"]:
        """Unit vectors of a batch of images."""
        return nn.functional.normalize(self.image(images), dim=-1)

    def embed_texts(self, ids: Int[Tensor, "b n"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "b d"]:
        """Unit vectors of a batch of captions."""
        return nn.functional.normalize(self.text(ids, lengths), dim=-1)


def build(settings: ModelSettings, image_shape: tuple[int, ...], words: int, *, seed: int) -> Vse:
    """A model whose first weights depend on `seed` alone; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Vse(settings, image_shape, words)
