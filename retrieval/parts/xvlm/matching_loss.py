"""Image-text matching, the loss of X-VLM's fusion encoder: do an image and a caption of the batch belong together?

Beside each pair of the batch stand its caption with another image, and its image with another caption. X-VLM draws both
by the similarities of the joint space, so that hard negatives are drawn more often.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from goalgrid.retrieval.parts.xvlm.fusion import FusionEncoder

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
        states, lengths: of the captions, by the text encoder.
        tokens: of the images, by the image encoder.
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
