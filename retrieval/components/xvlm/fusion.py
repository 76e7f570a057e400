"""The fusion encoder of X-VLM, and its loss: do an image and a caption belong together, by the states of both?

It goes on where the text encoder ends: each of its layers attends within the caption, then to the tokens of the image.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from goalgrid.retrieval.components.xvlm.bert_layers import BertLayer
from goalgrid.retrieval.components.xvlm.settings import BertLayersSettings, XvlmFusionSettings
from goalgrid.retrieval.encoders.reasoning import start_as_bert
from goalgrid.retrieval.encoders.text import present_of

TEMPERATURE = 0.07
"""X-VLM's first temperature of its contrastive loss; a checkpoint brings its own."""


class FusionEncoder(nn.Module):
    """Layers of BERT, as wide as the text encoder's, that also attend to an image; and a head on the first token."""

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
        """Logits of pairs, apart and together, from the states of captions and the tokens of images."""
        mask = present_of(states, lengths)[:, None, None]
        for layer in self.layers:
            states = layer(states, mask, layer.crossattention.keys(tokens))  # type: ignore[operator, union-attr]
        return self.head(states[:, 0])


LEAST = 1e-5
"""Added to the probability of every negative before one is drawn."""


def negatives(
    sim: Float[Tensor, "a c"], owners: Int[Tensor, " a"], temperature: Float[Tensor, ""]
) -> Int[Tensor, " a"]:
    """A column for each row, drawn from softmax(sim / temperature) + 1e-5 among the columns of other images.

    A row without such a column has its own. The draw does not wait for the device, as torch.multinomial does: the
    quotient of a weight and an exponential variable is largest at a column with the probability of its weight.
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
    """Mean cross entropy of pairs, captions with another image, and images with another caption. X-VLM §3.3, ITM.

    Args:
        sim: similarities of images by texts; no gradient flows through them.
        owners: which image of the data set each pair has: a pair of the same image is no negative. Pairs of a batch
            with a single image have no negatives, and count by themselves.
        temperature: of the softmax that negatives are drawn from.
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
