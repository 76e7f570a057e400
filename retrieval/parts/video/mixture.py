"""The mixture of experts of CE and MMT: cosines expert by expert, weighed by the caption. Liu et al., BMVC 2019."""

from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.grid.errors import UserError
from goalgrid.retrieval.parts.video.settings import MixtureSettings
from goalgrid.retrieval.scorers.cross_attention import SetScorer
from goalgrid.retrieval.scorers.sets import Sets

LEAST = 1e-11
"""Least sum of weights that scores are divided by: a video in which no expert saw anything scores 0."""


class Mixture(SetScorer):
    """s = sum of w_m a_m <v_m, t_m> / sum of w_m a_m: w the caption's weights, a which experts saw something.

    `whole` of a video is a (m), of a caption w (m). Both sums are products of two matrices, so all scores are computed
    with a graph. Ties are ranked as the code of CE and MMT ranks them.
    """

    by_pair = False
    mean_places = True

    def __init__(self, settings: MixtureSettings, regions: int, dim: int) -> None:
        super().__init__()

    def forward(self, images: Sets, texts: Sets) -> Float[Tensor, "i t"]:
        (videos, there), (captions, weights) = _parts(images), _parts(texts)
        return (videos @ captions.T) / (there @ weights.T).clamp(min=LEAST)

    def pairs(
        self, images: Sets, texts: Sets, rows: Int[Tensor, " p"], columns: Int[Tensor, " p"]
    ) -> Float[Tensor, " p"]:
        (videos, there), (captions, weights) = _parts(images[rows]), _parts(texts[columns])
        return (videos * captions).sum(1) / (there * weights).sum(1).clamp(min=LEAST)

    def looks(self, regions: Float[Tensor, "n d"], words: Float[Tensor, "l d"]) -> dict[str, Float[Tensor, "l n"]]:
        raise UserError("scorer mixture weighs experts; it has no attention between words and regions to draw.")


def _parts(sets: Sets) -> tuple[Float[Tensor, "b md"], Float[Tensor, "b m"]]:
    """The vectors of all experts times their weights, one after another; and the weights."""
    sets = sets.full()
    assert sets.whole is not None
    return (sets.vectors * sets.whole[..., None]).flatten(1), sets.whole
