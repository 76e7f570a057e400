"""VSRN by its formulas, a region, a word, a pair at a time, with the weights of our networks: their oracle."""

from typing import Any

import torch
from torch import Tensor


def unit(vector: Tensor) -> Tensor:
    return vector / (vector * vector).sum().sqrt()


def unit_over_regions(image: list[Tensor]) -> list[Tensor]:
    """Each dimension divided by its length over the regions of the image."""
    lengths = sum(region**2 for region in image) ** 0.5  # type: ignore[operator]
    return [region / lengths for region in image]


def batch_norm(norm: Any, vectors: list[Tensor]) -> list[Tensor]:
    """By mean and variance of the vectors, as in training."""
    mean = sum(vectors) / len(vectors)  # type: ignore[operator]
    variance = sum((vector - mean) ** 2 for vector in vectors) / len(vectors)
    return [(vector - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias for vector in vectors]


def gru(weights: tuple[Tensor, ...], sequence: list[Tensor], state: Tensor) -> list[Tensor]:
    """The state after each member; reset gate, update gate, candidate."""
    w_in, w_state, b_in, b_state = weights
    size, states = len(state), []
    for member in sequence:
        ours, past = w_in @ member + b_in, w_state @ state + b_state
        reset = torch.sigmoid(ours[:size] + past[:size])
        update = torch.sigmoid(ours[size : 2 * size] + past[size : 2 * size])
        candidate = torch.tanh(ours[2 * size :] + reset * past[2 * size :])
        state = (1 - update) * candidate + update * state
        states.append(state)
    return states


def of_gru(network: Any) -> tuple[Tensor, ...]:
    return network.weight_ih_l0, network.weight_hh_l0, network.bias_ih_l0, network.bias_hh_l0


def zeros(like: Tensor) -> Tensor:
    return torch.zeros(len(like), dtype=like.dtype)


def graph_convolution(block: Any, images: list[list[Tensor]]) -> list[list[Tensor]]:
    """v_i + BN(W sum_j R_ij g(v_j)), R_ij = theta(v_i) . phi(v_j) / n; batch norm over all regions of all images."""
    read = []
    for image in images:
        for one in image:
            relations = [block.theta(one) @ block.phi(other) / len(image) for other in image]
            gathered = sum(relation * block.g(other) for relation, other in zip(relations, image, strict=True))
            read.append(block.out(gathered))
    normed = iter(batch_norm(block.norm, read))
    return [[region + next(normed) for region in image] for image in images]


def regions(encoder: Any, features: Tensor) -> list[list[Tensor]]:
    images = [[encoder.project.weight @ region + encoder.project.bias for region in image] for image in features]
    if encoder.norm is None:
        images = [unit_over_regions(image) for image in images]
    for block in encoder.graph.blocks:
        images = graph_convolution(block, images)
    return [unit_over_regions(image) for image in images]


def summaries(encoder: Any, images: list[list[Tensor]]) -> list[Tensor]:
    last = [gru(of_gru(encoder.gru), image, zeros(image[0]))[-1] for image in images]
    return last if encoder.norm is None else batch_norm(encoder.norm, last)


def caption_vector(text: Any, caption: list[int]) -> Tensor:
    words = [text.embed.weight[word] for word in caption]
    return unit(gru(of_gru(text.gru), words, zeros(text.gru.weight_hh_l0[0]))[-1])


def labels(caption: list[int], max_words: int) -> tuple[list[int], list[int]]:
    """The words of a caption filled up with 0, and 1 where one counts: up to the first 0, which counts, too."""
    if len(caption) > max_words:
        caption = [*caption[: max_words - 1], caption[-1]]
    filled = caption + [0] * (max_words + 1 - len(caption))
    return filled, [1] * (len(caption) + 1) + [0] * (max_words - len(caption))


def captioning(captioner: Any, image: list[Tensor], caption: list[int], max_words: int) -> Tensor:
    """-log p of a caption, word by word, by attention to the states of the GRU over the regions."""
    projected = [captioner.project(region) for region in image]
    memory = gru(of_gru(captioner.reader), projected, zeros(captioner.reader.weight_hh_l0[0]))
    state, writer = memory[-1], captioner.writer
    told, mask = labels(caption, max_words)
    losses = []
    for place in range(max_words - 1):
        energies = [captioner.energy(torch.tanh(captioner.attend(torch.cat([past, state]))))[0] for past in memory]
        total = sum(energy.exp() for energy in energies)
        context = sum(energy.exp() / total * past for energy, past in zip(energies, memory, strict=True))
        step = torch.cat([captioner.embed.weight[told[place]], context])
        (state,) = gru((writer.weight_ih, writer.weight_hh, writer.bias_ih, writer.bias_hh), [step], state)
        logits = captioner.out(state)
        losses.append(mask[place + 1] * (logits.exp().sum().log() - logits[told[place + 1]]))
    return sum(losses)  # type: ignore[return-value]


def hardest_hinges(images: list[Tensor], captions: list[Tensor], margin: float = 0.2) -> Tensor:
    """Both directions, summed over the pairs: the margin plus the hardest negative less the positive, at least 0."""
    total = images[0].new_zeros(())
    for pair, (image, caption) in enumerate(zip(images, captions, strict=True)):
        others = [other for other in range(len(images)) if other != pair]
        positive = image @ caption
        for negatives in ([image @ captions[o] for o in others], [images[o] @ caption for o in others]):
            total = total + (margin + torch.stack(negatives).max() - positive).clamp(min=0)
    return total


def loss(model: Any, features: Tensor, captions: list[list[int]], max_words: int) -> tuple[Tensor, Tensor]:
    """What a step minimises, and the captioning loss in it."""
    images = regions(model.image, features)
    vectors = [unit(vector) for vector in summaries(model.image, images)]
    texts = [caption_vector(model.text, caption) for caption in captions]
    pairs = zip(images, captions, strict=True)
    of_captions = sum(captioning(model.captioner, *pair, max_words) for pair in pairs) / len(captions)
    return hardest_hinges(vectors, texts) + of_captions, of_captions  # type: ignore[return-value]
