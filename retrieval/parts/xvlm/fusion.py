"""The fusion encoder of X-VLM: whether an image and a caption belong together, from the states of both.

It goes on where the text encoder ends: each of its layers attends within the caption, then to the tokens of the image.

    tokens = model.image.tokens(images)          # (b, m, c)
    states = model.text.states(ids, lengths)     # (b, n, d)
    logits = model.fusion(states, lengths, tokens)  # (b, 2): apart, together; the score of a pair is logits[:, 1]
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from goalgrid.retrieval.parts.xvlm.bert_layers import BertLayer, caption_mask, start_as_bert
from goalgrid.retrieval.parts.xvlm.settings import BertLayersSettings, XvlmFusionSettings

TEMPERATURE = 0.07
"""X-VLM's first temperature of its contrastive loss; a checkpoint brings its own."""


class FusionEncoder(nn.Module):
    """Layers of BERT that also attend to an image, and a head on the first token: do the two belong together?

    Args:
        text: settings of the text encoder, whose widths it has.
        context: width of an image's tokens.
    """

    temperature: Float[Tensor, ""]
    """By which X-VLM divides similarities before it draws negatives from their softmax."""

    def __init__(self, settings: XvlmFusionSettings, text: BertLayersSettings, context: int) -> None:
        super().__init__()
        width = text.width
        self.layers = nn.ModuleList(BertLayer(text, context) for _ in range(settings.layers))
        start_as_bert(self)
        self.head = nn.Sequential(
            nn.Linear(width, 2 * width), nn.LayerNorm(2 * width), nn.GELU(), nn.Linear(2 * width, 2)
        )
        self.register_buffer("temperature", torch.tensor(TEMPERATURE))

    def forward(
        self, states: Float[Tensor, "b n d"], lengths: Int[Tensor, " b"], tokens: Float[Tensor, "b m c"]
    ) -> Float[Tensor, "b 2"]:
        """Logits of pairs: apart, together.

        Args:
            states, lengths: of captions, by the text encoder; what stands beyond a length never counts.
            tokens: of images, by the image encoder.
        """
        mask = caption_mask(states.shape[1], lengths, states.device)
        for layer in self.layers:
            states = layer(states, mask, layer.crossattention.keys(tokens))  # type: ignore[operator, union-attr]
        return self.head(states[:, 0])
