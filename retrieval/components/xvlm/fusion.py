"""The fusion encoder of X-VLM, and its image-text matching loss.

It continues from the text encoder's states: each layer applies self-attention, then cross-attention to image tokens.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from goalgrid.retrieval.components.xvlm.bert_layers import BertLayer
from goalgrid.retrieval.components.xvlm.settings import BertLayersSettings, XvlmFusionSettings
from goalgrid.retrieval.encoders.reasoning import start_as_bert
from goalgrid.retrieval.encoders.text import present_of

TEMPERATURE = 0.07
"""Initial temperature of X-VLM's contrastive loss; checkpoints contain their own."""


class FusionEncoder(nn.Module):
    """BERT layers of the text encoder's width with cross-attention to an image, and a head on the first token."""

    temperature: Float[Tensor, ""]
    """Temperature of the softmax from which X-VLM samples negatives."""

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
        """Return logits (mismatched, matched) of pairs, from caption states and image tokens."""
        mask = present_of(states, lengths)[:, None, None]
        for layer in self.layers:
            states = layer(states, mask, layer.crossattention.keys(tokens))  # type: ignore[operator, union-attr]
        return self.head(states[:, 0])


LEAST = 1e-5
"""Added to the probability of every negative before sampling."""


def negatives(
    sim: Float[Tensor, "a c"], owners: Int[Tensor, " a"], temperature: Float[Tensor, ""]
) -> Int[Tensor, " a"]:
    """Sample a negative column for each row, from softmax(sim / temperature) + 1e-5 over columns of other images.

    A row without such columns gets one of its own image. Unlike torch.multinomial, this does not wait for the device:
    it takes the argmax of weights divided by exponential random variables, which has the same distribution.
    """
    weights = (torch.softmax(sim.float() / temperature, dim=1) + LEAST).masked_fill(owners[:, None] == owners, 0.0)
    return (weights / torch.empty_like(weights).exponential_().clamp_(min=torch.finfo(weights.dtype).tiny)).argmax(1)


def matching_loss(
    fusion: FusionEncoder,
    states: Float[Tensor, "b n d"],
    lengths: Int[Tensor, " b"],
    tokens: Float[Tensor, "b m c"],
    sim: Float[Tensor, "b b"],
    owners: Int[Tensor, " b"],
    temperature: Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """Return the mean cross entropy of pairs and of sampled negatives in both directions. X-VLM §3.3, ITM.

    Args:
        sim: image-text similarities; no gradient flows through them.
        owners: image index of each pair in the data set; pairs of the same image are not negatives. If the whole batch
            is of one image, there are no negatives, and only the pairs count.
        temperature: of the softmax from which negatives are sampled.
    """
    with torch.no_grad():
        pairs = torch.arange(len(owners), device=owners.device)
        image_of, text_of = negatives(sim.T, owners, temperature), negatives(sim, owners, temperature)
        counts = (owners[:, None] != owners).any(1).float()
        lengths = lengths.to(owners.device, non_blocking=True)
        counts = torch.cat([torch.ones_like(counts), counts, counts])
        together = (torch.arange(3 * len(pairs), device=owners.device) < len(pairs)).long()
    captions, pictures = torch.cat([pairs, pairs, text_of]), torch.cat([pairs, image_of, pairs])
    logits = fusion(states[captions], lengths[captions], tokens[pictures])
    losses = torch.nn.functional.cross_entropy(logits.float(), together, reduction="none")
    return (losses * counts).sum() / counts.sum()
