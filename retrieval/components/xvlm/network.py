"""The model of X-VLM: two encoders, a fusion encoder on top of both, and two-stage evaluation."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from goalgrid.grid.settings.model import ModelSettings
from goalgrid.objectives.mining import product
from goalgrid.objectives.objective import Objective
from goalgrid.retrieval.components.xvlm import rerank
from goalgrid.retrieval.components.xvlm.bert_layers import BertEncoder
from goalgrid.retrieval.components.xvlm.fusion import FusionEncoder, matching_loss
from goalgrid.retrieval.components.xvlm.swin import SwinEncoder
from goalgrid.retrieval.evaluation import Ranks
from goalgrid.retrieval.model import DualEncoder, EmbeddedBatch
from goalgrid.retrieval.prefetch import ahead
from goalgrid.retrieval.splits.pairs import Split
from goalgrid.retrieval.unit_vectors import unit
from goalgrid.retrieval.words.tokens import Tokens


class Xvlm(DualEncoder):
    """`DualEncoder` with a fusion encoder."""

    image: SwinEncoder
    text: BertEncoder
    fusion: FusionEncoder

    def build_further(self, settings: ModelSettings) -> None:
        given: Any = settings
        self.fusion = FusionEncoder(given.fusion, given.text, given.image.last_width)
        self.candidates = settings.fusion.rerank_k

    def embed_batch(self, images: Tensor, texts: Tensor, lengths: Int[Tensor, " b"]) -> EmbeddedBatch:
        tokens, states = self.image.tokens(images), self.text.states(texts, lengths)
        image, text = (
            unit(encoder.project(part[:, 0]).float()) for encoder, part in ((self.image, tokens), (self.text, states))
        )
        return image, text, (tokens, states)

    def further_losses(
        self, objective: Objective, batch: EmbeddedBatch, lengths: Int[Tensor, " b"], owners: Int[Tensor, " b"]
    ) -> dict[str, Float[Tensor, ""]]:
        """Return the fusion encoder's loss; negatives are sampled with the objective's learnt temperature, if any."""
        image, text, (tokens, states) = batch
        temperature = getattr(objective.loss, "temperature", self.fusion.temperature).detach()
        sim = product(image, text).detach()
        return {"matching": matching_loss(self.fusion, states, lengths, tokens, sim, owners, temperature)}

    def heavy(self) -> list[nn.Module]:
        return [self.image.backbone, self.text.backbone, self.fusion]

    def reranked(
        self,
        first: list[Ranks],
        embeddings: tuple[Any, Any, Int[np.ndarray, " t"]],
        folds: Sequence[int | None],
        split: Split,
        tokens: Tokens,
        sizes: tuple[int, int],
        beat: Callable[[], None],
    ) -> list[Ranks]:
        """Return the ranks of a test after reranking by the fusion encoder.

        Args:
            first: first-stage ranks by `scores`, one for each entry of `folds`.
            embeddings: of the split's images and captions, and the image index of each caption.
            sizes: batch sizes for images and captions.
        """
        image, text, owners = embeddings
        device = self.fusion.temperature.device

        def states_of(rows: Tensor) -> Tensor:
            ids, lengths = tokens.gather(rows)
            return self.text.states(ids.to(device), lengths)

        def images() -> Iterator[Tensor]:
            parts = torch.arange(len(image)).split(sizes[0])
            for batch in ahead(lambda rows: split.images.gather(rows.numpy()), parts):
                yield self.image.tokens(batch.to(device))

        def score(pairs: Int[np.ndarray, " p"]) -> np.ndarray:
            captions = rerank.PackedStates.of(self.fusion, tokens.lengths, states_of, sizes[1])
            return rerank.pair_scores(self.fusion, captions, images(), pairs, beat)

        lists = [rerank.folds_of(image, text, owners, self.candidates, fold) for fold in folds]
        return rerank.two_stage_ranks(first, lists, owners, score, self.candidates)

    def scores_anew(
        self, tokens: Float[Tensor, "1 m c"], states: Float[Tensor, "n d"], lengths: Int[np.ndarray, " p"]
    ) -> Float[Tensor, " p"]:
        """Return the scores of an image with captions sorted by length, whose states are concatenated."""
        captions = rerank.PackedStates(states, lengths, np.arange(len(lengths)))
        return rerank.scores_of_image(self.fusion, captions, tokens, captions.place)
